"""What `lancestat advise` proposes for a project, and what it does to its files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from lancestat.cli.main import cli
from lancestat.project import Project
from lancestat.query.workload.advice import Change, Proposal, needed
from tests.conftest import Golden
from tests.query.workload.logs import NOON, ended, lines, operator, scan, stage, started, write_log

SPECS = """\
# Our tables.
tables:
  # One row per order.
  - name: orders
    uri: orders.lance   # beside the specs
    columns: [o_id, 'o_old'] # those of joins
    tags: [nightly]

  - name: customers
    uri: customers.lance
    columns:
      exclude:
        - c_name   # nobody asks
        - c_note
"""

ORDERS = scan("orders", "o_id#1L", "o_cat#2L", "o_day#3L")
CUSTOMERS = scan("customers", "c_id#7L", "c_name#8")
CATEGORY = operator("Filter", "Filter (o_cat#2L = 7)", ORDERS)
DAYS = operator("Filter", "Filter (o_day#3L > 7)", ORDERS)
NAME = operator("Filter", "Filter (c_name#8 = TOP-SECRET)", CUSTOMERS)
OTHER = operator("Filter", "Filter (x#9L = 1)", scan("/lake/others.lance", "x#9L"))

Advise = Callable[..., Result]


@pytest.fixture
def advise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Advise:
    """Run the command over a log of some plans, in a project with two tables."""
    ids = {"o_id": [1, 2, 3], "o_old": [1, 2, 3], "o_cat": [1, 1, 2], "o_day": [1, 2, 3]}
    lance.write_dataset(pa.table(ids), tmp_path / "orders.lance")
    names = {"c_id": [1, 2], "c_name": ["a", "b"], "c_note": ["c", "d"]}
    lance.write_dataset(pa.table(names), tmp_path / "customers.lance")
    (tmp_path / "lancestat_project.yml").write_text(
        "name: shop\ndefault_target: dev\ntargets:\n  dev: {state: state}\n"
    )
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "shop.yml").write_text(SPECS)
    monkeypatch.chdir(tmp_path)

    def run(*plans: Any, options: tuple[str, ...] = ()) -> Result:
        write_log(tmp_path / "app-1", *plans)
        return CliRunner().invoke(cli, ["advise", "app-1", *options], prog_name="lancestat")

    return run


def unsized(text: str) -> str:
    """Sizes depend on the version of Lance that wrote the tables."""
    return re.sub(r'\b\d{3} B|(?<="size_bytes": )\d+', "SIZE", text)


def specs() -> str:
    return Path("specs/shop.yml").read_text()


def test_the_text_has_evidence_and_the_diff(advise: Advise, golden: Golden) -> None:
    result = advise(CATEGORY, CATEGORY, DAYS, NAME, OTHER)
    assert result.exit_code == 0, result.output
    golden("cli/advise.txt", unsized(result.stdout))
    assert specs() == SPECS


def test_from_python_advice_prints_as_on_the_command_line(advise: Advise) -> None:
    printed = advise(CATEGORY, DAYS).stdout
    advice = Project.load(".").advise(["app-1"])
    before_the_diff, _, _ = printed.partition("\n\n--- ")
    assert str(advice) == before_the_diff.rstrip()
    assert repr(advice) == "<Advice shop, target dev: 4 proposals from 2 queries>"


def test_markdown_is_for_pull_requests(advise: Advise, golden: Golden) -> None:
    result = advise(CATEGORY, DAYS, NAME, OTHER, options=("--output", "markdown"))
    golden("cli/advise.md", unsized(result.stdout))


def test_json_has_all_that_is_known(advise: Advise, golden: Golden) -> None:
    result = advise(CATEGORY, DAYS, NAME, OTHER, options=("--output", "json"))
    golden("cli/advise.json", unsized(result.stdout))


def test_write_keeps_comments_order_and_quotes(advise: Advise) -> None:
    result = advise(CATEGORY, DAYS, NAME, options=("--write",))
    assert result.exit_code == 0, result.output
    assert specs() == SPECS.replace(
        "[o_id, 'o_old'] # those of joins\n    tags: [nightly]",
        "[o_id, 'o_old', o_cat, o_day] # those of joins\n    tags: [nightly]\n    histogram: true\n"
        "    common_values: {columns: [o_cat]}",
    ).replace("        - c_name   # nobody asks\n", "").replace(
        "        - c_note\n", "        - c_note\n    common_values: {columns: [c_name]}\n"
    )
    again = advise(CATEGORY, DAYS, NAME, options=("--output", "json"))
    assert json.loads(again.stdout)["proposals"] == []


def test_a_link_to_a_spec_file_stays_one(advise: Advise) -> None:
    Path("specs/shop.yml").rename("shop.yml")
    Path("specs/shop.yml").symlink_to("../shop.yml")
    advise(CATEGORY, options=("--write",))
    assert Path("specs/shop.yml").is_symlink()
    assert "o_cat" in Path("shop.yml").read_text()


def test_without_a_path_what_sessions_recorded_is_read(advise: Advise, tmp_path: Path) -> None:
    advise(CATEGORY)
    run = CliRunner().invoke
    result = run(cli, ["advise"])
    assert result.exit_code == 2
    assert (
        "LS619  no log to read: name one, or set 'listen' in the target 'dev', so that"
        in result.output
    )
    project = Path("lancestat_project.yml")
    project.write_text(project.read_text().replace("{state: state}", "{listen: log}"))
    result = run(cli, ["advise"])
    assert result.exit_code == 2
    assert f"LS619  no session has recorded queries in {tmp_path / 'log'} yet" in result.output
    Path("log").mkdir()
    Path("app-1").rename("log/app-1")
    result = run(cli, ["advise"])
    assert result.exit_code == 0, result.output
    assert "1 query in 1 log, from" in result.output
    assert "o_cat" in result.output


SOURCE = """\
sources:
  # All that is there.
  - uri: {place}
    defaults:
      columns:
        - "*_id"
      tags: [nightly]
      policy: fresh
      publish: none
      freshness: {{warn_after: 24h}}
      owner: "shop, and {{{{ target.name }}}}"
