"""A walk through lancestat on the tables of TPC-H: `make demo`, or `python demo.py`."""

from __future__ import annotations

import argparse
import shutil
import sys
from decimal import Decimal
from pathlib import Path

from changes import change
from load import FRAGMENTS, SCALE, WAREHOUSE, empty, generator, load, opened
from page import Page, lancestat, setup_commands, typed
from readings import readings

FOLDER = Path(__file__).resolve().parent
STATE = FOLDER / ".lancestat"
QUERY = (
    "select c_mktsegment, count(*) from customer join orders on c_custkey = o_custkey "
    "where o_orderdate < date '1992-03-01' group by c_mktsegment"
)


def main() -> None:
    """Walk, from a fresh warehouse."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=Decimal, default=SCALE, help="of TPC-H; 0.1 is 100 MB")
    scale = parser.parse_args().scale
    check()
    try:
        walk(Page(FOLDER), scale)
    except KeyboardInterrupt:
        sys.exit(130)


def check() -> None:
    """Check the requirements of the demo before it starts."""
    from lancestat.errors import LancestatError
    from lancestat.spark.jvm import find_java

    generator()
    lancestat()
    try:
        find_java()
    except LancestatError as error:
        sys.exit(str(error))


def walk(page: Page, scale: Decimal) -> None:
    """From nothing to statistics and a join, and through a day of changes."""
    page.title("lancestat: statistics and KNN joins of Lance tables, only for what changed")
    page.paragraph(
        """
        A query is planned well when the planner knows how many rows a table has, how many
        distinct values its columns hold and what their bounds are. This walk finds that out for
        eight tables, and which parts customers mean whose words are not those of the catalogue.
        Then a day passes, and it catches up.
        """
    )
    load_tables(page, scale)
    explain_without_statistics(page)
    plan_everything(page)
    first_seconds = run_everything(page)
    show_orders(page)
    explain_with_statistics(page)
    show_suggestions(page)
    change_tables(page, scale)
    plan_changes(page)
    second_seconds = run_changes(page)
    plan_nothing(page)
    sum_up(page, first_seconds, second_seconds)


def load_tables(page: Page, scale: Decimal) -> None:
    """Write all tables of the warehouse again."""
    page.step("Ten tables")
    empty(WAREHOUSE)
    shutil.rmtree(STATE, ignore_errors=True)
    rows = [
        [table.name, f"{table.rows:,}", str(table.fragments), f"{table.size_bytes / 1e6:.1f} MB"]
        for table in load(WAREHOUSE, scale)
    ]
    page.grid(rows, head=["table", "rows", "fragments", "on disk"], right=(1, 2, 3))
    page.paragraph(
        f"""
        The data of TPC-H at scale {scale}, as Lance tables in {typed(WAREHOUSE, Path.cwd())}, and
        two tables of texts with their vectors: the names of the parts, and what customers ask for.
        A fragment is a portion of a table's rows, in files that never change: a change to the table
        adds fragments or replaces them. The YAML in {typed(FOLDER / "specs", Path.cwd())} declares
        which statistics are wanted, and one KNN join, suggestion.
        """
    )


def explain_without_statistics(page: Page) -> None:
    """Show the estimates of Spark for a join without statistics."""
    page.step("What does Spark believe?")
    page.command("sql", "--explain", QUERY)
    page.paragraph(
        """
        Not much: the rows of whole tables are known, what a filter leaves of them is not. Spark
        fears that the join gives every pair of rows.
        """
    )


def plan_everything(page: Page) -> None:
    """The first plan."""
    page.step("What is there to do?")
    page.command("plan")
    page.paragraph(
        """
        Everything is new, so all rows will be read, but only of the columns that the YAML
        declares, and every inquiry will be compared with every part. A plan looks at the tables'
        manifests alone: it reads no data and starts no Spark.
        """
    )


def run_everything(page: Page) -> float:
    """The first run; the seconds that it took."""
    page.step("Do it")
    seconds = page.command("run")
    page.paragraph(
        """
        Spark read every table once. Statistics went into each table's own manifest, in one
        commit: hence one version more. The owners of supplier want no commits but their own, so
        it is declared with `publish: none`, and its statistics stay in the project's state.
        """
    )
    return seconds


def show_orders(page: Page) -> None:
    """One table's statistics."""
    page.step("What a reader finds")
    page.command("show", "orders")
    page.paragraph(
        """
        The first line is the verdict. These numbers describe exactly this version of the table,
        so a reader uses them. If they did not, it would refuse them, and say by which rule.
        """
    )


