"""Requests of a diff with credentials, recorded by servers in place of stores and catalogs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import lance_namespace as ns
import pytest

from lancestat.errors import StateError, UsageError
from lancestat.lake import catalogs
from lancestat.presentation.markdown import prose
from lancestat.review.values import Diff
from tests import http_server
from tests.presentation.rendering import as_json, as_markdown, as_text
from tests.review.conftest import NOW, write
from tests.review.pairs import review

SECRET = "hunter2hunter2"
EMPTY = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"


@dataclass
class Store:
    """A server without tables, and the requests that it got, with their headers."""

    url: str = ""
    requests: list[str] = field(default_factory=list)


@contextmanager
def recording(status: int, answer: Callable[[str], bytes]) -> Iterator[Store]:
    """Serve an answer to each path."""
    seen = Store()

    class Handler(http_server.Handler):
        def _record(self) -> None:
            self.body()
            seen.requests.append(f"{self.path} {dict(self.headers)}")
            self.answer(status, answer(self.path), {"Content-Type": "application/json"})

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _record  # noqa: N815

    with http_server.serving(Handler) as seen.url:
        yield seen


@pytest.fixture
def store() -> Iterator[Store]:
    """A store without files, whose state cannot be listed."""
    # Lance tries a listing that fails again and again, for seconds.
    with recording(200, lambda path: b"" if "state" in path else EMPTY) as seen:
        yield seen


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDTHEACCESSKEY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@dataclass
class Change:
    """Two sides of a project in folders; a header's `ENDPOINT` is the store's."""

    root: Path
    store: Store

    def diff(self, base: dict[str, str], head: dict[str, str], **options: str) -> Diff:
        for name, files in (("base", base), ("head", head)):
            placed = {
                path: text.replace("ENDPOINT", self.store.url) for path, text in files.items()
            }
            write(self.root / name, placed)
        return review(self.root / "head", f"{self.root}/base", clock=lambda: NOW, **options)


@pytest.fixture
def change(tmp_path: Path, store: Store) -> Change:
    return Change(tmp_path, store)


def project(header: str, specs: str) -> dict[str, str]:
    return {"lancestat_project.yml": header, "specs/shop.yml": specs}


TO_STORE = (
    "name: shop\nvars: {bucket: lake}\ntargets:\n  dev:\n"
    "    storage_options: {aws_endpoint: ENDPOINT, allow_http: 'true', aws_region: us-east-1}\n"
)
ELSEWHERE = TO_STORE.replace("ENDPOINT", "'http://127.0.0.1:9'")


def orders(uri: str = "s3://lake/orders.lance", columns: str = "[a]") -> str:
    return f'tables:\n  - name: orders\n    uri: "{uri}"\n    columns: {columns}\n'


def join(left: str) -> str:
    return (
        f"knn_joins:\n  - name: like\n    left: {left}\n"
        "    right: {lance: 's3://lake/parts.lance', vector: v}\n"
        "    k: 3\n    output: {lance: 's3://lake/like.lance'}\n"
    )


LEFT = "{lance: 's3://lake/parts.lance', vector: v}"


def joined_notes(diff: Diff) -> str:
    """All notes of all nodes, which each of the three forms shows."""
    notes = [note for node in diff.nodes for note in node.notes]
    for note in notes:
        assert " ".join(note.split()) in " ".join(as_text(diff).split())
        assert prose(note) in as_markdown(diff)
        assert note in [note for node in as_json(diff)["nodes"] for note in node["notes"]]
    return "\n".join(notes)


def test_a_dataset_of_base_is_opened(change: Change, store: Store) -> None:
    diff = change.diff(project(TO_STORE, orders()), project(TO_STORE, orders(columns="[a, b]")))
    assert any(request.startswith("/lake") for request in store.requests)
    assert "the dataset cannot be opened: LS2" in joined_notes(diff)


def test_untrusted_storage_options_are_not_used(change: Change, store: Store) -> None:
    diff = change.diff(
        project(ELSEWHERE, orders() + join(LEFT)),
        project(TO_STORE, orders(columns="[a, b]") + join(LEFT.replace("parts", "other"))),
    )
    assert store.requests == []
    why = (
        "not opened: the storage options are not those of BASE, and credentials go only where BASE"
    )
    assert f"the dataset is {why}" in joined_notes(diff)
    assert f"a side is {why}" in joined_notes(diff)
    columns = diff.nodes[0].columns
    assert columns is not None
    assert (columns.gained, columns.are_names) == (("b",), False)


@pytest.mark.parametrize(
    "uri",
    [
        "s3://evil/orders.lance",
        "s3://lake/{{ env_var('AWS_SECRET_ACCESS_KEY') }}.lance",
        "s3://{{ env_var('AWS_SECRET_ACCESS_KEY') }}/orders.lance",
        "s3://{{ var('bucket') }}-evil/orders.lance",
        "s3://lake/orders.lance?endpoint=http://127.0.0.1:1",
        "s3://lake/../evil/orders.lance",
        "S3://lake/orders.lance",
        "s3://me@lake/orders.lance",
    ],
)
def test_an_untrusted_uri_is_not_opened(change: Change, store: Store, uri: str) -> None:
    base, head = project(TO_STORE, "tables: []"), project(TO_STORE, orders(uri))
    why = "the dataset is not opened: BASE reads nothing at its URI, and credentials go only where"
    assert why in joined_notes(change.diff(base, head))
    assert store.requests == []
    known = project(TO_STORE, orders())
    assert why in joined_notes(change.diff(known, head))
    assert SECRET not in str(store.requests)
    assert all(request.startswith("/lake") and "evil" not in request for request in store.requests)


@pytest.mark.parametrize(
    "left",
    [
        "{lance: 's3://evil/rows.lance', vector: v}",
        "{parquet: 's3://evil/rows', vector: v}",
        "{format: json, path: 's3://evil/rows', vector: v}",
        "{table: orders, vector: v}",
        "{sql: \"select v from {{ ref('orders') }}\", vector: v}",
    ],
)
def test_an_untrusted_side_is_not_opened(change: Change, store: Store, left: str) -> None:
    evil = orders("s3://evil/rows.lance")
    diff = change.diff(project(TO_STORE, join(LEFT)), project(TO_STORE, evil + join(left)))
    assert not any("evil" in request for request in store.requests)
    assert "a side is not opened: BASE reads nothing at its URI" in joined_notes(diff)
    [node] = [node for node in diff.nodes if node.name == "like"]
    assert node.cost_bytes is None


def test_no_local_folder_is_measured(change: Change, tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "key").write_text("x" * 12345)
    left = f"{{parquet: '{tmp_path}/private', vector: v}}"
    head = project(TO_STORE, join(left).replace("s3://lake/parts.lance", f"{tmp_path}/private"))
    [node] = change.diff(project(TO_STORE, "tables: []"), head).nodes
    assert node.cost_bytes is None


def test_without_a_project_in_base_nothing_is_opened(
    change: Change, store: Store, tmp_path: Path
) -> None:
    from tests.review.conftest import Repository

    repository = Repository(tmp_path / "repository")
    repository.top.mkdir()
    repository.git("init", "--quiet", "--initial-branch=main")
    repository.commit_all()
    header = TO_STORE.replace("ENDPOINT", store.url).replace(
        "  dev:\n", "  dev:\n    state: s3://evil/s\n"
    )
    write(repository.top, project(header, orders()))
    diff = review(repository.top, "main", clock=lambda: NOW)
    assert store.requests == []
    assert "BASE reads nothing at its URI" in joined_notes(diff)
    with pytest.raises(UsageError, match="LS669"):
        review(repository.top, "main", select="state:new")
    assert store.requests == []


@pytest.mark.parametrize(
    ("base", "head"),
    [
        (TO_STORE, f"{TO_STORE}    state: s3://evil/state\n"),
        (f"{ELSEWHERE}    state: s3://lake/state\n", f"{TO_STORE}    state: s3://lake/state\n"),
    ],
)
def test_an_untrusted_state_is_not_opened(
    base: str, head: str, change: Change, store: Store, tmp_path: Path
) -> None:
    import lance
    import pyarrow as pa

    lance.write_dataset(pa.table({"a": [1], "b": [2]}), str(tmp_path / "head" / "orders.lance"))
    sides = (
        project(base, orders("orders.lance")),
        project(head, orders("orders.lance", columns="[a, b]")),
    )
    diff = change.diff(*sides)
    assert store.requests == []
    assert any("LS669" in note for note in diff.notes) or "storage options" in joined_notes(diff)
    for selector in ("state:new", "state:modified"):
        with pytest.raises(UsageError, match="LS669"):
            change.diff(*sides, select=selector)
    assert store.requests == []


def test_the_state_of_base_is_opened(change: Change, store: Store) -> None:
    header = f"{TO_STORE}    state: s3://lake/state\n"
    with pytest.raises(StateError, match="LS301"):
        change.diff(
            project(header, orders()), project(header, orders("x.lance")), select="state:new"
        )
    assert any("prefix=state" in request for request in store.requests)


SOURCE = "sources:\n  - uri: s3://lake/tables\n"


@pytest.mark.parametrize(
    "head",
    [
        "sources:\n  - uri: s3://evil/tables\n",
        "sources:\n  - uri: s3://lake/tables/../evil\n",
        "sources:\n  - uri: \"s3://lake/{{ env_var('AWS_SECRET_ACCESS_KEY') }}\"\n",
        f"{SOURCE}  - uri: s3://lake/evil\n",
    ],
)
def test_a_folder_of_which_base_has_no_source_is_not_listed(
    change: Change, store: Store, head: str
) -> None:
    diff = change.diff(project(TO_STORE, SOURCE), project(TO_STORE, head))
    assert "effect_unknown" in {risk.value for risk in diff.risks}
    assert any("tables" in request for request in store.requests)
    assert not any("evil" in request for request in store.requests)
    for text in (*store.requests, as_text(diff), as_markdown(diff), str(as_json(diff))):
        assert f"/{SECRET}" not in text


def test_no_folder_is_listed_with_other_storage_options(change: Change, store: Store) -> None:
    diff = change.diff(
        project(ELSEWHERE, SOURCE), project(TO_STORE, f"{SOURCE}    exclude: ['*_tmp']\n")
    )
    assert store.requests == []
    assert {risk.value for risk in diff.risks} == {"effect_unknown"}


MADE: list[str] = []


class Recording(ns.LanceNamespace):
    """A catalog that a pull request could bring."""

    def __init__(self, **properties: str) -> None:
        MADE.append(str(properties))

    def namespace_id(self) -> str:
        return "recording"


NO_TABLE = b'{"type": "TableNotFound", "code": 4, "status": 404, "error": "no table"}'


@pytest.fixture
def servers() -> Iterator[tuple[Store, Store]]:
    """Two REST catalogs without tables."""

    def answer(path: str) -> bytes:
        return NO_TABLE

    with (
        recording(404, lambda path: NO_TABLE) as ours,
        recording(404, lambda path: NO_TABLE) as evil,
    ):
        yield ours, evil


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("LAKE_TOKEN", SECRET)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    catalogs._client.cache_clear()
    MADE.clear()
    yield
    catalogs._client.cache_clear()


CATALOGS = "name: shop\ndefault_target: dev\ntargets:\n  dev:\n    catalogs:\n      lake: {lake}\n"
TOKEN = "header.Authorization: \"{{ env_var('LAKE_TOKEN') }}\""


def in_lake(lake: str, table: str, *keys: str) -> dict[str, str]:
    lines = ["tables:", "  - name: orders", f"    {table}", *(f"    {key}" for key in keys)]
    return {
        "lancestat_project.yml": CATALOGS.replace("{lake}", lake),
        "specs/shop.yml": "\n".join(lines) + "\n",
    }


def rest(url: str) -> str:
    return f'{{impl: rest, properties: {{uri: "{url}", {TOKEN}}}}}'


def diff_of(root: Path, base: dict[str, str], head: dict[str, str]) -> Diff:
    write(root / "base", base)
    write(root / "head", head)
    return review(root / "head", f"{root}/base", clock=lambda: NOW)


def notes(made: Diff) -> str:
    return "\n".join(note for node in made.nodes for note in node.notes)


LAKE_ORDERS = "table: lake.sales.orders"


def test_a_catalog_of_base_is_asked_for_a_table_of_base(
    servers: tuple[Store, Store], tmp_path: Path
) -> None:
    lake = rest(servers[0].url)
    base, head = (
        in_lake(lake, LAKE_ORDERS),
        in_lake(lake, LAKE_ORDERS, "columns: [a]"),
    )
    made = diff_of(tmp_path, base, head)
    assert any("orders/describe" in request for request in servers[0].requests)
    assert "cannot be opened: LS210" in notes(made)
    assert SECRET not in notes(made)


@pytest.mark.parametrize(
    "change", ["place", "header", "class", "other target", "more catalogs", "moved to dir"]
)
def test_catalogs_that_base_does_not_have_are_not_asked(
    servers: tuple[Store, Store], tmp_path: Path, change: str
) -> None:
    ours, evil = servers
    lake = rest(ours.url)
    token = "{{ env_var('LAKE_TOKEN') }}"
    mine = f'{{impl: {__name__}.Recording, properties: {{token: "{token}"}}}}'
    changed = {
        "place": rest(evil.url),
        "header": lake.replace(TOKEN, f"{TOKEN}, header.X: y"),
        "class": mine,
        "other target": lake,
        "more catalogs": f"{lake}\n      more: {rest(evil.url)}",
        "moved to dir": f"{{impl: dir, properties: {{root: {tmp_path}}}}}",
    }[change]
    head = in_lake(changed, LAKE_ORDERS, "columns: [a]")
    if change == "other target":
        text = head["lancestat_project.yml"].replace("default_target: dev", "default_target: evil")
        head["lancestat_project.yml"] = (
            f"{text}  evil:\n    catalogs:\n      lake: {rest(evil.url)}\n"
        )
    made = diff_of(tmp_path, in_lake(lake, LAKE_ORDERS), head)
    assert (ours.requests, evil.requests, MADE) == ([], [], [])
    assert "the catalogs are not those of BASE, and credentials go only where" in notes(made)


@pytest.mark.parametrize(
    ("base", "head"),
    [
        (LAKE_ORDERS, "table: lake.sales.salaries"),
        (LAKE_ORDERS, "table: lake.sales.`{{ env_var('LAKE_TOKEN') }}`"),
        ("uri: orders.lance", "table: lake.sales.salaries"),
        (
            LAKE_ORDERS,
            'table: lake.sales.orders\n    storage_options: {aws_endpoint: "http://evil"}',
        ),
    ],
)
def test_tables_that_base_does_not_read_are_not_asked_for(
    servers: tuple[Store, Store], tmp_path: Path, base: str, head: str
) -> None:
    """A catalog would give keys for them."""
    lake = rest(servers[0].url)
    made = diff_of(tmp_path, in_lake(lake, base), in_lake(lake, head, "columns: [a]"))
    asked = [request.partition(" ")[0] for request in servers[0].requests]
    assert not any("salaries" in path or SECRET in path for path in asked)
    if base != LAKE_ORDERS or "endpoint" in head:
        assert asked == []
    assert "BASE reads nothing at its URI, and credentials go only where" in notes(made)
    assert SECRET not in notes(made)


def test_sides_and_outputs_that_base_does_not_have_are_not_asked_for(
    servers: tuple[Store, Store], tmp_path: Path
) -> None:
    """A join of HEAD reads a table that BASE does not, from a catalog that it does have."""
    lake = rest(servers[0].url)
    head = in_lake(lake, LAKE_ORDERS)
    head["specs/joins.yml"] = (
        "knn_joins:\n  - name: near\n    left: {table: lake.sales.salaries, vector: v}\n"
        "    right: {table: orders, vector: v}\n    k: 1\n"
        "    output: {table: lake.sales.stolen}\n"
    )
    made = diff_of(tmp_path, in_lake(lake, LAKE_ORDERS), head)
    asked = "".join(servers[0].requests)
    assert "salaries" not in asked and "stolen" not in asked
    assert "credentials go only where" in notes(made)
