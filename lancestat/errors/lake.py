"""LS2xx: errors of opening and reading datasets."""

from __future__ import annotations

from lancestat.errors.base import LakeError


class DatasetMissing(LakeError, code="LS201"):
    """There is no Lance dataset at a URI."""

    remedy = (
        "Check the `uri` in the YAML, and that it is reachable with the target's storage options. "
        "lancestat creates no tables."
    )


class AccessDenied(LakeError, code="LS202"):
    """The credentials do not allow reading a dataset."""

    remedy = (
        "Check the target's `storage_options`, the credentials in the environment, and the "
        "permissions on the files or the bucket."
    )


class UnsupportedDataset(LakeError, code="LS203"):
    """The installed Lance cannot read a dataset or a column, because of its format or name."""

    remedy = (
        "Upgrade pylance where lancestat runs and on Spark's workers. Rename or leave out a "
        "column whose name Lance cannot read."
    )


class DatasetDamaged(LakeError, code="LS204"):
    """A dataset exists but cannot be read: some of its files are damaged or missing."""

    remedy = (
        "Restore an earlier version of the dataset with Lance, or write the dataset again. The "
        "message ends with Lance's own error."
    )


class StoreUnreachable(LakeError, code="LS205"):
    """The object store that holds a dataset does not answer."""

    remedy = "Check the endpoint in the target's `storage_options` and the network, and run again."


class VersionMissing(LakeError, code="LS206"):
    """A dataset does not have this version; it may have been cleaned up."""

    remedy = (
        "Name an existing version. If you did not name one, the table changed during the command: "
        "run it again, and keep versions for longer than a run takes."
    )


class DatasetMisconfigured(LakeError, code="LS207"):
    """A dataset cannot be opened with the declared URI and storage options."""

    remedy = "Check the scheme of the `uri` and the target's `storage_options`."


class UnknownTag(LakeError, code="LS208"):
    """A dataset does not have this tag, or the tag is on a branch."""

    remedy = "Name a tag of the main branch; read another branch by its own URI."


class DatasetReplaced(LakeError, code="LS209"):
    """A dataset was replaced by another one after it was planned, attached or opened."""

    remedy = "Run the command again, or attach or read the table again."


class CatalogTableMissing(DatasetMissing, code="LS210"):
    """A catalog does not have this table or namespace."""

    remedy = "Check the `table` in the YAML against what the catalog lists."


class ManagedByCatalog(LakeError, code="LS213"):
    """A catalog manages the versions of a dataset that the YAML names by its URI.

    Those who read the table through the catalog would not see a commit that bypasses it.
    """

    remedy = (
        "Name the table by its catalog: `table: catalog.namespace.table` instead of `uri`, or "
        "instead of `lance` in the output of a join."
    )


class UnannouncedVersion(LakeError, code="LS216"):
    """A catalog manages a table's versions and does not know one that is in the table's folder.

    A commit bypassed the catalog, or was interrupted before it was announced. Lance commits nothing
    on top of a version that the change conflicts with.
    """

    remedy = (
        "Let the catalog adopt the version, or remove its manifest. Publish to the table only "
        "through the catalog."
    )


class CatalogUnreachable(LakeError, code="LS211"):
    """A catalog does not answer."""

    remedy = "Check the catalog's `properties` in the target and the network, and run again."


class CatalogMisconfigured(LakeError, code="LS212"):
    """A catalog cannot be used with the declared implementation and properties."""

    remedy = (
        "Check `impl` and `properties` of the catalog in the target. Glue, Hive, Unity and Polaris "
        "need the package lance-namespace-impls."
    )


class CatalogAnswerInvalid(LakeError, code="LS217"):
    """A catalog gives an answer that makes no sense, such as a location with a NUL character.

    A bad answer about one table blocks only that table; a bad list of tables blocks its source.
    """

    remedy = (
        "Ask whoever runs the catalog. A table can be declared by its `uri` instead, unless the "
        "catalog manages its versions."
    )


class CatalogLimitExceeded(LakeError, code="LS218"):
    """A catalog lists pages, names or namespaces without end, or takes too long to do it.

    The documentation of catalogs has the limits.
    """

    remedy = (
        "Ask whoever runs the catalog. Declare the tables one by one, by `table` or `uri`, instead "
        "of by a source."
    )


class UnusableTableNames(LakeError, code="LS214"):
    """Tables found by a source get invalid names, or names that are already taken.

    These tables get no node; the source's other tables do.
    """

    remedy = (
        "Change the source's `name`, `exclude` the tables named in the message, or declare them "
        "under other names."
    )


class FoundTableMissing(LakeError, code="LS215"):
    """A join reads a table that is neither declared nor found by any source."""

    remedy = (
        "Correct the name, declare the table, or make a source find it: `lancestat list "
        "--discover` shows what sources find."
    )


class DatasetUnreadable(LakeError, code="LS220"):
    """Lance cannot read a dataset, for a reason other than damaged files."""

    remedy = (
        "The message ends with Lance's own error. Exclude the column that it names, give the "
        "process more memory, or upgrade pylance."
    )


class NameNotEncodable(LakeError, code="LS219"):
    """Python cannot encode a character in the name of a folder or a file.

    Its encoding of file names is ASCII in the locale `C` with `PYTHONUTF8=0`, or a legacy one.
    """

    remedy = "Set `PYTHONUTF8=1`, or a UTF-8 locale such as `LC_ALL=C.UTF-8`."