def explain_with_statistics(page: Page) -> None:
    """The same join with statistics."""
    page.step("What does Spark believe now?")
    page.command("sql", "--explain", QUERY)
    page.paragraph(
        """
        The few orders of two months are known to be few, so the join is small, and they are what
        Spark sends to every worker instead of the customers. `lancestat sql` without --explain
        runs the query.
        """
    )


def show_suggestions(page: Page) -> None:
    """Show the neighbours that the join found."""
    page.step("Which parts do customers mean?")
    page.script("suggestions.py", "1", "3", "4", "50")
    page.paragraph(
        """
        suggestion is a Lance table like any other: for each inquiry the three parts whose names
        are nearest, by the cosine of vectors that count the trigrams of words. A photograph has
        no vector and matches nothing, but `join: left_outer` keeps it.
        """
    )


def change_tables(page: Page, scale: Decimal) -> None:
    """A day passes."""
    page.step("A day passes")
    rows = [
        [change_made.table, change_made.event, change_made.call]
        for change_made in change(WAREHOUSE, scale)
    ]
    page.grid(rows, head=["table", "what happens", "with Lance"])
    page.paragraph(
        """
        Each of these is a commit, and statistics published in a table describe the version before
        it. From now on readers refuse them, unless the table's policy accepts the distance.
        """
    )


def plan_changes(page: Page) -> None:
    """The plan that matters."""
    page.step("What is there to do now?")
    page.command("plan")
    page.paragraph(
        """
        Every line says why. lineitem: only the new fragment is read. orders: only the fragment
        that lost rows. supplier: only the new column. partsupp and customer: compacting and
        indexing move no value, so what is known gets a new stamp (=) and nothing is read. part:
        its policy, dashboards, accepts so small a change. nation and region: nothing happened.
        suggestion: only the new inquiries are compared with the parts, and put behind the result.
        """
    )


def run_changes(page: Page) -> float:
    """The second run; the seconds that it took."""
    page.step("Catch up")
    seconds = page.command("run")
    page.paragraph(
        """
        What was read is merged with what was known of all other fragments. The results are what
        reading and comparing everything would have given.
        """
    )
    return seconds


def plan_nothing(page: Page) -> None:
    """Proof that nothing is left."""
    page.step("Is anything left?")
    page.command("plan", "--check")
    page.paragraph(
        """
        No, and the exit code is 0. Before the run it would have been 3: that is how a scheduler
        or a pull request finds out.
        """
    )


def sum_up(page: Page, first_seconds: float, second_seconds: float) -> None:
    """Both runs side by side, and where to go from here."""
    page.heading("In short")
    first, second = readings(FOLDER)
    rows = [
        ["rows read", first.rows, second.rows],
        ["fragments read", first.fragments, second.fragments],
        ["pairs compared", first.pairs, second.pairs],
        [
            "tables committed to",
            *(f"{reading.commits} of {len(FRAGMENTS)}" for reading in (first, second)),
        ],
        ["seconds", f"{first_seconds:.1f}", f"{second_seconds:.1f}"],
    ]
    page.grid(rows, head=["", "first run", "second run"], right=(1, 2))
    page.paragraph(
        f"""
        The second run read {second.share:.1%} of the rows. With tables this small, most of either
        time starts Spark; the rest follows the rows that are read and the pairs that are compared.
        """
    )
    inquiry = opened(WAREHOUSE, "inquiry").count_rows() - 1
    page.paragraph("The tables are yours now. Change one, and ask for a plan again:")
    page.grid(
        [
            *([line, ""] for line in setup_commands(FOLDER)),
            [f"python suggestions.py {inquiry}", "what one of the new inquiries means"],
            ["lancestat show part", "behind its table, and used: its policy says so"],
            ["lancestat plan --full-refresh", "what reading everything would take"],
            ["lancestat plan --output markdown", "a plan for a pull request"],
            ["lancestat --help", "and all else"],
        ]
    )
    page.paragraph("Or look at all of them in a browser first:")
    page.command("docs")


if __name__ == "__main__":
    main()
