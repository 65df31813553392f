"""The changes of a day: every kind of change that lancestat distinguishes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

from catalogue import inquiries
from load import next_lineitems, opened

if TYPE_CHECKING:
    import lance


@dataclass(frozen=True)
class Change:
    """A change of a table, and the calls of Lance that make it."""

    table: str
    event: str
    call: str


def change(warehouse: Path, scale: Decimal) -> Iterator[Change]:
    """Make the changes, one table after the other."""
    for name, make in _CHANGES.items():
        event, call = make(opened(warehouse, name), scale)
        yield Change(name, event, call)
    yield Change("inquiry", *_ask(opened(warehouse, "inquiry"), opened(warehouse, "part_name")))


def _append(lineitem: lance.LanceDataset, scale: Decimal) -> tuple[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        before = lineitem.count_rows()
        lineitem.insert(next_lineitems(scale, Path(folder)))
        rows = lineitem.count_rows() - before
    return f"{rows:,} rows are appended", "insert(rows)"


def _delete(orders: lance.LanceDataset, scale: Decimal) -> tuple[str, str]:
    condition = "o_orderkey < 200"
    before = orders.count_rows()
    orders.delete(condition)
    return f"{before - orders.count_rows():,} rows are deleted", f'delete("{condition}")'


def _compact(partsupp: lance.LanceDataset, scale: Decimal) -> tuple[str, str]:
    made = partsupp.optimize.compact_files()
    event = f"{made.fragments_removed} fragments are merged into {made.fragments_added}"
    return event, "optimize.compact_files()"


def _index(customer: lance.LanceDataset, scale: Decimal) -> tuple[str, str]:
    customer.create_scalar_index("c_custkey", "BTREE")
    return "an index is built", 'create_scalar_index("c_custkey")'


def _add_column(supplier: lance.LanceDataset, scale: Decimal) -> tuple[str, str]:
    supplier.add_columns({"s_in_debt": "s_acctbal < 0"})
    return "a column is added", 'add_columns({"s_in_debt": ...})'


def _update(part: lance.LanceDataset, scale: Decimal) -> tuple[str, str]:
    condition = "p_partkey <= 20"
    price = "cast(p_retailprice * 1.05 as decimal(15, 2))"
    updated = part.update({"p_retailprice": price}, where=condition)
    rows = updated["num_rows_updated"]
    return f"{rows} rows are updated", 'update({"p_retailprice": ...})'


def _ask(inquiry: lance.LanceDataset, part_name: lance.LanceDataset) -> tuple[str, str]:
    known = inquiry.count_rows()
    inquiry.insert(inquiries(part_name, ceil(known / 100), first=known + 1))
    return f"{inquiry.count_rows() - known:,} rows are appended", "insert(rows)"


_CHANGES: dict[str, Callable[[lance.LanceDataset, Decimal], tuple[str, str]]] = {
    "lineitem": _append,
    "orders": _delete,
    "supplier": _add_column,
    "partsupp": _compact,
    "customer": _index,
    "part": _update,
}
