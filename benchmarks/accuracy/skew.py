"""skew-H: TPC-H with heavy keys, columns and tables that depend on each other, and nulls."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

# Five keys together have a share of the rows between these.
HEAVY_KEYS, HEAVY_SHARE = 5, (0.20, 0.25)
DEPENDENCY = 0.9
BRAND = "Brand#13"
# 1995-06-17, in days since 1970: its orders prefer the parts of that brand.
DAY = 9_298


def skew(folder: Path, seed: int) -> None:
    """Change the tables of TPC-H, `<table>.parquet` in a folder, in place."""
    random = np.random.default_rng(seed)
    tables = {name: read(folder, name) for name in ("customer", "part", "partsupp")}
    tables["customer"] = _customer(tables["customer"], random)
    tables["part"] = _part(tables["part"], random)
    tables["orders"] = _orders(read(folder, "orders"), len(tables["customer"]), random)
    lineitem = _lineitem(read(folder, "lineitem"), tables, random)
    # Fragments of lineitem are sorted, those of orders have rows of all days.
    tables["lineitem"] = lineitem.sort_by("l_shipdate")
    tables["orders"] = tables["orders"].take(random.permutation(len(tables["orders"])))
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")


def read(folder: Path, name: str) -> pa.Table:
    """Return a table, its strings of the common type."""
    table = pq.read_table(folder / f"{name}.parquet")
    fields = [
        field.with_type(pa.string()) if pa.types.is_string_view(field.type) else field
        for field in table.schema.remove_metadata()
    ]
    return table.cast(pa.schema(fields))


def zipf(count: int, exponent: float, size: int, random: np.random.Generator) -> np.ndarray:
    """Draw places below `count`, those of five heavy keys and else by Zipf's law.

    Which places are frequent is random.
    """
    weights = np.arange(1, count + 1, dtype=np.float64) ** -exponent
    ranks = np.searchsorted(np.cumsum(weights / weights.sum()), random.random(size))
    places = random.permutation(count)[np.minimum(ranks, count - 1)]
    is_heavy = random.random(size) < random.uniform(*HEAVY_SHARE)
    heavy = random.choice(count, min(HEAVY_KEYS, count), replace=False)
    return np.where(is_heavy, random.choice(heavy, size), places)


def depend(table: pa.Table, on: str, column: str, random: np.random.Generator) -> pa.Table:
    """Let 90 % of a column's values follow from another column's."""
    values = np.sort(table[column].unique().to_numpy(zero_copy_only=False))
    codes = table[on].combine_chunks().dictionary_encode().indices.to_numpy()
    given = table[column].to_numpy(zero_copy_only=False)
    follows = random.random(len(table)) < DEPENDENCY
    made = np.where(follows, values[codes % len(values)], given)
    return put(table, column, pa.array(made, table.schema.field(column).type))


def put(table: pa.Table, column: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Replace a column."""
    place = table.schema.get_field_index(column)
    return table.set_column(place, pa.field(column, values.type), values)


def forget(table: pa.Table, column: str, share: float, random: np.random.Generator) -> pa.Table:
    """Replace a share of a column's values by nulls."""
    is_null = pa.array(random.random(len(table)) < share)
    return put(table, column, pc.if_else(is_null, None, table[column]))


def _customer(table: pa.Table, random: np.random.Generator) -> pa.Table:
    return forget(depend(table, "c_nationkey", "c_mktsegment", random), "c_acctbal", 0.1, random)


def _part(table: pa.Table, random: np.random.Generator) -> pa.Table:
    return forget(depend(table, "p_brand", "p_container", random), "p_size", 0.2, random)


def _orders(table: pa.Table, customers: int, random: np.random.Generator) -> pa.Table:
    customer = zipf(customers, 0.5, len(table), random) + 1
    is_null = random.random(len(table)) < 0.05
    table = put(table, "o_custkey", pa.array(customer, mask=is_null))
    table = depend(table, "o_orderstatus", "o_orderpriority", random)
    days = table["o_orderdate"].cast(pa.int32()).to_numpy()
    days = np.where(random.random(len(table)) < 0.02, DAY, days).astype(np.int32)
    table = put(table, "o_orderdate", pa.array(days).cast(pa.date32()))
    return forget(table, "o_clerk", 0.3, random)


def _lineitem(
    table: pa.Table, tables: dict[str, pa.Table], random: np.random.Generator
) -> pa.Table:
    """Draw parts by Zipf's law, or of the day's brand, and one of each part's suppliers."""
    parts = len(tables["part"])
    part = zipf(parts, 1.0, len(table), random)
    of_brand = np.flatnonzero(pc.equal(tables["part"]["p_brand"], BRAND).to_numpy())
    day = pc.equal(tables["orders"]["o_orderdate"].cast(pa.int32()), DAY)
    on_day = pc.is_in(table["l_orderkey"], tables["orders"]["o_orderkey"].filter(day)).to_numpy()
    prefers = on_day & (random.random(len(table)) < 0.8)
    if len(of_brand):
        part = np.where(prefers, random.choice(of_brand, len(table)), part)
    # The rows of partsupp are sorted by part, four for each.
    suppliers = tables["partsupp"]["ps_suppkey"].to_numpy().reshape(parts, -1)
    choice = np.arange(1, suppliers.shape[1] + 1, dtype=np.float64) ** -1.5
    place = random.choice(suppliers.shape[1], len(table), p=choice / choice.sum())
    table = put(table, "l_partkey", pa.array(part + 1))
    table = put(table, "l_suppkey", pa.array(np.sort(suppliers, axis=1)[part, place]))
    table = depend(table, "l_shipinstruct", "l_shipmode", random)
    return forget(table, "l_tax", 0.3, random)
