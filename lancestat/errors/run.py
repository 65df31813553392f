"""LS5xx: errors of work on Spark."""

from __future__ import annotations

from lancestat.errors.base import RunError, UsageError


class UnexpectedBatch(RunError, code="LS502"):
    """Rows that were read lack a column, contain it twice, or have it with another type."""

    remedy = "Run again. If it persists, use the same release of pylance on the driver and workers."


class FragmentNotAnalyzed(RunError, code="LS510"):
    """A fragment could not be analyzed, for a reason without its own code."""

    remedy = (
        "Fix the cause at the end of the message, and run again. Fragments that were read already "
        "are not read again."
    )


class JobFailed(RunError, code="LS511"):
    """The Spark job of a table or a KNN join failed, for a reason without its own code."""

    remedy = (
        "The message ends with the cause of the last failed task. If a worker ran out of memory, "
        "give it more in the target's `spark` section, or run fewer tasks concurrently."
    )


class Cancelled(RunError, code="LS512"):
    """A Spark job was cancelled before it finished."""

    remedy = "Run again. Fragments that were read already are not read again."


class QueryFailed(RunError, code="LS513"):
    """Spark failed while computing a query."""

    remedy = (
        "Correct the query or the rows. The message has Spark's reason, such as a cast that fails."
    )


class ValueOutOfRange(RunError, code="LS514"):
    """A table holds a value that the Spark type of its column cannot hold."""

    remedy = "Leave the column out of the query, or correct the value in the named fragment."


class NodesFailed(RunError, code="LS515"):
    """Nodes failed or were interrupted; `RunResult.raise_for_status` raises this."""

    remedy = (
        "`RunResult.failures` has the code, message, hint and location of each failure. Correct "
        "what they name, then run `lancestat retry` or `Project.retry`."
    )


class UnknownRun(UsageError, code="LS518"):
    """No run of the target has that id, or several begin with it."""

    remedy = "`lancestat runs` lists the runs; write enough of an id to identify one run."


class JavaMissing(RunError, code="LS520"):
    """Spark needs Java, and none was found that works."""

    remedy = "Install OpenJDK 17 and set JAVA_HOME to its folder."


class JavaTooOld(RunError, code="LS521"):
    """The Java that was found is older than Spark accepts."""

    remedy = "Install OpenJDK 17 and set JAVA_HOME to its folder."


class SparkNotStarted(RunError, code="LS522"):
    """Spark's JVM did not start, or a Spark Connect server does not answer."""

    remedy = (
        "Check the target's `spark` section; `lancestat debug` checks each part of the setup. When "
        "a server is back, run `lancestat retry`."
    )


class SparkConnectSession(RunError, code="LS523"):
    """Something that needs the driver's JVM was requested from a Spark Connect session."""

    remedy = (
        'Read with `format("lancestat")`, or use a target with a master in a separate process. '
        "docs/how-to/spark.md lists what works over Spark Connect."
    )


class DataSourcesMissing(RunError, code="LS524"):
    """This Spark does not support data sources written in Python, such as `format("lancestat")`."""

    remedy = "Use `lancestat.read_table`, or Spark 4.0 or newer."


class ClassArchiveNotMade(RunError, code="LS528"):
    """The class archive that makes Spark start faster could not be written."""

    remedy = "Fix what the message names, and run `lancestat debug --warm-up` again."


class JavaSourcesRefused(RunError, code="LS530"):
    """Spark's own Java compiler rejects lancestat's sources."""

    remedy = "Use a release of Spark that lancestat supports; docs/how-to/spark.md lists them."


class JavaClassNotLoaded(RunError, code="LS531"):
    """Spark does not load a Java class that lancestat compiled for it."""

    remedy = "Use a release of Spark that lancestat supports, in a session that may load jars."


class CatalogNotAttached(RunError, code="LS534"):
    """A catalog of the target could not be added to the Spark session.

    The tables' views were added.
    """

    remedy = (
        "Give the catalog another name in the target, or correct the session's own catalog of "
        "that name."
    )


class PackageUnreadable(RunError, code="LS535"):
    """The target's `spark.package` does not exist, or was not written by `lancestat package`."""

    remedy = "Write it with `lancestat package`, and name it in the target's `spark.package`."


class PackageOfOtherVersions(RunError, code="LS536"):
    """The versions in the target's `spark.package` differ from those on the driver."""

    remedy = "Write it again where lancestat runs: `lancestat package --force`."


