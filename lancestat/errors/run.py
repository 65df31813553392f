"""LS5xx: errors of work on Spark."""

from __future__ import annotations

from lancestat.errors.base import RunError


class UnexpectedBatch(RunError):
    """Rows that were read lack a column, have it twice, or have it in another type."""

    code = "LS502"
    remedy = "Run again. If it persists, use one release of pylance on the driver and workers."


class FragmentNotAnalyzed(RunError):
    """One fragment could not be analyzed, for a reason without a code of its own."""

    code = "LS510"
    remedy = (
        "Fix the cause, with which the message ends, and run again; fragments that were read "
        "already are not read again."
    )


class JobFailed(RunError):
    """The Spark job of a table or a KNN join failed, for a reason without a code of its own."""

    code = "LS511"
    remedy = (
        "The message ends with the cause of the last failed task. Where a worker ran out of "
        "memory, give it more in the target's `spark` section, or let fewer tasks run at once."
    )


class Cancelled(RunError):
    """A Spark job was cancelled before it was done."""

    code = "LS512"
    remedy = "Run again; fragments that were read already are not read again."


class QueryFailed(RunError):
    """Spark failed while it computed a query."""

    code = "LS513"
    remedy = (
        "Correct the query or the rows; the message has Spark's reason, such as a cast that fails."
    )


class ValueOutOfRange(RunError):
    """A table holds a value that the Spark type of its column cannot hold."""

    code = "LS514"
    remedy = "Leave the column out of the query, or correct the value in the fragment named."


class JavaMissing(RunError):
    """There is no Java that runs, and Spark needs one."""

    code = "LS520"
    remedy = "Install OpenJDK 17 and set JAVA_HOME to its folder."


class JavaTooOld(RunError):
    """The Java that was found is older than Spark accepts."""

    code = "LS521"
    remedy = "Install OpenJDK 17 and set JAVA_HOME to its folder."


class SparkNotStarted(RunError):
    """Spark's JVM did not start."""

    code = "LS522"
    remedy = "Check the target's `spark` section; `lancestat debug` tries each part of the set-up."


class SparkConnectSession(RunError):
    """What needs the driver's JVM was asked of a Spark Connect session."""

    code = "LS523"
    remedy = (
        'Read with `format("lancestat")`, or use a target with a master in a process of its own; '
        "docs/how-to/spark.md lists what works over Spark Connect."
    )


class DataSourcesMissing(RunError):
    """The running Spark has no data sources written in Python, as `format("lancestat")` is."""

    code = "LS524"
    remedy = "Use `lancestat.read_table`, or Spark 4.0 or newer."


class ClassArchiveNotMade(RunError):
    """The archive of classes, with which Spark starts faster, could not be made."""

    code = "LS528"
    remedy = "Correct what the message names and run `lancestat debug --warm-up` again."


class JavaSourcesRefused(RunError):
    """Spark's own Java compiler does not accept lancestat's sources."""

    code = "LS530"
    remedy = "Use a release of Spark that lancestat supports; docs/how-to/spark.md names them."


class JavaClassNotLoaded(RunError):
    """Spark does not load a Java class that lancestat compiled for it."""

    code = "LS531"
    remedy = "Use a release of Spark that lancestat supports, in a session that may load jars."


class CatalogNotAttached(RunError):
    """A catalog of the target cannot be a catalog of the Spark session; the tables' views are."""

    code = "LS534"
    remedy = (
        "Give the catalog another name in the target, or correct the session's own catalog of that "
        "name."
    )


class PackageUnreadable(RunError):
    """The target's `spark.package` is not there, or `lancestat package` has not written it."""

    code = "LS535"
    remedy = "Write it with `lancestat package`, and name it in the target's `spark.package`."


class PackageOfOtherVersions(RunError):
    """The target's `spark.package` has other versions than those that run on the driver."""

    code = "LS536"
    remedy = "Write it anew where lancestat runs: `lancestat package --force`."


class WorkersLackPackage(RunError):
    """Spark's workers have no lancestat, or lack one of the packages that it needs."""

    code = "LS537"
    remedy = (
        "Write an archive for them with `lancestat package`, and name it in the target's "
        "`spark.package`. For a server of Spark Connect, or a session that lancestat does not "
        "start, set what that command prints where Spark is started; docs/how-to/deploy.md says "
        "how."
    )


