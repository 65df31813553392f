"""The codes, one class each: its docstring says what is wrong, `remedies.yml` what to do."""

from __future__ import annotations

from lancestat.errors.base import (
    CommentError,
    LakeError,
    LancestatError,
    PlanFileError,
    PublishError,
    RunError,
    SpecError,
    StateError,
    UsageError,
)


class UnreadableFile(SpecError, code="LS101"):
    """A file or folder of the project cannot be read.

    It is missing, leads out of the project, is empty, too large, not UTF-8 or not a regular file.
    """


class InvalidSyntax(SpecError, code="LS102"):
    """The text is not YAML, or uses a feature of YAML that lancestat does not accept."""


class UnknownKey(SpecError, code="LS103"):
    """A mapping has an unknown key."""


class DuplicateKey(SpecError, code="LS104"):
    """A mapping has the same key twice."""


class WrongType(SpecError, code="LS105"):
    """A value has a different type than its key takes, such as text instead of a list."""


class MissingKey(SpecError, code="LS106"):
    """A required key is missing."""


class WrongValue(SpecError, code="LS107"):
    """A value has the right type, but its key does not accept it."""


class InvalidTemplate(SpecError, code="LS108"):
    """A template cannot be rendered.

    It names an unknown variable or an environment variable that is not set, uses an unsupported
    part of Jinja, or results in something other than text, a number, true or false.
    """


class UnsetVariable(InvalidTemplate):
    """A template needs an environment variable that is not set."""


class DuplicateName(SpecError, code="LS109"):
    """Two resources have the same name."""


class UnknownReference(SpecError, code="LS110"):
    """The YAML refers to something that is not declared, such as a table, policy or target."""


class CyclicReferences(SpecError, code="LS111"):
    """Nodes read each other's results in a cycle."""


class OverlappingOutputs(SpecError, code="LS112"):
    """Two nodes have the same dataset, or a join's output overlaps with another dataset.

    The other dataset belongs to another node, or the join itself reads it.
    """


class TooComplex(SpecError, code="LS113"):
    """The YAML is nested too deeply, or its aliases expand to too many values."""


class UnknownColumn(SpecError, code="LS114"):
    """The YAML names a column that the table's dataset does not have.

    It stands in `columns`, `groups`, `keys`, `references` or `common_values`.
    """


class UnsupportedColumn(SpecError, code="LS115"):
    """A declared column cannot have statistics.

    Its type is not supported, or its name is empty or contains a dot.
    """


class UnselectedColumn(SpecError, code="LS116"):
    """`groups`, `keys`, `references` or `common_values` name a column that `columns` leaves out."""


class ReferenceMismatch(SpecError, code="LS117"):
    """The two sides of a reference have different numbers of columns, or columns of other types.

    Types of one family, such as two integers of different widths, are alike.
    """


class DatasetMissing(LakeError, code="LS201"):
    """There is no Lance dataset at a URI."""


class AccessDenied(LakeError, code="LS202"):
    """The credentials do not allow reading a dataset."""


class UnsupportedDataset(LakeError, code="LS203"):
    """The installed Lance cannot read a dataset or a column, because of its format or name."""


class DatasetDamaged(LakeError, code="LS204"):
    """A dataset exists but cannot be read: some of its files are damaged or missing."""


class StoreUnreachable(LakeError, code="LS205"):
    """The object store that holds a dataset does not answer."""


class VersionMissing(LakeError, code="LS206"):
    """A dataset does not have this version; it may have been cleaned up."""


class DatasetMisconfigured(LakeError, code="LS207"):
    """A dataset cannot be opened with the declared URI and storage options."""


class UnknownTag(LakeError, code="LS208"):
    """A dataset does not have this tag, or the tag is on a branch."""


class DatasetReplaced(LakeError, code="LS209"):
    """A dataset was replaced by another one after it was planned, attached or opened."""


class CatalogTableMissing(DatasetMissing, code="LS210"):
    """A catalog does not have this table or namespace."""


