"""What runs find of their nodes, and who hears of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import lance
import pytest
from click.testing import CliRunner, Result

import lancestat.report.findings as module
from lancestat import Project
from lancestat.cli.main import cli
from lancestat.errors import StateUnreachable
from lancestat.events import Event, Found, RunFinished
from lancestat.pipelines import hooks
from lancestat.runs.result import NodeCheck, RunInterrupted
from tests import canaries
from tests.http_server import Handler, serving
from tests.pipelines.openlineage_events import check, ended, events_of, only, to_file
from tests.runs.world import orders, write_project

EXPECT = [
    {"not_null": "o_id"},
    {"not_null": {"column": "o_status", "severity": "warn"}},
    {"between": {"column": "o_id", "max": 10}},
    {"unique": "o_total"},
]
WATCHED = {"name": "here", "uri": "here.lance", "expect": EXPECT}
LATE = {"name": "late", "uri": "late.lance", "freshness": {"error_after": "1s"}}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("here", "late", "plain"):
        lance.write_dataset(orders(0, 30), str(tmp_path / f"{name}.lance"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def invoke(*words: str) -> Result:
    return CliRunner().invoke(cli, words)


def found(checks: tuple[NodeCheck, ...]) -> dict[str, tuple[bool, str, str | None]]:
    return {each.check: (each.passed, each.severity, each.column) for each in checks}


def test_a_run_looks_at_what_is_expected_and_does_not_fail_of_it(folder: Path) -> None:
    project, events = write_project(folder, WATCHED, "plain"), list[Event]()
    result = project.run(on_event=events.append)
    assert result.ok
    assert found(result.checks) == {
        "not_null(o_id)": (True, "error", "o_id"),
        "not_null(o_status)": (False, "warn", "o_status"),
        "between(o_id)": (False, "error", "o_id"),
    }
    assert [finding.check for finding in result.findings] == ["not_null(o_status)", "between(o_id)"]
    # They come after all nodes, and before the end.
    assert [type(event) for event in events[-3:]] == [Found, Found, RunFinished]
    assert [event.finding for event in events if isinstance(event, Found)] == [*result.findings]


def test_what_was_left_as_it_was_is_not_looked_at(folder: Path) -> None:
    project = write_project(folder, WATCHED, LATE, "plain")
    assert {each.node for each in project.run().checks} == {"here", "late"}
    lance.write_dataset(orders(30, 5), str(folder / "here.lance"), mode="append")
    assert {each.node for each in project.run().checks} == {"here"}
    assert project.run().checks == ()


def test_nothing_is_looked_at_where_nothing_is_expected(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[object] = []
    monkeypatch.setattr(module, "gather", lambda *a, **k: looked.append(a))
    assert write_project(folder, "here", "plain").run().checks == ()
    assert looked == []


@pytest.mark.parametrize(
    ("error", "text"),
    [(StateUnreachable("it is away"), "it is away"), (ZeroDivisionError("one"), "one")],
)
def test_what_goes_wrong_then_does_not_undo_the_run(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    text: str,
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(module, "gather", failing)
    events = list[Event]()
    result = write_project(folder, WATCHED).run(on_event=events.append)
    assert result.ok and result.checks == ()
    assert isinstance(events[-1], RunFinished)
    assert "after the run is not known: " in caplog.text and text in caplog.text


def test_an_interrupt_then_leaves_the_results_of_the_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "gather", interrupted)
    events = list[Event]()
    with pytest.raises(RunInterrupted) as caught:
        write_project(folder, WATCHED).run(on_event=events.append)
    assert caught.value.result.ok
    assert isinstance(events[-1], RunFinished)


def test_people_schedulers_and_logs_hear_of_findings(folder: Path) -> None:
    write_project(folder, WATCHED)
    done = invoke("run")
    assert done.exit_code == 0
    assert "error: here: check between(o_id): the greatest value is 29" in done.stdout
    assert " ERROR   here: check between(o_id): the greatest value is 29" in done.stderr
    assert " WARNING here: check not_null(o_status): " in done.stderr
    [_, error] = json.loads((folder / "target/run_results.json").read_text())["findings"]
    assert error == {
        "unique_id": "table.shop.here",
        "check": "between(o_id)",
        "severity": "error",
        "message": "the greatest value is 29",
    }
    lance.write_dataset(orders(30, 5), str(folder / "here.lance"), mode="append")
    done = invoke("run", "--output", "json", "--log-format", "json")
    [_, printed] = json.loads(done.stdout)["findings"]
    lines = map(json.loads, filter(None, done.stderr.splitlines()))
    [_, logged] = [line for line in lines if line.get("event") == "finding"]
    assert logged["level"] == "error"
    for key, value in printed.items():
        assert logged[key] == value
    assert printed["detail"] == "the greatest value is 34"


def test_many_findings_are_counted(folder: Path) -> None:
    tables = [{**WATCHED, "name": f"t{n}", "uri": f"t{n}.lance"} for n in range(6)]
    for table in tables:
        lance.write_dataset(orders(0, 30), str(folder / str(table["uri"])))
    write_project(folder, *tables)
    done = invoke("run")
    assert done.stdout.count(": check ") == 10
    assert "and 2 findings more, which lancestat status lists" in done.stdout


class Receiver(Handler):
    """Keeps what it gets."""

    received: ClassVar[list[tuple[str, Mapping[str, Any]]]] = []

    def do_POST(self) -> None:  # noqa: N802
        self.received.append((self.path, json.loads(self.body())))
        self.answer(200, b"")


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(Receiver, "received", [])
    monkeypatch.setattr(hooks, "_PAUSE_SECONDS", 0.01)
    with serving(Receiver) as address:
        yield address


@pytest.mark.parametrize(("max", "called"), [(10, "/failure"), (100, "/success")])
def test_a_finding_of_severity_error_is_a_failure_for_hooks(
    folder: Path, url: str, max: int, called: str
) -> None:
    write_project(folder, {**WATCHED, "expect": [{"between": {"column": "o_id", "max": max}}]})
    ends = [{"webhook": f"{url}/{when}", "when": when} for when in ("success", "failure")]
    with Path("lancestat_project.yml").open("a") as file:
        file.write(f"hooks: {json.dumps({'on_run_end': ends})}\n")
    assert invoke("run").exit_code == 0
    [(path, message)] = Receiver.received
    assert path == called
    checks = [finding["check"] for finding in message["data"]["findings"]]
    assert checks == (["between(o_id)"] if max == 10 else [])


def test_openlineage_gets_what_is_known_of_a_node_after_its_end(folder: Path) -> None:
    write_project(folder, WATCHED)
    with only(**to_file(folder / "events.jsonl")):
        assert invoke("run").exit_code == 0
    events = events_of(folder / "events.jsonl")
    for event in events:
        check(event)
    [_, end, more] = [each for each in events if each["job"]["name"] == "table.shop.here"]
    assert (end["eventType"], more["eventType"]) == ("COMPLETE", "OTHER")
    assert more["run"]["runId"] == end["run"]["runId"]
    [dataset] = more["inputs"]
    assertions = dataset["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert {(each["name"], each["success"], each.get("column")) for each in assertions} == {
        ("not_null(o_id)", True, "o_id"),
        ("not_null(o_status)", False, "o_status"),
        ("between(o_id)", False, "o_id"),
    }
    tests = more["run"]["facets"]["test"]["tests"]
    assert [each["status"] for each in tests] == ["pass", "fail", "fail"]
    assert ended(events, "lancestat-run-shop")["eventType"] == "COMPLETE"


def test_no_finding_shows_what_is_secret(folder: Path, url: str) -> None:
    # A literal that a secret variable gives is quoted by nothing that others read.
    secret = "9871236540"
    write_project(folder, WATCHED)
    specs = Path("specs/shop.yml")
    bound = "{column: o_id, min: \"{{ env_var('C_API_KEY') | int }}\"}"
    specs.write_text(
        "tables:\n  - name: here\n    uri: here.lance\n    expect:\n"
        f"      - between: {bound}\n      - row_count: {{min: {secret}}}\n"
    )
    end = [{"webhook": url}]
    with Path("lancestat_project.yml").open("a") as file:
        file.write(f"hooks: {json.dumps({'on_run_end': end})}\n")
    with only(**to_file(folder / "events.jsonl"), C_API_KEY=secret):
        done = invoke("run", "--log-format", "json")
    assert done.exit_code == 0, done.output
    assert json.loads(Path("target/run_results.json").read_text())["findings"]
    written = [Path("target/run_results.json").read_text(), (folder / "events.jsonl").read_text()]
    for text in (*written, json.dumps(Receiver.received), done.stdout, done.stderr):
        assert canaries.seen(text, {"secret": secret}) == []


def test_retry_and_analyze_look_too(folder: Path) -> None:
    project = write_project(folder, WATCHED)
    assert project.analyze("here").findings
    Path("here.lance").rename("away.lance")
    assert not Project.load(folder).run().ok
    Path("away.lance").rename("here.lance")
    lance.write_dataset(orders(30, 5), "here.lance", mode="append")
    assert Project.load(folder).retry().findings
