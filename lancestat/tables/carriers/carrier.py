"""A carrier: where the statistics of a table are kept for its readers.

The YAML's `publish` names the carrier of a table. A carrier

- publishes statistics, encoded as `lance.stats.*` entries (`publish`);
- reads them (`entries`), for whoever decodes them and judges whether they may be used;
- says which version entries describe (`described_version`), and by which tag (`tag`);
- says whether entries are of a dataset (`is_of`), which may have been replaced meanwhile.

A new carrier is a subclass with a line in `registry.py`, under a name in `spec.table.Publish`. What
it does not override fits entries that lie beside the table, where every reader finds them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from lancestat.lake.snapshot import Pin, Snapshot
from lancestat.spec.model import Publish
from lancestat.tables.manifest.wire import newest_fragment

if TYPE_CHECKING:
    from lancestat.tables.action import TableVersion
    from lancestat.tables.stored import TableRecord


class Carrier(ABC):
    """Where statistics are kept.

    Attributes:
        name: The YAML's name for it.
        place: Where that is, in words: `the state`.
        is_public: Whether readers find the statistics without the state. If so others may change or
            remove them, and the entries alone have to say which dataset they are of.
    """

    name: ClassVar[Publish]
    place: ClassVar[str]
    is_public: ClassVar[bool] = True

    @property
    def commits(self) -> bool:
        """Whether publishing commits a version to the table, which is then the tag of entries."""
        return self.name.commits

    @abstractmethod
    def entries(
        self, snapshot: Snapshot, record: TableRecord | None, options: Mapping[str, str]
    ) -> Mapping[str, str]:
        """Return the entries for readers of a table, empty where none can be read.

        Args:
            snapshot: The table at the version that is read.
            record: What the state remembers of the table.
            options: The storage options for the table.
        """

    @abstractmethod
    def publish(
        self,
        table: TableVersion,
        entries: Mapping[str, str],
        *,
        run: str,
        options: Mapping[str, str],
        even_late: bool,
    ) -> Pin | None:
        """Keep the entries of a table, and return the version that they stand for.

        None where nothing stands, since the table has moved on meanwhile: it is planned again.

        Args:
            table: The version that was read.
            entries: Those for readers, with the tag of `tag`.
            run: The id of the run.
            options: The storage options for the table.
            even_late: Whether to publish although the table has moved on.

        Raises:
            PublishError: they cannot be published.
        """

    def tag(self, version: int) -> int:
        """Return the tag of statistics that are made from a version."""
        return version + 1 if self.commits else version

    def described_version(self, tag: int) -> int:
        """Return the version whose rows the statistics with a tag describe.

        One that publishing made was not read: the rows are those of the one before. Statistics that
        landed late carry the tag of a version that someone else made.
        """
        return tag - 1 if self.commits else tag

    def is_of(self, entries: Mapping[str, str], record: TableRecord | None, base: Snapshot) -> bool:
        """Whether statistics were made from `base`, the table at the version that they describe."""
        named = newest_fragment(entries)
        return named is None or named == base.newest_fragment
