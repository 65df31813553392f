"""Random histories of real tables: the facts of the lake layer must agree with the rows."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path

import lance
import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lancestat.lake.fingerprint import column_groups, content_digest, field_key
from lancestat.lake.history import commits_since, rows_changed_between
from lancestat.lake.open import snapshot
from lancestat.lake.snapshot import Snapshot
from tests.examples import examples

SMALL = st.integers(0, 60)
Row = tuple[object, ...]


class Tables(RuleBasedStateMachine):
    """One table that anything may happen to; all its past is remembered as Lance read it."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="lancestat-model-"))
        self.uri = str(self.folder / "t.lance")
        self.values: dict[tuple[bytes, str], list[object]] = {}
        self.digests: dict[tuple[str, tuple[str, ...]], Counter[Row]] = {}
        self.past: dict[int, tuple[Snapshot, Counter[Row], tuple[str, ...]]] = {}
        self.next_id = 0

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    def table(self, count: int, schema: pa.Schema | None = None) -> pa.Table:
        ids = range(self.next_id, self.next_id + count)
        self.next_id += count
        rows = {"id": ids, "x": [i % 7 for i in ids], "y": [None] * count}
        like = schema or pa.schema([("id", pa.int64()), ("x", pa.int32())])
        return pa.table({field.name: pa.array(rows[field.name], field.type) for field in like})

    def open(self) -> lance.LanceDataset:
        return lance.dataset(self.uri)

    def names(self) -> set[str]:
        return set(self.open().schema.names)

    @initialize(count=st.integers(1, 40), stable=st.booleans())
    def create(self, count: int, stable: bool) -> None:
        lance.write_dataset(
            self.table(count), self.uri, max_rows_per_file=10, enable_stable_row_ids=stable
        )

    @rule(count=st.integers(1, 25))
    def append(self, count: int) -> None:
        rows = self.table(count, self.open().schema)
        lance.write_dataset(rows, self.uri, mode="append", max_rows_per_file=10)

    @rule(low=SMALL, size=st.integers(0, 15))
    def delete(self, low: int, size: int) -> None:
        self.open().delete(f"id >= {low} and id < {low + size}")

    @rule(low=SMALL, size=st.integers(1, 15))
    def update(self, low: int, size: int) -> None:
        self.open().update({"x": "x + 100"}, where=f"id >= {low} and id < {low + size}")

    @rule(low=SMALL, insert=st.booleans())
    def upsert(self, low: int, insert: bool) -> None:
        if self.names() != {"id", "x"}:
            return
        ids = pa.array(range(low, low + 8), pa.int64())
        rows = pa.table({"id": ids, "x": pa.array([-1] * 8, self.open().schema.field("x").type)})
        merge = self.open().merge_insert("id").when_matched_update_all()
        (merge.when_not_matched_insert_all() if insert else merge).execute(rows)
        self.next_id = max(self.next_id, low + 8)

    @rule()
    def add_column(self) -> None:
        if "y" not in self.names():
            self.open().add_columns({"y": "id * 2"})

    @rule()
    def drop_column(self) -> None:
        if "y" in self.names():
            self.open().drop_columns(["y"])

    @rule()
    def alter_type(self) -> None:
        wide = self.open().schema.field("x").type == pa.int64()
        self.open().alter_columns({"path": "x", "data_type": pa.int32() if wide else pa.int64()})

    @rule(rows_per_fragment=st.sampled_from([15, 40, 1000]))
    def compact(self, rows_per_fragment: int) -> None:
        self.open().optimize.compact_files(
            target_rows_per_fragment=rows_per_fragment, materialize_deletions_threshold=0.0
        )

    @rule()
    def index(self) -> None:
        self.open().create_scalar_index("id", "BTREE", replace=True)

    @rule(value=SMALL)
    def configure(self, value: int) -> None:
        self.open().update_config({"value": str(value)})

    @rule(count=st.integers(1, 25))
    def overwrite(self, count: int) -> None:
        lance.write_dataset(self.table(count), self.uri, mode="overwrite", max_rows_per_file=10)

    @rule(choice=SMALL)
    def restore(self, choice: int) -> None:
        versions = sorted(self.past)
        if versions:
            lance.dataset(self.uri, version=versions[choice % len(versions)]).restore()

    @invariant()
    def equal_fingerprints_mean_equal_values(self) -> None:
        if not Path(self.uri).exists():
            return
        dataset = self.open()
        now = snapshot(dataset)
        names = {field_key(field): field.name for field in now.fields}
        for group in column_groups(now, now.fields):
            columns = dataset.get_fragment(group.fragment_id).to_table()
            for key in group.fields:
                values = columns.column(names[key]).to_pylist()
                assert self.values.setdefault((group.fingerprint, key), values) == values

    @invariant()
    def changed_rows_are_never_underestimated(self) -> None:
        if not Path(self.uri).exists():
            return
        dataset = self.open()
        now = snapshot(dataset)
        columns = dataset.to_table()
        rows = Counter(zip(*(column.to_pylist() for column in columns.columns), strict=True))
        keys = tuple(field_key(field) for field in now.fields)
        digest = content_digest(column_groups(now, now.fields))
        assert self.digests.setdefault((digest, keys), rows) == rows

        for version, (then, rows_then, keys_then) in self.past.items():
            history = commits_since(dataset, version)
            assert history.is_complete
            if keys_then != keys:
                continue
            if history.rows_unchanged:
                assert rows == rows_then
            truly_changed = (rows - rows_then).total() + (rows_then - rows).total()
            names = [field.name for field in now.fields]
            bound = rows_changed_between(then, now, names, history)
            assert bound >= min(1.0, truly_changed / (now.rows or 1)) - 1e-9
            assert rows_changed_between(then, now, names) >= bound - 1e-9
            if history.rows_unchanged:
                assert bound == 0.0
        self.past[now.version] = (now, rows, keys)


Tables.TestCase.settings = settings(
    max_examples=examples(25),
    stateful_step_count=12,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestTables = Tables.TestCase
