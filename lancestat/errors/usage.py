"""LS4xx: errors in commands, selectors, statements and arguments."""

from __future__ import annotations

from lancestat.errors.base import UsageError


class InvalidSelector(UsageError):
    """A selector is empty, has an unknown method or value, or uses `state:` where it may not."""

    code = "LS401"
    remedy = "Use a method listed in the message; docs/reference/cli.md explains them."


class NothingSelected(UsageError):
    """A selector matches no node."""

    code = "LS402"
    remedy = "Correct the name; `lancestat list` prints the names of all nodes."


class NotWritten(UsageError):
    """A command cannot write to the given file or folder."""

    code = "LS403"
    remedy = "Name a location that you can write to: `--out`, or `lancestat init DIR`."


class UnknownTable(UsageError):
    """A command or statement names a table that does not exist.

    Neither the project nor, for a statement, Spark's catalog has a table of that name.
    """

    code = "LS404"
    remedy = (
        "Correct the name, or declare the table. To use the result of a join as a table, declare "
        "a table over it."
    )


class UnknownTarget(UsageError):
    """The requested target is not declared.

    If the YAML's own `default_target` is not declared, the error is LS110.
    """

    code = "LS405"
    remedy = "Name one of the `targets` in `lancestat_project.yml`."


class UnknownReader(UsageError):
    """The named `reader` does not exist."""

    code = "LS406"
    remedy = "Use `lancestat` or `connector`."


class WrongCommandLine(UsageError):
    """A command, an option or an argument is unknown, missing or has a wrong value.

    Only JSON has this code. Otherwise the message comes with the usage of the command.
    """

    code = "LS407"
    remedy = "Correct the command line; `lancestat COMMAND --help` describes each option."


class PackageNotWritten(UsageError):
    """`lancestat package` cannot write the archive, or would overwrite a file."""

    code = "LS408"
    remedy = "Name another file, or replace the existing one with `--force`."


class JarNotWritten(UsageError):
    """`lancestat jar` cannot write the jar, would overwrite a file, or Spark has no NEAREST BY."""

    code = "LS409"
    remedy = (
        "Name another file, or replace the existing one with `--force`. NEAREST BY needs Spark "
        "4.2 or newer."
    )


class VersionAndTag(UsageError):
    """Both a version and a tag are given for the same table."""

    code = "LS410"
    remedy = "Leave one of them out."


class InvalidVersion(UsageError):
    """A version is not a positive whole number."""

    code = "LS411"
    remedy = "Give a positive number as the version, and a tag as `tag`."


class PathMissing(UsageError):
    """`spark.read.format("lancestat")` got no path."""

    code = "LS412"
    remedy = "Give the table's URI: `.load(uri)`."


class InvalidReadOption(UsageError):
    """`spark.read.format("lancestat")` got an unknown option or a wrong value.

    `read_table` and `attach` report unknown `options` too.
    """

    code = "LS413"
    remedy = (
        "Use `path`, `version`, `tag` and `storage.KEY`. `read_table` and `attach` take "
        "`cbo.column.stats.enabled`, `cbo.column.stats.allow.stale` and "
        "`aggregate.pushdown.enabled`."
    )


class ReadSchemaMismatch(UsageError):
    """`spark.read.format("lancestat")` got a schema that differs from the table's."""

    code = "LS414"
    remedy = "Leave the schema out, and select and cast columns of the DataFrame."


class InvalidQuery(UsageError):
    """Spark cannot parse or resolve a query, or the text is not exactly one statement."""

    code = "LS420"
    remedy = "Correct the query where the message points. It must be one statement, in UTF-8."


class UnsupportedStatement(UsageError):
    """`lancestat sql` got a statement that writes or defines something.

    Or ANALYZE TABLE is used with NOSCAN, PARTITION or `--explain`, which it does not support.
    """

    code = "LS421"
    remedy = (
        "Run other statements than queries in a Spark session, such as that of `Project.spark`. "
        "Write `ANALYZE TABLE t COMPUTE STATISTICS`, with `FOR COLUMNS a, b` or `FOR ALL COLUMNS` "
        "if needed, and without NOSCAN, PARTITION and `--explain`."
    )


