"""Compiles the relation's Java sources with the compiler that Spark ships, also into a jar."""

from __future__ import annotations

import atexit
import hashlib
import io
import shutil
import threading
import zipfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lancestat.errors import JarNotWritten, JavaClassNotLoaded, JavaSourcesRefused
from lancestat.lake.files import make_temporary_folder, temporary_folder, write_whole
from lancestat.spark.package import require_free_place
from lancestat.spark.session import require_classic, running_session, start_session, stop_session
from lancestat.spark.versions import has_nearest_by_join, java_sources
from lancestat.spec.model import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


CLASS_NAME = "lancestat.relation.LanceRelation"
EXTENSION_NAME = "lancestat.relation.NearestByExtension"

_compiling = threading.Lock()
_loading = threading.Lock()
# The jar, once there is one.
_compiled: list[Path] = []


def relation_classes(spark: SparkSession) -> Any:
    """Return an instance of the Java class `lancestat.relation.LanceRelation`, through py4j.

    The first session of this process compiles the sources into a jar, and the first of each Spark
    context gives that to the executors. JavaSourcesRefused and JavaClassNotLoaded if that fails.
    """
    context = spark.sparkContext
    with _loading:
        relation = getattr(context, "_lancestat_relation", None)
        if relation is None:
            if not _is_shipped(spark):
                relation = load(spark, relation_jar(spark), CLASS_NAME)
            else:
                relation = _instance(spark, CLASS_NAME)
            context._lancestat_relation = relation
        return relation


def _is_shipped(spark: SparkSession) -> bool:
    """Whether the session was started with the jar that `lancestat jar` writes.

    JavaClassNotLoaded if the jar is that of another release, or for another Spark.
    """
    if _compiled:
        # The loaders of a JVM keep the classes of a stopped Spark, which are those of this jar.
        return False
    session: Any = spark._jsparkSession
    # What is given to a session later is in a loader below this one.
    loader = session.sharedState().jarClassLoader().getParent()
    if loader.getResource(f"{CLASS_NAME.replace('.', '/')}.class") is None:
        return False
    if loader.getResource(_digest_name(java_sources(spark, sources()))) is None:
        raise JavaClassNotLoaded(
            "the jar of lancestat that Spark was started with is not of this release, or is for "
            "another Spark",
            hint="write it again: lancestat jar --force",
        )
    return True


def write_jar(spark: SparkSession, path: Path) -> None:
    """Write the jar of the package's Java sources, compiled for the Spark that runs."""
    known = java_sources(spark, sources())
    content = io.BytesIO()
    with zipfile.ZipFile(relation_jar(spark)) as compiled, zipfile.ZipFile(content, "w") as jar:
        for name in sorted(compiled.namelist()):
            # Of no time, so that the same sources give the same bytes.
            jar.writestr(zipfile.ZipInfo(name), compiled.read(name))
        jar.writestr(zipfile.ZipInfo(_digest_name(known)), "")
    write_whole(path, content.getvalue())


def _digest_name(known: Mapping[str, str]) -> str:
    text = "\0".join(part for item in sorted(known.items()) for part in item)
    return f"lancestat/relation/sources-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def nearest_by_extension(spark: SparkSession) -> Any:
    """Return an instance of the Java class `NearestByExtension`, as `relation_classes`."""
    relation_classes(spark)
    return _instance(spark, EXTENSION_NAME)


def relation_jar(spark: SparkSession) -> Path:
    """Return the jar of the Java sources, compiled when this process first asks for it."""
    with _compiling:
        # A second compilation would clash: a JVM keeps the classes of a stopped Spark.
        if not _compiled:
            _compiled.append(compile_jar(spark, sources()))
        return _compiled[0]


@contextmanager
def compiling(spark: SparkSession) -> Iterator[None]:
    """Compile the relation's sources, unless that is done, while the block does something else."""
    with ThreadPoolExecutor(1) as beside:
        # A failure here is raised again once the classes are needed.
        beside.submit(_compile_unless_shipped, spark)
        yield


def _compile_unless_shipped(spark: SparkSession) -> None:
    if not _is_shipped(spark):
        relation_jar(spark)


def sources() -> dict[str, str]:
    """Return the Java sources that the package holds, by file name."""
    folder = resources.files("lancestat.spark") / "java"
    files = sorted(folder.iterdir(), key=lambda file: file.name)
    return {file.name: file.read_text(encoding="utf-8") for file in files}


