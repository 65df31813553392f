"""Bounds of strings and binary values are shown, unless the table says `show_values: false`."""

from __future__ import annotations

import csv
import html
import io
import json
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancestat.presentation.results import show_view
from lancestat.project import Project
from lancestat.report.gather import statistics_rows
from lancestat.tables.wire import NEWEST_FRAGMENT, WRITER
from tests.canaries import seen
from tests.cli.conftest import Lancestat

LEAST, GREATEST = "qzaaron\x1b[31m", "qzzoe of the forty-three characters and more"
# In hex of so many digits that no digest has them by chance.
CANARIES = {
    "least": "qzaaron",
    "greatest": "qzzoe",
    "least in hex": b"qzaaron".hex(),
    "greatest in hex": b"qzzoe".hex(),
}
PROJECT = "name: shop\ndefault_target: dev\ntargets:\n  dev: {state: state}\n"
COMMANDS = (
    *(("show", "people", "--output", form) for form in ("text", "json", "csv")),
    *(("status", "--output", form) for form in ("text", "json", "markdown")),
    *(("plan", "--output", form) for form in ("text", "json", "markdown")),
    ("plan", "--out", "plan.json"),
    ("list", "--output", "json"),
    ("run", "--output", "json"),
    ("docs", "--out", "site"),
)


@pytest.fixture
def folder(tmp_path: Path, lancestat: Lancestat) -> Path:
    """A project whose table is about people, with its statistics, and an index made since."""
    (tmp_path / "lancestat_project.yml").write_text(PROJECT)
    (tmp_path / "specs").mkdir()
    declare(tmp_path)
    names = [LEAST, "qzmiddle", GREATEST, None]
    rows = pa.table(
        {
            "id": pa.array(range(4), pa.int64()),
            "name": names,
            "key": pa.array([None if name is None else name.encode() for name in names]),
        }
    )
    lance.write_dataset(rows, str(tmp_path / "people.lance"))
    assert lancestat("run").exit_code == 0
    lance.dataset(str(tmp_path / "people.lance")).create_scalar_index("id", "BTREE")
    return tmp_path


def declare(folder: Path, *lines: str) -> None:
    more = "".join(f"    {line}\n" for line in lines)
    text = f"tables:\n  - name: people\n    uri: people.lance\n{more}"
    (folder / "specs" / "people.yml").write_text(text)


def outputs(folder: Path, lancestat: Lancestat) -> dict[str, str]:
    """What every command shows, and every file that it makes."""
    shown = {}
    for command in COMMANDS:
        result = lancestat("--verbose", *command)
        assert result.exit_code in (0, 1), result.output
        shown[" ".join(command)] = result.output
    for made in [folder / "plan.json", *(folder / "site").rglob("*.html")]:
        shown[str(made.relative_to(folder))] = made.read_text()
    return shown


def test_bounds_are_shown_cut_and_harmless(folder: Path, lancestat: Lancestat) -> None:
    low, high = r"qzaaron\x1b[31m", "qzzoe of the forty-three characters and ..."
    assert low in (text := lancestat("show", "people").output)
    assert "\x1b[31m" not in text
    columns = json.loads(lancestat("show", "people", "--output", "json").stdout)["columns"]
    assert (columns["name"]["min"], columns["name"]["max"]) == (low, high)
    assert columns["name"]["null_count"] == 1
    key = GREATEST.encode()[:20].hex()
    assert columns["key"]["max"] == f"0x{key}..."
    rows = list(csv.DictReader(io.StringIO(lancestat("show", "people", "--output", "csv").stdout)))
    assert {row["column"]: row["min"] for row in rows}["name"] == low
    lancestat("docs", "--out", "site")
    page = (folder / "site" / "tables" / "people.html").read_text()
    assert low in page
    assert "\x1b" not in page