class InvalidColumnChoice(UsageError):
    """ANALYZE TABLE names a column that does not exist, is ambiguous or cannot have statistics.

    For columns named in the YAML, the errors are LS114 and LS115.
    """

    code = "LS423"
    remedy = (
        "Correct the names after FOR COLUMNS, as the hint says. docs/explanation/statistics.md "
        "lists the types that have statistics."
    )


class ColumnSelectedTwice(UsageError):
    """A side of a KNN join selects two columns with the same name, ignoring case."""

    code = "LS450"
    remedy = "Remove one of them from `select`."


class ReservedColumnName(UsageError):
    """A side of a KNN join selects a column with a name that the join uses, such as `_distance`."""

    code = "LS451"
    remedy = "Rename the column, or remove it from `select`."


class SuffixedNameTaken(UsageError):
    """A right column of a KNN join would be renamed to the name of another selected column."""

    code = "LS452"
    remedy = "Rename one of them, or remove it from `select`."


class SideColumnMissing(UsageError):
    """A side of a KNN join lacks a column that `vector`, `select`, `where` or `on` names."""

    code = "LS454"
    merged = ("LS554",)
    remedy = (
        "Correct the name in `vector`, `select`, `where` or `on`; the hint lists the existing "
        "columns."
    )


class NotVectors(UsageError):
    """The vector column of a KNN join does not hold vectors."""

    code = "LS455"
    merged = ("LS551",)
    remedy = (
        "Name a column of lists of floats, int8 or uint8; for `hamming`, of int8 or uint8. Spark "
        "has no uint8: use int8 in a DataFrame."
    )


class VectorLengthMismatch(UsageError):
    """The vectors of a KNN join do not all have the same number of elements."""

    code = "LS456"
    merged = ("LS550", "LS556")
    remedy = (
        "Join columns whose vectors come from the same model. If a row has no vector, store null, "
        "not an empty list."
    )


class VectorLeftToSpark(UsageError):
    """Spark has to compare the vectors of a NEAREST BY query.

    They have elements that are NaN, infinite or above 2^48.
    """

    code = "LS464"
    remedy = "Nothing needs to be done: Spark computes such a query itself, and its log says so."


class SideFilesMissing(UsageError):
    """A side of a KNN join reads files, but there are none."""

    code = "LS457"
    remedy = "Check the side's `uri`, and that the files exist."


class ReferenceNotLance(UsageError):
    """A side's query refers to a join whose result is not a Lance dataset."""

    code = "LS458"
    remedy = "Give that join a Lance output, or read its files as a side."


class NotPlainQuery(UsageError):
    """A side's query is not a single plain query, or one of the side's options runs a statement."""

    code = "LS459"
    remedy = (
        "Write one SELECT that writes nothing and runs no program, and remove options that run "
        "statements."
    )


class FilterNotPushed(UsageError):
    """Lance's scan cannot apply the `where` of a side of a KNN join.

    It is not a filter that compares columns with literals, a literal does not suit its column, the
    side is not a Lance dataset, or Lance would evaluate it differently from Spark.
    """

    code = "LS461"
    remedy = (
        "Compare columns with literals of their types, combined with AND, OR and NOT. For "
        "anything else, declare the side as a query (`sql`). docs/how-to/knn-joins.md says what a "
        "filter may contain."
    )


class KeysDiffer(UsageError):
    """Two columns in the `on` of a KNN join cannot be compared.

    They hold values of different kinds, or of a kind that cannot be a key: floating-point numbers,
    timestamps in nanoseconds, lists and structs.
    """

    code = "LS462"
    remedy = "Name columns of the same kind, or cast one of them in a side that is a query (`sql`)."


class SidesDiffer(UsageError):
    """`exclude_self` or `pairs: unordered` is used with sides that do not have the same rows.

    Both sides must be the same Lance table at the same version, or the same DataFrame: rows are
    identified by position, not by equal vectors.
    """

    code = "LS463"
    remedy = "Name the same table on both sides, or remove the key."


class InvalidArgument(UsageError):
    """An argument of a Python function or method is invalid, or conflicts with another."""

    code = "LS460"
    remedy = "Give a value named in the message; see docs/reference/python.md."
