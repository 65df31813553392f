"""What tests need that not every version of Spark has."""

from __future__ import annotations

import pyspark
import pytest
from pyspark.sql import functions

from lancestat.spark import versions

SPARK = tuple(map(int, pyspark.__version__.split(".")[:2]))
HAS_COLLATIONS = hasattr(functions, "collate")

python_sources = pytest.mark.skipif(
    not versions.has_python_sources(), reason="this Spark has no data sources in Python"
)
ansi_by_default = pytest.mark.skipif(
    SPARK < (4, 0), reason="a division by zero is null to this Spark"
)
newest = pytest.mark.skipif(
    SPARK < (4, 3), reason="documents show what the newest Spark plans and prints"
)
empty_relations = pytest.mark.skipif(
    SPARK < (4, 0), reason="this Spark forgets the plan of what returns no rows"
)
connect_server = pytest.mark.skipif(
    SPARK < (4, 0), reason="PySpark has no Connect server before 4.0"
)
unbounded_equality = pytest.mark.skipif(
    SPARK < (4, 2),
    reason="to this Spark a column of a catalog without bounds has no values",
)
nearest_by_join = pytest.mark.skipif(
    not versions.has_nearest_by_join(), reason="this Spark has no nearestByJoin"
)
time_type = pytest.mark.skipif(
    not versions.has_time_type(), reason="this Spark has no type for times of day"
)


def syntax_since(*version: int) -> pytest.MarkDecorator:
    """Return the mark of a query that Sparks before a version cannot parse, analyze or plan."""
    return pytest.mark.skipif(version > SPARK, reason="this Spark has no such query")
