"""Compiles the relation's Java source with the compiler that Spark ships."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import threading
import zipfile
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lancestat.errors import RunError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLASS_NAME = "lancestat.relation.LanceRelation"

_compiling = threading.Lock()


def relation_classes(spark: SparkSession) -> Any:
    """An instance of the Java class `lancestat.relation.LanceRelation`, through py4j.

    The first session of a Spark context compiles the source and hands the classes to its executors
    in a jar; all others share it.

    Raises:
        RunError: the source does not compile (LS530), or its classes cannot be loaded (LS531).
    """
    context = spark.sparkContext
    with _compiling:
        relation = getattr(context, "_lancestat_relation", None)
        if relation is None:
            relation = _loaded(spark, _jar(_compiled(spark)))
            context._lancestat_relation = relation
        return relation


def source() -> str:
    """The Java source that the package holds."""
    folder = resources.files("lancestat.spark") / "java"
    return (folder / "LanceRelation.java").read_text(encoding="utf-8")


def _compiled(spark: SparkSession) -> dict[str, bytes]:
    jvm: Any = spark._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(spark._jsparkSession.sharedState().jarClassLoader())
    try:
        compiler.cook("LanceRelation.java", source())
    except Exception as error:
        raise RunError(
            "LS530", f"Spark's Java compiler refuses {CLASS_NAME}: {_said(error)}"
        ) from None
    found = compiler.getBytecodes()
    return {str(name): bytes(found[name]) for name in found}


def _jar(classes: dict[str, bytes]) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="lancestat-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "lancestat-relation.jar"
    with zipfile.ZipFile(path, "w") as jar:
        for name, code in classes.items():
            jar.writestr(name.replace(".", "/") + ".class", code)
    return path


def _loaded(spark: SparkSession, jar: Path) -> Any:
    session: Any = spark._jsparkSession
    try:
        session.sessionState().resourceLoader().addJar(str(jar))
        loaded = session.sharedState().jarClassLoader().loadClass(CLASS_NAME)
        return loaded.getConstructors()[0].newInstance(None)
    except Exception as error:
        raise RunError("LS531", f"Spark does not load {CLASS_NAME}: {_said(error)}") from None


def _said(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    return str(java.toString() if java is not None else error)
