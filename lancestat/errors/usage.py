"""LS4xx: errors in commands, selectors, queries and arguments."""

from __future__ import annotations

from lancestat.errors.base import UsageError


class InvalidSelector(UsageError):
    """A selector is empty, or uses a method or a word that does not exist."""

    code = "LS401"
    remedy = "Use a method that the message lists; docs/operations.md explains them."


class NothingSelected(UsageError):
    """A selector fits no node."""

    code = "LS402"
    remedy = "Correct the name; `lancestat list` prints the names of all nodes."


class ProjectNotCreated(UsageError):
    """`lancestat init` cannot write a project to the folder."""

    code = "LS403"
    remedy = "Name an empty folder that may be written to: `lancestat init DIR`."


class UnknownTable(UsageError):
    """The project declares no table of that name."""

    code = "LS404"
    remedy = "Correct the name, or declare a table. The result of a join needs a table over it."


class UnknownTarget(UsageError):
    """The project has no such target."""

    code = "LS405"
    remedy = "Name one of `targets` in `lancestat_project.yml`."


class UnknownReader(UsageError):
    """A `reader` is named that does not exist."""

    code = "LS406"
    remedy = "Use `lancestat` or `connector`."


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
    """A form of ANALYZE TABLE does not apply to Lance tables or to `--explain`."""

    code = "LS421"
    remedy = (
        "Write `ANALYZE TABLE t COMPUTE STATISTICS`, with `FOR COLUMNS a, b` or `FOR ALL COLUMNS` "
        "where needed, without NOSCAN, PARTITION and `--explain`."
    )


class UnknownAnalyzeTable(UsageError):
    """ANALYZE TABLE names a table that neither the project nor Spark's catalog has."""

    code = "LS422"
    remedy = "Correct the name, or declare the table."


class InvalidColumnChoice(UsageError):
    """A column that is to be analyzed is not there, is ambiguous, or cannot have statistics."""

    code = "LS423"
    remedy = "Name columns of the table as it writes them, of types that have statistics."


class ColumnSelectedTwice(UsageError):
    """A side of a KNN join selects columns that Spark cannot tell apart."""

    code = "LS450"
    remedy = "Leave one of them out of `select`."


class ReservedColumnName(UsageError):
    """A side of a KNN join selects a column with a name that the join gives to its own."""

    code = "LS451"
    remedy = "Rename the column, or leave it out of `select`."


class SuffixedNameTaken(UsageError):
    """A right column of a KNN join would be renamed to the name of another selected column."""

    code = "LS452"
    remedy = "Rename one of them, or leave it out of `select`."


class OutputOverlapsInput(UsageError):
    """The result of a KNN join would be written to, into or around what it reads."""

    code = "LS453"
    remedy = "Give `output` a place of its own."


class SideColumnMissing(UsageError):
    """A side of a KNN join does not have a column that `vector` or `select` names."""

    code = "LS454"
    merged = ("LS554",)
    remedy = "Correct the name in `vector` or `select`; the hint has the columns that there are."


class NotVectors(UsageError):
    """The vector column of a KNN join does not hold vectors."""

    code = "LS455"
    merged = ("LS551",)
    remedy = "Name a column of fixed-size or variable lists of float, double or halffloat."


class VectorLengthMismatch(UsageError):
    """The vectors of a KNN join do not all have the same number of elements."""

    code = "LS456"
    merged = ("LS550", "LS556")
    remedy = (
        "Join columns whose vectors come from one model. A row without a vector has null there, "
        "not an empty list."
    )


class SideFilesMissing(UsageError):
    """A side of a KNN join reads files, and there are none."""

    code = "LS457"
    remedy = "Check the side's `uri`, and that the files are there."


class ReferenceNotLance(UsageError):
    """The query of a side refers to a join whose result is no Lance dataset."""

    code = "LS458"
    remedy = "Give that join a Lance output, or read its files as a side."


class NotPlainQuery(UsageError):
    """The query of a side does more than read rows."""

    code = "LS459"
    remedy = "Write one SELECT that writes nothing and runs no program."


class InvalidArgument(UsageError):
    """An argument of `lancestat.knn_join` is out of range, or excludes another one."""

    code = "LS460"
    remedy = "Give a value that the message names; see docs/python.md."