class WorkersLackPackage(RunError, code="LS537"):
    """Spark's workers do not have lancestat or one of the packages that it needs."""

    remedy = (
        "Write an archive for them with `lancestat package`, and name it in the target's "
        "`spark.package`. For a Spark Connect server, or a session that lancestat does not start, "
        "apply the settings that the command prints where Spark is started. docs/how-to/deploy.md "
        "describes both."
    )


class OtherPython(RunError, code="LS545"):
    """Spark's workers run a different minor version of Python than lancestat does."""

    remedy = (
        "Have them run the Python that the hint names: set PYSPARK_PYTHON or "
        "`spark.pyspark.python`, or remove a setting that names another."
    )


class ConnectorMissing(RunError, code="LS540"):
    """`reader: connector` is set, but the Lance connector is not on Spark's class path."""

    remedy = (
        "Put the connector for this Spark on its class path (docs/how-to/connector.md), or set "
        "`reader: lancestat`."
    )


class ConnectorCannotOpen(RunError, code="LS541"):
    """The Lance connector cannot open a table at the version that was planned."""

    remedy = "Use a connector for this Spark that can read this table, or `reader: lancestat`."


class ConnectorSchemaDiffers(RunError, code="LS542"):
    """The Lance connector's schema of a table differs from Lance's own."""

    remedy = "Set `reader: lancestat`."


class ConnectorNotPinned(RunError, code="LS543"):
    """The Lance connector ignores the version it is asked to read."""

    remedy = "Use a later release of the connector, or `reader: lancestat`."


class ConnectorNotReadable(RunError, code="LS544"):
    """The Lance connector cannot read a table in batches."""

    remedy = "Set `reader: lancestat`."


class SideNotWritten(RunError, code="LS552"):
    """A side of a KNN join cannot be written in Lance's format, often because it lacks a type.

    If the scratch folder is the cause, the error is LS581 or LS583.
    """

    remedy = "Leave out columns with types that Lance lacks. The message ends with the cause."


class SideUnreadable(RunError, code="LS555"):
    """Spark cannot read a side of a KNN join: its query, or files of its format."""

    remedy = (
        "Correct the side's `sql`, `format`, `uri` or `options`. The message has Spark's reason."
    )


class IndexUnreadable(RunError, code="LS565"):
    """The vector index of a table cannot be searched, for example because its files are damaged."""

    remedy = "Create the index again with Lance, or set `mode: exact`."


class IndexMissing(RunError, code="LS566"):
    """A table has no vector index on the column that the join searches."""

    remedy = "Run again to plan the join without the index, or create the index with Lance."


class StaleBase(RunError, code="LS569"):
    """The last result of a KNN join changed while a run was about to extend or replace it.

    The run wrote nothing.
    """

    remedy = "Run again, and let only one run at a time write a result."


class OutputError(RunError):
    """LS57x: the result of a KNN join cannot be written."""


class OutputOccupied(OutputError, code="LS570"):
    """The output of a KNN join contains something that no join wrote there.

    It is left unchanged.
    """

    remedy = "Give the join another `output`, or remove what is there."


class OutputNotWritten(OutputError, code="LS571"):
    """The result of a KNN join cannot be written to its output. Readers see the previous result."""

    remedy = "Check the `output`, its free space and permissions, and run again."


class OutputNotReplaceable(OutputError, code="LS572"):
    """A Parquet result is declared in an object store, where it cannot be replaced atomically."""

    remedy = "Use `output: {lance: ...}` there, or a local folder for Parquet."


class TooManyPairs(OutputError, code="LS573"):
    """A KNN join with `k: all` has more pairs within `max_distance` than `max_pairs` allows.

    Nothing is committed, and readers see the previous result.
    """

    remedy = "Lower `max_distance`, give a number as `k`, or raise `max_pairs`."


class ScratchNotShared(RunError, code="LS580"):
    """Spark's workers are on other machines, and no shared scratch folder is declared."""

    remedy = "Set the target's `scratch` to a shared folder or an object-store URI."


class ScratchFull(RunError, code="LS581"):
    """The scratch folder of KNN joins has no space left."""

    remedy = "Free space there, or set the target's `scratch` to a larger location."


class ScratchUntrusted(RunError, code="LS582"):
    """The default scratch folder of KNN joins is a link, or belongs to another user."""

    remedy = "Remove it, or set the target's `scratch`."


class ScratchUnusable(RunError, code="LS583"):
    """The scratch folder of KNN joins cannot be created, listed or written to."""

    remedy = "Check the target's `scratch`, its `storage_options` and the permissions there."


class PartitionsLost(RunError, code="LS587"):
    """Files of the right side in the scratch folder have disappeared or cannot be read."""

    remedy = "Run again, and keep other programs from removing files in the target's `scratch`."
