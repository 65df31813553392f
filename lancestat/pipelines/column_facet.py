"""The facet of OpenLineage that lancestat adds to its own: what these do not hold of columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from lancestat.version import __version__

PRODUCER = f"pkg:pypi/lancestat@{__version__}"
"""What names lancestat in events: its package URL."""

FACET = "lancestat_columnStatistics"
FACET_SCHEMA = "column_statistics_facet.schema.json"
SCHEMA_URL = f"{PRODUCER}#lancestat/schemas/{FACET_SCHEMA}"
"""The schema of the facet, as a file of the package."""


class ColumnFacet(msgspec.Struct, omit_defaults=True, rename="camel"):
    """What the facets of OpenLineage do not hold of a column.

    `type` is Spark's. `min` and `max` are bounds that are no numbers, in Spark's spelling; those of
    strings are cut. Lengths of strings count characters, others bytes.
    """

    type: str | None = None
    min: str | None = None
    max: str | None = None
    average_length: int | None = None
    maximum_length: int | None = None


class ColumnStatisticsFacet(msgspec.Struct, omit_defaults=True):
    """The facet `lancestat_columnStatistics` of a dataset: statistics by column."""

    producer: str = msgspec.field(name="_producer")
    schema_url: str = msgspec.field(name="_schemaURL")
    columns: dict[str, ColumnFacet]


def generated_files() -> dict[str, str]:
    """Return the text of the schema of the facet, by its path in a checkout."""
    body: dict[str, Any] = msgspec.json.schema(ColumnStatisticsFacet)
    definitions = body.pop("$defs")
    whole = definitions.pop(ColumnStatisticsFacet.__name__)
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": FACET_SCHEMA,
    }
    text = json.dumps({**head, **whole, "$defs": definitions}, indent=2)
    return {f"schemas/{FACET_SCHEMA}": f"{text}\n"}


if __name__ == "__main__":
    for path, text in generated_files().items():
        Path(__file__).parents[2].joinpath(path).write_text(text, encoding="utf-8")
