"""One scan of a table as Spark's workers are given it."""

from __future__ import annotations

from dataclasses import dataclass

from lancestat.lake.pin import Pin


@dataclass(frozen=True, slots=True)
class Scan:
    """What every task of a scan has in common; holds no storage options.

    `columns` are the projected columns in the order of Spark's schema, `filter` is in Lance's SQL,
    `limit` stops each task. With `narrow_decimals`, decimals of up to 18 digits travel as their
    unscaled 64-bit integers (the columnar path of the relation reads them so).
    """

    pin: Pin
    columns: tuple[str, ...]
    filter: str | None = None
    limit: int | None = None
    narrow_decimals: bool = False
