"""`lancestat status`, and the rows that `lancestat show` gives to other programs."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families

from lancestat.project import Project
from lancestat.report.values import Health, ProjectReport
from lancestat.spec.model import ProjectSpec
from tests.cli.conftest import FakeProject, Lancestat, spec
from tests.cli.statuses import NOW, SHOWN, every_kind, join, table
from tests.conftest import Golden
from tests.runs.world import orders, write_project


@dataclass
class Watched:
    """A project of which everything is known."""

    project_report: ProjectReport = field(default_factory=every_kind)
    spec: ProjectSpec = field(default_factory=spec)
    asked: dict[str, object] = field(default_factory=dict)

    def report(
        self,
        select: Sequence[str] | None,
        exclude: Sequence[str] | None,
        *,
        runs: int,
        with_histograms: bool = False,
    ) -> ProjectReport:
        self.asked |= {"select": select, "exclude": exclude, "runs": runs}
        return self.project_report


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    fake = Watched()
    monkeypatch.setattr(Project, "load", lambda *_, **__: fake)
    return fake


def of(*nodes: object) -> ProjectReport:
    return ProjectReport("shop", "prod", NOW, nodes, {})  # type: ignore[arg-type]


def test_every_kind_of_node_has_its_line(
    lancestat: Lancestat, watched: Watched, golden: Golden
) -> None:
    wide = lancestat("status", COLUMNS="120")
    assert (wide.exit_code, wide.stderr) == (1, "")
    golden("cli/status.txt", wide.stdout)
    narrow = lancestat("status", COLUMNS="80").stdout
    assert max(map(len, narrow.splitlines())) <= 80
    golden("cli/status_narrow.txt", narrow)


def test_json_has_every_figure(lancestat: Lancestat, watched: Watched, golden: Golden) -> None:
    result = lancestat("status", "--output", "json")
    assert result.exit_code == 1
    golden("cli/status.json", result.stdout)
    payload = json.loads(result.stdout)
    assert payload["status"] == "error"
    tables = [set(node) for node in payload["nodes"] if node["kind"] == "table"]
    assert all(keys == tables[0] for keys in tables)


def test_markdown_is_a_table_with_problems_first(
    lancestat: Lancestat, watched: Watched, golden: Golden
) -> None:
    golden("cli/status.md", lancestat("status", "--output", "markdown").stdout)


@pytest.mark.parametrize(("health", "code"), [(Health.OK, 0), (Health.WARN, 0), (Health.ERROR, 1)])
@pytest.mark.parametrize("form", ["text", "json", "markdown"])
def test_only_errors_fail(
    health: Health, code: int, form: str, lancestat: Lancestat, watched: Watched
) -> None:
    watched.project_report = of(table("orders"), join("near", health=health))
    assert lancestat("status", "--output", form).exit_code == code


def test_the_selection_is_passed_on_with_one_run_per_node(
    lancestat: Lancestat, watched: Watched
) -> None:
    lancestat("status", "-s", "tag:x", "--exclude", "y")
    assert watched.asked == {"select": ["tag:x"], "exclude": ["y"], "runs": 1}


def test_many_healthy_nodes_are_counted(lancestat: Lancestat, watched: Watched) -> None:
    well = [table(f"t{number:03}") for number in range(40)]
    watched.project_report = of(*well, table("late", "It is late.", health=Health.WARN))
    output = lancestat("status").stdout
    assert "t000" not in output
    assert "40 more are well (--verbose lists them)" in output
    assert "late" in output
    assert output.splitlines()[-1] == "40 ok, 1 warning."
    assert "t039" in lancestat("status", "--verbose").stdout
    page = lancestat("status", "--output", "markdown").stdout
    assert "t000" not in page
    assert page.splitlines()[-1] == "40 nodes are well and not listed."
    watched.project_report = of(*well)
    assert "40 are well (--verbose lists them)" in lancestat("status").stdout


def test_foreign_texts_show_no_control_characters_or_secrets(
    lancestat: Lancestat, watched: Watched
) -> None:
    evil = table("orders", "It \x1b[2J\nfailed at s3://key:hunter2@b/x.", health=Health.ERROR)
    watched.project_report = replace(of(evil), name="sh\x1b[31mop")
    for form in ("text", "markdown"):
        output = lancestat("status", "--output", form).stdout
        assert "\x1b" not in output
        assert "hunter2" not in output


def test_csv_of_show_has_a_row_per_column(
    lancestat: Lancestat, project: FakeProject, golden: Golden
) -> None:
    project.table_status = replace(SHOWN, missing=("o_new",))
    output = lancestat("show", "orders", "--output", "csv").stdout
    golden("cli/show.csv", output)
    rows = list(csv.DictReader(io.StringIO(output)))
    assert [row["column"] for row in rows] == ["o_id", "o_comment", "o_new"]
    assert [row["fragments_covered"] for row in rows] == ["17", "16", "0"]


@pytest.mark.parametrize("is_stale", [False, True])
def test_what_a_lost_state_takes_along_is_told_everywhere(
    lancestat: Lancestat, tmp_path: Path, is_stale: bool
) -> None:
    write_project(tmp_path, "orders")
    specs = tmp_path / "specs" / "shop.yml"
    policy = "policy: {allow.stale: true, refresh: when_stale}"
    specs.write_text(specs.read_text().replace(".lance}", f".lance, {policy}}}"))
    lance.write_dataset(orders(0, 10), str(tmp_path / "orders.lance"))
    assert lancestat("run").exit_code == 0
    if is_stale:
        lance.write_dataset(orders(10, 11), str(tmp_path / "orders.lance"), mode="append")
    shutil.rmtree(tmp_path / "state")
    offer = "The state lacks what only it has of orders: bounds of strings"
    remedy = "'lancestat run --full-refresh -s \"orders\"' brings it back."
    for command in ("plan", "run", "plan"):
        output = " ".join(lancestat(command).stdout.split())
        assert offer in output
        assert remedy in output
    for words in (("status",), ("show", "orders")):
        output = " ".join(lancestat(*words).stdout.split())
        assert "tate lacks what only it has of this table" in output
        assert "the next run where their partials are stored, and else with --full" in output
    assert lancestat("status").exit_code == 0
    assert lancestat("run", "--full-refresh", "-s", "orders").exit_code == 0
    for words in (("plan",), ("run",), ("status",), ("show", "orders")):
        assert "lacks" not in lancestat(*words).stdout


def test_a_pattern_that_matches_no_column_is_told_everywhere(
    lancestat: Lancestat, tmp_path: Path
) -> None:
    write_project(tmp_path, "orders")
    lance.write_dataset(orders(0, 10), str(tmp_path / "orders.lance"))
    assert lancestat("run").exit_code == 0
    specs = tmp_path / "specs" / "shop.yml"
    declared = specs.read_text()
    specs.write_text(declared.replace(".lance}", ".lance, columns: {include: ['prise*']}}"))
    notes = ["pattern 'prise*' matches no column", "no column is left to analyze"]
    for command in ("plan", "run"):
        [node] = json.loads(lancestat("plan", "--output", "json").stdout)["nodes"]
        assert node["notes"] == notes
        output = lancestat(command).stdout
        assert all(f"             note: {note}\n" in output for note in notes)
    shown = lancestat("status")
    assert (shown.exit_code, shown.stdout.splitlines()[-1]) == (0, "1 warning.")
    assert f"P{notes[0][1:]}." in shown.stdout
    assert all(note in lancestat("show", "orders").stdout for note in notes)
    lancestat("docs", "--out", "site")
    assert "Everything is within policy" not in (tmp_path / "site" / "index.html").read_text()
    specs.write_text(declared.replace(".lance}", ".lance, columns: [o_it]}"))
    [node] = json.loads(lancestat("status", "--output", "json").stdout)["nodes"]
    assert (node["status"], node["reason"]) == ("error", "blocked")


def test_prometheus_reads_what_json_has(
    lancestat: Lancestat, watched: Watched, golden: Golden
) -> None:
    printed = lancestat("status", "--output", "prometheus")
    assert (printed.exit_code, printed.stderr) == (1, "")
    golden("cli/status.prom", printed.stdout)
    samples = {}
    for family in text_string_to_metric_families(printed.stdout):
        assert family.type == "gauge"
        assert family.documentation.endswith(".")
        for sample in family.samples:
            labels = dict(sample.labels)
            assert (labels.pop("project"), labels.pop("target")) == ("shop", "prod")
            samples[sample.name, labels.get("node"), labels.get("kind")] = sample.value
    nodes = json.loads(lancestat("status", "--output", "json").stdout)["nodes"]
    for node in nodes:
        of_node = (node["name"], node["kind"])
        assert samples[("lancestat_health", *of_node)] == ["ok", "warn", "error"].index(
            node["status"]
        )
        assert samples[("lancestat_usable", *of_node)] == (node["verdict"] in ("use", "current"))
        for metric, member in (
            ("age_seconds", "age_seconds"),
            ("rows", "rows"),
            ("staleness_versions", "versions_behind"),
            ("staleness_rows_ratio", "changed_rows"),
            ("recall_ratio", "recall"),
        ):
            assert samples.get((f"lancestat_{metric}", *of_node)) == node.get(member)
        if (run := node["last_run"]) is not None:
            success = samples[("lancestat_last_run_success", *of_node)]
            assert success == (run["status"] == "success")
            seconds = samples.get(("lancestat_last_run_seconds", *of_node))
            assert seconds == run["elapsed_seconds"]
    assert samples["lancestat_status_timestamp_seconds", None, None] == NOW.timestamp()


def test_no_name_breaks_a_line_for_prometheus(lancestat: Lancestat, watched: Watched) -> None:
    name = 'a"b\\c\nlancestat_health{} 1'
    report = watched.project_report
    [first, *_] = report.nodes
    node = replace(first, spec=replace(first.spec, name=name))
    watched.project_report = replace(report, nodes=(node,))
    printed = lancestat("status", "--output", "prometheus").stdout
    [family, *_] = [
        family
        for family in text_string_to_metric_families(printed)
        if family.name == "lancestat_health"
    ]
    assert [sample.labels["node"] for sample in family.samples] == [name]


def test_catalogs_of_metadata_get_profiles(
    lancestat: Lancestat, watched: Watched, golden: Golden
) -> None:
    for name in ("datahub", "openmetadata"):
        printed = lancestat("status", "--output", name)
        assert printed.stderr == ""
        golden(f"cli/status.{name}.json", printed.stdout)


def profiles(lancestat: Lancestat, name: str) -> dict[str, Any]:
    """The profiles that a format prints, by the table's name there."""
    printed = json.loads(lancestat("status", "--output", name).stdout)
    if name == "openmetadata":
        return {each["table"]: each["profile"] for each in printed}
    return {each["entityUrn"]: each["aspect"]["json"] for each in printed}


