"""How far the rows that planners expect are from the rows that there are.

    python benchmarks/accuracy.py                       # errors on TPC-DS at scale 0.2, local[2]
    python benchmarks/accuracy.py --tiny                # a smoke run of four queries
    python benchmarks/accuracy.py errors plans peers    # some of the parts
    python benchmarks/accuracy.py --datasets forum      # of tpch, tpcds, skewh, forum
    python benchmarks/accuracy.py --queries q72 q95     # some of the queries
    python benchmarks/accuracy.py --worst 30            # also the operators that are most wrong
    python benchmarks/accuracy.py --data FOLDER         # keeps tables and true rows there

Each side plans each query. What it expects of every filter, join and aggregate of its optimized
plan is compared with the rows that DuckDB counts for the same subplan:

lancestat   Lance tables, as `Project.attach` binds them, with the estimates of whole plans
true        the same, with true rows in place of these estimates: the best plans there are
columns     the same, these estimates switched off: statistics of columns alone
bare        Spark's own tables over Parquet, without statistics
analyzed    the same after `ANALYZE TABLE ... FOR ALL COLUMNS`
histograms  the same with histograms

The parts:

errors  the q-error, max(expected / true, true / expected) with at least one row each (Moerkotte,
        Neumann, Steidl: Preventing Bad Plans by Bounding the Impact of Cardinality Estimation
        Errors, 2009); `under` and `over` are shares of operators
plans   the P-error, the true rows of all joins of a plan over those of the best order, and
        broadcasts that true sizes would have otherwise
peers   q-errors of DuckDB and, where it is installed, PostgreSQL on the subplans of the first side
rows    whether the sides find the same rows
times   the same, with the seconds that queries take
change  q-errors after 20 commits that append 4.8 % of the rows, before and after a run
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import tpcds
from accuracy import peers, report
from accuracy.change import change
from accuracy.datasets import GENERATORS, Dataset, prepare, write_project, write_tables
from accuracy.measures import compare
from accuracy.report import Outcome
from accuracy.schemas import DECLARED
from accuracy.sides import COMPARABLE, SIDES, TRUE, estimates, session, settings
from accuracy.true_rows import TrueRows, told
from accuracy.truths import Truths, load
from measure import spark_parser, timed

from lancestat.spark.session import start_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    import lancestat

PARTS = ("errors", "plans", "peers", "rows", "times", "change")
TINY_PARTS = ("errors", "plans", "peers", "times", "change")
DEFAULT_SIDES = ("lancestat", "columns", "bare", "analyzed")
TINY_SCALE, TINY_SHARE = 0.01, 0.008
Sides = Mapping[str, "SparkSession"]


def main() -> None:
    """Measure one dataset after the other, and print."""
    given = arguments()
    same = True
    with tempfile.TemporaryDirectory(prefix="lancestat-benchmark-") as name:
        for dataset in given.datasets:
            folder = Path(name, dataset)
            folder.mkdir()
            tables = prepare(dataset, given.scale, given.data or Path(name, "data"), given.share)
            same = measure(tables, folder, given) and same
    if not same:
        sys.exit("the sides differ on the queries marked with !")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = spark_parser(__doc__, runs=2)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--datasets", nargs="+", default=("tpcds",), choices=GENERATORS)
    parser.add_argument("--scale", type=float, default=0.2, help="scale factor of each dataset")
    parser.add_argument("--sides", nargs="+", default=DEFAULT_SIDES, choices=SIDES)
    parser.add_argument("--queries", nargs="+", metavar="NAME")
    parser.add_argument("--declared", nargs="+", default=(), choices=DECLARED)
    parser.add_argument("--threshold", type=int, default=10 << 20, help="bytes of a broadcast")
    parser.add_argument("--limit", type=float, default=360, help="seconds a query may take")
    parser.add_argument("--data", type=Path, help="where to keep tables and true rows")
    parser.add_argument("--worst", type=int, default=0, metavar="N", help="operators to print")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"there is no part {min(unknown)}: there are {', '.join(PARTS)}")
    options.parts = options.parts or (TINY_PARTS if options.tiny else ("errors",))
    options.share = TINY_SHARE if options.tiny else 1.0
    if options.tiny:
        options.datasets, options.scale, options.runs = ("forum",), TINY_SCALE, 0
        options.sides = ("lancestat", "analyzed")
    return options


def measure(dataset: Dataset, folder: Path, given: argparse.Namespace) -> bool:
    """Measure and print all parts; return whether the sides found the same rows."""
    names = given.queries or dataset.queries
    dataset = replace(dataset, queries={name: dataset.queries[name] for name in names})
    print(f"\n{dataset.name}: {len(dataset.queries)} queries", flush=True)
    write_tables(dataset, folder)
    project = write_project(dataset, folder, given.cores, given.declared)
    spark = start_session(project.spec.target, "benchmark")
    try:
        run(project)
        open_session = partial(session, spark, project, dataset, threshold=given.threshold)
        sides = {side: open_session(side) for side in given.sides}
        if {"errors", "plans", "peers"}.intersection(given.parts):
            plan(dataset, sides, given)
        same = all(execute(dataset, sides, given))
        if "change" in given.parts:
            changed = change(dataset, folder, folder / "changed")
            print("after 20 commits:")
            plan_changed(changed, open_session("lancestat"))
            run(project)
            plan_changed(changed, open_session("lancestat"))
    finally:
        spark.stop()
    return same


def run(project: lancestat.Project) -> None:
    """Run a project, and print how long that took."""
    seconds, result = timed(project.run)
    assert result.status == "success", result
    print(f"a run took {seconds:.1f} s", flush=True)


@contextmanager
def counted(dataset: Dataset) -> Iterator[Truths]:
    """Yield the true rows of a dataset's queries; print what DuckDB refuses at last."""
    database = load(dataset.folder, list(dataset.columns))
    with database, Truths(dataset.folder / "truths.parquet", database) as truths:
        yield truths
    for sql, error in truths.refused.items():
        print(f"DuckDB refuses {sql}\n  {error}", file=sys.stderr)