"""
POLICIES = "policies: [{name: fresh, allow.stale: {max_age: 1h}}]\n"


def with_source(text: str, declared: str = "") -> None:
    Path("specs/shop.yml").write_text(text + declared)
    Path("specs/policies.yml").write_text(POLICIES)


@pytest.mark.parametrize(
    ("place", "declared"),
    [
        ('"."', ""),
        ("./", "\ntables:\n- name: others\n  uri: others.lance\n\n# The end.\n"),
        ("\"{{ var('here') }}/\"", "\ntables:\n  - {name: others, uri: others.lance} # and\n"),
    ],
)
def test_a_table_of_a_source_is_declared_as_the_source_has_it(
    advise: Advise, place: str, declared: str
) -> None:
    with_source(SOURCE.format(place=place), declared)
    project = Path("lancestat_project.yml")
    project.write_text(project.read_text() + "vars: {here: .}\n")
    before = {table.name: table for table in Project.load(".").discover().tables}
    result = advise(CATEGORY, DAYS, NAME, options=("--write",))
    assert result.exit_code == 0, result.output
    assert "by hand" not in result.stdout
    assert specs().startswith(SOURCE.format(place=place) + declared.partition("\n\n#")[0].rstrip())
    assert "# The end." in specs() or "# The end." not in declared
    after = {table.name: table for table in Project.load(".").discover().tables}
    assert after.keys() == before.keys()
    for name, added in {"orders": ("o_cat", "o_day"), "customers": ("c_name",)}.items():
        assert f'columns: ["*_id", {", ".join(added)}]' in specs()
        assert after[name].common_values is not None
        assert after[name] == replace(
            before[name],
            uri=after[name].uri,
            columns=after[name].columns,
            declared=after[name].declared,
            location=after[name].location,
            source=after[name].source,
            histogram=name == "orders",
            common_values=after[name].common_values,
            places=after[name].places,
        )
        assert Path(after[name].dataset_uri).resolve() == Path(f"{name}.lance").resolve()
    again = advise(CATEGORY, DAYS, NAME, options=("--output", "json"))
    assert json.loads(again.stdout)["proposals"] == []


def test_a_table_of_a_catalog_is_declared_by_its_name(advise: Advise) -> None:
    with_source("sources: [{catalog: lake, defaults: {columns: all}}]\n")
    project = Path("lancestat_project.yml")
    lake = "catalogs: {lake: {impl: dir, properties: {root: .}}}"
    project.write_text(project.read_text().replace("{state: state}", f"{{state: state, {lake}}}"))
    result = advise(CATEGORY, options=("--write",))
    assert result.exit_code == 0, result.output
    assert specs().endswith(
        "\ntables:\n  - name: orders\n    table: lake.orders\n    columns: all\n"
        "    common_values: {columns: [o_cat]}\n"
    )
    [orders] = [each for each in Project.load(".").discover().tables if each.name == "orders"]
    assert (orders.dataset_uri, orders.location.line) == ("catalog://lake/orders", 4)


@pytest.mark.parametrize("end", ["", "\r\n", "\r\n\r\n"])
def test_a_table_of_a_source_is_declared_in_the_line_ends_of_the_file(
    advise: Advise, end: str
) -> None:
    source = f"sources:\r\n  - uri: .\r\n    defaults: {{columns: all}}{end}"
    Path("specs/shop.yml").write_bytes(source.encode())
    assert advise(CATEGORY, options=("--write",)).exit_code == 0
    written = Path("specs/shop.yml").read_bytes().decode()
    assert written.startswith(source.rstrip())
    assert written.endswith(f"\r\n    common_values: {{columns: [o_cat]}}{end}")
    assert "\n" not in written.replace("\r\n", "")


@pytest.mark.parametrize(
    ("sources", "why"),
    [
        (
            "sources:\n- uri: .\n  defaults: &own\n    columns: all\n- uri: x\n  defaults: *own\n",
            "specs/shop.yml writes the source for others too, behind an anchor or an alias",
        ),
        (
            "{sources: [{uri: ., defaults: {columns: all}}]}\n",
            "specs/shop.yml has no place for tables",
        ),
        (
            "sources:\n- uri: .\n  defaults: {columns: all}\ntables: [{name: a, uri: a.lance}]\n",
            "specs/shop.yml has no list of tables of its own, line by line",
        ),
        (
            "sources:\n- uri: .\n  defaults:\n    owner: &x me\n    columns: all\n",
            "specs/shop.yml has an anchor, an alias or a tag in the source",
        ),
    ],
)
def test_sources_that_cannot_be_declared_in_their_text(
    advise: Advise, sources: str, why: str
) -> None:
    with_source(sources)
    Path("x").mkdir()
    result = advise(CATEGORY, DAYS, NAME, options=("--write",))
    assert result.exit_code == 0, result.output
    [line] = [line for line in result.stdout.splitlines() if line.startswith("To change by hand")]
    assert "orders, common values o_cat, histogram o_day" in line or "histogram o_day" in line
    assert line.endswith(f": {why}.")
    assert specs() == sources


@pytest.mark.parametrize(
    "source",
    ["  - uri: {place}\n", "  - &{place}\n    uri: {place}\n", "  -\n\n    uri: {place}\n"],
)
@pytest.mark.parametrize("notes", range(8))
def test_edits_above_a_source_do_not_move_it(advise: Advise, source: str, notes: int) -> None:
    for name, place in {"customers": "here", "others": "there"}.items():
        rows = pa.table({"c_id": [1, 2], "c_name": ["a", "b"]})
        lance.write_dataset(rows, f"{place}/{name}.lance")
    sources = "".join(
        f"{'    # note' * bool(number)}\n" * (notes * number)
        + source.format(place=place)
        + f"    defaults: {{tags: [{place}]}}\n"
        for number, place in enumerate(("there", "here"))
    )
    with_source("tables:\n  - name: orders\n    uri: orders.lance\nsources:\n" + sources)
    text = specs()
    grouped = operator("HashAggregate", "HashAggregate(keys=[o_cat#2L, o_day#3L])", ORDERS)
    result = advise(CATEGORY, DAYS, NAME, grouped, options=("--write",))
    assert result.exit_code == 0, result.output
    assert "by hand" not in result.stdout
    declared = "  - name: customers\n    uri: here/customers.lance\n    tags: [here]\n"
    assert declared in specs()
    assert specs().endswith(text.partition("sources:")[2])


@pytest.mark.parametrize(
    ("declared", "key"),
    [("histogram: \"{{ var('h') }}\"", "histogram"), ("columns: \"{{ 'all' }}\"", "columns")],
)
def test_templates_stay_as_they_are(advise: Advise, declared: str, key: str) -> None:
    project = Path("lancestat_project.yml")
    project.write_text(project.read_text() + "vars: {h: false}\n")
    text = f"tables:\n- name: orders\n  uri: orders.lance\n  {declared}\n"
    Path("specs/shop.yml").write_text(text)
    at(0, DAYS, path="early")
    at(91, ORDERS, path="late")
    result = CliRunner().invoke(cli, ["advise", "early", "late", "--write"])
    assert result.exit_code == 0, result.output
    shown = " ".join(result.stdout.split())
    assert f"specs/shop.yml has a template as '{key}'." in shown
    assert declared in specs()


@pytest.mark.parametrize(
    ("step", "changed"), [("write_bytes", ()), ("chmod", ()), ("replace", ("lines", "orders"))]
)
def test_files_are_written_all_or_none_where_that_can_be_known(
    advise: Advise, monkeypatch: pytest.MonkeyPatch, step: str, changed: tuple[str, ...]
) -> None:
    for name, table in {"lines": "customers", "orders": "orders", "z": "z"}.items():
        text = f"tables:\n- name: {table}\n  uri: {table}.lance\n"
        Path(f"specs/{name}.yml").write_text(text)
    Path("specs/shop.yml").unlink()
    lance.write_dataset(pa.table({"z": [1, 2]}), "z.lance")
    other = operator("Filter", "Filter (z#40L = 7)", scan("z", "z#40L"))
    as_was = {path: path.read_text() for path in Path("specs").iterdir()}
    real = getattr(Path, step)

    def failing(path: Path, *values: Any) -> Any:
        if path.name.startswith(".z.yml.draft"):
            raise PermissionError(13, "Permission denied")
        return real(path, *values)

    monkeypatch.setattr(Path, step, failing)
    result = advise(CATEGORY, NAME, other, options=("--write",))
    assert result.exit_code != 0
    assert "specs/z.yml: Permission denied" in result.output
    assert ("(specs/lines.yml, specs/orders.yml changed before)" in result.output) == bool(changed)
    files = {path: path.read_text() for path in Path("specs").iterdir()}
    assert {path.stem for path in files if files[path] != as_was.get(path)} == {*changed}


def costed(rows: int) -> tuple[dict[str, Any], ...]:
    """A filter by o_cat of which Spark expected 10 rows."""
    text = "Filter (o_cat#2L = 7)"
    costs = f"== Optimized Logical Plan ==\n{text}, Statistics(sizeInBytes=1.0 B, rowCount=10)\n"
    plan = operator("Filter", text, ORDERS, rows=1)
    return started(plan, text=costs), stage({1: rows}), ended()


@pytest.mark.parametrize(("rows", "factor", "is_needed"), [(15, "2", False), (15, "1.5", True)])
def test_nothing_is_proposed_for_estimates_that_are_good(
    advise: Advise, rows: int, factor: str, is_needed: bool
) -> None:
    advise(CATEGORY)
    Path("app-1").write_bytes(lines(*costed(rows)))
    command = ["advise", "app-1", "--min-q-error", factor, "--output"]
    found = json.loads(CliRunner().invoke(cli, [*command, "json"]).stdout)
    # A column that is filtered by has use for bounds, too.
    expected = ["column", "common values"] if is_needed else ["column"]
    assert [each["change"] for each in found["proposals"]] == expected
    assert found["unneeded"] == (not is_needed)
    printed = CliRunner().invoke(cli, [*command, "text"]).stdout
    note = "Not proposed, since estimates are good without: 1 change (see --min-q-error)."
    assert (note in printed) == (not is_needed)


def test_queries_are_recorded_in_a_folder_of_this_machine(advise: Advise) -> None:
    project = Path("lancestat_project.yml")
    project.write_text(project.read_text().replace("{state: state}", "{listen: 's3://b/log'}"))
    result = advise(CATEGORY)
    assert result.exit_code == 1
    assert (
        "LS107 lancestat_project.yml:4:17  'listen' of target 'dev' must be true, false, or the "
        "path of a folder, found 's3://b/log'" in result.output
    )


def test_a_state_in_an_object_store_has_no_place_for_queries(advise: Advise) -> None:
    project = Path("lancestat_project.yml")
    declared = "{state: 's3://b/s', listen: true}"
    project.write_text(project.read_text().replace("{state: state}", declared))
    result = advise(CATEGORY)
    assert result.exit_code == 1
    assert (
        "LS107 lancestat_project.yml:4:36  the state is in no folder of this machine, so 'listen' "
        "has to name one" in result.output
    )


def test_queries_are_recorded_below_the_state(advise: Advise) -> None:
    project = Path("lancestat_project.yml")
    project.write_text(project.read_text().replace("{state: state}", "{state: s, listen: true}"))
    advise(CATEGORY)
    Path("s").mkdir(exist_ok=True)
    Path("app-1").rename("s/queries")
    result = CliRunner().invoke(cli, ["advise"])
    assert result.exit_code == 0, result.output
    assert "1 query in 1 log, from" in result.output


def test_rare_uses_can_be_left_out(advise: Advise) -> None:
    result = advise(CATEGORY, CATEGORY, NAME, options=("--min-queries", "2", "--output", "json"))
    proposals = json.loads(result.stdout)["proposals"]
    assert {tuple(each["columns"]) for each in proposals} == {("o_cat",)}


def test_columns_of_patterns_are_for_people(advise: Advise) -> None:
    text = SPECS.replace("[o_id, 'o_old']", "{types: [string]}")
    Path("specs/shop.yml").write_text(text)
    result = advise(CATEGORY, options=("--write",))
    shown = " ".join(result.stdout.split())
    assert "To change by hand: orders, column o_cat: specs/shop.yml lists no columns" in shown
    assert "To change by hand: orders, common values o_cat: it needs column o_cat." in shown
    assert specs() == text


def test_a_table_that_cannot_be_opened_is_named(advise: Advise) -> None:
    Path("orders.lance").rename("gone.lance")
    result = advise(CATEGORY, NAME, options=("--output", "json"))
    advice = json.loads(result.stdout)
    assert [each["table"] for each in advice["unopened"]] == ["orders"]
    assert {each["table"] for each in advice["proposals"]} == {"customers"}


def test_a_plan_may_name_a_table_by_its_uri(advise: Advise) -> None:
    path = Path("orders.lance").resolve()
    plan = operator("Filter", "Filter (o_cat#2L = 7)", scan(str(path), "o_cat#2L"))
    first, *_ = json.loads(advise(plan, options=("--output", "json")).stdout)["proposals"]
    assert (first["table"], first["columns"]) == ("orders", ["o_cat"])


def at(days: int, *plans: Any, path: str) -> Path:
    """A log of queries so many days after noon of the first."""
    return write_log(Path(path), *plans, at=NOON + timedelta(days=days))


@pytest.mark.parametrize(("days", "unused"), [(89, []), (91, ["o_old"])])
def test_columns_that_are_not_read_for_90_days_are_proposed_for_removal(
    advise: Advise, days: int, unused: list[str]
) -> None:
    at(0, scan("orders", "o_id#1L", "o_old#4L", "o_cat#2L"), path="early")
    at(days, scan("orders", "o_id#1L"), path="late")
    proposals = Project.load().advise(["early", "late"]).proposals
    assert [column for each in proposals for column in each.columns] == unused
    assert all(
        each.last_read == datetime(2026, 1, 1, 12, tzinfo=timezone.utc) for each in proposals
    )


def test_columns_may_be_in_use_where_a_plan_does_not_list_them_all(advise: Advise) -> None:
    at(0, scan("orders", "o_id#1L"), path="early")
    at(91, scan("orders", "o_id#1L", "... 25 more fields"), path="late")
    assert Project.load().advise(["early", "late"]).proposals == ()


def test_a_table_that_is_not_queried_keeps_its_columns(advise: Advise) -> None:
    at(0, ORDERS, path="early")
    at(91, CUSTOMERS, path="late")
    proposals = Project.load().advise(["early", "late"]).proposals
    assert [each.table for each in proposals] == []


def test_removing_a_column_leaves_the_others(advise: Advise) -> None:
    at(0, ORDERS, path="early")
    at(91, scan("orders", "o_id#1L"), path="late")
    result = CliRunner().invoke(cli, ["advise", "early", "late", "--write"])
    assert "read never" in result.stdout
    assert specs() == SPECS.replace("[o_id, 'o_old']", "[o_id]")


LOST = """\
tables:
- {name: lost, uri: lost.lance, references: [{columns: [a], table: orders, to: [o_old]}]}
"""
EMPTY = "specs/empty.yml", "tables: []\n"


@pytest.mark.parametrize(
    ("declared", "file", "text"),
    [
        ("expect: [{unique: [o_id, o_old]}]", *EMPTY),
        ("monitors: [{column_anomalies: [o_old]}]", *EMPTY),
        ("common_values: {columns: [o_old]}", *EMPTY),
        ("groups: [[o_id, o_old]]", *EMPTY),
        ("references: [{columns: [o_id], table: orders, to: [o_old]}]", *EMPTY),
        ("expect: [{references: {columns: [o_id], table: orders, to: [o_old]}}]", *EMPTY),
        # Of the project, and of another table that cannot be opened.
        ("tags: []", "lancestat_project.yml", "monitors: [{column_anomalies: [o_old]}]\n"),
        ("tags: []", "specs/lost.yml", LOST),
    ],
)
def test_columns_that_a_declaration_needs_are_in_use(
    advise: Advise, declared: str, file: str, text: str
) -> None:
    at(0, ORDERS, path="early")
    at(91, scan("orders", "o_id#1L"), path="late")
    [unused] = Project.load().advise(["early", "late"]).proposals
    assert (unused.change, unused.columns) == (Change.UNUSED, ("o_old",))
    Path("specs/shop.yml").write_text(SPECS.replace("tags: [nightly]", declared))
    with Path(file).open("a") as beside:
        beside.write(text)
    assert Project.load().advise(["early", "late"]).proposals == ()


def test_a_column_is_not_proposed_for_removal_and_other_changes(advise: Advise) -> None:
    old = operator("Filter", "Filter (o_old#4L = 7)", scan("orders", "o_old#4L"))
    at(0, old, path="early")
    at(91, scan("orders", "o_id#1L"), path="late")
    proposals = Project.load().advise(["early", "late"]).proposals
    assert [(each.change, each.columns) for each in proposals] == [
        (Change.COMMON_VALUES, ("o_old",))
    ]


def test_the_q_error_is_part_of_the_evidence(advise: Advise) -> None:
    statistics = "Statistics(sizeInBytes=1 B, rowCount=30)"
    costs = f"== Optimized Logical Plan ==\nFilter (o_cat#2L = 7), {statistics}"
    plan = operator("Filter", "Filter (o_cat#2L = 7)", ORDERS, rows=5)
    Path("log").write_bytes(lines(started(plan, text=costs), stage({5: 3}), ended()))
    proposal, *_ = Project.load().advise(["log"]).proposals
    assert proposal.q_error == 10
    assert proposal.evidence == "1 query (equality 1), q-error 10.0"


LINES = scan("lines", "l_order#11L", "l_cust#12L", "l_kind#13L", "l_part#14L")
JOIN = operator("SortMergeJoin", "SortMergeJoin [l_order#11L], [o_id#1L], Inner", LINES, ORDERS)
GROUPED = operator(
    "HashAggregate", "HashAggregate(keys=[l_kind#13L, l_part#14L], functions=[])", LINES
)


@pytest.fixture
def joined(advise: Advise) -> Advise:
    """The command in a project with a third table, analyzed."""
    rows = pa.table({name: [1, 1, 2, 2] for name in ("l_order", "l_cust", "l_kind", "l_part")})
    lance.write_dataset(rows, "lines.lance")
    Path("specs/lines.yml").write_text("tables:\n- name: lines\n  uri: lines.lance\n")
    Project.load().run().raise_for_status()
    return advise


def test_joins_with_a_key_are_references(joined: Advise) -> None:
    result = joined(JOIN, options=("--write",))
    assert result.exit_code == 0, result.output
    assert Path("specs/lines.yml").read_text() == (
        "tables:\n- name: lines\n  uri: lines.lance\n  references:\n"
        "    - {columns: [l_order], table: orders, to: [o_id]}\n"
    )
    assert "tags: [nightly]\n    keys:\n      - [o_id]\n" in specs()
    tables = {table.name: table for table in Project.load().spec.tables}
    assert tables["orders"].keys == (("o_id",),)
    [reference] = tables["lines"].references
    assert (reference.columns, reference.table, reference.to) == (("l_order",), "orders", ("o_id",))
    assert Project.load().advise(["app-1"]).proposals == ()


def test_a_key_is_proposed_with_the_reference_that_needs_it() -> None:
    key = Proposal("orders", Change.KEY, ("o_id",), 1, q_error=1.0)
    other = Proposal("orders", Change.KEY, ("o_code",), 1, q_error=1.0)
    far = Proposal("lines", Change.REFERENCE, ("l_order",), 1, q_error=3.0)
    far = replace(far, other="orders", other_columns=("o_id",))
    assert needed((key, other, far), 2) == (key, far)
    assert needed((key, other, replace(far, q_error=1.0)), 2) == ()


def test_a_reference_of_a_column_with_statistics_reads_nothing(joined: Advise) -> None:
    result = joined(JOIN, options=("--write", "--output", "json"))
    sizes = {each["change"]: each["size_bytes"] for each in json.loads(result.stdout)["proposals"]}
    assert sizes["reference"] == 0 < sizes["key"]
    plan = CliRunner().invoke(cli, ["plan", "--verbose"])
    assert "~ refresh  orders" in plan.stdout, plan.output
    assert ". skip     lines" in plan.stdout


def test_columns_that_are_used_together_are_a_group(joined: Advise) -> None:
    joined(GROUPED, options=("--write",))
    assert Path("specs/lines.yml").read_text() == (
        "tables:\n- name: lines\n  uri: lines.lance\n  groups:\n    - [l_kind, l_part]\n"
    )
    assert Project.load().advise(["app-1"]).proposals == ()


def test_groups_go_beside_those_that_are_declared(joined: Advise) -> None:
    text = "tables:\n- name: lines\n  uri: lines.lance\n  groups: [[l_cust, l_part]] # mine\n"
    Path("specs/lines.yml").write_text(text)
    joined(GROUPED, options=("--write",))
    expected = text.replace("]] # mine", "], [l_kind, l_part]] # mine")
    assert Path("specs/lines.yml").read_text() == expected


SALES = scan("sales", "s_item#21L", "s_ticket#22L", "s_cust#23L")
RETURNS = scan("returns", "r_item#31L", "r_ticket#32L")
RETURNED = operator(
    "SortMergeJoin",
    "SortMergeJoin [s_item#21L, s_ticket#22L], [r_item#31L, r_ticket#32L], Inner",
    SALES,
    RETURNS,
)
BY_TICKET = operator("HashAggregate", "HashAggregate(keys=[s_item#21L, s_ticket#22L])", SALES)


@pytest.fixture
def sold(advise: Advise) -> Advise:
    """The command in a project with sales, of which each ticket has some items, and returns."""
    items, tickets = [n % 20 for n in range(400)], [n // 20 for n in range(400)]
    sales = {"s_item": items, "s_ticket": tickets, "s_cust": [n // 40 for n in range(400)]}
    lance.write_dataset(pa.table(sales), "sales.lance")
    returns = {"r_item": items[::4], "r_ticket": tickets[::4]}
    lance.write_dataset(pa.table(returns), "returns.lance")
    Path("specs/sales.yml").write_text(
        "tables:\n- name: sales\n  uri: sales.lance\n- name: returns\n  uri: returns.lance\n"
    )
    return advise


def proposed(result: Result) -> list[tuple[str, str]]:
    assert result.exit_code == 0, result.output
    proposals = json.loads(result.stdout)["proposals"]
    return [(each["change"], f"{each['table']} {each['columns']}") for each in proposals]


def test_a_group_whose_joint_count_equals_the_rows_is_a_key(sold: Advise) -> None:
    as_json = ("--output", "json")
    both = [("group", "sales ['s_item', 's_ticket']"), ("group", "returns ['r_item', 'r_ticket']")]
    assert sorted(proposed(sold(RETURNED, options=("--write", *as_json)))) == sorted(both)
    Project.load().run().raise_for_status()
    # The table with fewer rows refers to the other.
    assert proposed(sold(RETURNED, BY_TICKET, options=("--write", *as_json))) == [
        ("key", "sales ['s_item', 's_ticket']"),
        ("key", "returns ['r_item', 'r_ticket']"),
        ("reference", "returns ['r_item', 'r_ticket']"),
    ]
    Project.load().run().raise_for_status()
    [proof] = Project.load().show("sales").relations.keys
    assert proof.columns == ("s_item", "s_ticket")
    assert Project.load().advise(["app-1"]).proposals == ()


def test_a_group_with_other_columns_beside_a_key_is_none(sold: Advise) -> None:
    text = Path("specs/sales.yml").read_text()
    groups = "  groups: [[s_item, s_ticket], [s_item, s_ticket, s_cust]]\n"
    Path("specs/sales.yml").write_text(text.replace("sales.lance\n", f"sales.lance\n{groups}"))
    Project.load().run().raise_for_status()
    keys = "HashAggregate(keys=[s_item#21L, s_ticket#22L, s_cust#23L])"
    wider = operator("HashAggregate", keys, SALES)
    assert proposed(sold(wider, options=("--output", "json"))) == []
    assert proposed(sold(wider, BY_TICKET, options=("--output", "json"))) == [
        ("key", "sales ['s_item', 's_ticket']")
    ]


@pytest.mark.parametrize("changed", [{"s_item": 0}, {"s_item": None}])
def test_groups_that_repeat_or_have_nulls_are_no_key(
    sold: Advise, changed: dict[str, int | None]
) -> None:
    rows = lance.dataset("sales.lance").to_table().to_pylist()
    few = [{**row, **(changed if n % 5 == 0 else {})} for n, row in enumerate(rows)]
    lance.write_dataset(pa.Table.from_pylist(few), "sales.lance", mode="overwrite")
    sold(BY_TICKET, options=("--write",))
    Project.load().run().raise_for_status()
    assert proposed(sold(BY_TICKET, options=("--output", "json"))) == []


def test_columns_with_a_key_are_no_group(joined: Advise) -> None:
    text = "HashAggregate(keys=[o_id#1L, o_cat#2L], functions=[])"
    proposals = json.loads(
        joined(operator("HashAggregate", text, ORDERS), options=("--output", "json")).stdout
    )["proposals"]
    assert [each["change"] for each in proposals] == ["column"]


def test_a_reference_has_columns_of_one_type(joined: Advise) -> None:
    plan = operator(
        "SortMergeJoin", "SortMergeJoin [c_name#8], [o_id#1L], Inner", CUSTOMERS, ORDERS
    )
    Path("app").write_bytes(lines(started(plan), ended()))
    changes = {each.change.value for each in Project.load().advise(["app"]).proposals}
    assert changes == {"column", "key"}


def test_a_table_gets_no_more_groups_than_it_may_have(joined: Advise) -> None:
    columns = {f"w{number}": [1, 1] for number in range(12)}
    lance.write_dataset(pa.table(columns), "wide.lance")
    Path("specs/wide.yml").write_text("tables:\n- name: wide\n  uri: wide.lance\n")
    wide = scan("wide", *(f"w{number}#{number + 50}L" for number in range(12)))
    plans = [
        operator("HashAggregate", f"HashAggregate(keys=[w{a}#{a + 50}L, w{b}#{b + 50}L])", wide)
        for a in range(12)
        for b in range(a)
    ]
    result = joined(*plans, options=("--write",))
    assert result.exit_code == 0, result.output
    [table] = [table for table in Project.load().spec.tables if table.name == "wide"]
    assert len(table.groups) == 32
