"""Sources on an object store: a flat folder and the root of a directory catalog."""

from __future__ import annotations

import lance
import lance_namespace
import pytest

from lancestat.runs.discover import unlisted_errors
from tests.discovery.catalogs import ROWS
from tests.discovery.conftest import Lancestat, Write
from tests.integration.object_store import SECRET_KEY, ObjectStore

pytestmark = pytest.mark.s3

PROJECT = """\
name: shop
targets:
  dev:
    spark: {{master: "local[1]"}}
    storage_options:
      aws_endpoint: "{endpoint}"
      aws_region: us-east-1
      allow_http: true
      aws_access_key_id: "{key}"
      aws_secret_access_key: "{{{{ env_var('DISCOVERY_SECRET') }}}}"
"""


def project_text(store: ObjectStore) -> str:
    return PROJECT.format(endpoint=store.endpoint, key=store.storage_options["aws_access_key_id"])


def test_folders_of_an_object_store(
    object_store: ObjectStore, write: Write, lancestat: Lancestat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISCOVERY_SECRET", SECRET_KEY)
    options = dict(object_store.storage_options)
    flat, root = object_store.fresh_uri("flat"), object_store.fresh_uri("wh")
    lance.write_dataset(ROWS, f"{flat}/parts.lance", storage_options=options)
    client = lance_namespace.connect(
        "dir", {"root": root, **{f"storage.{key}": text for key, text in options.items()}}
    )
    client.create_namespace(lance_namespace.CreateNamespaceRequest(id=["sales"]))
    declared = client.declare_table(lance_namespace.DeclareTableRequest(id=["sales", "orders"]))
    lance.write_dataset(ROWS, declared.location, storage_options=options)

    sources = f"sources: [{{uri: '{flat}'}}, {{uri: '{root}'}}]\n"
    spec = write(sources, project_text(object_store)).discover()
    assert unlisted_errors(spec) == []
    assert [table.name for table in spec.tables] == ["parts", "sales_orders"]
    ran = lancestat("run")
    assert ran.exit_code == 0, ran.output
    published = lance.dataset(declared.location, storage_options=options).config()
    assert any("lance.stats" in key for key in published)
    planned = lancestat("--verbose", "plan")
    assert "Nothing to do" in planned.stdout
    assert SECRET_KEY not in ran.output + planned.output


def test_a_wrong_key_is_an_error_of_the_source(
    object_store: ObjectStore, write: Write, lancestat: Lancestat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISCOVERY_SECRET", "wrong-key-of-the-test")
    flat = object_store.fresh_uri("flat")
    lance.write_dataset(
        ROWS, f"{flat}/parts.lance", storage_options=dict(object_store.storage_options)
    )
    write(f"sources: [{{uri: '{flat}'}}]\n", project_text(object_store))
    planned = lancestat("plan")
    assert planned.exit_code == 1
    assert "source:flat" in planned.stdout and "specs/sources.yml:1:17" in planned.stdout
    assert "LS202" in planned.stdout
    assert "wrong-key-of-the-test" not in planned.output