class CatalogUnreachable(LakeError, code="LS211"):
    """A catalog does not answer."""


class CatalogMisconfigured(LakeError, code="LS212"):
    """A catalog cannot be used with the declared implementation and properties."""


class ManagedByCatalog(LakeError, code="LS213"):
    """A catalog manages the versions of a dataset that the YAML names by its URI.

    Those who read the table through the catalog would not see a commit that bypasses it.
    """


class UnusableTableNames(LakeError, code="LS214"):
    """Tables found by a source get invalid names, or names that are already taken.

    These tables get no node; the source's other tables do.
    """


class FoundTableMissing(LakeError, code="LS215"):
    """A join reads a table that is neither declared nor found by any source."""


class UnannouncedVersion(LakeError, code="LS216"):
    """A catalog manages a table's versions and does not know one that is in the table's folder.

    A commit bypassed the catalog, or was interrupted before it was announced. Lance commits nothing
    on top of a version that the change conflicts with.
    """


class CatalogAnswerInvalid(LakeError, code="LS217"):
    """A catalog gives an answer that makes no sense, such as a location with a NUL character.

    A bad answer about one table blocks only that table; a bad list of tables blocks its source.
    """


class CatalogLimitExceeded(LakeError, code="LS218"):
    """A catalog lists pages, names or namespaces without end, or takes too long to do it.

    The documentation of catalogs has the limits.
    """


class NameNotEncodable(LakeError, code="LS219"):
    """Python cannot encode a character in the name of a folder or a file.

    Its encoding of file names is ASCII in the locale `C` with `PYTHONUTF8=0`, or a legacy one.
    """


class DatasetUnreadable(LakeError, code="LS220"):
    """Lance cannot read a dataset, for a reason other than damaged files."""


class StateUnreachable(StateError, code="LS301"):
    """The target's state cannot be read or written."""


class StateContended(StateError, code="LS302"):
    """The state could not be written because other runs kept committing first."""


class StateTooSmall(StateError, code="LS303"):
    """The target's `state_budget` has no room for the partials of its tables."""


class InvalidSelector(UsageError, code="LS401"):
    """A selector is empty, has an unknown method or value, or uses `state:` where it may not."""


class NothingSelected(UsageError, code="LS402"):
    """A selector matches no node."""


class NotWritten(UsageError, code="LS403"):
    """A command cannot write to the given file or folder, or there is no room for its output."""


class UnknownTable(UsageError, code="LS404"):
    """A command or statement names a table that does not exist.

    Neither the project nor, for a statement, Spark's catalog has a table of that name.
    """


class UnknownTarget(UsageError, code="LS405"):
    """The requested target is not declared.

    If the YAML's own `default_target` is not declared, the error is LS110.
    """


class UnknownReader(UsageError, code="LS406"):
    """The named `reader` does not exist."""


class WrongCommandLine(UsageError, code="LS407"):
    """A command, an option or an argument is unknown, missing or has a wrong value.

    Only JSON has this code. Otherwise the message comes with the usage of the command.
    """


class PackageNotWritten(UsageError, code="LS408"):
    """`lancestat package` cannot write the archive, or would overwrite a file."""


class JarNotWritten(UsageError, code="LS409"):
    """`lancestat jar` cannot write the jar, would overwrite a file, or Spark has no NEAREST BY."""


class VersionAndTag(UsageError, code="LS410"):
    """Both a version and a tag are given for the same table."""


class InvalidVersion(UsageError, code="LS411"):
    """A version is not a positive whole number."""


class PathMissing(UsageError, code="LS412"):
    """`spark.read.format("lancestat")` got no path."""


class InvalidReadOption(UsageError, code="LS413"):
    """`spark.read.format("lancestat")` got an unknown option or a wrong value.

    `read_table` and `attach` report unknown `options` too.
    """


class ReadSchemaMismatch(UsageError, code="LS414"):
    """`spark.read.format("lancestat")` got a schema that differs from the table's."""


