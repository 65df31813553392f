"""The carriers by their names in the YAML's `publish`."""

from __future__ import annotations

from collections.abc import Mapping

from lancestat.spec.model import Publish
from lancestat.tables.carriers.carrier import Carrier
from lancestat.tables.carriers.manifest import ManifestCarrier
from lancestat.tables.carriers.state import StateCarrier

CARRIERS: Mapping[Publish, Carrier] = {
    carrier.name: carrier
    for carrier in (
        ManifestCarrier(),
        StateCarrier(),
    )
}
