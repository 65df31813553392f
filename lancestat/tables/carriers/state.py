"""The carrier of `publish: none`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lancestat.lake.snapshot import Pin, Snapshot
from lancestat.spec.model import Publish
from lancestat.tables.carriers.carrier import Carrier
from lancestat.tables.manifest.wire import tagged

if TYPE_CHECKING:
    from lancestat.tables.action import TableVersion
    from lancestat.tables.stored import TableRecord


class StateCarrier(Carrier):
    """The record in the state, for readers that know the project."""

    name = Publish.NONE
    place = "the state"
    is_public = False

    def entries(
        self, snapshot: Snapshot, record: TableRecord | None, options: Mapping[str, str]
    ) -> Mapping[str, str]:
        """Return the entries of the record, tagged with its version.

        Those of a record that was made while the table was still published may carry the tag of a
        commit that was not needed. A later version is of another dataset.
        """
        if record is None or record.version > snapshot.version:
            return {}
        return tagged(record.values, record.version)

    def publish(
        self,
        table: TableVersion,
        entries: Mapping[str, str],
        *,
        run: str,
        options: Mapping[str, str],
        even_late: bool,
    ) -> Pin | None:
        """Return the version that was read: the run's record keeps the entries."""
        return table.pin

    def is_of(self, entries: Mapping[str, str], record: TableRecord | None, base: Snapshot) -> bool:
        """Whether the record was made from the very version."""
        return record is None or record.describes(base.pin)
