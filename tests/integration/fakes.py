"""Data sources in Java that stand in for the Lance connector."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lancestat.spark.compiler import compile_jar, load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCE = Path(__file__).parent / "java" / "FakeSource.java"
SHORT_NAME = "lancestat-fake"
_REGISTER = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"


class Fakes:
    """The sources of `FakeSource.java`, each a nested class, on the class path of a session."""

    def __init__(self, spark: SparkSession) -> None:
        jar = compile_jar(spark, {SOURCE.name: SOURCE.read_text(encoding="utf-8")})
        with zipfile.ZipFile(jar, "a") as file:
            file.writestr(_REGISTER, self.name("Bare"))
        self._java: Any = load(spark, jar, "lancestat.fake.FakeSource")

    @staticmethod
    def name(source: str) -> str:
        """Return the class name of a source."""
        return f"lancestat.fake.FakeSource${source}"

    def hold(self, path: Path, version: int, rows: DataFrame) -> None:
        """Let the sources have rows for a version of a dataset."""
        self._java.hold(str(path.absolute()), str(version), rows._jdf)

    def notes(self, work: Callable[[], object]) -> list[str]:
        """Return the operations that were pushed into the sources meanwhile."""
        self._java.notes()
        work()
        return [str(note) for note in self._java.notes()]
