"""Random histories of a table: an incremental run equals a full one and reads only what is new."""

from __future__ import annotations

import random
import shutil
import tempfile
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from random import Random

import lance
import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lancestat.lake.open import snapshot
from lancestat.query.fragments import FragmentStatistics, load_groups
from lancestat.query.predicates.filter import (
    Comparison,
    Filter,
    Instant,
    IsNull,
    LocalTime,
    Not,
    Operator,
    TextMatch,
    TextOperator,
    TimeOfDay,
    columns_of,
)
from lancestat.state.partials import MOST_GROUPS
from lancestat.state.values import table_identity
from lancestat.tables.judgement import TableAssessment
from lancestat.tables.statistics.bounds import Bound
from lancestat.tables.statistics.column_statistics import ColumnStatistics, column_statistics_of
from lancestat.tables.statistics.column_type import ColumnType, column_type
from lancestat.tables.statistics.kernel import analyze
from lancestat.tables.wire import (
    REVISION,
    GuardReason,
    PublishedColumn,
    encode_statistics,
    is_altered,
    published_column,
    unstamped,
    written_revision,
)
from tests.examples import examples
from tests.runs.world import World, few_groups
from tests.state.fresh import FreshState
from tests.tables.alterations import alter_entries
from tests.tables.grouped import check_filter, check_whole

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
SEEDS = st.integers(0, 2**16)
_STEPS_PER_RUN = 3
FILTERS: list[Filter] = [
    Comparison("id", Operator.LESS, 20),
    Comparison("id", Operator.EQUAL, 7),
    Not(Comparison("real", Operator.LESS_OR_EQUAL, 3.0)),
    Comparison("real", Operator.EQUAL, 0.0),
    TextMatch("text", TextOperator.STARTS_WITH, "aaaa"),
    IsNull("price"),
    Comparison("price", Operator.GREATER, Decimal("1000000.005")),
    Comparison("at", Operator.LESS, Instant(0)),
    Comparison("local", Operator.GREATER, LocalTime(3 * 10**11)),
    Comparison("clock", Operator.LESS_OR_EQUAL, TimeOfDay(10**10)),
]
# (fragment's files that hold the field, its deletion file): what decides the values of a column.
Content = tuple[int, str]


def rows(seed: int, count: int) -> pa.Table:
    """Awkward values of every family that has rules of its own."""
    draw = random.Random(seed)

    def some(make: object) -> list[object]:
        return [None if draw.random() < 0.2 else make() for _ in range(count)]

    return pa.table(
        {
            "id": pa.array([draw.randrange(60) for _ in range(count)], pa.int64()),
            "real": pa.array(
                some(lambda: draw.choice([0.0, -0.0, float("nan"), draw.gauss(0, 9)])), pa.float64()
            ),
            "text": pa.array(
                some(lambda: draw.choice(["", "ß", "a" * draw.randrange(9)])), pa.string()
            ),
            "price": pa.array(
                some(lambda: Decimal(draw.randrange(-(10**9), 10**9)) / 100), pa.decimal128(30, 2)
            ),
            "at": pa.array(
                some(lambda: EPOCH + timedelta(seconds=draw.randrange(-(10**9), 10**9))),
                pa.timestamp("us", "UTC"),
            ),
            "local": pa.array(some(lambda: draw.randrange(-(10**15), 10**15)), pa.int64()).view(
                pa.timestamp("ns")
            ),
            "clock": pa.array(some(lambda: draw.randrange(86_400)), pa.int32()).view(
                pa.time32("s")
            ),
        }
    )


def full_columns(
    dataset: lance.LanceDataset,
) -> dict[str, tuple[ColumnType, ColumnStatistics[Bound]]]:
    """Return statistics of one pass over the whole table, without fragments, partials or state."""
    types = {field.name: type for field in dataset.schema if (type := column_type(field.type))}
    schema = pa.schema([field for field in dataset.schema if field.name in types])
    partials = analyze(dataset.to_batches(columns=schema.names), schema)
    return {
        name: (type, column_statistics_of(partials[name], type)) for name, type in types.items()
    }


