"""Measure the cost of a command when there is nothing to do.

    python benchmarks/plan.py [--tiny] [PART ...]

help    `lancestat --help`
many    the first run of 1,000 tables, then `lancestat plan` when they did not change, and where its
        time goes

Commands run as processes; their times are medians after a first run that is not counted. The steps
are those of one more process, which takes them one after the other.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from measure import LANCESTAT, Measures, T, median_seconds, process, run, run_case, timed

if TYPE_CHECKING:
    from lancestat.project import Project
    from lancestat.tables.action import Scan, TableVersion
    from lancestat.tables.analyze import Scanned, SparkScanner


def help_page(folder: Path, tiny: bool) -> Iterator[tuple[str, float]]:
    """The help page, which imports next to nothing."""
    runs = 1 if tiny else 21
    yield "lancestat --help, s", median_seconds([LANCESTAT, "--help"], folder, runs)
    yield "  of which python itself, s", median_seconds([sys.executable, "-c", ""], folder, runs)


def many(folder: Path, tiny: bool) -> Iterator[tuple[str, float]]:
    """Many tables: their first run, and a plan when nothing changed."""
    tables = 5 if tiny else 1_000
    write_project(folder, tables)
    for step, value in run_case("publish", folder, tiny).items():
        yield f"{step}, {tables:,} tables", value
    assert "Nothing to do" in process([LANCESTAT, "plan"], folder).stdout
    seconds = median_seconds([LANCESTAT, "plan"], folder, 1 if tiny else 5)
    yield f"lancestat plan, {tables:,} tables, nothing changed, s", seconds
    for step, value in run_case("steps", folder, tiny).items():
        yield f"  {step}", value


def write_project(folder: Path, tables: int) -> None:
    """Tiny tables of four fragments, declared in files of fifty."""
    import lance
    import pyarrow as pa

    (folder / "specs").mkdir()
    (folder / "lancestat_project.yml").write_text(
        "name: many\nvars: {warehouse: ./warehouse}\ndefault_target: dev\n"
        "targets: {dev: {state: .lancestat/state}}\n"
    )
    names = [f"table_{number:04}" for number in range(tables)]
    for start in range(0, tables, 50):
        declared = ["tables:\n"]
        for name in names[start : start + 50]:
            declared.append(
                f"  - name: {name}\n"
                f"    uri: \"{{{{ var('warehouse') }}}}/{name}.lance\"\n"
                "    description: One row per event.\n"
                "    tags: [nightly]\n"
                "    columns: all\n"
            )
        (folder / "specs" / f"tables_{start:04}.yml").write_text("".join(declared))
    for number, name in enumerate(names):
        rows = pa.table(
            {
                "id": pa.array(range(number, number + 40), pa.int64()),
                "customer_id": pa.array(range(40), pa.int32()),
                "name": ["a name"] * 40,
                "price": [number / 7] * 40,
                "sold_at": pa.array([number] * 40, pa.date32()),
            }
        )
        lance.write_dataset(rows, folder / "warehouse" / f"{name}.lance", max_rows_per_file=10)


def publish(folder: Path, tiny: bool) -> Measures:
    """Run the project, its fragments read in this process instead of on Spark."""
    from lancestat.tables.analyze import SparkScanner

    setattr(SparkScanner, "scan", read_here)  # noqa: B010
    seconds, result = timed(load(folder).run)
    failed = [node for node in result.nodes if node.message]
    assert not failed, failed[0].message
    return {"first run, but for Spark, s": seconds}


def read_here(
    scanner: SparkScanner, node: str, table: TableVersion, scans: Sequence[Scan]
) -> Iterator[Scanned]:
    """The partials of a table's scans, read in this process."""
    import lance
    import pyarrow as pa

    from lancestat.lake.fingerprint import field_key
    from lancestat.tables.analyze import Scanned
    from lancestat.tables.statistics.kernel import analyze
    from lancestat.tables.statistics.partial import encode

    dataset = lance.dataset(table.uri, version=table.version)
    names = {field_key(field): field.name for field in table.fields}
    for scan in scans:
        columns = [names[key] for key in scan.fields]
        schema = pa.schema([dataset.schema.field(name) for name in columns])
        batches = dataset.get_fragment(scan.fragment_id).to_batches(columns=columns)
        partials = analyze(batches, schema)
        read = [((scan,), {key: encode(partials[names[key]]) for key in scan.fields})]
        yield Scanned(read, read)


class Steps:
    """Record the seconds of each step of a plan."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def take(self, name: str, action: Callable[[], T]) -> T:
        """Do one step."""
        self.seconds[f"{name}, s"], result = timed(action)
        return result


def steps(folder: Path, tiny: bool) -> Measures:
    """The steps of a plan one after the other."""
    step = Steps()

    def command_line() -> object:
        import lancestat.cli.main
        import lancestat.cli.nodes

        return lancestat.cli.main

    def libraries() -> object:
        import lance

        return lance

    step.take("import the command line", command_line)
    project = step.take("load the YAML", lambda: load(folder))
    step.take("import lance and pyarrow", libraries)
    step.take("import what plans", lambda: import_module("lancestat.runs.observe"))
    from lancestat.lake.open import observe_snapshots
    from lancestat.presentation.views import Page, PlanView, load_format
    from lancestat.runs.actions import Plan
    from lancestat.tables.stored import table_records

    spec, observer = project.spec, project._observer()
    requests = [(table.name, table.uri) for table in spec.tables]
    step.take("open the tables", lambda: observe_snapshots(requests))
    step.take("open the state and read its records", lambda: table_records(project.state))

    # Tables and records as `look` gives them to planners.
    observed = observer.look(spec.nodes)
    alone = replace(observer, threads=1)
    actions = step.take("judge the tables, in one thread", lambda: alone._actions(observed))
    plan = Plan(spec.name, spec.target.name, actions)
    with contextlib.redirect_stdout(io.StringIO()):
        view = PlanView(plan, spec.policies)
        step.take("print the plan", lambda: load_format("text").print(view, Page()))
    return step.seconds


def load(folder: Path) -> Project:
    """The project, with the imports that this takes."""
    from lancestat.project import Project

    return Project.load(folder)


if __name__ == "__main__":
    run(__doc__, {"help": help_page, "many": many}, {"publish": publish, "steps": steps})
