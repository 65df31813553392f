"""Spark without compilers: compiling takes longer than a test's few rows."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def short_lived() -> dict[str, str]:
    """Return the environment in which Spark's JVM does not optimise code for a long life."""
    options = ("-XX:TieredStopAtLevel=1", os.environ.get("JDK_JAVA_OPTIONS", ""))
    return {"JDK_JAVA_OPTIONS": " ".join(options).strip()}


def interpreted(spark: SparkSession) -> SparkSession:
    """Return a new session of the same Spark, which compiles no queries."""
    session = spark.newSession()
    for key, value in INTERPRETED.items():
        session.conf.set(key, value)
    return session
