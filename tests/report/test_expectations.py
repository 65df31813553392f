"""`lancestat check`: what is known of what tables are expected to be, and what reading finds."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from lancestat import Project
from lancestat.cli.main import cli
from lancestat.events import Event, StageReached
from lancestat.presentation.site.pages import build_site
from lancestat.state.store import StateReader, open_state
from lancestat.state.values import table_identity
from lancestat.tables.action import TableAction
from lancestat.tables.folding import fold_stored
from lancestat.tables.planner import read_missing
from tests.runs.world import write_project

EXPECT = [
    {"not_null": "id"},
    {"unique": "id"},
    {"accepted_values": {"column": "status", "values": ["open", "done"]}},
    {"distinct_between": {"column": "customer", "min": 10, "max": 10}},
    {"max_null_share": {"column": "status", "share": "50%", "severity": "warn"}},
    {"row_count": {"min": 1}},
]
ORDERS = {"name": "orders", "uri": "orders.lance", "expect": EXPECT}
Command = Callable[..., Result]


def rows(first: int, last: int, **more: Any) -> pa.Table:
    numbers = range(first, last)
    # Ranges of the fragments overlap in no column but `id`.
    columns = {
        "id": list(numbers),
        "status": ["open" if n % 3 else None for n in numbers],
        "customer": [n % 10 for n in numbers],
    }
    return pa.table({**columns, **more})


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project that has run in this process."""
    return made(tmp_path, ORDERS)


def made(folder: Path, *tables: Mapping[str, Any]) -> Project:
    lance.write_dataset(rows(0, 60), str(folder / "orders.lance"), max_rows_per_file=20)
    project = write_project(folder, *tables)
    project.run().raise_for_status()
    return project


def verdicts(project: Project, **options: Any) -> dict[str, str]:
    return {check.check: check.verdict.value for _, check in project.check(**options).checks}


KNOWN = {
    "not_null(id)": "proved",
    "unique(id)": "unknown",
    "accepted_values(status)": "unknown",
    "distinct_between(customer)": "unknown",
    "max_null_share(status)": "proved",
    "row_count": "proved",
}
ALL_PROVED = dict.fromkeys(KNOWN, "proved")


def test_statistics_decide_without_reading(project: Project, tmp_path: Path) -> None:
    assert verdicts(project) == KNOWN
    # Rows that no run has seen leave open what they might refute, and the known ones still refute.
    lance.write_dataset(rows(60, 70), str(tmp_path / "orders.lance"), mode="append")
    # Were all of the new rows null, they would be too few for the share.
    proved = {"row_count": "proved", "max_null_share(status)": "proved"}
    assert verdicts(project) == {**dict.fromkeys(KNOWN, "unknown"), **proved}


def test_tables_are_looked_up_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [{"not_null": "id"}, {"between": {"column": "customer", "min": 0, "max": 9}}]
    reference = {"references": {"columns": ["customer"], "table": "orders", "to": ["id"]}}
    names = ["others", "more", "most"]
    for name in names:
        lance.write_dataset(rows(10, 70), str(tmp_path / f"{name}.lance"), max_rows_per_file=20)
    others = [
        {"name": name, "uri": f"{name}.lance", "expect": [*expected, reference]} for name in names
    ]
    project = made(tmp_path, ORDERS, *others)
    summaries, reads = StateReader.summaries_of_tables, StateReader.blocks_of_tables
    read: list[int] = []
    monkeypatch.setattr(
        StateReader,
        "summaries_of_tables",
        lambda state, tables: read.append(len(tables)) or summaries(state, tables),
    )
    monkeypatch.setattr(
        StateReader,
        "blocks_of_tables",
        lambda state, keys, decode: read.append(len(keys)) or reads(state, keys, decode),
    )
    found = project.check()
    assert read == [4, 4]
    # All but the references are proved, of whose values only the bounds are known.
    known = [check.verdict.value for name, check in found.checks if name in names]
    assert known == ["proved", "proved", "unknown"] * 3
    # A table that is large is read by itself, and found to be the same.
    monkeypatch.setattr("lancestat.query.fragments._MOST_TOGETHER", 0)
    assert project.check().checks == found.checks


class Reads:
    """The stages of reading, as events tell of them."""

    def __init__(self) -> None:
        self.fragments: list[tuple[int, ...]] = []

    def __call__(self, event: Event) -> None:
        stage = event.progress.stage if isinstance(event, StageReached) else None
        if stage is not None and stage.name == "read":
            self.fragments.append(tuple(scan.fragment_id for scan in stage.scans))


