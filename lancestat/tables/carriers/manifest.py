"""The carrier of `publish: manifest`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from typing_extensions import assert_never

from lancestat.lake.commit import Conflict, Landed, LandedLate
from lancestat.lake.snapshot import Pin, Snapshot
from lancestat.spec.model import Publish
from lancestat.tables.carriers.carrier import Carrier
from lancestat.tables.manifest.publication import commit, publication
from lancestat.tables.manifest.wire import (
    COMPUTED_AT_VERSION,
    is_altered,
    same_statistics,
)

if TYPE_CHECKING:
    from lancestat.tables.action import TableVersion
    from lancestat.tables.stored import TableRecord


class ManifestCarrier(Carrier):
    """The config of the table's manifest, where every reader of the dataset finds statistics."""

    name = Publish.MANIFEST
    place = "the table's manifest"

    def entries(
        self, snapshot: Snapshot, record: TableRecord | None, options: Mapping[str, str]
    ) -> Mapping[str, str]:
        """Return the config, which has other entries, too."""
        return snapshot.config

    def publish(
        self,
        table: TableVersion,
        entries: Mapping[str, str],
        *,
        run: str,
        options: Mapping[str, str],
        even_late: bool,
    ) -> Pin | None:
        """Commit the entries, unless the manifest of the version that was read has them."""
        config = table.config
        is_tagged = config.get(COMPUTED_AT_VERSION) == str(table.version)
        if is_tagged and same_statistics(config, entries) and not is_altered(config):
            return table.pin
        change = publication(table.pin, entries, config, run)
        landing = commit(change, storage_options=options, even_late=even_late)
        match landing:
            case Landed():
                return landing.pin
            case LandedLate() | Conflict():
                return None
            case _:
                assert_never(landing)
