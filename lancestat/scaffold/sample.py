"""The sample tables of a new project, made by arithmetic: every machine gets the same rows."""

from __future__ import annotations

import math
from datetime import date, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

_ORDERS = 1000
_CUSTOMERS = 150
_ORDERS_PER_DAY = 8
_FIRST_DAY = date(2025, 1, 1)
_COLOURS = ("red", "orange", "yellow", "green", "teal", "blue", "violet", "pink")
# With the price in cents, and ordered so that neighbours are alike: the last is near the first.
_THINGS = {
    "mug": ("kitchen", 850),
    "bowl": ("kitchen", 1290),
    "pan": ("kitchen", 3400),
    "lamp": ("living room", 4900),
    "cushion": ("living room", 1990),
    "blanket": ("bedroom", 3950),
    "pillow": ("bedroom", 2450),
    "towel": ("bathroom", 1150),
}


def orders() -> pa.Table:
    """Return one row per order; few customers and products have most of them."""
    import pyarrow as pa

    keys = range(1, _ORDERS + 1)
    products = [1 + _skewed(key, len(_COLOURS) * len(_THINGS)) for key in keys]
    quantities = [1 + key % 3 for key in keys]
    prices = [cents for _, _, cents in _products()]
    amounts = [
        quantity * prices[product - 1]
        for quantity, product in zip(quantities, products, strict=True)
    ]
    days = [_FIRST_DAY + timedelta(days=key // _ORDERS_PER_DAY) for key in keys]
    shipped = [
        None if key > _ORDERS - 3 * _ORDERS_PER_DAY else day + timedelta(days=1 + key % 4)
        for key, day in zip(keys, days, strict=True)
    ]
    return pa.table(
        {
            "order_id": pa.array(keys, pa.int64()),
            "customer_id": pa.array([1 + _skewed(7 * key, _CUSTOMERS) for key in keys], pa.int64()),
            "product_id": pa.array(products, pa.int64()),
            "quantity": pa.array(quantities, pa.int32()),
            "amount": _money(amounts),
            "ordered_on": pa.array(days, pa.date32()),
            "shipped_on": pa.array(shipped, pa.date32()),
        }
    )


def products() -> pa.Table:
    """Return one row per product; embeddings tell kinds of things apart first, then colours."""
    import pyarrow as pa

    names, categories, prices = zip(*_products(), strict=True)
    vectors = [
        [*_on_circle(thing, len(_THINGS), 2.0), *_on_circle(colour, len(_COLOURS), 1.0)]
        for thing in range(len(_THINGS))
        for colour in range(len(_COLOURS))
    ]
    return pa.table(
        {
            "product_id": pa.array(range(1, len(names) + 1), pa.int64()),
            "name": pa.array(names, pa.string()),
            "category": pa.array(categories, pa.string()),
            "price": _money(prices),
            "embedding": pa.array(vectors, pa.list_(pa.float32(), 4)),
        }
    )


def _products() -> list[tuple[str, str, int]]:
    """Return the name, the category and the price in cents of every product."""
    return [
        (f"{colour} {thing}", category, cents)
        for thing, (category, cents) in _THINGS.items()
        for colour in _COLOURS
    ]


def _skewed(key: int, count: int) -> int:
    """Return a number below `count`, small ones more often than others."""
    share = key * 0.6180339887498949 % 1
    return int(share**3 * count)


def _on_circle(step: int, steps: int, radius: float) -> tuple[float, float]:
    angle = 2 * math.pi * step / steps
    return radius * math.cos(angle), radius * math.sin(angle)


def _money(cents: list[int] | tuple[int, ...]) -> pa.Array:
    import pyarrow as pa

    return pa.array([Decimal(value).scaleb(-2) for value in cents], pa.decimal128(9, 2))
