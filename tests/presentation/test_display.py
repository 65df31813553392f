"""Values in Python and in notebooks: one line as `repr`, printed as commands print, as tables."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from copy import deepcopy
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pytest

import lancestat
from lancestat.errors import DatasetMissing, LibraryMissing
from lancestat.presentation.display import QueryExplanation
from lancestat.presentation.html import FORMAT as HTML
from lancestat.presentation.views import Page, RunView
from lancestat.query.estimates import Explanation
from lancestat.query.sql.explanation import Actual, Execution, Operator, PlanExplanation, ScanLine
from lancestat.redact import EMPTY_REDACTOR, KnownValue, Redactor
from lancestat.runs.actions import Plan
from lancestat.runs.result import (
    NodeFailure,
    NodeResult,
    PastRun,
    RunResult,
    Status,
    UnfinishedNodes,
)
from lancestat.state.garbage import GarbageReport
from lancestat.state.store import open_state
from lancestat.tables.judgement import Verdict
from lancestat.tables.unpublish import UnpublishedNode, UnpublishReason, UnpublishResult
from lancestat.tables.wire import GuardReason, PublishedColumn
from tests.cli.conftest import spec
from tests.cli.statuses import NOW, SHOWN
from tests.cli.statuses import every_kind as status_report
from tests.conftest import Golden
from tests.presentation.rendering import as_text
from tests.review.test_render_markdown import EVIL, diff
from tests.review.test_render_markdown import node as changed
from tests.tables.plans import analyze, blocked, plan, refresh, skip

ROOT = Path(__file__).parents[2]
SECRET = "qz-secret-91"
ORDINARY = "qzlake76"
REDACTOR = Redactor(
    [KnownValue(SECRET, "{{ env_var('KEY') }}", is_secret=True), KnownValue(ORDINARY, "LAKE")]
)
EXPLAINED = PlanExplanation(
    (
        Operator("HashAggregate(functions=[count(1)])", 0, 1, 8),
        Operator("Filter (a < 3)", 1),
        Operator("Scan orders", 2, 500, 4000, scan=1),
    ),
    (
        ScanLine(
            "orders",
            500,
            4000,
            Explanation("orders", 2, 500, 4000, Verdict(GuardReason.CURRENT, "as of version 2")),
        ),
        ScanLine("other", None, None, note="of another format"),
    ),
    is_cost_based=False,
)


ANALYZED = replace(
    EXPLAINED,
    operators=(
        Operator("HashAggregate(functions=[count(1)])", 0, 1, 8, actual=Actual(1, seconds=0.25)),
        Operator("Filter (a < 3)", 1, 20, 160, evidence="sample", actual=Actual(70)),
        Operator("Scan orders", 2, 500, 4000, scan=1, evidence="count", actual=Actual(70, False)),
    ),
    execution=Execution(1, 0.05, 1.5),
)


UNPUBLISHED = UnpublishResult(
    "shop",
    "dev",
    (
        UnpublishedNode(
            "orders",
            "table",
            Status.SUCCESS,
            UnpublishReason.PUBLISHED,
            entries=7,
            columns=3,
            version_read=4,
            version_committed=5,
        ),
        UnpublishedNode("gone", "table", Status.ERROR, error=DatasetMissing("no dataset")),
    ),
    is_dry_run=False,
)
GARBAGE = GarbageReport(2, 0, 0, 5_000, scratch_dropped=1, is_dry_run=True)


def result(message: str = "no dataset", hint: str | None = "look elsewhere") -> RunResult:
    nodes = (
        NodeResult(
            "orders",
            "table",
            "refresh",
            ("rows_appended",),
            Status.SUCCESS,
            fragments_total=17,
            fragments_scanned=1,
            rows_scanned=250_000,
            version_read=17,
            version_published=18,
            elapsed_seconds=1.25,
        ),
        NodeResult("part", "table", "skip", ("unchanged",), Status.SUCCESS),
        NodeResult(
            "gone", "table", "analyze", (), Status.ERROR, message=message, code="LS201", hint=hint
        ),
        NodeResult("near", "knn_join", "analyze", ("new",), Status.SKIPPED),
    )
    return RunResult("shop", "dev", nodes)


VALUES = {
    "plan": plan(analyze(), refresh(), skip(), blocked()),
    "run": result(),
    "status": status_report(),
    "show": SHOWN,
    "diff": diff(changed()),
    "explain": QueryExplanation(EXPLAINED, EMPTY_REDACTOR),
    "analyze": QueryExplanation(ANALYZED, EMPTY_REDACTOR),
}


class Markup(HTMLParser):
    """The elements of a page, which have to be closed in order, and its text without its style."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes.update(name for name, _ in attrs)
        if tag != "br":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.text += data


