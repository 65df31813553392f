"""LS2xx: errors of opening and reading datasets."""

from __future__ import annotations

from lancestat.errors.base import LakeError


class DatasetMissing(LakeError):
    """There is no Lance dataset at a URI."""

    code = "LS201"
    remedy = (
        "Check the `uri` in the YAML, and that the target's storage options lead to it; lancestat "
        "creates no tables."
    )


class AccessDenied(LakeError):
    """The credentials do not permit reading a dataset."""

    code = "LS202"
    remedy = (
        "Check the target's `storage-options`, the credentials in the environment, and the "
        "permissions on the files or the bucket."
    )


class UnsupportedDataset(LakeError):
    """The installed Lance cannot read a dataset, or a column of it, by its format or its name."""

    code = "LS203"
    remedy = (
        "Upgrade pylance where lancestat runs and on Spark's workers. Rename a column whose name "
        "Lance cannot read, or leave it out."
    )


class DatasetDamaged(LakeError):
    """A dataset is there and cannot be read: some of its files are damaged or missing."""

    code = "LS204"
    remedy = (
        "Restore an earlier version of the dataset with Lance, or write the dataset again. The "
        "message ends with Lance's own error."
    )


class StoreUnreachable(LakeError):
    """The object store that holds a dataset does not answer."""

    code = "LS205"
    remedy = "Check the endpoint in the target's `storage-options` and the network, and run again."


class VersionMissing(LakeError):
    """A dataset has no such version; it may have been cleaned up."""

    code = "LS206"
    remedy = (
        "Name a version that is there. Where none was named, the table changed meanwhile: run "
        "again, and keep versions for longer than a run takes."
    )


class DatasetMisconfigured(LakeError):
    """A dataset cannot be opened with the URI and the storage options that are declared."""

    code = "LS207"
    remedy = "Check the scheme of the `uri` and the target's `storage-options`."


class UnknownTag(LakeError):
    """A dataset has no such tag, or the tag is on a branch."""

    code = "LS208"
    remedy = "Name a tag on the main line of versions; read a branch by a URI of its own."


class DatasetReplaced(LakeError):
    """A dataset was replaced by another one after it was planned, attached or opened."""

    code = "LS209"
    remedy = "Run the command again, or attach or read the table again."


class CatalogTableMissing(DatasetMissing):
    """A catalog has no such table, or no such namespace."""

    code = "LS210"
    remedy = "Check the `table` in the YAML against what the catalog lists."


class ManagedByCatalog(LakeError):
    """A catalog owns the versions of a dataset that the YAML names by its URI.

    A commit past the catalog would not be seen by those who read the table through it.
    """

    code = "LS213"
    remedy = (
        "Name the table by its catalog: `table: catalog.namespace.table` in place of `uri`, or of "
        "`lance` in the output of a join."
    )


class UnannouncedVersion(LakeError):
    """The folder of a table whose versions a catalog owns has a version that the catalog lacks.

    It was committed past the catalog, or its announcement was cut off. Lance commits nothing over a
    version with which the change conflicts.
    """

    code = "LS216"
    remedy = (
        "Have the catalog take the version on or remove its manifest; "
        "publish to the table through the catalog alone."
    )


class CatalogUnreachable(LakeError):
    """A catalog does not answer."""

    code = "LS211"
    remedy = "Check the catalog's `properties` in the target and the network, and run again."


class CatalogMisconfigured(LakeError):
    """A catalog cannot be used with the implementation and the properties that are declared."""

    code = "LS212"
    remedy = (
        "Check `impl` and `properties` of the catalog in the target. Glue, Hive, Unity and Polaris "
        "need the package lance-namespace-impls."
    )


class UnusableTableNames(LakeError):
    """Tables that a source finds get names that are no names, or that something else has.

    None of these tables has a node; the other tables of the source have theirs.
    """

    code = "LS214"
    remedy = (
        "Change `name` of the source, `exclude` the tables that the message names, or declare them "
        "under names of their own."
    )


class FoundTableMissing(LakeError):
    """A join reads a table that is neither declared nor found by any source."""

    code = "LS215"
    remedy = (
        "Correct the name, declare the table, or see that a source finds it: "
        "`lancestat list --discover` shows what they find."
    )
