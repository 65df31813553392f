"""Queries with deeply nested conditions over a table; prints their rows as JSON.

The session has a stack on which Spark itself gets through them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from lancestat.spark.session import start_session
from lancestat.spec.model import Target
from tests.integration.planned import related
from tests.runs.world import World

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

STACK = "-Xss512m"
# Spark itself takes seconds for hundreds of levels: so deep, only these, and no aggregates.
MOST_LEVELS_OF_ALL = 100
DEEP = ("chain of and", "not of or", "not alone", "covered")
AGGREGATED = ("or to the right", "unknown", "covered", "not a number")


def conditions(levels: int) -> Mapping[str, Column]:
    """Conditions that select rows of every fragment, or of some, with that many levels."""
    from pyspark.sql import functions as f

    id, total = f.col("o_id"), f.col("o_total")

    def nested(wrap: Callable[[Column, int], Column]) -> Column:
        return reduce(wrap, range(levels), id < 0)

    members = [id == 3 * number for number in range(levels)]
    return {
        "chain of and": reduce(lambda left, right: left & right, [id != 7] * levels),
        "or to the right": reduce(lambda right, left: left | right, members),
        "not of or": nested(lambda inner, n: ~(inner | id.isin(n, n + 1))),
        "and within or": nested(lambda inner, n: (inner & (total >= n % 9)) | (id == n)),
        "not alone": reduce(lambda inner, _: ~inner, range(levels), id.isin(3, 60)),
        "in": id.isin(*range(0, levels, 7)),
        "unknown": nested(lambda inner, n: (inner & (f.abs(total) >= n % 9)) | (id == n)),
        "covered": (id < 50) & nested(lambda inner, n: ~(inner & (total > n))),
        "not a number": nested(lambda inner, n: (inner & (total > float("nan"))) | (id == n % 90)),
    }


def answers(frame: DataFrame, levels: int) -> dict[str, list[list[object]]]:
    """Return the rows that each condition selects, and counts and bounds of them."""
    from pyspark.sql import functions as f

    is_deep = levels > MOST_LEVELS_OF_ALL
    found: dict[str, list[list[object]]] = {}
    for name, condition in conditions(levels).items():
        if is_deep and name not in DEEP:
            continue
        selected = frame.where(condition)
        found[name] = sorted([row[0]] for row in selected.select("o_id").collect())
        if not is_deep and name in AGGREGATED:
            bounds = selected.agg(f.count("*"), f.min("o_id"), f.max("o_id"), f.count("o_status"))
            found[f"aggregates of {name}"] = [list(row) for row in bounds.collect()]
    return found


def main(lance: str, parquet: str, *depths: str) -> None:
    """Print what Lance and Parquet give, by the number of levels."""
    conf = {
        "spark.driver.extraJavaOptions": STACK,
        "spark.sql.cbo.enabled": "true",
        "spark.sql.adaptive.enabled": "false",
        "spark.ui.enabled": "false",
    }
    target = Target("test", state=f"{lance}.state", spark_master="local[1]", spark_conf=conf)
    spark = start_session(target, "deep filters", is_short_lived=True)
    world = World(Path(lance))
    world.run()
    result = {
        levels: {
            "lance": answers(related(spark, world), int(levels)),
            "parquet": answers(spark.read.parquet(parquet), int(levels)),
        }
        for levels in depths
    }
    sys.stdout.write(json.dumps(result))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