def test_profiles_have_the_columns_of_the_rows_as_they_are(
    lancestat: Lancestat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    uri = str(tmp_path / "a,(b).lance")
    rows = pa.table(
        {
            "n": pa.array([*range(100), None]),
            "x": pa.array([n / 8 for n in range(101)]),
            "day": pa.array(range(101), pa.date32()),
            "s": [f"name{n}" for n in range(101)],
        }
    )
    lance.write_dataset(rows, uri)
    table = {"name": "t", "uri": uri, "histogram": True, "show_values": False}
    write_project(tmp_path, table)
    assert lancestat("run").exit_code == 0
    [(urn, profile)] = profiles(lancestat, "datahub").items()
    path = f"{tmp_path}/a%2c%28b%29.lance"
    assert urn == f"urn:li:dataset:(urn:li:dataPlatform:lance,{path},DEV)"
    assert profile["rowCount"] == 101
    fields = {field["fieldPath"]: field for field in profile["fieldProfiles"]}
    assert (fields["n"]["nullCount"], fields["n"]["uniqueProportion"]) == (1, 1.0)
    middle = {each["quantile"]: each["value"] for each in fields["n"]["quantiles"]}["0.5"]
    assert 48 <= int(middle) <= 51
    histogram = fields["x"]["histogram"]
    assert 25 < len(histogram["boundaries"]) == len(histogram["heights"]) + 1 <= 34
    assert sum(histogram["heights"]) == pytest.approx(101, rel=0.01)
    # Spark's numbers of a day tell nobody anything, and values of strings are not to be shown.
    assert "quantiles" not in fields["day"] and fields["day"]["max"] == "1970-04-11"
    assert "min" not in fields["s"] and fields["s"]["uniqueCount"]
    [(name, other)] = profiles(lancestat, "openmetadata").items()
    assert name == uri
    columns = {column["name"]: column for column in other["columnProfile"]}
    assert 48 <= columns["n"]["median"] <= 51
    assert columns["n"]["valuesCount"] == 100

    lance.write_dataset(rows, uri, mode="append")
    [profile] = profiles(lancestat, "datahub").values()
    assert (profile["rowCount"], profile["fieldProfiles"]) == (202, [])


def test_quantiles_of_profiles_are_those_of_the_values(
    lancestat: Lancestat, tmp_path: Path
) -> None:
    chance = np.random.default_rng(7)
    skewed = chance.lognormal(3, 2.5, 50_000)
    large = chance.integers(2**62, 2**63 - 1, 50_000)
    lance.write_dataset(pa.table({"x": skewed, "n": large}), str(tmp_path / "t.lance"))
    write_project(tmp_path, {"name": "t", "uri": "t.lance", "histogram": True})
    assert lancestat("run").exit_code == 0
    [profile] = profiles(lancestat, "datahub").values()
    fields = {field["fieldPath"]: field for field in profile["fieldProfiles"]}
    found = {float(each["quantile"]): float(each["value"]) for each in fields["x"]["quantiles"]}
    assert len(found) == 5
    for quantile, value in found.items():
        low, high = np.quantile(skewed, [quantile - 0.02, quantile + 0.02])
        assert low <= value <= high
    edges = fields["n"]["histogram"]["boundaries"]
    assert int(edges[0]) == large.min() and int(edges[-1]) == large.max()
    [other] = profiles(lancestat, "openmetadata").values()
    columns = {column["name"]: column for column in other["columnProfile"]}
    low, high = np.quantile(skewed, [0.73, 0.77])
    assert low <= columns["x"]["thirdQuartile"] <= high


def test_a_profile_has_a_name_that_others_know(
    lancestat: Lancestat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lance.write_dataset(orders(0, 30), str(tmp_path / "t.lance"))
    monkeypatch.setenv("LAKE", str(tmp_path))
    write_project(tmp_path, {"name": "t", "uri": "{{ env_var('LAKE') }}/t.lance"})
    printed = lancestat("status", "--output", "openmetadata").stdout
    assert [each["table"] for each in json.loads(printed)] == ["shop.t"]
