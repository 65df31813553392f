"""LS4xx: errors in commands, selectors, statements and arguments."""

from __future__ import annotations

from lancestat.errors.base import UsageError


class InvalidSelector(UsageError):
    """A selector is empty, has an unknown method or word, or uses `state:` where it cannot be."""

    code = "LS401"
    remedy = "Use a method that the message lists; docs/reference/cli.md explains them."


class NothingSelected(UsageError):
    """A selector matches no node."""

    code = "LS402"
    remedy = "Correct the name; `lancestat list` prints the names of all nodes."


class NotWritten(UsageError):
    """A command cannot write to the file or folder that it was given."""

    code = "LS403"
    remedy = "Name a place that may be written to: `--out`, or `lancestat init DIR`."


class UnknownTable(UsageError):
    """A command or a statement names a table that is not there.

    The project declares none of that name, nor has Spark's catalog one for a statement.
    """

    code = "LS404"
    remedy = (
        "Correct the name, or declare the table. Declare a table over the result of a join to use "
        "it as one."
    )


class UnknownTarget(UsageError):
    """The target that was asked for is not declared.

    Where the `default-target` of the YAML is not declared, the error is LS110.
    """

    code = "LS405"
    remedy = "Name one of `targets` in `lancestat_project.yml`."


class UnknownReader(UsageError):
    """A `reader` is named that does not exist."""

    code = "LS406"
    remedy = "Use `lancestat` or `connector`."


class PackageNotWritten(UsageError):
    """`lancestat package` cannot write the archive, or would overwrite a file."""

    code = "LS408"
    remedy = "Name another file, or give `--force` to replace the one that is there."


class JarNotWritten(UsageError):
    """`lancestat jar` cannot write the jar, would overwrite a file, or Spark has no NEAREST BY."""

    code = "LS409"
    remedy = (
        "Name another file, or give `--force` to replace the one that is there. NEAREST BY needs "
        "Spark 4.2 or newer."
    )


class VersionAndTag(UsageError):
    """Both a version and a tag are given for one table."""

    code = "LS410"
    remedy = "Leave one of them out."


class InvalidVersion(UsageError):
    """A version is not a whole number from 1 on."""

    code = "LS411"
    remedy = "Give a number from 1 on as the version, and a tag as `tag`."


class PathMissing(UsageError):
    """`spark.read.format("lancestat")` got no path."""

    code = "LS412"
    remedy = "Give the table's URI: `.load(uri)`."


class InvalidReadOption(UsageError):
    """`spark.read.format("lancestat")` got an option that it does not have, or a wrong value."""

    code = "LS413"
    remedy = "Use `path`, `version`, `tag`, `pushdown` (true or false) and `storage.KEY`."


class ReadSchemaMismatch(UsageError):
    """`spark.read.format("lancestat")` got a schema that is not the table's."""

    code = "LS414"
    remedy = "Leave the schema out, and select and cast columns of the DataFrame."


class InvalidQuery(UsageError):
    """Spark cannot parse or resolve a query, or there is not exactly one statement."""

    code = "LS420"
    remedy = "Correct the query where the message points; it is one statement, in UTF-8."


class UnsupportedStatement(UsageError):
    """ANALYZE TABLE has NOSCAN or PARTITION, or goes with `--explain`, which do not apply to it."""

    code = "LS421"
    remedy = (
        "Write `ANALYZE TABLE t COMPUTE STATISTICS`, with `FOR COLUMNS a, b` or `FOR ALL COLUMNS` "
        "where needed, without NOSCAN, PARTITION and `--explain`."
    )


class InvalidColumnChoice(UsageError):
    """ANALYZE TABLE names a column that is not there, is ambiguous or cannot have statistics.

    The statement has to be corrected; LS114 and LS115 are about columns that the YAML names.
    """

    code = "LS423"
    remedy = (
        "Correct the names after FOR COLUMNS, as the hint says. docs/explanation/statistics.md "
        "lists the types that have statistics."
    )


