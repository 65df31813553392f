"""LS2xx: errors of opening and reading datasets."""

from __future__ import annotations

from lancestat.errors.base import LakeError


class DatasetMissing(LakeError):
    """There is no Lance dataset at a URI."""

    code = "LS201"
    remedy = (
        "Check the `uri` in the YAML, and that it is reachable with the target's storage options. "
        "lancestat creates no tables."
    )


class AccessDenied(LakeError):
    """The credentials do not allow reading a dataset."""

    code = "LS202"
    remedy = (
        "Check the target's `storage_options`, the credentials in the environment, and the "
        "permissions on the files or the bucket."
    )


class UnsupportedDataset(LakeError):
    """The installed Lance cannot read a dataset or a column, because of its format or name."""

    code = "LS203"
    remedy = (
        "Upgrade pylance where lancestat runs and on Spark's workers. Rename or leave out a "
        "column whose name Lance cannot read."
    )


class DatasetDamaged(LakeError):
    """A dataset exists but cannot be read: some of its files are damaged or missing."""

    code = "LS204"
    remedy = (
        "Restore an earlier version of the dataset with Lance, or write the dataset again. The "
        "message ends with Lance's own error."
    )


class StoreUnreachable(LakeError):
    """The object store that holds a dataset does not answer."""

    code = "LS205"
    remedy = "Check the endpoint in the target's `storage_options` and the network, and run again."


class VersionMissing(LakeError):
    """A dataset does not have this version; it may have been cleaned up."""

    code = "LS206"
    remedy = (
        "Name an existing version. If you did not name one, the table changed during the command: "
        "run it again, and keep versions for longer than a run takes."
    )


class DatasetMisconfigured(LakeError):
    """A dataset cannot be opened with the declared URI and storage options."""

    code = "LS207"
    remedy = "Check the scheme of the `uri` and the target's `storage_options`."


class UnknownTag(LakeError):
    """A dataset does not have this tag, or the tag is on a branch."""

    code = "LS208"
    remedy = "Name a tag of the main branch; read another branch by its own URI."


class DatasetReplaced(LakeError):
    """A dataset was replaced by another one after it was planned, attached or opened."""

    code = "LS209"
    remedy = "Run the command again, or attach or read the table again."


class CatalogTableMissing(DatasetMissing):
    """A catalog does not have this table or namespace."""

    code = "LS210"
    remedy = "Check the `table` in the YAML against what the catalog lists."


class ManagedByCatalog(LakeError):
    """A catalog manages the versions of a dataset that the YAML names by its URI.

    Those who read the table through the catalog would not see a commit that bypasses it.
    """

    code = "LS213"
    remedy = (
        "Name the table by its catalog: `table: catalog.namespace.table` instead of `uri`, or "
        "instead of `lance` in the output of a join."
    )


class UnannouncedVersion(LakeError):
    """A catalog manages a table's versions and does not know one that is in the table's folder.

    A commit bypassed the catalog, or was interrupted before it was announced. Lance commits nothing
    on top of a version that the change conflicts with.
    """

    code = "LS216"
    remedy = (
        "Let the catalog adopt the version, or remove its manifest. Publish to the table only "
        "through the catalog."
    )


class CatalogUnreachable(LakeError):
    """A catalog does not answer."""

    code = "LS211"
    remedy = "Check the catalog's `properties` in the target and the network, and run again."


class CatalogMisconfigured(LakeError):
    """A catalog cannot be used with the declared implementation and properties."""

    code = "LS212"
    remedy = (
        "Check `impl` and `properties` of the catalog in the target. Glue, Hive, Unity and Polaris "
        "need the package lance-namespace-impls."
    )


class CatalogAnswerInvalid(LakeError):
    """A catalog gives an answer that makes no sense, such as a location with a NUL character.

    A bad answer about one table blocks only that table; a bad list of tables blocks its source.
    """

    code = "LS217"
    remedy = (
        "Ask whoever runs the catalog. A table can be declared by its `uri` instead, unless the "
        "catalog manages its versions."
    )


class CatalogLimitExceeded(LakeError):
    """A catalog lists pages, names or namespaces without end, or takes too long to do it.

    The documentation of catalogs has the limits.
    """

    code = "LS218"
    remedy = (
        "Ask whoever runs the catalog. Declare the tables one by one, by `table` or `uri`, instead "
        "of by a source."
    )


class UnusableTableNames(LakeError):
    """Tables found by a source get invalid names, or names that are already taken.

    These tables get no node; the source's other tables do.
    """

    code = "LS214"
    remedy = (
        "Change the source's `name`, `exclude` the tables named in the message, or declare them "
        "under other names."
    )


class FoundTableMissing(LakeError):
    """A join reads a table that is neither declared nor found by any source."""

    code = "LS215"
    remedy = (
        "Correct the name, declare the table, or make a source find it: `lancestat list "
        "--discover` shows what sources find."
    )


class DatasetUnreadable(LakeError):
    """Lance cannot read a dataset, for a reason other than damaged files."""

    code = "LS220"
    remedy = (
        "The message ends with Lance's own error. Exclude the column that it names, give the "
        "process more memory, or upgrade pylance."
    )


class NameNotEncodable(LakeError):
    """Python cannot encode a character in the name of a folder or a file.

    Its encoding of file names is ASCII in the locale `C` with `PYTHONUTF8=0`, or a legacy one.
    """

    code = "LS219"
    remedy = "Set `PYTHONUTF8=1`, or a UTF-8 locale such as `LC_ALL=C.UTF-8`."