def content(html: str) -> str:
    return re.sub(r"<style>.*?</style>\n", "", html, flags=re.DOTALL)


def test_the_package_lists_its_public_names() -> None:
    assert dir(lancestat) == sorted(lancestat.__all__)
    for name in lancestat.__all__:
        assert getattr(lancestat, name) is not None
    program = "import lancestat; print(lancestat.errors.LancestatError.__name__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "LancestatError", done.stderr


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (plan(analyze(), skip()), "<Plan shop, target dev: 1 analyze, 1 skip>"),
        (Plan("shop", "dev", ()), "<Plan shop, target dev: no nodes>"),
        (analyze(), "<TableAction analyze lineitem: new>"),
        (blocked(), "<Blocked blocked customer: LS201>"),
        (result(), "<RunResult shop, target dev: error, 1 refresh, 1 skip, 1 failed, 1 not run>"),
        (result().nodes[0], "<NodeResult orders: refresh, success>"),
        (SHOWN, "<TableStatus orders, version 18, 2 columns, statistics used: current>"),
        (diff(changed()), "<Diff shop, target dev, main -> .: 1 changed>"),
        (diff(), "<Diff shop, target dev, main -> .: no changes>"),
        (changed(), "<NodeDiff orders: changed, coverage_lost>"),
        (spec(), "<ProjectSpec shop, target dev: 2 tables>"),
        (lancestat.Project(spec()), "<Project shop, target dev: 2 tables>"),
        (spec().nodes[0], "<Table orders, declared at specs/shop.yml:3:5>"),
        (
            PastRun("r1", "run", "dev", "error", NOW, None, result().nodes[:3]),
            "<PastRun run r1 of 2026-03-14 09:30 UTC: error, 1 refresh, 1 skip, 1 error>",
        ),
        (
            NodeFailure("gone", "LS201", "no data\x1b[31mset"),
            "<NodeFailure gone: LS201 no data\\x1b[31mset>",
        ),
        (UNPUBLISHED, "<UnpublishResult shop, target dev: error, 1 unpublish, 1 failed>"),
        (UNPUBLISHED.nodes[0], "<UnpublishedNode orders: unpublish, success>"),
        (GARBAGE, "<GarbageReport would remove 2 sets of partials, 1 scratch folder>"),
        (GarbageReport(0, 0, 0, 0), "<GarbageReport removed nothing>"),
        (open_state("/lake/qz-secret-91", {}), "<LanceState in a local folder>"),
        (UnfinishedNodes(None), "<UnfinishedNodes 0 nodes and no recorded run>"),
        (VALUES["explain"], "<QueryExplanation 3 operators, 2 scans, 1 of Lance tables>"),
    ],
)
def test_repr_is_one_useful_line(value: object, line: str) -> None:
    assert repr(value) == line


def test_a_repr_shows_control_characters_and_no_credentials() -> None:
    shown = repr(Plan("a\x1b[31m\n", "https://user:word@host", ()))
    assert shown == r"<Plan a\x1b[31m , target https://***@host: no nodes>"


