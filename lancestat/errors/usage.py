"""LS4xx: errors in commands, selectors, statements and arguments."""

from __future__ import annotations

from lancestat.errors.base import UsageError


class InvalidSelector(UsageError, code="LS401"):
    """A selector is empty, has an unknown method or value, or uses `state:` where it may not."""

    remedy = "Use a method listed in the message; docs/reference/cli.md explains them."


class NothingSelected(UsageError, code="LS402"):
    """A selector matches no node."""

    remedy = "Correct the name; `lancestat list` prints the names of all nodes."


class NotWritten(UsageError, code="LS403"):
    """A command cannot write to the given file or folder."""

    remedy = "Name a location that you can write to: `--out`, or `lancestat init DIR`."


class UnknownTable(UsageError, code="LS404"):
    """A command or statement names a table that does not exist.

    Neither the project nor, for a statement, Spark's catalog has a table of that name.
    """

    remedy = (
        "Correct the name, or declare the table. To use the result of a join as a table, declare "
        "a table over it."
    )


class UnknownTarget(UsageError, code="LS405"):
    """The requested target is not declared.

    If the YAML's own `default_target` is not declared, the error is LS110.
    """

    remedy = "Name one of the `targets` in `lancestat_project.yml`."


class UnknownReader(UsageError, code="LS406"):
    """The named `reader` does not exist."""

    remedy = "Use `lancestat` or `connector`."


class WrongCommandLine(UsageError, code="LS407"):
    """A command, an option or an argument is unknown, missing or has a wrong value.

    Only JSON has this code. Otherwise the message comes with the usage of the command.
    """

    remedy = "Correct the command line; `lancestat COMMAND --help` describes each option."


class PackageNotWritten(UsageError, code="LS408"):
    """`lancestat package` cannot write the archive, or would overwrite a file."""

    remedy = "Name another file, or replace the existing one with `--force`."


class JarNotWritten(UsageError, code="LS409"):
    """`lancestat jar` cannot write the jar, would overwrite a file, or Spark has no NEAREST BY."""

    remedy = (
        "Name another file, or replace the existing one with `--force`. NEAREST BY needs Spark "
        "4.2 or newer."
    )


class VersionAndTag(UsageError, code="LS410"):
    """Both a version and a tag are given for the same table."""

    remedy = "Leave one of them out."


class InvalidVersion(UsageError, code="LS411"):
    """A version is not a positive whole number."""

    remedy = "Give a positive number as the version, and a tag as `tag`."


class PathMissing(UsageError, code="LS412"):
    """`spark.read.format("lancestat")` got no path."""

    remedy = "Give the table's URI: `.load(uri)`."


class InvalidReadOption(UsageError, code="LS413"):
    """`spark.read.format("lancestat")` got an unknown option or a wrong value.

    `read_table` and `attach` report unknown `options` too.
    """

    remedy = (
        "Use `path`, `version`, `tag` and `storage.KEY`. `read_table` and `attach` take "
        "`cbo.column.stats.enabled`, `cbo.column.stats.allow.stale` and "
        "`aggregate.pushdown.enabled`."
    )


class ReadSchemaMismatch(UsageError, code="LS414"):
    """`spark.read.format("lancestat")` got a schema that differs from the table's."""

    remedy = "Leave the schema out, and select and cast columns of the DataFrame."


class InvalidQuery(UsageError, code="LS420"):
    """Spark cannot parse or resolve a query, or the text is not exactly one statement."""

    remedy = "Correct the query where the message points. It must be one statement, in UTF-8."


class UnsupportedStatement(UsageError, code="LS421"):
    """`lancestat sql` got a statement that writes or defines something.

    Or ANALYZE TABLE is used with NOSCAN, PARTITION or `--explain`, which it does not support.
    """

    remedy = (
        "Run other statements than queries in a Spark session, such as that of `Project.spark`. "
        "Write `ANALYZE TABLE t COMPUTE STATISTICS`, with `FOR COLUMNS a, b` or `FOR ALL COLUMNS` "
        "if needed, and without NOSCAN, PARTITION and `--explain`."
    )