class InvalidQuery(UsageError, code="LS420"):
    """Spark cannot parse or resolve a query, or the text is not exactly one statement."""


class UnsupportedStatement(UsageError, code="LS421"):
    """`lancestat sql` got a statement that writes or defines something.

    Or ANALYZE TABLE is used with NOSCAN, PARTITION or an option that shows a plan, such as
    `--explain`, which it does not support.
    """


class InvalidColumnChoice(UsageError, code="LS423"):
    """ANALYZE TABLE names a column that does not exist, is ambiguous or cannot have statistics.

    For columns named in the YAML, the errors are LS114 and LS115.
    """


class ColumnSelectedTwice(UsageError, code="LS450"):
    """A side of a KNN join selects two columns with the same name, ignoring case."""


class ReservedColumnName(UsageError, code="LS451"):
    """A side of a KNN join selects a column with a name that the join uses, such as `_distance`."""


class SuffixedNameTaken(UsageError, code="LS452"):
    """A right column of a KNN join would be renamed to the name of another selected column."""


class SideColumnMissing(UsageError, code="LS454"):
    """A side of a KNN join lacks a column that `vector`, `select`, `where` or `on` names."""


class NotVectors(UsageError, code="LS455"):
    """The vector column of a KNN join does not hold vectors."""


class VectorLengthMismatch(UsageError, code="LS456"):
    """The vectors of a KNN join do not all have the same number of elements."""


class SideFilesMissing(UsageError, code="LS457"):
    """A side of a KNN join reads files, but there are none."""


class ReferenceNotLance(UsageError, code="LS458"):
    """A side's query refers to a join whose result is not a Lance dataset."""


class NotPlainQuery(UsageError, code="LS459"):
    """A side's query is not a single plain query, or one of the side's options runs a statement."""


class InvalidArgument(UsageError, code="LS460"):
    """An argument of a Python function or method is invalid, or conflicts with another."""


class FilterNotPushed(UsageError, code="LS461"):
    """Lance's scan cannot apply the `where` of a side of a KNN join.

    It is not a filter that compares columns with literals, a literal does not suit its column, the
    side is not a Lance dataset, or Lance would evaluate it differently from Spark.
    """


class KeysDiffer(UsageError, code="LS462"):
    """Two columns in the `on` of a KNN join cannot be compared.

    They hold values of different kinds, or of a kind that cannot be a key: floating-point numbers,
    timestamps in nanoseconds, lists and structs.
    """


class SidesDiffer(UsageError, code="LS463"):
    """`exclude_self` or `pairs: unordered` is used with sides that do not have the same rows.

    Both sides must be the same Lance table at the same version, or the same DataFrame: rows are
    identified by position, not by equal vectors.
    """


class VectorLeftToSpark(UsageError, code="LS464"):
    """Spark has to compare the vectors of a NEAREST BY query.

    They have elements that are NaN, infinite or above 2^48.
    """


class NotSortable(UsageError, code="LS465"):
    """Rows cannot be put in order by a column that `keep` names, because of its type."""


class UnexpectedBatch(RunError, code="LS502"):
    """Rows that were read lack a column, contain it twice, or have it with another type."""


class FragmentNotAnalyzed(RunError, code="LS510"):
    """A fragment could not be analyzed, for a reason without its own code."""


class JobFailed(RunError, code="LS511"):
    """The Spark job of a table or a KNN join failed, for a reason without its own code."""


class Cancelled(RunError, code="LS512"):
    """A Spark job was cancelled before it finished."""


class QueryFailed(RunError, code="LS513"):
    """Spark failed while computing a query."""


class ValueOutOfRange(RunError, code="LS514"):
    """A table holds a value that the Spark type of its column cannot hold."""


class NodesFailed(RunError, code="LS515"):
    """Nodes failed or were interrupted; `RunResult.raise_for_status` raises this."""


class UnknownRun(UsageError, code="LS518"):
    """No run of the target has that id, or several begin with it."""


class JavaMissing(RunError, code="LS520"):
    """Spark needs Java, and none was found that works."""