def full_kept(dataset: lance.LanceDataset) -> dict[str, PublishedColumn]:
    """Return what such a pass gives of the columns that are not published."""
    return {
        name: published_column(type, statistics)
        for name, (type, statistics) in full_columns(dataset).items()
        if not type.is_published
    }


def full_values(dataset: lance.LanceDataset, schema_hash: str) -> dict[str, str]:
    """Return what such a pass publishes."""
    values = encode_statistics(
        full_columns(dataset),
        rows=dataset.count_rows(),
        schema_hash=schema_hash,
        computed_at_version=1,
        computed_at=EPOCH,
    )
    return unstamped(values)


def diverge(dataset: lance.LanceDataset) -> None:
    """Change some rows."""
    if "id" in dataset.schema.names:
        dataset.delete("id < 20")


class History(RuleBasedStateMachine):
    """`known` is content that some run has read, `joint` content of compactions of it."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="lancestat-history-"))
        self.path = str(self.folder / "t.lance")
        self.known: set[Content] = set()
        self.joint: list[frozenset[Content]] = []
        self.columns_made = 0
        # Versions with altered entries.
        self.altered: list[int] = []
        # Whether the state may know nothing of the files, though the entries are current.
        self.is_cloned = False
        self.steps = 0
        self.patches = ExitStack()

    def teardown(self) -> None:
        self.patches.close()
        shutil.rmtree(self.folder)

    @property
    def dataset(self) -> lance.LanceDataset:
        return lance.dataset(self.path)

    def has_data(self) -> bool:
        """Whether each fragment has a file of some column, without which Lance does not compact."""
        fields = {field.id() for field in self.dataset.lance_schema.fields()}
        return all(
            any(fields & set(file["fields"]) for file in fragment.metadata.to_json()["files"])
            for fragment in self.dataset.get_fragments()
        )

    def content(self) -> dict[tuple[int, str], Content]:
        """Content by (fragment id, column name)."""
        contents = {}
        names = {field.id(): field.name() for field in self.dataset.lance_schema.fields()}
        for fragment in self.dataset.get_fragments():
            metadata = fragment.metadata.to_json()
            for field_id, name in names.items():
                paths = [f["path"] for f in metadata["files"] if field_id in f["fields"]]
                # Overwrites assign new field ids: its type identifies a column without a file.
                type = str(self.dataset.schema.field(name).type)
                key = (paths, metadata["deletion_file"], metadata["physical_rows"], type)
                contents[(fragment.fragment_id, name)] = (field_id, repr(key))
        return contents

    @initialize(seed=SEEDS, count=st.integers(1, 40), most_groups=st.sampled_from([2, 512]))
    def create(self, seed: int, count: int, most_groups: int) -> None:
        if most_groups < MOST_GROUPS:
            self.patches.enter_context(few_groups(most_groups))
        lance.write_dataset(rows(seed, count), self.path, max_rows_per_file=10)
        self.world = World(Path(self.path))

    @rule(seed=SEEDS, count=st.integers(1, 12))
    def append(self, seed: int, count: int) -> None:
        table = rows(seed, count)
        arrays = [
            table[field.name].cast(field.type)
            if field.name in table.schema.names
            else pa.nulls(count, field.type)
            if field.nullable
            else pa.array([seed] * count, field.type)
            for field in self.dataset.schema
        ]
        whole = pa.Table.from_arrays(arrays, schema=self.dataset.schema)
        lance.write_dataset(whole, self.path, mode="append", max_rows_per_file=10)

    @precondition(lambda self: "id" in self.dataset.schema.names)
    @rule(low=st.integers(0, 60), width=st.integers(0, 20))
    def delete(self, low: int, width: int) -> None:
        self.dataset.delete(f"id >= {low} and id < {low + width}")

    @precondition(lambda self: {"id", "text"} <= set(self.dataset.schema.names))
    @rule(low=st.integers(0, 60))
    def update(self, low: int) -> None:
        self.dataset.update({"text": "'changed'"}, where=f"id = {low}")

    @rule(value=st.sampled_from(["id * 2", "7", "cast(null as int)"]))
    def add_column(self, value: str) -> None:
        if "id" in self.dataset.schema.names or value != "id * 2":
            self.columns_made += 1
            self.dataset.add_columns({f"extra{self.columns_made}": value})

    @rule()
    def add_null_column(self) -> None:
        self.columns_made += 1
        self.dataset.add_columns([pa.field(f"extra{self.columns_made}", pa.string())])

    @precondition(lambda self: len(self.dataset.schema.names) > 2)
    @rule(data=st.data())
    def drop_column(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.dataset.schema.names))
        self.dataset.drop_columns([name])

    @precondition(lambda self: len(self.dataset.schema.names) > 2)
    @rule(data=st.data())
    def replace_by_nulls(self, data: st.DataObject) -> None:
        """Lance gives the id of a dropped column away again once a compaction has left it out."""
        dropped = data.draw(st.sampled_from(self.dataset.schema.names))
        type = self.dataset.schema.field(dropped).type
        self.dataset.drop_columns([dropped])
        self.compact(100)
        self.columns_made += 1
        self.dataset.add_columns([pa.field(f"extra{self.columns_made}", type)])

    @precondition(
        lambda self: (
            "id" in self.dataset.schema.names and self.dataset.schema.field("id").type == pa.int64()
        )
    )
    @rule()
    def alter_type(self) -> None:
        if self.dataset.describe_indices():
            self.dataset.drop_index("id_idx")
        self.dataset.alter_columns({"path": "id", "data_type": pa.int32()})

    @rule(data=st.data())
    def rename(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.dataset.schema.names))
        if name not in ("id", "text"):
            self.columns_made += 1
            self.dataset.alter_columns({"path": name, "name": f"renamed{self.columns_made}"})

    @rule(seed=SEEDS, count=st.integers(1, 20))
    def overwrite(self, seed: int, count: int) -> None:
        lance.write_dataset(rows(seed, count), self.path, mode="overwrite", max_rows_per_file=10)

    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        versions = [version["version"] for version in self.dataset.versions()]
        version = data.draw(st.sampled_from(versions))
        lance.dataset(self.path, version=version).restore()

    @rule(rows_per_fragment=st.sampled_from([15, 100]))
    def compact(self, rows_per_fragment: int) -> None:
        if not self.has_data():
            return
        before = self.content()
        self.dataset.optimize.compact_files(target_rows_per_fragment=rows_per_fragment)
        after = self.content()
        for name in {name for _, name in after}:
            gone = {before[key] for key in before.keys() - after.keys() if key[1] == name}
            made = {after[key] for key in after.keys() - before.keys() if key[1] == name}
            if made and self.is_known(gone):
                self.joint.append(frozenset(made))

    @rule(seed=SEEDS)
    def alter(self, seed: int) -> None:
        """Change what is published, by accident."""
        if alter_entries(self.dataset, Random(seed)):
            self.altered.append(self.dataset.version)

    @precondition(lambda self: self.altered)
    @rule(data=st.data())
    def restore_altered(self, data: st.DataObject) -> None:
        """Bring altered entries back, which a run may have mended meanwhile."""
        version = data.draw(st.sampled_from(self.altered))
        lance.dataset(self.path, version=version).restore()

    @rule()
    def lose_state(self) -> None:
        self.world.state = FreshState()
        self.forget()

    def forget(self) -> None:
        """Note that a run may have to read everything."""
        self.known.clear()
        self.joint.clear()

    @rule(seed=SEEDS)
    def branch(self, seed: int) -> None:
        """Change a branch, its entries too, which is nothing to the table."""
        self.columns_made += 1
        branch = self.dataset.create_branch(f"branch{self.columns_made}")
        branch.update_config({"lance.stats.column.id.min": str(seed)})
        diverge(branch)

    @rule(is_deep=st.booleans(), changes=st.booleans())
    def become_a_clone(self, is_deep: bool, changes: bool) -> None:
        """Put a clone in the table's place, whose own folder goes elsewhere."""
        self.columns_made += 1
        base = self.folder / f"base{self.columns_made}.lance"
        Path(self.path).rename(base)
        dataset = lance.dataset(str(base))
        (dataset.deep_clone if is_deep else dataset.shallow_clone)(self.path, dataset.version)
        self.altered.clear()
        # A clone names its files otherwise.
        self.forget()
        self.is_cloned = True
        if changes:
            diverge(self.dataset)

    @rule(seed=SEEDS, diverges=st.booleans())
    def swap(self, seed: int, diverges: bool) -> None:
        """Copy the table, or swap it with the copy, which has gone its own way."""
        other, aside = self.folder / "other.lance", self.folder / "aside.lance"
        if not other.exists():
            shutil.copytree(self.path, other)
            if diverges:
                diverge(lance.dataset(str(other)))
                alter_entries(lance.dataset(str(other)), Random(seed))
            return
        Path(self.path).rename(aside)
        other.rename(self.path)
        aside.rename(other)
        self.altered.clear()

    @precondition(lambda self: "id" in self.dataset.schema.names)
    @rule()
    def index(self) -> None:
        self.dataset.create_scalar_index("id", "BTREE", replace=True)

    @rule(value=st.integers(0, 9))
    def configure(self, value: int) -> None:
        self.dataset.update_config({"owner": str(value)})

    def is_known(self, content: set[Content]) -> bool:
        joined = {file for joint in self.joint if joint <= content for file in joint}
        return content <= self.known | joined

    @rule()
    def run(self) -> None:
        content = self.content()
        current = set(content.values())
        joined = {file for joint in self.joint if joint <= current for file in joint}
        fresh = {key for key, value in content.items() if value not in self.known | joined}
        self.world.reads.clear()
        result = self.world.run()
        assert [node.status for node in result.nodes] == ["success"], result.nodes
        read = {(fragment, name) for _, fragment, names in self.world.reads for name in names}
        assert read <= fresh
        expected = full_values(self.dataset, self.world.published()["lance.stats.schemaHash"])
        assert self.world.published() == expected
        assert self.assessed().kept == full_kept(self.dataset)
        config = self.dataset.config()
        assert written_revision(config) == REVISION
        assert not is_altered(config)
        self.is_cloned &= result.nodes[0].action == "skip"
        if not self.is_cloned:
            check_whole(self.grouped, self.dataset)
        self.known |= {content[key] for key in read}
        self.known |= {value for key, value in content.items() if key not in fresh}

    @property
    def grouped(self) -> FragmentStatistics:
        return load_groups(self.world.state, table_identity(self.path), snapshot(self.dataset))

    @rule(filters=st.lists(st.sampled_from(FILTERS), min_size=1, max_size=2))
    def prune(self, filters: list[Filter]) -> None:
        """Check after any changes that no matching row is lost, and that partials are true."""
        names = self.dataset.schema.names
        if set().union(*map(columns_of, filters)) <= set(names):
            check_filter(self.grouped, self.dataset, filters)

    @invariant()
    def false_statistics_are_never_accepted(self) -> None:
        if not hasattr(self, "world"):
            return
        # Few of so many rules would run anything.
        self.steps += 1
        if self.steps % _STEPS_PER_RUN == 0:
            self.run()
        assessment = self.assessed()
        if assessment.finding.reason is GuardReason.CURRENT:
            expected = full_values(self.dataset, assessment.schema_hash)
            assert self.world.published() == expected
            assert assessment.kept.items() <= full_kept(self.dataset).items()

    def assessed(self) -> TableAssessment:
        assessment, _ = self.world.assess()
        return assessment


TestHistory = History.TestCase
TestHistory.settings = settings(
    max_examples=examples(30),
    stateful_step_count=15,
)