def test_blanks_are_explained_and_estimates_are_marked(folder: Path, lancestat: Lancestat) -> None:
    nan, top = float("nan"), 2**63 + 5
    rows = pa.table(
        {
            "name": ["", "b"],
            "price": [nan, 1.5],
            "ratio": pa.array([float("inf"), 1.0], pa.float32()),
            "big": pa.array([top, top], pa.uint64()),
            "empty": pa.array([None, None], pa.float64()),
            "size": [1, 2],
        }
    )
    lance.write_dataset(rows, str(folder / "people.lance"), mode="overwrite")
    assert lancestat("run").exit_code == 0
    why = "o bounds or distinct count, since values are NaN, infinite or beyond Spark's type"
    text = lancestat("show", "people").stdout
    assert f"  n{why}: price, ratio, big\n" in text
    head, name, *_ = text[text.index("  column ") :].splitlines()
    assert "distinct ~" in head
    assert name.split() == ["name", "0", "2", '""', "b", "1", "1"]
    columns = json.loads(lancestat("show", "people", "--output", "json").stdout)["columns"]
    assert (columns["name"]["min"], columns["price"]["min"]) == ("", None)
    assert columns["name"]["distinct_count"] == 2
    lancestat("docs", "--out", "site")
    page = html.unescape((folder / "site" / "tables" / "people.html").read_text())
    assert f"<bdi>N{why}: price, ratio, big</bdi>" in page
    assert '<bdi>""</bdi>' in page
    assert "Distinct ~" in page
    shown = Project.load(folder).show("people")
    assert f"n{why}: price, ratio, big" in html.unescape(shown._repr_html_())
    # Other writers may have reasons of their own.
    marks = {WRITER: None, NEWEST_FRAGMENT: None}
    lance.dataset(str(folder / "people.lance")).update_config(marks)
    assert Project.load(folder).show("people").unbounded == ()


def test_bounds_that_are_not_to_be_shown_are_nowhere(folder: Path, lancestat: Lancestat) -> None:
    declare(folder, "show_values: false")
    for command, output in outputs(folder, lancestat).items():
        assert seen(output, CANARIES) == [], command
    columns = json.loads(lancestat("show", "people", "--output", "json").stdout)["columns"]
    for name in ("name", "key"):
        assert (columns[name]["min"], columns[name]["max"]) == (None, None)
        assert columns[name]["distinct_count"] == 3
    assert (columns["id"]["min"], columns["id"]["max"]) == ("0", "3")


def test_bounds_that_are_not_to_be_shown_are_not_in_values_of_python(
    folder: Path, lancestat: Lancestat
) -> None:
    declare(folder, "show_values: false")
    status = Project.load(folder).show("people")
    rows = list(statistics_rows(status))
    assert seen(repr((status, str(status), rows, show_view(status))), CANARIES) == []
    declare(folder)
    assert seen(repr(list(statistics_rows(Project.load(folder).show("people")))), CANARIES) != []


def test_sources_decide_for_their_tables(folder: Path, lancestat: Lancestat) -> None:
    source = "sources:\n  - uri: .\n    defaults: {show_values: false}\n"
    (folder / "specs" / "people.yml").write_text(source)
    names = lancestat("list", "--discover", "--output", "json").stdout
    [name] = [node["name"] for node in json.loads(names)["nodes"] if "people" in node["name"]]
    assert lancestat("run", "-s", name).exit_code == 0
    result = lancestat("show", name)
    assert result.exit_code == 0, result.output
    assert seen(result.output, CANARIES) == []


def test_a_change_that_shows_values_is_a_risk(folder: Path, lancestat: Lancestat) -> None:
    before = folder.parent / "before"
    (before / "specs").mkdir(parents=True)
    (before / "lancestat_project.yml").write_text(PROJECT)
    declare(before, "show_values: false")
    result = lancestat("diff", str(before), ".", "--no-datasets", "--fail-on", "values_shown")
    assert result.exit_code == 3, result.output
    assert lancestat("diff", ".", str(before), "--no-datasets", "--fail-on", "any").exit_code == 0
