"""The format `openmetadata`: profiles of tables for the SDK or the API of OpenMetadata.

It is a list with the name of each table and a `CreateTableProfileRequest`; see
https://docs.open-metadata.org/latest/main-concepts/metadata-standard/schemas/api/data/createtableprofile.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from lancestat.presentation.profiles import (
    NumberHistogram,
    Payload,
    columns,
    known,
    milliseconds,
    tables,
)
from lancestat.presentation.terminal import CONSOLE
from lancestat.presentation.views import Format, Page, StatusView

if TYPE_CHECKING:
    from lancestat.report.tables import TableReport

FORMAT: Format[Payload] = Format(CONSOLE.document, is_published=True, has_histograms=True)


@FORMAT.renders(StatusView)
def _openmetadata(view: StatusView, page: Page) -> Payload:
    now = milliseconds(view.report.made_at)
    return [
        {"table": name, "profile": _table_profile(table, now)}
        for name, table in tables(view).items()
    ]


def _table_profile(table: TableReport, now: int) -> dict[str, Any]:
    status = table.status
    assert status is not None
    return {
        "tableProfile": {
            "timestamp": now,
            "rowCount": status.rows,
            "sizeInByte": status.disk_bytes,
        },
        "columnProfile": [
            known(
                {
                    "name": column["name"],
                    "timestamp": now,
                    "valuesCount": column["values"],
                    "nullCount": column["nulls"],
                    "nullProportion": column["null_share"],
                    "distinctCount": column["distinct"],
                    "distinctProportion": column["distinct_share"],
                    "min": column["min"],
                    "max": column["max"],
                    **_distribution(column["histogram"]),
                }
            )
            for column in columns(table)
        ],
    }


def _distribution(histogram: NumberHistogram | None) -> dict[str, Any]:
    if histogram is None:
        return {}
    edges, heights = histogram.shown()
    names = {"firstQuartile": 0.25, "median": 0.5, "thirdQuartile": 0.75}
    return {
        **{name: histogram.at(quantile) for name, quantile in names.items()},
        "histogram": {
            "boundaries": [f"{low} to {high}" for low, high in pairwise(edges)],
            "frequencies": heights,
        },
    }
