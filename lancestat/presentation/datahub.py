"""The format `datahub`: profiles of tables, as the file source of DataHub reads them.

It is a list of proposals to change the aspect `datasetProfile`; see
https://docs.datahub.com/docs/generated/metamodel/entities/dataset.
"""

from __future__ import annotations

from datetime import datetime
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

PLATFORM = "urn:li:dataPlatform:lance"
"""Lance is none of the platforms that DataHub knows by itself; it takes any."""

_ENVIRONMENTS = frozenset(
    (
        *("DEV", "TEST", "QA", "UAT", "EI", "PRE", "STG", "NON_PROD", "PROD", "CORP", "RVW"),
        *("PRD", "TST", "SIT", "SBX", "SANDBOX"),
    )
)
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@FORMAT.renders(StatusView)
def _datahub(view: StatusView, page: Page) -> Payload:
    target = view.report.target.upper()
    environment = target if target in _ENVIRONMENTS else "PROD"
    return [
        {
            "entityType": "dataset",
            "entityUrn": f"urn:li:dataset:({PLATFORM},{_urn_part(name)},{environment})",
            "changeType": "UPSERT",
            "aspectName": "datasetProfile",
            "aspect": {"json": _dataset_profile(table, view.report.made_at)},
        }
        for name, table in tables(view).items()
    ]


def _dataset_profile(table: TableReport, now: datetime) -> dict[str, Any]:
    status = table.status
    assert status is not None
    return {
        "timestampMillis": milliseconds(now),
        "rowCount": status.rows,
        "sizeInBytes": status.disk_bytes,
        "fieldProfiles": [
            known(
                {
                    "fieldPath": column["name"],
                    "uniqueCount": column["distinct"],
                    "uniqueProportion": column["distinct_share"],
                    "nullCount": column["nulls"],
                    "nullProportion": column["null_share"],
                    "min": column["min"],
                    "max": column["max"],
                    "quantiles": _quantiles(column["histogram"]),
                    "histogram": _histogram(column["histogram"]),
                }
            )
            for column in columns(table)
        ],
    }


def _quantiles(histogram: NumberHistogram | None) -> list[dict[str, str]] | None:
    if histogram is None:
        return None
    return [{"quantile": f"{q:g}", "value": str(histogram.at(q))} for q in _QUANTILES]


def _histogram(histogram: NumberHistogram | None) -> dict[str, Any] | None:
    if histogram is None:
        return None
    edges, heights = histogram.shown()
    return {"boundaries": [str(edge) for edge in edges], "heights": heights}


def _urn_part(text: str) -> str:
    """Return a text as a part of a URN, in which these separate the parts."""
    return text.translate({ord(char): f"%{ord(char):02x}" for char in "(),"})
