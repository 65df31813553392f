"""A whole project on S3: tables, state and run, with credentials that show nowhere."""

from __future__ import annotations

import io
from pathlib import Path

import lance
import pytest
from pyarrow.fs import FileSelector, FileType

from tests.integration.commands import lancestat
from tests.integration.object_store import (
    ACCESS_KEY,
    SECRET_KEY,
    ObjectStore,
)
from tests.runs.world import orders

pytestmark = [pytest.mark.s3, pytest.mark.spark]

PROJECT = """
name: shop
default_target: test
targets:
  test:
    state: {root}/state
    spark:
      master: "local[2]"
      min_bytes: 0
      conf:
        spark.eventLog.enabled: true
        spark.eventLog.compress: false
        spark.eventLog.dir: "{events}"
    storage_options:
      aws_endpoint: "{endpoint}"
      aws_region: us-east-1
      allow_http: true
      aws_access_key_id: "{{{{ env_var('KEY_ID') }}}}"
      aws_secret_access_key: "{{{{ env_var('SECRET') }}}}"
"""
TABLES = """
tables:
  - name: orders
    uri: {root}/orders.lance
  - name: absent
    uri: {root}/absent.lance
"""


def state_bytes(store: ObjectStore, root: str) -> bytes:
    files = store.filesystem()
    selector = FileSelector(f"{root.removeprefix('s3://')}/state", recursive=True)
    content = io.BytesIO()
    for file in files.get_file_info(selector):
        if file.type is FileType.File:
            with files.open_input_stream(file.path) as stream:
                content.write(stream.read())
    return content.getvalue()


def test_a_run_on_s3_shows_no_credentials(object_store: ObjectStore, tmp_path: Path) -> None:
    root = object_store.fresh_uri("lake")
    options = dict(object_store.storage_options)
    uri = f"{root}/orders.lance"
    lance.write_dataset(orders(0, 100), uri, max_rows_per_file=25, storage_options=options)
    events = tmp_path / "events"
    events.mkdir()
    project = tmp_path / "project"
    (project / "specs").mkdir(parents=True)
    text = PROJECT.format(root=root, events=events, endpoint=object_store.endpoint)
    (project / "lancestat_project.yml").write_text(text)
    (project / "specs" / "shop.yml").write_text(TABLES.format(root=root))

    environment = {"KEY_ID": ACCESS_KEY, "SECRET": SECRET_KEY}
    first, retried, again = lancestat(
        project,
        environment,
        ("--verbose", "run"),
        ("retry",),
        ("plan", "--select", "orders", "--check"),
    )
    assert first.returncode == 1, "one table is absent"
    assert "LS201" in first.stdout
    assert (retried.returncode, "orders" in retried.stdout) == (1, False)
    assert again.returncode == 0, again.stdout + again.stderr
    lance.write_dataset(orders(100, 5), uri, mode="append", storage_options=options)
    saved = tmp_path / "plan.json"
    planned, second, moved, status, debug = lancestat(
        project,
        environment,
        ("plan", "--select", "orders", "--out", str(saved)),
        ("run", "--plan-file", str(saved), "--output", "json"),
        ("run", "--plan-file", str(saved)),
        ("show", "orders", "--output", "json"),
        ("debug",),
    )
    assert planned.returncode == 0, planned.stdout + planned.stderr
    assert second.returncode == 0, second.stderr
    assert '"rows_scanned": 5' in second.stdout
    assert moved.stderr.startswith("LS620")
    assert '"verdict": "use"' in status.stdout
    wrong = {**environment, "SECRET": "wrong" + SECRET_KEY}
    [refused] = lancestat(project, wrong, ("run", "--select", "orders"))
    assert refused.returncode == 1

    config = lance.dataset(uri, storage_options=options).config()
    logs = "".join(path.read_text() for path in events.rglob("*") if path.is_file())
    assert "lancestat" in logs, "the event log holds what Spark's user interface shows"
    stored = state_bytes(object_store, root)
    assert b"orders" in stored
    runs = (first, retried, again, planned, second, moved, status, refused, debug)
    outputs = [run.stdout + run.stderr for run in runs]
    for place in (*outputs, logs, str(config), stored.decode("latin-1"), saved.read_text()):
        assert SECRET_KEY not in place
        assert ACCESS_KEY not in place
