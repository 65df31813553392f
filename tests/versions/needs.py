"""What tests need that not every version of Spark has."""

from __future__ import annotations

from importlib.util import find_spec

import pyspark
import pytest
from pyspark.sql import functions

from lancestat.spark.session import versions


def _pushes_filters() -> bool:
    if find_spec("pyspark.sql.datasource") is None:
        return False
    from pyspark.sql import datasource

    return hasattr(datasource, "Filter")


HAS_COLLATIONS = hasattr(functions, "collate")

# Before, a column with statistics and without bounds equals no value, by Spark's estimates.
ESTIMATES_WITHOUT_BOUNDS = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 2)

python_sources = pytest.mark.skipif(
    not versions.has_python_sources(), reason="this Spark has no data sources in Python"
)
pushed_filters = pytest.mark.skipif(
    not _pushes_filters(), reason="this Spark pushes no filters to data sources in Python"
)
nearest_by_join = pytest.mark.skipif(
    not versions.has_nearest_by_join(), reason="this Spark has no nearestByJoin"
)