class ColumnSelectedTwice(UsageError):
    """A side of a KNN join selects two columns whose names differ in case at most."""

    code = "LS450"
    remedy = "Leave one of them out of `select`."


class ReservedColumnName(UsageError):
    """A side of a KNN join selects a column named like one that the join adds, as `_distance`."""

    code = "LS451"
    remedy = "Rename the column, or leave it out of `select`."


class SuffixedNameTaken(UsageError):
    """A right column of a KNN join would be renamed to the name of another selected column."""

    code = "LS452"
    remedy = "Rename one of them, or leave it out of `select`."


class SideColumnMissing(UsageError):
    """A side of a KNN join lacks a column that `vector`, `select`, `where` or `on` names."""

    code = "LS454"
    merged = ("LS554",)
    remedy = (
        "Correct the name in `vector`, `select`, `where` or `on`; the hint has the columns that "
        "there are."
    )


class NotVectors(UsageError):
    """The vector column of a KNN join does not hold vectors."""

    code = "LS455"
    merged = ("LS551",)
    remedy = (
        "Name a column of lists of floats, int8 or uint8; of int8 or uint8 for `hamming`. Spark "
        "has no uint8: in a DataFrame use int8."
    )


class VectorLengthMismatch(UsageError):
    """The vectors of a KNN join do not all have the same number of elements."""

    code = "LS456"
    merged = ("LS550", "LS556")
    remedy = (
        "Join columns whose vectors come from one model. A row without a vector has null there, "
        "not an empty list."
    )


class VectorLeftToSpark(UsageError):
    """A query by NEAREST BY has vectors that only Spark compares as it means: with NaN, infinity or
    elements above 2^48."""

    code = "LS464"
    remedy = "None is needed: Spark computes such a query itself, and its log says so."


class SideFilesMissing(UsageError):
    """A side of a KNN join reads files, and there are none."""

    code = "LS457"
    remedy = "Check the side's `uri`, and that the files are there."


class ReferenceNotLance(UsageError):
    """The query of a side refers to a join whose result is no Lance dataset."""

    code = "LS458"
    remedy = "Give that join a Lance output, or read its files as a side."


class NotPlainQuery(UsageError):
    """The query of a side is not one plain query, or an option of a side runs a statement."""

    code = "LS459"
    remedy = (
        "Write one SELECT that writes nothing and runs no program, and remove options that run "
        "statements."
    )


class FilterNotPushed(UsageError):
    """The `where` of a side of a KNN join cannot be applied by Lance's scan.

    It is no filter that compares columns with literals, a literal does not suit its column, the
    side is no Lance dataset, or Lance would compare otherwise than Spark.
    """

    code = "LS461"
    remedy = (
        "Compare columns with literals of their types, joined by AND, OR and NOT; for anything "
        "else, declare the side as a query (`sql`). docs/how-to/knn-joins.md says what a filter "
        "may contain."
    )


class KeysDiffer(UsageError):
    """Two columns that `on` of a KNN join names cannot be compared.

    They hold values of different kinds, or of a kind that is no key: floating-point numbers,
    timestamps in nanoseconds, lists and structures.
    """

    code = "LS462"
    remedy = "Name columns of one kind, or cast one of them in a side that is a query (`sql`)."


class SidesDiffer(UsageError):
    """`exclude_self` or `pairs: unordered` is asked of sides that are not the same rows.

    Both sides have to be one Lance table at one version, or one DataFrame: a row is itself by its
    identity, and not by an equal vector.
    """

    code = "LS463"
    remedy = "Name the same table on both sides, or leave the key out."


class InvalidArgument(UsageError):
    """An argument of `lancestat.knn_join` or `explain` is out of range, or excludes another one."""

    code = "LS460"
    remedy = "Give a value that the message names; see docs/reference/python.md."