class ConnectorMissing(RunError):
    """`reader: connector` is set, and the Lance connector is not on Spark's class path."""

    code = "LS540"
    remedy = (
        "Put the connector for this Spark on its class path (docs/how-to/connector.md), or set "
        "`reader: lancestat`."
    )


class ConnectorCannotOpen(RunError):
    """The Lance connector does not open a table at the version that was observed."""

    code = "LS541"
    remedy = "Use a connector for this Spark that reads this table, or `reader: lancestat`."


class ConnectorSchemaDiffers(RunError):
    """The Lance connector's schema of a table differs from Lance's own."""

    code = "LS542"
    remedy = "Set `reader: lancestat`."


class ConnectorNotPinned(RunError):
    """The Lance connector ignores the version that it is told to read."""

    code = "LS543"
    remedy = "Use a later release of the connector, or `reader: lancestat`."


class ConnectorNotReadable(RunError):
    """The Lance connector cannot read a table in batches."""

    code = "LS544"
    remedy = "Set `reader: lancestat`."


class SideNotWritten(RunError):
    """A side of a KNN join cannot be written as a Lance dataset, as with a type that Lance lacks.

    Where the scratch folder is the cause, the error is LS581 or LS583.
    """

    code = "LS552"
    remedy = "Leave out columns of types that Lance lacks; the message ends with the cause."


class SideUnreadable(RunError):
    """Spark cannot read a side of a KNN join: its query, or files of its format."""

    code = "LS555"
    remedy = (
        "Correct the side's `sql`, `format`, `uri` or `options`; the message has Spark's reason."
    )


class IndexUnreadable(RunError):
    """The vector index of a table cannot be searched, as when its files are damaged."""

    code = "LS565"
    remedy = "Create the index again with Lance, or set `mode: exact`."


class IndexMissing(RunError):
    """A table has no vector index on the column that the join searches."""

    code = "LS566"
    remedy = "Run again, so that the join is planned without it; or create the index with Lance."


class StaleBase(RunError):
    """The last result of a KNN join changed while a run was about to extend or replace it.

    That run wrote nothing.
    """

    code = "LS569"
    remedy = "Run again, and let one run at a time write a result."


class OutputError(RunError):
    """LS57x: the result of a KNN join cannot be written."""


class OutputOccupied(OutputError):
    """The output of a KNN join holds something that no join wrote there, and is left as it is."""

    code = "LS570"
    remedy = "Give the join another `output`, or remove what is there."


class OutputNotWritten(OutputError):
    """The result of a KNN join cannot be written to its output; readers see the old result."""

    code = "LS571"
    remedy = "Check the `output`, the room and the permissions there; run again."


class OutputNotReplaceable(OutputError):
    """A Parquet result is declared in an object store, where it cannot be replaced in one step."""

    code = "LS572"
    remedy = "Use `output: {lance: ...}` there, or a local folder for Parquet."


class TooManyPairs(OutputError):
    """A KNN join with `k: all` has more pairs within `max_distance` than `max_pairs` allows.

    Nothing is committed: readers see the old result.
    """

    code = "LS573"
    remedy = "Lower `max_distance`, give a number as `k`, or raise `max_pairs`."


class ScratchNotShared(RunError):
    """Spark's workers are on other machines, and no scratch folder is declared that all share."""

    code = "LS580"
    remedy = "Set the target's `scratch` to a shared folder or an object-store URI."


class ScratchFull(RunError):
    """No space is left in the scratch folder of KNN joins."""

    code = "LS581"
    remedy = "Make room there, or set the target's `scratch` to a larger place."


class ScratchUntrusted(RunError):
    """The default scratch folder of KNN joins is a link, or belongs to another user."""

    code = "LS582"
    remedy = "Remove it, or set the target's `scratch`."


class ScratchUnusable(RunError):
    """The scratch folder of KNN joins cannot be created, listed or written to."""

    code = "LS583"
    remedy = "Check the target's `scratch`, its `storage-options` and the permissions there."


class PartitionsLost(RunError):
    """Files of the right side in the scratch folder have vanished, or cannot be read."""

    code = "LS587"
    remedy = "Run again, and keep other programs from removing files in the target's `scratch`."