def test_proving_reads_what_is_unknown_once(project: Project, tmp_path: Path) -> None:
    reads = Reads()
    assert verdicts(project, prove=True, on_event=reads) == ALL_PROVED
    assert reads.fragments == [(0, 1, 2)]
    # It is remembered, also by others.
    assert verdicts(Project.load(tmp_path)) == ALL_PROVED
    assert verdicts(project, prove=True, on_event=reads) == ALL_PROVED
    assert reads.fragments == [(0, 1, 2)]


def test_later_proofs_read_new_fragments_alone(project: Project, tmp_path: Path) -> None:
    assert verdicts(project, prove=True) == ALL_PROVED
    lance.write_dataset(rows(60, 70), str(tmp_path / "orders.lance"), mode="append")
    assert verdicts(project)["unique(id)"] == "unknown"
    reads = Reads()
    assert verdicts(project, prove=True, on_event=reads) == ALL_PROVED
    assert reads.fragments == [(3,)]


def test_proofs_go_on_with_what_a_run_folds_meanwhile(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert verdicts(project, prove=True) == ALL_PROVED
    lance.write_dataset(rows(60, 70), str(tmp_path / "orders.lance"), mode="append")
    state = open_state(str(tmp_path / "state"))
    planned: list[TableAction] = []

    def plan(*args: Any) -> TableAction:
        action = read_missing(*args)
        if not planned:
            assert action.reusing is not None
            table = replace(action.table, fold=2)
            assert fold_stored(state, table, action.reusing.coverage.reuse)
            state.expire({table.identity: table.live})
        planned.append(action)
        return action

    monkeypatch.setattr("lancestat.report.proof.read_missing", plan)
    reads = Reads()
    assert verdicts(project, prove=True, on_event=reads) == ALL_PROVED
    assert reads.fragments == [(3,)]
    assert len(planned) == 2


def test_what_was_proved_holds_for_the_same_rows_alone(project: Project, tmp_path: Path) -> None:
    assert verdicts(project, prove=True) == ALL_PROVED
    uri = str(tmp_path / "orders.lance")
    lance.dataset(uri).update({"status": "'lost'"}, where="id = 7")
    found = verdicts(project, prove=True)
    assert found == {**ALL_PROVED, "accepted_values(status)": "refuted"}
    # Columns that stay as they are do not have to be read again when others are written.
    lance.dataset(uri).add_columns({"extra": "id * 2"})
    assert verdicts(project) == found
    lance.write_dataset(rows(0, 60, id=[1] * 60), uri, mode="overwrite")
    assert verdicts(project)["unique(id)"] == "unknown"
    assert verdicts(project, prove=True)["unique(id)"] == "refuted"


def test_another_expectation_is_another_question(project: Project, tmp_path: Path) -> None:
    assert verdicts(project, prove=True) == ALL_PROVED
    fewer = {"accepted_values": {"column": "status", "values": ["done"]}}
    other = write_project(tmp_path, {**ORDERS, "expect": [fewer, {"unique": "id"}]})
    assert verdicts(other) == {"accepted_values(status)": "refuted", "unique(id)": "proved"}
    # The severity is no part of the question.
    mild = [{"unique": {"columns": ["id"], "severity": "warn"}}]
    assert verdicts(write_project(tmp_path, {**ORDERS, "expect": mild})) == {"unique(id)": "proved"}


def test_values_that_were_found_are_not_shown_later(project: Project, tmp_path: Path) -> None:
    # Between the bounds, so that only reading finds it.
    made = rows(0, 60, status=[["done", "lost", "open"][n % 3] for n in range(60)])
    lance.write_dataset(made, str(tmp_path / "orders.lance"), mode="overwrite")
    project.run().raise_for_status()
    verdicts(project, prove=True)
    shown = {check.check: check.detail for _, check in project.check().checks}
    assert shown["accepted_values(status)"] == "'lost' is a value"
    hidden = write_project(tmp_path, {**ORDERS, "show_values": False})
    details = [check.detail for _, check in hidden.check().checks]
    assert not any("lost" in detail for detail in details)
    again = [check.detail for _, check in hidden.check(prove=True).checks]
    assert "one that is not shown is a value" in again


def test_a_proof_that_cannot_be_read_is_none(project: Project, tmp_path: Path) -> None:
    assert verdicts(project, prove=True) == ALL_PROVED
    [file] = (tmp_path / "state" / "checks").iterdir()
    assert file.stem == table_identity(str(tmp_path / "orders.lance"))
    for text in ("", "{", '{"format": 2, "proofs": []}', file.read_text("utf-8").replace("1", '"')):
        file.write_text(text, "utf-8")
        assert verdicts(project) == KNOWN
    assert verdicts(project, prove=True) == ALL_PROVED


def test_garbage_collection_forgets_proofs_of_other_tables(
    project: Project, tmp_path: Path
) -> None:
    verdicts(project, prove=True)
    folder = tmp_path / "state" / "checks"
    project.collect_garbage()
    assert list(folder.iterdir())
    lance.write_dataset(rows(0, 3), str(tmp_path / "other.lance"))
    other = write_project(tmp_path, {"name": "other", "uri": "other.lance"})
    other.collect_garbage(dry_run=True)
    assert list(folder.iterdir())
    other.collect_garbage()
    assert not folder.exists()


def test_nothing_is_published_by_checks(project: Project, tmp_path: Path) -> None:
    version = lance.dataset(str(tmp_path / "orders.lance")).version
    runs = len(project.runs())
    assert verdicts(project, prove=True) == ALL_PROVED
    assert lance.dataset(str(tmp_path / "orders.lance")).version == version
    assert len(project.runs()) == runs
    assert project.show("orders").use


@pytest.fixture
def command(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(cli, words)


def test_the_exit_code_is_that_of_what_is_refuted(command: Command, tmp_path: Path) -> None:
    assert command("check").exit_code == 0
    summary, hint = command("check").stdout.splitlines()[-2:]
    assert summary == "3 proved, 3 unknown."
    assert hint == "--prove reads what decides the unknown expectations."
    assert command("check", "--prove").stdout.splitlines()[-1] == "6 proved."
    share = {"column": "status", "share": 0.1}
    for severity, code, health in (("warn", 0, "warn"), ("error", 1, "error")):
        expect = [{"max_null_share": {**share, "severity": severity}}]
        write_project(tmp_path, {**ORDERS, "expect": expect})
        result = command("check", "--output", "json")
        assert result.exit_code == code
        [check] = json.loads(result.stdout)["checks"]
        assert check == {
            "node": "orders",
            "check": "max_null_share(status)",
            "verdict": "refuted",
            "severity": severity,
            "detail": "20 of 60 rows have a null (33.3 %)",
            "location": check["location"],
        }
        status = command("status", "--output", "json")
        assert status.exit_code == code
        [node] = json.loads(status.stdout)["nodes"]
        assert node["status"] == health
        assert node["problems"] == [
            "Check max_null_share(status): 20 of 60 rows have a null (33.3 %)."
        ]
        del check["node"]
        assert node["checks"] == [check]
        sources = json.loads((tmp_path / "target" / "sources.json").read_text("utf-8"))
        assert sources["results"][0]["adapter_response"]["checks"] == [check]


def test_a_table_that_cannot_be_opened_fails(command: Command, tmp_path: Path) -> None:
    write_project(tmp_path, {**ORDERS, "uri": "gone.lance"}, {"name": "quiet", "uri": "none.lance"})
    result = command("check", "--output", "json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["checks"] == []
    assert [(each["node"], each["code"]) for each in found["errors"]] == [("orders", "LS201")]
    assert command("check", "--select", "quiet").stdout.startswith("Nothing is expected")


def test_proofs_of_other_tables_are_made_where_one_fails(command: Command, tmp_path: Path) -> None:
    broken = {"name": "broken", "uri": "broken.lance", "expect": [{"unique": "id"}]}
    lance.write_dataset(rows(0, 30), str(tmp_path / "broken.lance"))
    for file in (tmp_path / "broken.lance" / "data").iterdir():
        file.write_bytes(b"")
    write_project(tmp_path, broken, ORDERS)
    result = command("check", "--prove", "--output", "json")
    found = json.loads(result.stdout)
    assert result.exit_code == 1
    assert [each["node"] for each in found["errors"]] == ["broken"]
    proved = {each["check"] for each in found["checks"] if each["verdict"] == "proved"}
    assert proved == set(ALL_PROVED)


def test_a_check_in_python_has_rows(project: Project) -> None:
    checked = project.check()
    assert checked.ok
    table = checked.to_arrow()
    assert table.column_names[:3] == ["node", "check", "verdict"]
    assert table["verdict"].to_pylist() == list(KNOWN.values())
    assert repr(checked) == "<CheckReport shop: 3 proved, 3 unknown>"
    assert "unique(id)" in str(checked)
    assert "<td>unique(id)</td>" in checked._repr_html_()


def test_pages_have_the_checks_of_a_table(project: Project, tmp_path: Path) -> None:
    build_site(project.report(), project.spec, tmp_path / "pages")
    page = (tmp_path / "pages" / "tables" / "orders.html").read_text("utf-8")
    assert "<h2>Expectations</h2>" in page
    assert "<bdi>accepted_values(status)</bdi></td><td><bdi>unknown</bdi></td>" in page
