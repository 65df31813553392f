"""Proofs of keys against polars, in any order of merges."""

from __future__ import annotations

import random
from collections.abc import Sequence

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.tables.statistics.kernel import Request, reduce_batches
from lancestat.tables.statistics.key_proof import MOST_HASHES, KeyProof, merge_key_proofs

NAMES = ("a", "b")
SCHEMA = pa.schema([("a", pa.int32()), ("b", pa.string())])
ROWS = st.lists(st.tuples(st.integers(0, 6), st.sampled_from("xyz")), max_size=8)


def proof_of(rows: pa.Table, *, columns: Sequence[str] = NAMES, keeps: bool = False) -> KeyProof:
    request = Request(tuple(columns), is_key=True, keeps_hashes=keeps)
    batches = rows.to_batches(max_chunksize=50_000)
    proof = reduce_batches(batches, rows.schema, {"k": request})["k"].key
    assert proof is not None
    return proof


def is_unique(tables: Sequence[pa.Table], columns: Sequence[str] = NAMES) -> bool:
    frame = pl.DataFrame(pl.from_arrow(pa.concat_tables(tables))).drop_nulls(list(columns))
    return not frame.is_duplicated().any() if frame.height else True


@given(st.lists(ROWS, min_size=1, max_size=5), st.booleans(), st.randoms(use_true_random=False))
def test_proofs_hold_in_any_order_of_merges(
    fragments: list[list[tuple[int, str]]], keeps: bool, order: random.Random
) -> None:
    tables = [
        pa.table({"a": [a for a, _ in rows], "b": [b for _, b in rows]}, schema=SCHEMA)
        for rows in fragments
    ]
    parts = [proof_of(table, keeps=keeps) for table in tables]
    for table, part in zip(tables, parts, strict=True):
        assert part.is_repeated != is_unique([table])
        assert part.is_repeated != part.is_proven
    while len(parts) > 1:
        order.shuffle(parts)
        some = order.randint(2, len(parts))
        merged = KeyProof.decode(merge_key_proofs(parts[:some]).encode())
        parts = [merged, *parts[some:]]
    [whole] = parts
    assert not whole.is_repeated or not is_unique(tables)
    assert not whole.is_proven or is_unique(tables)
    if keeps:
        assert whole.is_proven == is_unique(tables)


@pytest.mark.parametrize("kind", ["integers", "texts", "decimals"])
def test_ranges_that_do_not_overlap_prove_a_key(kind: str) -> None:
    """Also where both sides share the first value of a key of two columns, as in sorted files."""
    values = pa.array([index // 3 for index in range(90)])
    if kind == "texts":
        values = pa.array([f"{index // 3:05}" for index in range(90)])
    elif kind == "decimals":
        values = values.cast(pa.decimal128(38, 2))
    rows = pa.table({"a": values, "b": [index % 3 for index in range(90)]})
    parts = [proof_of(rows.slice(start, 10)) for start in range(0, 90, 10)]
    whole = merge_key_proofs(parts[::-1])
    assert (whole.is_proven, len(whole.ranges[0] or ()), whole.ranges[1]) == (True, 9, None)
    again = merge_key_proofs([whole, proof_of(rows.slice(40, 1))])
    assert (again.is_proven, again.is_repeated) == (False, False)


def test_more_ranges_than_are_kept_still_prove_a_key() -> None:
    whole = KeyProof(False, ((),), b"")
    for start in range(3000):
        whole = merge_key_proofs([whole, KeyProof(False, ((((10 * start,), (10 * start + 5,)),),))])
    assert whole.is_proven
    assert len(whole.ranges[0] or ()) <= 1024


def test_nan_has_no_order_and_repeats() -> None:
    nan = float("nan")
    rows = pa.table({"a": [nan, 1.0], "b": [1, 1]})
    proof = proof_of(rows, keeps=True)
    assert (proof.ranges, proof.is_proven) == ((None, None), True)
    assert proof_of(pa.concat_tables([rows, rows])).is_repeated
    assert merge_key_proofs([proof, proof]).is_repeated


def test_hashes_are_kept_up_to_their_limit() -> None:
    half = MOST_HASHES // 2
    parts = [
        proof_of(pa.table({"a": range(start, 2 * half + start, 2)}), columns=["a"], keeps=True)
        for start in (0, 1)
    ]
    whole = merge_key_proofs(parts)
    assert (whole.is_proven, whole.ranges) == (True, (None,))
    more = merge_key_proofs([whole, proof_of(pa.table({"a": [5]}), columns=["a"], keeps=True)])
    assert (more.is_proven, more.is_repeated) == (False, False)


def test_equal_hashes_are_compared_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    from lancestat.tables.statistics import tuples

    real = tuples.hash_tuples
    monkeypatch.setattr(tuples, "hash_tuples", lambda columns: real(columns) // 2**62)
    rows = pa.table({"a": range(9), "b": [str(index) for index in range(9)]})
    assert proof_of(rows).is_proven
    assert proof_of(pa.concat_tables([rows, rows.slice(8)])).is_repeated


def test_too_much_to_compare_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from lancestat.tables.statistics import tuples

    monkeypatch.setattr(tuples, "_MOST_BYTES", 100)
    proof = proof_of(pa.table({"a": range(90), "b": range(90)}))
    assert (proof.is_proven, proof.is_repeated) == (False, False)
