"""Measure what a project of many tables costs when nothing has changed.

    python benchmarks/many_tables.py [--tiny] [--tables N]

Tables have 20 columns, 300 rows and one to four commits before their statistics. All have all
monitors, with a history of 196 points each, as thousands of runs leave it, and a fifth has
expectations, one of which refers to another table.

Figures of commands are medians of three after one that is not counted, with their processor time.
`watch` is what its process does and holds between two plans. The cost of what listens to a run is
that of runs with it less that of runs without, in turns in one process: medians of runs of all
tables in which nothing is due, and of full refreshes of at most 50.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from measure import LANCESTAT, Case, Measures, process, timed

if TYPE_CHECKING:
    from lancestat.project import Project
    from lancestat.runs.actions import Plan

COLUMNS, ROWS, REFRESHED = 20, 300, 50
# With tiny sizes, so many of the last.
TINY_AGES = 10
# Hours from the last run back to those of which a state keeps what they found, of thousands.
AGES = tuple(accumulate([20] * 47 + [24] * 60 + [7 * 24] * 52 + [28 * 24] * 36))


def write_project(folder: Path, tables: int) -> None:
    """Small tables, declared in files of fifty."""
    (folder / "specs").mkdir()
    (folder / "lancestat_project.yml").write_text(
        "name: many\nvars: {warehouse: ./warehouse}\ndefault_target: dev\n"
        "targets: {dev: {state: .lancestat/state}}\n"
        "monitors: [volume_anomalies, freshness_anomalies, schema_changes, column_anomalies]\n"
    )
    for start in range(0, tables, 50):
        declared = "".join(map(declaration, range(start, min(start + 50, tables))))
        (folder / "specs" / f"tables_{start:04}.yml").write_text(f"tables:\n{declared}")
    for number in range(tables):
        write_table(folder / "warehouse" / f"{name_of(number)}.lance", number)


def name_of(number: int) -> str:
    """The name of a table."""
    return f"table_{number:04}"


def declaration(number: int) -> str:
    """The YAML of a table; every fifth has expectations."""
    name = name_of(number)
    lines = [
        f"  - name: {name}",
        f"    uri: \"{{{{ var('warehouse') }}}}/{name}.lance\"",
        "    description: One row per event.",
        "    tags: [nightly]",
        "    columns: all",
    ]
    if number % 5 == 0:
        lines += [
            "    expect:",
            "      - not_null: number_0",
            "      - between: {column: number_1, min: -1000000, max: 1000000}",
            "      - max_null_share: {column: text_0, share: 50%}",
            "      - row_count: {min: 1}",
        ]
    if number % 5 == 0 and number:
        other = name_of(number - 5)
        lines.append(f"      - references: {{columns: [number_0], table: {other}, to: [number_0]}}")
    return "\n".join(lines) + "\n"


def write_table(path: Path, number: int) -> None:
    """A table of some commits, each of some fragments."""
    import lance
    import pyarrow as pa

    chance = random.Random(number)
    commits = 1 + number % 4
    for commit in range(commits):
        rows = ROWS // commits
        columns: dict[str, pa.Array] = {}
        for column in range(COLUMNS // 4):
            columns[f"number_{column}"] = pa.array(range(rows), pa.int64())
            columns[f"real_{column}"] = pa.array([chance.random() for _ in range(rows)])
            columns[f"text_{column}"] = pa.array([f"text {chance.random():.2f}"] * rows)
            columns[f"day_{column}"] = pa.array([number] * rows, pa.date32())
        lance.write_dataset(
            pa.table(columns), path, mode="append" if commit else "create", max_rows_per_file=100
        )


def make(folder: Path, tiny: bool) -> Measures:
    """Run the project once, and give each table a past with other numbers of rows."""
    from lancestat.state.history import HistoryPoint

    project = load(folder)
    seconds, result = timed(project.run)
    failed = [node for node in result.nodes if node.message]
    assert not failed, failed[0].message
    newest = [point for points in project.state.history().values() for point in points]
    ages = AGES[:TINY_AGES] if tiny else AGES
    for number, age in reversed([*enumerate(ages, 1)]):
        rows = ROWS - number
        project.state.add_history(
            [
                HistoryPoint.of(
                    point.key,
                    point.node,
                    f"run-{number}",
                    point.at - timedelta(hours=age),
                    past_figures(point.figures, rows, number),
                )
                for point in newest
            ]
        )
    kept = Path(folder / ".lancestat/state").rglob("history-*/**/*")
    return {
        "first run, s": seconds,
        "history in the state, MB": sum(file.stat().st_size for file in kept if file.is_file())
        / 1e6,
    }


def past_figures(figures: Mapping[str, object], rows: int, number: int) -> Mapping[str, object]:
    """The figures of a run before, of as many rows; columns of whole numbers grow."""
    columns = figures["columns"]
    assert isinstance(columns, dict)
    then = {
        name: {**column, "distinct_count": rows, "max": str(rows + number % 3)}
        if name.startswith("number_")
        else column
        for name, column in columns.items()
    }
    return {**figures, "rows": rows, "columns": then}


def watch(folder: Path, rounds: int) -> Measures:
    """`lancestat watch` once its first round is over, in which nothing is due."""
    command = [LANCESTAT, "watch", "--interval", "1s", "--quiet"]
    with subprocess.Popen(command, cwd=folder) as process:
        proc = Path(f"/proc/{process.pid}")
        children = proc / f"task/{process.pid}/children"

        def processor_seconds() -> float:
            user, system = (proc / "stat").read_text(encoding="utf-8").split()[13:15]
            return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

        for is_over in (False, True):
            while bool(children.read_text(encoding="ascii")) is is_over:
                time.sleep(0.1)
        before = processor_seconds()
        time.sleep(rounds)
        used = processor_seconds() - before
        fields = dict(
            line.split(":", 1)
            for line in (proc / "status").read_text(encoding="ascii", errors="replace").splitlines()
        )
        process.terminate()
    resident, mapped = (int(fields[name].split()[0]) / 1024 for name in ("VmRSS", "RssFile"))
    return {
        "watch: an idle round, s of processor time": used / rounds,
        "watch: resident, MB": resident,
        "  of which libraries that are mapped, MB": mapped,
    }


def listen(folder: Path, tiny: bool) -> Measures:
    """What artifacts and events add to runs, for each node."""
    project = load(folder)
    names = [node.name for node in project.nodes()]
    idle, refreshed = project.plan(), project.plan(names[:REFRESHED], full_refresh=True)
    measures: dict[str, float] = {}
    for what, plan, turns in (("nothing is due", idle, 7), ("refreshed", refreshed, 3)):
        actions = {name: partial(way, plan) for name, way in runs(project).items()}
        found = in_turns(actions, 0 if tiny else turns)
        for name in ("artifacts", "OpenLineage"):
            added = (found[name] - found["nothing"]) / len(plan.actions)
            measures[f"{name}, added for each node, {what}, ms"] = added * 1e3
        measures[f"a run without either, for each node, {what}, ms"] = (
            found["nothing"] / len(plan.actions) * 1e3
        )
    return measures


def in_turns(actions: Mapping[str, Callable[[], object]], turns: int) -> Mapping[str, float]:
    """The median seconds of actions that take turns, after one turn that counts if none follows."""
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(turns + 1):
        for name, action in actions.items():
            seconds[name].append(timed(action)[0])
    return {name: statistics.median(some[1:] or some) for name, some in seconds.items()}


def runs(project: Project) -> Mapping[str, Callable[..., object]]:
    """Ways to run a plan: with nothing that listens, with artifacts, and with OpenLineage."""
    from lancestat.pipelines.artifacts import FOLDER, Artifacts

    root = project.spec.root
    transport = {
        "OPENLINEAGE__TRANSPORT__TYPE": "file",
        "OPENLINEAGE__TRANSPORT__LOG_FILE_PATH": str(root / "events.json"),
        "OPENLINEAGE__TRANSPORT__APPEND": "true",
    }

    def with_events(plan: Plan) -> None:
        os.environ.update(transport)
        try:
            project.run(plan).raise_for_status()
        finally:
            for name in transport:
                del os.environ[name]

    def with_artifacts(plan: Plan) -> None:
        artifacts = Artifacts(lambda: project.spec, root / FOLDER, {})
        project.run(plan, on_event=artifacts).raise_for_status()

    return {
        "nothing": lambda plan: project.run(plan).raise_for_status(),
        "artifacts": with_artifacts,
        "OpenLineage": with_events,
    }


def load(folder: Path) -> Project:
    """The project, with the imports that this takes."""
    from lancestat.project import Project

    return Project.load(folder)


CASES: Mapping[str, Case] = {"make": make, "listen": listen}


def measured(folder: Path, tables: int, *, tiny: bool) -> Iterator[tuple[str, float]]:
    """All figures, of commands and of cases in processes of their own unless sizes are tiny."""
    write_project(folder, tables)

    def case(name: str) -> Iterator[tuple[str, float]]:
        command = [sys.executable, sys.argv[0], "--case", name, "--folder", str(folder)]
        out = CASES[name](folder, tiny) if tiny else json.loads(process(command, folder).stdout)
        yield from out.items()

    sys.argv[0] = str(Path(sys.argv[0]).resolve())
    yield from case("make")
    for command in ("plan", "status", "docs"):
        took = [shell([LANCESTAT, command], folder) for _ in range(1 if tiny else 4)]
        took = took[1:] or took
        yield f"lancestat {command}, s", statistics.median(seconds for seconds, _ in took)
        yield "  of processor time", statistics.median(cpu for _, cpu in took)
    yield from watch(folder, 1 if tiny else 10).items()
    yield from case("listen")


def shell(command: list[str], folder: Path) -> tuple[float, float]:
    """The seconds and the processor time of a command, which may find something wrong."""
    before = os.times()
    seconds, ended = timed(
        lambda: subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, check=False)
    )
    # `status` has 1 where a check is refuted.
    assert ended.returncode in (0, 1), f"{command} ended with {ended.returncode}"
    after = os.times()
    spent = after.children_user + after.children_system
    return seconds, spent - before.children_user - before.children_system


def main() -> None:
    """Measure a project in a temporary folder, or one case of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tiny", action="store_true", help="a size that only shows that it runs")
    parser.add_argument("--tables", type=int, default=1_000, help="how many tables there are")
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(CASES[arguments.case](arguments.folder, arguments.tiny)))
        return
    tables = 4 if arguments.tiny else arguments.tables
    with tempfile.TemporaryDirectory(prefix="lancestat-benchmark-") as folder:
        for name, value in measured(Path(folder), tables, tiny=arguments.tiny):
            print(f"{name:<68} {value:>10,.3f}", flush=True)


if __name__ == "__main__":
    main()