def plan(dataset: Dataset, sides: Sides, given: argparse.Namespace) -> None:
    """Compare what all sides expect with the truth, and print the parts about that."""
    with counted(dataset) as truths:
        outcomes = planned(dataset, sides, truths)
        if "errors" in given.parts:
            report.show_errors({side: outcome.compared for side, outcome in outcomes.items()})
            report.show_left_out(outcomes)
        if given.worst:
            report.show_worst(outcomes, given.worst)
        if "plans" in given.parts:
            report.show_plans(outcomes, given.threshold, truths)
        if "peers" in given.parts:
            show_peers(next(iter(outcomes.values())), dataset, truths)


def planned(dataset: Dataset, sides: Sides, truths: Truths) -> dict[str, Outcome]:
    """Return what each side expects of a dataset's queries, compared with the truth."""
    from pyspark.errors import PySparkException

    outcomes = {side: Outcome() for side in sides}
    true_rows = TrueRows(sides[TRUE], dataset) if TRUE in sides else None
    for name, query in dataset.queries.items():
        for side, spark in sides.items():
            outcome = outcomes[side]
            try:
                with settings(spark, COMPARABLE):
                    if true_rows and side == TRUE:
                        true_rows.learn(query, truths)
                    with told(true_rows, side):
                        outcome.plans[name] = estimates(spark, query, dataset)
            except PySparkException as error:
                outcome.failed[name] = type(error).__name__
                continue
            outcome.compared += compare(name, outcome.plans[name], truths)
        truths.save()
    return outcomes


def plan_changed(dataset: Dataset, spark: SparkSession) -> None:
    """Print the q-errors of lancestat on tables that were changed."""
    with counted(dataset) as truths:
        outcomes = planned(dataset, {"lancestat": spark}, truths)
    report.show_errors({side: outcome.compared for side, outcome in outcomes.items()})


def show_peers(outcome: Outcome, dataset: Dataset, truths: Truths) -> None:
    """Print q-errors of other databases on the subplans of a side that all can estimate."""
    subplans = {each.expected.operator.sql or "": each for each in outcome.compared}
    expected: dict[str, Sequence[float | None]] = {
        "lancestat": [each.rows for each in subplans.values()],
        "duckdb": peers.duckdb_rows(truths.database, list(subplans)),
    }
    if peers.has_postgres():
        with peers.postgres() as server:
            server.load(dataset, truths.database)
            expected["postgres"] = server.rows(list(subplans))
    known = [None not in rows for rows in zip(*expected.values(), strict=True)]
    report.show_errors(
        {
            peer: [
                replace(each, rows=max(1, number or 1))
                for each, number, is_known in zip(subplans.values(), rows, known, strict=True)
                if is_known
            ]
            for peer, rows in expected.items()
        }
    )


def execute(dataset: Dataset, sides: Sides, given: argparse.Namespace) -> Iterator[bool]:
    """Run the queries, print, and yield whether all rows were equal."""
    wanted = {part for part in ("rows", "times") if part in given.parts}
    if not wanted:
        return
    plannable = parsed(dataset.queries, next(iter(sides.values())))
    during = partial(told, learned(dataset, sides, plannable))
    for part, runs in (("rows", 0), ("times", given.runs)):
        if part in wanted:
            turns = tpcds.take_all_turns(sides, plannable, runs, given.limit, during)
            yield tpcds.show(list(sides), turns)


def learned(dataset: Dataset, sides: Sides, queries: Mapping[str, str]) -> TrueRows | None:
    """Return the true rows of queries for the side that is told them, if it is there."""
    if TRUE not in sides:
        return None
    true_rows = TrueRows(sides[TRUE], dataset)
    with counted(dataset) as truths:
        for query in queries.values():
            true_rows.learn(query, truths)
            truths.save()
    print(f"{true_rows.ordered} regions of joins have the best order, {true_rows.left} lancestat's")
    return true_rows


def parsed(queries: Mapping[str, str], spark: SparkSession) -> dict[str, str]:
    """Return the queries that Spark understands."""
    from pyspark.errors import AnalysisException, ParseException

    made = {}
    for name, query in queries.items():
        try:
            spark.sql(query)
        except (AnalysisException, ParseException) as error:
            print(f"{name} is left out: {type(error).__name__}")
        else:
            made[name] = query
    return made


if __name__ == "__main__":
    main()