class JavaTooOld(RunError, code="LS521"):
    """The Java that was found is older than Spark accepts."""


class SparkNotStarted(RunError, code="LS522"):
    """Spark's JVM did not start, or a Spark Connect server does not answer."""


class SparkConnectSession(RunError, code="LS523"):
    """Something that needs the driver's JVM was requested from a Spark Connect session."""


class DataSourcesMissing(RunError, code="LS524"):
    """This Spark does not support data sources written in Python, such as `format("lancestat")`."""


class HookNotFound(RunError, code="LS525"):
    """A function under `hooks` is not installed, or cannot be imported."""


class StateWatched(RunError, code="LS526"):
    """Another `lancestat watch` works with this state."""


class ClassArchiveNotMade(RunError, code="LS528"):
    """The class archive that makes Spark start faster could not be written."""


class JavaSourcesRefused(RunError, code="LS530"):
    """Spark's own Java compiler rejects lancestat's sources."""


class JavaClassNotLoaded(RunError, code="LS531"):
    """Spark does not load a Java class that lancestat compiled for it."""


class CatalogNotAttached(RunError, code="LS534"):
    """A catalog of the target could not be added to the Spark session.

    The tables' views were added.
    """


class PackageUnreadable(RunError, code="LS535"):
    """The target's `spark.package` does not exist, or was not written by `lancestat package`."""


class PackageOfOtherVersions(RunError, code="LS536"):
    """The versions in the target's `spark.package` differ from those on the driver."""


class WorkersLackPackage(RunError, code="LS537"):
    """Spark's workers do not have lancestat or one of the packages that it needs."""


class ConnectorMissing(RunError, code="LS540"):
    """`reader: connector` is set, but the Lance connector is not on Spark's class path."""


class ConnectorCannotOpen(RunError, code="LS541"):
    """The Lance connector cannot open a table at the version that was planned."""


class ConnectorSchemaDiffers(RunError, code="LS542"):
    """The Lance connector's schema of a table differs from Lance's own."""


class ConnectorNotPinned(RunError, code="LS543"):
    """The Lance connector ignores the version it is asked to read."""


class ConnectorNotReadable(RunError, code="LS544"):
    """The Lance connector cannot read a table in batches."""


class OtherPython(RunError, code="LS545"):
    """Spark's workers run a different minor version of Python than lancestat does."""


class SideNotWritten(RunError, code="LS552"):
    """A side of a KNN join cannot be written in Lance's format, often because it lacks a type.

    If the scratch folder is the cause, the error is LS581 or LS583.
    """


class SideUnreadable(RunError, code="LS555"):
    """Spark cannot read a side of a KNN join: its query, or files of its format."""


class IndexUnreadable(RunError, code="LS565"):
    """The vector index of a table cannot be searched, for example because its files are damaged."""


class IndexMissing(RunError, code="LS566"):
    """A table has no vector index on the column that the join searches."""


class StaleBase(RunError, code="LS569"):
    """The last result of a KNN join changed while a run was about to extend or replace it.

    The run wrote nothing.
    """


class OutputError(RunError):
    """LS57x: the result of a KNN join cannot be written."""


class OutputOccupied(OutputError, code="LS570"):
    """The output of a KNN join contains something that no join wrote there.

    It is left unchanged.
    """


class OutputNotWritten(OutputError, code="LS571"):
    """The result of a KNN join cannot be written to its output. Readers see the previous result."""


class OutputNotReplaceable(OutputError, code="LS572"):
    """A Parquet result is declared in an object store, where it cannot be replaced atomically."""


class TooManyPairs(OutputError, code="LS573"):
    """A KNN join with `k: all` has more pairs within `max_distance` than `max_pairs` allows.

    Nothing is committed, and readers see the previous result.
    """


class ScratchNotShared(RunError, code="LS580"):
    """Spark's workers are on other machines, and no shared scratch folder is declared."""


class ScratchFull(RunError, code="LS581"):
    """The scratch folder of KNN joins has no space left."""