class InvalidColumnChoice(UsageError, code="LS423"):
    """ANALYZE TABLE names a column that does not exist, is ambiguous or cannot have statistics.

    For columns named in the YAML, the errors are LS114 and LS115.
    """

    remedy = (
        "Correct the names after FOR COLUMNS, as the hint says. docs/explanation/statistics.md "
        "lists the types that have statistics."
    )


class ColumnSelectedTwice(UsageError, code="LS450"):
    """A side of a KNN join selects two columns with the same name, ignoring case."""

    remedy = "Remove one of them from `select`."


class ReservedColumnName(UsageError, code="LS451"):
    """A side of a KNN join selects a column with a name that the join uses, such as `_distance`."""

    remedy = "Rename the column, or remove it from `select`."


class SuffixedNameTaken(UsageError, code="LS452"):
    """A right column of a KNN join would be renamed to the name of another selected column."""

    remedy = "Rename one of them, or remove it from `select`."


class SideColumnMissing(UsageError, code="LS454"):
    """A side of a KNN join lacks a column that `vector`, `select`, `where` or `on` names."""

    remedy = (
        "Correct the name in `vector`, `select`, `where` or `on`; the hint lists the existing "
        "columns."
    )


class NotVectors(UsageError, code="LS455"):
    """The vector column of a KNN join does not hold vectors."""

    remedy = (
        "Name a column of lists of floats, int8 or uint8; for `hamming`, of int8 or uint8. Spark "
        "has no uint8: use int8 in a DataFrame."
    )


class VectorLengthMismatch(UsageError, code="LS456"):
    """The vectors of a KNN join do not all have the same number of elements."""

    remedy = (
        "Join columns whose vectors come from the same model. If a row has no vector, store null, "
        "not an empty list."
    )


class VectorLeftToSpark(UsageError, code="LS464"):
    """Spark has to compare the vectors of a NEAREST BY query.

    They have elements that are NaN, infinite or above 2^48.
    """

    remedy = "Nothing needs to be done: Spark computes such a query itself, and its log says so."


class SideFilesMissing(UsageError, code="LS457"):
    """A side of a KNN join reads files, but there are none."""

    remedy = "Check the side's `uri`, and that the files exist."


class ReferenceNotLance(UsageError, code="LS458"):
    """A side's query refers to a join whose result is not a Lance dataset."""

    remedy = "Give that join a Lance output, or read its files as a side."


class NotPlainQuery(UsageError, code="LS459"):
    """A side's query is not a single plain query, or one of the side's options runs a statement."""

    remedy = (
        "Write one SELECT that writes nothing and runs no program, and remove options that run "
        "statements."
    )


class FilterNotPushed(UsageError, code="LS461"):
    """Lance's scan cannot apply the `where` of a side of a KNN join.

    It is not a filter that compares columns with literals, a literal does not suit its column, the
    side is not a Lance dataset, or Lance would evaluate it differently from Spark.
    """

    remedy = (
        "Compare columns with literals of their types, combined with AND, OR and NOT. For "
        "anything else, declare the side as a query (`sql`). docs/how-to/knn-joins.md says what a "
        "filter may contain."
    )


class KeysDiffer(UsageError, code="LS462"):
    """Two columns in the `on` of a KNN join cannot be compared.

    They hold values of different kinds, or of a kind that cannot be a key: floating-point numbers,
    timestamps in nanoseconds, lists and structs.
    """

    remedy = "Name columns of the same kind, or cast one of them in a side that is a query (`sql`)."


class SidesDiffer(UsageError, code="LS463"):
    """`exclude_self` or `pairs: unordered` is used with sides that do not have the same rows.

    Both sides must be the same Lance table at the same version, or the same DataFrame: rows are
    identified by position, not by equal vectors.
    """

    remedy = "Name the same table on both sides, or remove the key."


class InvalidArgument(UsageError, code="LS460"):
    """An argument of a Python function or method is invalid, or conflicts with another."""

    remedy = "Give a value named in the message; see docs/reference/python.md."