def test_values_print_as_the_command_line_does(
    monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    value = VALUES["plan"]
    assert str(value) == as_text(value).rstrip()
    for name, shown in VALUES.items():
        golden(f"display/{name}.txt", f"{shown}\n")


def test_results_without_rows_print_as_the_command_line_does() -> None:
    lines = str(UNPUBLISHED).splitlines()
    assert lines[0] == "Unpublish for shop, target dev"
    assert any("7 entries of 3 columns" in line and "version 4 -> 5" in line for line in lines)
    assert any("LS201  no dataset" in line for line in lines)
    assert lines[-1] == "Removed 7 entries from 1 table, 1 failed."
    assert str(GARBAGE) == "would remove 2 sets of partials, 1 scratch folder: 5.0 kB"


def test_html_spells_out_what_cannot_be_seen_and_has_paths_relative_to_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    html = result(f"nothing at {tmp_path}/lake/gone.lance")._repr_html_()
    assert "nothing at lake/gone.lance" in Markup(html).text
    text = result("LS201  a\x07b\u202ec")._repr_html_()
    assert "a\\x07b\\u202ec" in text
    status = replace(SHOWN, missing=("x\x1b[31m",))
    assert "x\\x1b[31m" in status._repr_html_()


@pytest.mark.parametrize("name", VALUES)
def test_notebooks_get_a_table(name: str, golden: Golden) -> None:
    html = VALUES[name]._repr_html_()  # type: ignore[attr-defined]
    assert Markup(html).elements <= {"div", "style", "p", "strong", "span", "br", "table", "thead",
                                     "tbody", "tr", "th", "td"}  # fmt: skip
    golden(f"display/{name}.html", content(html))


def test_strings_of_strangers_are_no_markup() -> None:
    """Names of columns, bounds, messages, notes and texts of diffs."""
    evil = f"{EVIL}\u202e\x1b"
    column = PublishedColumn(0, 1, evil, evil, 8, 8)
    shown = (
        deepcopy(SHOWN),
        result(evil),
        diff(changed(evil, evil)),
        plan(blocked(error=DatasetMissing(evil, hint=evil))),
    )
    object.__setattr__(shown[0], "columns", {evil: column})
    object.__setattr__(shown[0], "missing", (evil,))
    for value in shown:
        html = value._repr_html_()
        markup = Markup(html)
        assert "script" not in markup.elements
        assert "a" not in markup.elements
        assert markup.attributes <= {"class", "colspan"}
        assert "<script>" in markup.text
        assert "\u202e" not in html
        assert "\x1b" not in f"{html}{value}"


def test_notebooks_show_what_pages_may_show_and_no_output_shows_a_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOME_TOKEN", "qz-of-the-environment-92")
    message = f"{SECRET} at {ORDINARY} and qz-of-the-environment-92"
    failed = result(message)
    object.__setattr__(failed, "redactor", REDACTOR)
    assert SECRET not in f"{failed}{failed._repr_html_()}{failed!r}"
    assert "qz-of-the-environment" not in f"{failed}{failed._repr_html_()}{failed!r}"
    assert ORDINARY in str(failed)
    assert ORDINARY not in failed._repr_html_()
    assert "LAKE" in failed._repr_html_()


def test_a_pickle_holds_no_secrets_and_a_copy_knows_them() -> None:
    failed = result()
    object.__setattr__(failed, "redactor", REDACTOR)
    stored = pickle.dumps(failed)
    assert SECRET.encode() not in stored
    assert pickle.loads(stored) == failed
    assert deepcopy(failed).redactor is REDACTOR


def test_outputs_follow_the_theme_of_the_notebook() -> None:
    html = str(HTML.render(RunView(result()), Page()))
    for theme in ('[data-jp-theme-light="false"]', ".vscode-dark", '[theme="dark"]'):
        assert re.search(rf"{re.escape(theme)} \.lancestat[^{{]*{{ color-scheme: dark; }}", html)
    # The page around it keeps its own colours.
    rules = re.sub(r"/\*.*?\*/|{[^{}]*}", ";", html.split("</style>")[0].split("<style>")[1])
    for selector in re.split("[,;]", re.sub(r"\([^()]*\)", "", rules)):
        assert not selector.strip() or ".lancestat" in selector


def test_rows_are_tables_of_arrow_and_polars() -> None:
    rows = result().to_arrow()
    assert isinstance(rows, pa.Table)
    assert rows.column("node").to_pylist() == ["orders", "part", "gone", "near"]
    assert rows.column("code").to_pylist() == [None, None, "LS201", None]
    assert rows.column("rows_scanned").to_pylist() == [250_000, None, None, None]
    planned = plan(analyze(), skip()).to_arrow()
    assert planned.schema == rows.schema
    assert planned.column("action").to_pylist() == ["analyze", "skip"]
    columns = SHOWN.to_arrow().to_pylist()
    assert [row["column"] for row in columns] == list(SHOWN.columns)
    assert columns[0]["max"] == "4250000"
    frame = result().to_polars()
    assert frame.columns == rows.column_names
    assert frame["status"].to_list() == ["success", "success", "error", "skipped"]


def test_a_status_has_a_row_for_every_node() -> None:
    report = status_report()
    rows = report.to_arrow().to_pylist()
    assert [row["node"] for row in rows] == [node.spec.name for node in report.nodes]
    assert [row["status"] for row in rows] == [node.health.value for node in report.nodes]
    assert [tuple(row["problems"]) for row in rows] == [node.problems for node in report.nodes]
    assert any(row["columns_covered"] is not None for row in rows)
    assert any(row["kind"] == "knn_join" and row["rows"] is not None for row in rows)


def test_without_pandas_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(LibraryMissing, match=r"LS670 .*pandas") as caught:
        result().to_pandas()
    assert "pip install 'pandas" in str(caught.value)


@pytest.mark.whole
def test_rows_are_pandas_frames() -> None:
    """In a process that has pandas, which is installed with Spark Connect's client."""
    program = (
        "from tests.presentation.test_display import result\n"
        "frame = result().to_pandas()\n"
        "print(type(frame).__name__, list(frame['node']), "
        "list(frame['rows_scanned'].astype(str)), frame['rows_scanned'].dtype)"
    )
    path = os.pathsep.join([str(ROOT), str(Path(sys.prefix) / "connect")])
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert (
        done.stdout
        == "DataFrame ['orders', 'part', 'gone', 'near'] ['250000', '<NA>', '<NA>', '<NA>'] Int64\n"
    ), done.stderr
