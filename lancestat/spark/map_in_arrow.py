"""`DataFrame.mapInArrow` as Spark has it, less its need for pandas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

Function = Callable[[Iterable["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


def map_in_arrow(rows: DataFrame, function: Function, schema: str) -> DataFrame:
    """The batches that `function` makes of those of each partition.

    PySpark asks for pandas in `mapInArrow`, which neither its workers nor the function use; this
    builds the same plan without asking.

    Args:
        rows: A DataFrame of a classic session.
        function: Pickled, and called once for each partition.
        schema: What it yields, as DDL.
    """
    from pyspark.sql import DataFrame
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    udf = UserDefinedFunction(function, schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = udf(*(rows[name] for name in rows.columns))
    mapped = rows._jdf.mapInArrow(column._jc, False, None)
    return DataFrame(mapped, rows.sparkSession)
