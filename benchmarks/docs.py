"""The pages of many tables: how long they take to write, and to open.

    python benchmarks/docs.py [--tiny] [PART ...]

pages    the pages of 1,000 tables of 20 columns, 4 of them with histograms, 30 runs and 50
         fragments each, from values in memory; and how long Chromium takes to open them
command  `lancestat docs` over 1,000 published tables on this disk, small ones without histograms

The command runs as a process, its time is the median after a first run that is not counted. Opening
is from the start of the navigation to the end of its `load` event, the median over new contexts.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING

from measure import LANCESTAT, Measures, median_seconds, process, run, run_case, timed
from plan import publish, write_project

if TYPE_CHECKING:
    from lancestat.report.tables import TableReport
    from lancestat.report.values import ProjectReport
    from lancestat.runs.result import PastRun
    from lancestat.tables.statistics.column_statistics import Histogram

NOW = datetime(2026, 3, 14, 9, 30, tzinfo=timezone.utc)
COLUMNS, SHAPES, RUNS, FRAGMENTS = 20, 4, 30, 50
OPENED = "performance.getEntriesByType('navigation')[0].loadEventEnd"


def pages(folder: Path, tiny: bool) -> Iterator[tuple[str, float]]:
    """Pages from values in memory."""
    tables = 5 if tiny else 1_000
    for name, value in run_case("build", folder, tiny).items():
        yield f"{name}, {tables:,} tables", value
    yield from opened(folder / "site", 1 if tiny else 7)


def command(folder: Path, tiny: bool) -> Iterator[tuple[str, float]]:
    """The whole command."""
    tables = 5 if tiny else 1_000
    write_project(folder, tables)
    run_case("publish", folder, tiny)
    ended = process([LANCESTAT, "docs"], folder)
    assert "index.html" in ended.stdout
    seconds = ended.seconds if tiny else median_seconds([LANCESTAT, "docs"], folder, 3)
    yield f"lancestat docs, {tables:,} tables, s", seconds


def build(folder: Path, tiny: bool) -> Measures:
    """Write the site, in a process of its own."""
    from lancestat.presentation.site.pages import build_site
    from lancestat.spec.model import ProjectSpec, Target

    report = project(5 if tiny else 1_000)
    nodes = tuple(node.spec for node in report.nodes)
    spec = ProjectSpec(report.name, folder, Target("dev", "state"), nodes, {})
    (folder / "specs.yml").write_text(declared(len(nodes)))
    before = time.process_time()
    seconds, site = timed(lambda: build_site(report, spec, folder / "site"))
    return {
        "pages written, s": seconds,
        "pages written, s of processor time": time.process_time() - before,
        "pages, MB": site.size_bytes / 1e6,
        "a table's page, kB": (folder / "site" / "tables" / "table_0.html").stat().st_size / 1e3,
        "the overview, kB": (folder / "site" / "index.html").stat().st_size / 1e3,
    }


def opened(site: Path, times: int) -> Iterator[tuple[str, float]]:
    """Yield the seconds that a browser takes to open each page; nothing without a browser."""
    chromium = os.environ.get("LANCESTAT_CHROMIUM") or which("chromium")
    if not chromium:
        return
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox", "--disable-background-networking", "--disable-dev-shm-usage"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        for name in ("index.html", "graph.html", "runs.html", "tables/table_0.html"):
            seconds = []
            for _ in range(times):
                context = browser.new_context()
                page = context.new_page()
                page.goto((site / name).as_uri())
                page.wait_for_function(f"{OPENED} > 0")
                seconds.append(page.evaluate(OPENED) / 1e3)
                context.close()
            yield f"{name} opened, s", statistics.median(seconds)
        browser.close()


def declared(tables: int) -> str:
    """The YAML that the pages show."""
    item = "  - name: table_{0}\n    uri: table_{0}.lance\n    columns: all\n    tags: [nightly]\n"
    return "tables:\n" + "".join(item.format(number) for number in range(tables))


def project(tables: int) -> ProjectReport:
    """Tables with everything that there can be, every tenth of which reads the ones before."""
    from lancestat.report.values import ProjectReport

    made = tuple(table(number) for number in range(tables))
    names = [report.spec.name for report in made]
    reads = {names[at]: tuple(names[at - 3 : at]) for at in range(10, tables, 10)}
    return ProjectReport("many", "dev", NOW, made, reads)


def table(number: int) -> TableReport:
    """A table."""
    from lancestat.errors import Location
    from lancestat.report.tables import FragmentReport, TableReport
    from lancestat.report.values import Health
    from lancestat.spec.model import Table
    from lancestat.tables.table_status import TableStatus
    from lancestat.tables.wire import PublishedColumn

    name = f"table_{number}"
    chance = random.Random(number)
    place = Location("specs.yml", 2 + 4 * number, 11)
    columns = {
        f"column_{at}": PublishedColumn(at * 7, chance.randrange(10**6), "-12.5", "98765.25", 8, 8)
        for at in range(COLUMNS)
    }
    status = TableStatus(
        table=name,
        uri=f"{name}.lance",
        version=40,
        use=True,
        reason="current",
        detail="the statistics describe version 40",
        policy=None,
        rows=1_000_000,
        fragments=FRAGMENTS,
        size_bytes=10**8,
        disk_bytes=10**7,
        computed_at=NOW - timedelta(hours=3),
        columns=columns,
        dropped={},
        analyzable=COLUMNS,
        missing=(),
        skipped=(),
        versions_behind=0,
        age=timedelta(hours=3),
        changed_rows=0.0,
    )
    return TableReport(
        spec=Table(
            name, f"{name}.lance", place, description="One row per event.", tags=("nightly",)
        ),
        health=Health.OK if number % 50 else Health.ERROR,
        problems=() if number % 50 else ("the statistics are refused",),
        verdict="use",
        reasons=("current",),
        status=status,
        changed_at=NOW - timedelta(hours=4),
        histograms={f"column_{at}": histogram(chance) for at in range(SHAPES)},
        fragments=tuple(FragmentReport(at, 20_000, 0, 1, 10**5, 20) for at in range(FRAGMENTS)),
        runs=tuple(node_run(name, night) for night in range(RUNS)),
    )


def histogram(chance: random.Random) -> Histogram:
    """A histogram of 254 bins."""
    from lancestat.tables.statistics.column_statistics import Histogram, HistogramBin

    ends = sorted(chance.gauss(0, 1000) for _ in range(255))
    return Histogram(4000.0, tuple(HistogramBin(low, high, 9) for low, high in pairwise(ends)))


def node_run(name: str, night: int) -> PastRun:
    """Return the result of a run for a node."""
    from lancestat.runs.result import NodeResult, PastRun, Status

    result = NodeResult(
        name,
        "table",
        "refresh",
        ("rows_appended",),
        Status.SUCCESS,
        FRAGMENTS - night,
        1,
        COLUMNS,
        10**6 - night,
        20_000,
        1_000_000,
        39 - night,
        40 - night,
        elapsed_seconds=1.5,
    )
    at = NOW - timedelta(days=night)
    return PastRun(f"run-{night}", "run", "dev", "success", at, at, (result,))


if __name__ == "__main__":
    run(__doc__, {"pages": pages, "command": command}, {"build": build, "publish": publish})