def compile_jar(spark: SparkSession, texts: Mapping[str, str]) -> Path:
    """Compile Java sources, given by file name, into a jar that lives as long as this process."""
    jvm: Any = spark._jvm
    util = jvm.org.codehaus.commons.compiler.util.resource
    class_files = jvm.java.util.HashMap()
    compiler = jvm.org.codehaus.janino.Compiler()
    loader = spark._jsparkSession.sharedState().jarClassLoader()
    compiler.setIClassLoader(jvm.org.codehaus.janino.ClassLoaderIClassLoader(loader))
    compiler.setClassFileCreator(util.MapResourceCreator(class_files))
    # Else it would look for sources and classes beside the sources, in the working directory.
    compiler.setSourceFinder(util.ResourceFinder.EMPTY_RESOURCE_FINDER)
    compiler.setClassFileFinder(util.ResourceFinder.EMPTY_RESOURCE_FINDER)
    known = java_sources(spark, texts)
    units = cast(Any, spark.sparkContext._gateway).new_array(util.Resource, len(known))
    for index, (name, text) in enumerate(known.items()):
        units[index] = util.StringResource(name, text)
    try:
        compiler.compile(units)
    except Exception as error:
        names = ", ".join(texts)
        raise JavaSourcesRefused(
            f"Spark's Java compiler refuses {names}: {jvm_message(error)}"
        ) from None
    return _jar({str(path): bytes(class_files[path]) for path in class_files})


def load(spark: SparkSession, jar: Path, class_name: str) -> Any:
    """Give a jar to the driver and all executors; return an instance of one of its classes."""
    session: Any = spark._jsparkSession
    try:
        session.sessionState().resourceLoader().addJar(str(jar))
    except Exception as error:
        raise _not_loaded(class_name, error) from None
    return _instance(spark, class_name)


def _instance(spark: SparkSession, class_name: str) -> Any:
    session: Any = spark._jsparkSession
    try:
        loaded = session.sharedState().jarClassLoader().loadClass(class_name)
        return loaded.getConstructors()[0].newInstance(None)
    except Exception as error:
        raise _not_loaded(class_name, error) from None


def _not_loaded(class_name: str, error: Exception) -> JavaClassNotLoaded:
    return JavaClassNotLoaded(f"Spark does not load {class_name}: {jvm_message(error)}")


def _jar(files: Mapping[str, bytes]) -> Path:
    folder = make_temporary_folder()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    # Spark takes only one jar of any name.
    path = folder / f"{folder.name}.jar"
    with zipfile.ZipFile(path, "w") as jar:
        for name, code in files.items():
            jar.writestr(name, code)
    return path


def jvm_message(error: Exception) -> str:
    """Return what the JVM says of an error, or the error's own text where it is Python's."""
    java = getattr(error, "java_exception", None)
    if java is not None:
        return str(java.getMessage() or java.toString())
    return str(getattr(error, "desc", None) or error)


def write_extension_jar(path: Path, *, is_replaced: bool = False) -> tuple[int, str]:
    """Write the jar for the installed or running Spark; return its bytes and the version of Spark.

    JarNotWritten if it cannot be written, something is in the way, or Spark has no NEAREST BY.
    """
    require_free_place(
        path, is_replaced=is_replaced, ending=".jar", verb="load", refusal=JarNotWritten
    )
    if not has_nearest_by_join():
        raise JarNotWritten("this Spark has no NEAREST BY, for which the jar is")
    running = running_session()
    with temporary_folder() as folder:
        target = Target("jar", str(folder), spark_master="local[1]")
        spark = running or start_session(target, "lancestat jar", is_short_lived=True)
        try:
            require_classic(spark)
            write_jar(spark, path)
            version = str(spark.version)
        except OSError as error:
            reason = error.strerror or str(error)
            raise JarNotWritten(f"cannot write {path}: {reason}") from None
        finally:
            if running is None:
                stop_session(spark, ends_process=False)
    return path.stat().st_size, version


def jar_settings(path: str) -> dict[str, str]:
    """Return the Spark settings with which a session has the jar and its rule."""
    return {"spark.jars": path, "spark.sql.extensions": EXTENSION_NAME}