class ScratchUntrusted(RunError, code="LS582"):
    """The default scratch folder of KNN joins is a link, or belongs to another user."""


class ScratchUnusable(RunError, code="LS583"):
    """The scratch folder of KNN joins cannot be created, listed or written to."""


class ListsLost(RunError, code="LS587"):
    """Files of the right side in the scratch folder have disappeared or cannot be read."""


class CommitFailed(PublishError, code="LS603"):
    """Statistics could not be committed to a table, or removed from one that replaced it."""


class TableKeepsChanging(PublishError, code="LS604"):
    """The table changed during every attempt to publish its statistics."""


class GitHubNotConfigured(CommentError, code="LS610"):
    """The token, the repository, the pull request or the API's address is missing or wrong."""


class GitHubUnreachable(CommentError, code="LS611"):
    """GitHub does not answer, or still limits requests after all attempts."""


class InDoubt(GitHubUnreachable):
    """A request may have been carried out: check before sending it again."""


class GitHubRefused(CommentError, code="LS612"):
    """GitHub rejects a request."""


class ReadOnlyToken(CommentError, code="LS613"):
    """The token may not write comments, as in a job for a pull request from a fork."""


class GitHubRedirected(CommentError, code="LS614"):
    """GitHub's API redirects endlessly, or to another host, which is never sent the token."""


class GitHubAnswerInvalid(CommentError, code="LS615"):
    """A response of GitHub's API does not have the documented format."""


class CommentTextUnreadable(UsageError, code="LS616"):
    """The file with the comment's text cannot be read."""


class UnknownSchema(UsageError, code="LS617"):
    """`lancestat schema` has no schema of this kind."""


class EventLogUnreadable(UsageError, code="LS618"):
    """A path that should hold Spark's event logs does not exist or cannot be read."""


class NoQueryLog(UsageError, code="LS619"):
    """No log of queries is named, and the target does not `listen`, or none is recorded yet."""


class PlanOutOfDate(PlanFileError, code="LS620"):
    """The project, a dataset or the state has changed since a plan file was written.

    Nothing was run.
    """


class PlanFileUnreadable(PlanFileError, code="LS622"):
    """A file cannot be read, or is not a complete plan file."""


class PlanFileOfOtherRelease(PlanFileError, code="LS623"):
    """A plan file was written by another release of lancestat."""


class PlanFileOfOtherProject(PlanFileError, code="LS624"):
    """A plan file was written for another project or target."""


class PlaceOccupied(UsageError, code="LS650"):
    """A command would replace something that lancestat did not write.

    For `lancestat init`, also an existing file of a project.
    """


class GitMissing(UsageError, code="LS660"):
    """Reading a git revision needs `git`, which is not on PATH."""


class NoRepository(UsageError, code="LS661"):
    """The project is not in a git repository, or git refuses to read the repository."""


class UnknownRevision(UsageError, code="LS662"):
    """An argument is neither a git revision nor the folder of a project."""


class NoMergeBase(UsageError, code="LS663"):
    """Two revisions have no common ancestor."""


class ProjectMissing(UsageError, code="LS664"):
    """A revision or folder for `diff` has no project, or the project's folder is a link.

    In other commands, a missing `lancestat_project.yml` is LS101.
    """


class TooManySides(UsageError, code="LS665"):
    """`diff` got a third side, but `A...B` already names two."""


class UnknownRisk(UsageError, code="LS666"):
    """`--fail-on` names an unknown risk."""


class GitFailed(LancestatError, code="LS667"):
    """A git command failed, for a reason without its own code."""


class AmbiguousSide(UsageError, code="LS668"):
    """An argument is both a git revision and the folder of a project."""


class ForeignState(UsageError, code="LS669"):
    """A `state:` selector needs a state whose location or options the base does not declare.

    `diff` reads no state that only the changed side declares.
    """


class LibraryMissing(UsageError, code="LS670"):
    """A method of the Python API needs a library that lancestat does not depend on."""
