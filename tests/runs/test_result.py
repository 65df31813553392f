"""Results of nodes round-trip through JSON; digests are equal for equal values only."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancestat.errors import AccessDenied, DatasetMissing, LancestatError, Location, NodesFailed
from lancestat.joins.action import (
    BuildIndex,
    CommitResult,
    ExtendIndex,
    JoinFigures,
    PrepareSides,
    Probe,
    ReuseIndex,
)
from lancestat.joins.record import JOIN_MEASURES, Accuracy, JoinCounts, OutputFormat
from lancestat.joins.search.cost_model import Strategy
from lancestat.joins.search.work import Scope
from lancestat.lake.fingerprint import ColumnGroup
from lancestat.lake.snapshot import DataFile, Field, Fragment, Overlay, Pin, Snapshot
from lancestat.nodes import NODE_TYPES
from lancestat.runs.actions import Reason, RunsOn
from lancestat.runs.plan_file import action_digest, snapshot_digest, value_digest
from lancestat.runs.result import NodeFailure, NodeResult, RunResult, Status, failed, interrupted
from lancestat.tables.action import ReadFragments, ReusePartials, TableVersion
from lancestat.tables.coverage import Carry, Coverage, Reuse
from tests.tables.plans import FIELDS, analyze, blocked, refresh, restamp, skip

COUNTS = st.none() | st.integers(0, 2**53)
NUMBERS = st.none() | st.floats(0, 1e9)
TEXTS = st.none() | st.text()
PLACES = st.none() | st.builds(Location, st.text(), st.integers(1, 9), st.integers(1, 9))
BY_TYPE = {
    "int | None": COUNTS,
    "float | None": NUMBERS,
    "str | None": TEXTS,
    "Location | None": PLACES,
}
BY_TYPE["tuple[str, ...]"] = st.lists(st.text()).map(tuple)
BY_TYPE["bool | None"] = st.none() | st.booleans()
REQUIRED = {
    "name": st.text(),
    "kind": st.just("table"),
    "action": st.text(),
    "reasons": st.lists(st.text()).map(tuple),
    "status": st.sampled_from(Status),
}
FIGURES = st.builds(
    JoinFigures,
    counts=st.builds(JoinCounts, COUNTS, COUNTS, COUNTS, COUNTS),
    accuracy=st.builds(Accuracy, NUMBERS, COUNTS),
    **{
        field.name: BY_TYPE[str(field.type)]
        for field in fields(JoinFigures)
        if field.name not in JOIN_MEASURES
    },
)
TABLES = st.builds(
    NodeResult,
    **REQUIRED,
    figures=st.none(),
    **{
        field.name: BY_TYPE[str(field.type)]
        for field in fields(NodeResult)
        if field.name not in REQUIRED and field.name != "figures"
    },
)
JOINS = st.builds(NodeResult, **{**REQUIRED, "kind": st.just("knn_join")}, figures=FIGURES)
RESULT = NodeResult("orders", "table", "refresh", ("rows_appended",), Status.SUCCESS)


@settings(deadline=None)
@given(TABLES | JOINS)
def test_results_round_trip_through_json(result: NodeResult) -> None:
    stored = json.loads(json.dumps(result.to_json()))
    assert NodeResult.from_json(stored, NODE_TYPES) == result


def test_unknown_fields_are_ignored_and_missing_ones_are_none() -> None:
    stored = {**RESULT.to_json(), "novelty": {"a": 1}}
    del stored["elapsed_seconds"]
    assert NodeResult.from_json(stored, NODE_TYPES) == RESULT


@pytest.mark.parametrize(
    "damage",
    [
        {"status": "splendid"},
        {"status": None},
        {"reasons": "rows_appended"},
        {"reasons": [1]},
        {"reasons": None},
        {"elapsed_seconds": "soon"},
        {"rows_scanned": []},
        {"message": 5},
        {"kind": "knn_join", "pairs": "many"},
        {"action": None},
    ],
)
def test_a_malformed_result_is_refused(damage: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not the result of a node"):
        NodeResult.from_json({**RESULT.to_json(), **damage}, NODE_TYPES)


@pytest.mark.parametrize("name", REQUIRED)
def test_a_result_without_a_required_field_is_refused(name: str) -> None:
    stored = RESULT.to_json()
    del stored[name]
    with pytest.raises(ValueError, match="not the result of a node"):
        NodeResult.from_json(stored, NODE_TYPES)


ERRORS = st.builds(
    DatasetMissing,
    st.text("abc :\n", min_size=1).map(str.strip).filter(bool),
    location=PLACES,
    hint=st.none() | st.text("abc :\n", min_size=1).map(str.strip).filter(bool),
)


@settings(deadline=None)
@given(ERRORS)
def test_a_failure_has_the_parts_of_its_error(error: LancestatError) -> None:
    result = RunResult("shop", "dev", (RESULT, failed(RESULT, error)))
    assert not result.ok
    assert result.failures == (
        NodeFailure("orders", error.code, error.message, error.hint, error.location),
    )


def test_a_result_without_failures_raises_nothing() -> None:
    result = RunResult("shop", "dev", (RESULT,))
    assert result.ok
    assert result.failures == ()
    result.raise_for_status()


def test_a_result_with_failures_raises_an_error_that_names_the_nodes() -> None:
    error = DatasetMissing("it is not there\nat all", hint="is it moved?")
    nodes = [failed(replace(RESULT, name=f"t{number}"), error) for number in range(7)]
    with pytest.raises(NodesFailed) as caught:
        RunResult("shop", "dev", (RESULT, *nodes)).raise_for_status()
    lines = str(caught.value).splitlines()
    assert lines[0] == "LS515  7 of 8 nodes failed"
    assert lines[1:6] == [f"      t{number}: LS201  it is not there" for number in range(5)]
    assert lines[6] == "      and t5, t6"


def test_a_result_that_was_interrupted_raises_an_error() -> None:
    result = RunResult("shop", "dev", (RESULT, interrupted(replace(RESULT, name="b"), "why")))
    assert (result.ok, result.failures) == (False, ())
    with pytest.raises(NodesFailed, match="the run was interrupted: 1 of 2 nodes did not end"):
        result.raise_for_status()


FILES = st.text("ab /:", min_size=1).map(str.strip).filter(bool)


@settings(deadline=None)
@given(ERRORS, st.none() | st.builds(Location, FILES, st.integers(1, 99), st.integers(1, 99)))
def test_failures_keep_their_error_when_they_are_stored(
    error: LancestatError, location: Location | None
) -> None:
    result = failed(RESULT, DatasetMissing(error.message, location=location, hint=error.hint))
    assert (result.message, result.location, result.hint) == (error.message, location, error.hint)
    assert NodeResult.from_json(result.to_json(), NODE_TYPES) == result


NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
A, B = b"a" * 16, b"b" * 16
GROUPS = (ColumnGroup(0, A, frozenset({"1:int"})), ColumnGroup(1, B, frozenset({"1:int"})))
COVERAGE = Coverage(
    (Reuse((A,), frozenset({"1:int"})), Reuse((B,), frozenset({"1:int"}))),
    (Carry(((A,), (B,)), (A,), frozenset({"2:int"})),),
    ((GROUPS[0], frozenset({"3:int"})),),
)

leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.datetimes()
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(tuple),
        st.frozensets(leaves, max_size=4),
        st.dictionaries(st.text(), inner, max_size=4),
    ),
    max_leaves=12,
)


def spelled(value: object) -> str:
    """A form that is equal for equal values, of equal types, only."""
    if isinstance(value, tuple):
        return f"({','.join(map(spelled, value))},)"
    if isinstance(value, frozenset):
        return f"{{{','.join(sorted(map(spelled, value)))}}}"
    if isinstance(value, dict):
        pairs = sorted(f"{spelled(key)}:{spelled(item)}" for key, item in value.items())
        return f"m{{{','.join(pairs)}}}"
    return f"{type(value).__name__}<{value!r}>"


@settings(deadline=None)
@given(values, values)
def test_digests_are_equal_for_equal_values_only(one: object, other: object) -> None:
    assert (value_digest(one) == value_digest(other)) == (spelled(one) == spelled(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((1, (2, 3)), ((1, 2), 3)),
        (("ab", "c"), ("a", "bc")),
        ("1", 1),
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        (b"x", "x"),
        (("a",), frozenset({"a"})),
        ((), None),
        (pa.int32(), pa.int64()),
        (Reason.NEW, Reason.UNCHANGED),
        (NOW, NOW + timedelta(microseconds=1)),
    ],
)
def test_similar_values_have_different_digests(one: object, other: object) -> None:
    assert value_digest(one) != value_digest(other)


def test_an_instant_is_the_same_in_every_zone() -> None:
    there = NOW.astimezone(timezone(timedelta(hours=5)))
    assert value_digest(there) == value_digest(NOW)


def test_secrets_do_not_affect_the_digest() -> None:
    @dataclass(frozen=True)
    class Side:
        uri: str
        options: str = field(repr=False)

    assert value_digest(Side("u", "hunter2")) == value_digest(Side("u", "hunter3"))
    assert value_digest(Side("u", "hunter2")) != value_digest(Side("v", "hunter2"))


def other_value(value: object) -> object:
    """Something else of that type."""
    match value:
        case None:
            return NOW
        case Strategy():
            return Strategy.INDEX
        case Scope():
            return Scope.NEW_LEFT
        case OutputFormat():
            return OutputFormat.PARQUET
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return f"{value}."
        case dict():
            return {**value, "more": "more"}
        case frozenset():
            return value | {b"more"}
        case Coverage():
            return COVERAGE
        case Pin():
            return replace(value, manifest=f"{value.manifest}.")
        case tuple():
            return (*value, *value) or (FIELDS[0],)
    raise AssertionError(value)


@pytest.mark.parametrize("name", [field.name for field in fields(TableVersion)])
def test_every_part_of_the_version_affects_the_digest(name: str) -> None:
    action = refresh()
    changed = replace(action.table, **{name: other_value(getattr(action.table, name))})
    assert action_digest(replace(action, table=changed)) != action_digest(action)


STAGES: list[Any] = [
    ReusePartials(Coverage((), (), ())),
    *refresh().stages,
    *restamp().stages,
    PrepareSides(("left",)),
    BuildIndex(None),
    ReuseIndex(4, 100),
    ExtendIndex(4, 100, 10),
    Probe(Strategy.EXACT, Scope.FULL, 12),
    CommitResult(OutputFormat.LANCE, "near.lance", appends=False),
]


@pytest.mark.parametrize(
    ("stage", "name"),
    [(stage, field.name) for stage in STAGES for field in fields(stage) if field.name != "runs_on"],
)
def test_every_part_of_a_stage_affects_the_digest(stage: Any, name: str) -> None:
    changed = replace(stage, **{name: other_value(getattr(stage, name))})
    assert value_digest(changed) != value_digest(stage)


def test_where_fragments_are_read_does_not_affect_the_digest() -> None:
    """A plan that was made without a session is the same in a process that has one."""
    [stage] = [stage for stage in STAGES if isinstance(stage, ReadFragments)]
    elsewhere = replace(stage, runs_on=RunsOn.PROCESS)
    assert elsewhere != stage
    assert value_digest(elsewhere) == value_digest(stage)


def test_every_stage_affects_the_digest() -> None:
    action = refresh()
    for place in range(len(action.stages)):
        fewer = action.stages[:place] + action.stages[place + 1 :]
        assert action_digest(replace(action, stages=fewer)) != action_digest(action)


@pytest.mark.parametrize("make", [analyze, refresh, restamp, skip])
def test_reasons_and_nodes_affect_the_digest_and_notes_do_not(make: Callable[[], object]) -> None:
    action = make()
    digest = action_digest(action)  # type: ignore[arg-type]
    changes = {"node": "another", "reasons": (Reason.FULL_REFRESH,)}
    for name, value in changes.items():
        assert action_digest(replace(action, **{name: value})) != digest  # type: ignore[type-var]
    noted = replace(action, notes=("a column was skipped",))  # type: ignore[type-var]
    assert action_digest(noted) == digest  # type: ignore[arg-type]


def test_actions_of_other_kinds_have_other_digests() -> None:
    digests = {action_digest(make("t")) for make in (analyze, refresh, restamp, skip, blocked)}  # type: ignore[operator]
    assert len(digests) == 5


def test_the_order_of_independent_work_does_not_affect_the_digest() -> None:
    def turned(coverage: Coverage) -> Coverage:
        carries = tuple(replace(carry, sources=carry.sources[::-1]) for carry in coverage.carries)
        return Coverage(coverage.reuse[::-1], carries[::-1], coverage.missing[::-1])

    action = refresh()
    table = replace(action.table, groups=GROUPS)
    stages = (ReusePartials(COVERAGE), *action.stages)
    other = (ReusePartials(turned(COVERAGE)), *action.stages)
    turned_groups = replace(table, groups=GROUPS[::-1])
    assert action_digest(replace(action, table=table, stages=stages)) == action_digest(
        replace(action, table=turned_groups, stages=other)
    )


def test_repeated_content_has_another_digest_than_single_content() -> None:
    one = Carry(((A,),), (A,), frozenset({"1:int"}))
    assert value_digest(one) != value_digest(replace(one, sources=((A,), (A,))))


def test_a_blocked_node_is_identified_by_its_code() -> None:
    here = DatasetMissing("gone from here", location=Location("a.yml", 1, 1))
    there = DatasetMissing("gone from there", location=Location("b.yml", 2, 2))
    assert action_digest(blocked(error=here)) == action_digest(blocked(error=there))
    assert action_digest(blocked(error=AccessDenied(""))) != action_digest(blocked(error=here))


FILE = DataFile("a.lance", (0, 1), 100, None)
FRAGMENT = Fragment(0, 10, 0, (FILE,), None, ())
SNAPSHOT = Snapshot("t", 2, FIELDS[:2], (FRAGMENT,), {"k": "v"}, NOW)


@pytest.mark.parametrize(
    "fragment",
    [
        replace(FRAGMENT, id=1),
        replace(FRAGMENT, physical_rows=11),
        replace(FRAGMENT, deleted_rows=1, deletion_file="1-2-arrow-None"),
        replace(FRAGMENT, deletion_file="None"),
        replace(FRAGMENT, files=(replace(FILE, path="b.lance"),)),
        replace(FRAGMENT, files=(replace(FILE, field_ids=(1, 0)),)),
        replace(FRAGMENT, files=(replace(FILE, base_id=0),)),
        replace(FRAGMENT, files=(FILE, FILE)),
        replace(FRAGMENT, overlays=(Overlay(FILE, "cells"),)),
    ],
)
def test_every_part_of_a_fragment_affects_the_digest(fragment: Fragment) -> None:
    other = replace(SNAPSHOT, fragments=(fragment,))
    assert snapshot_digest(other) != snapshot_digest(SNAPSHOT)


@pytest.mark.parametrize(
    "other",
    [
        replace(SNAPSHOT, fragments=()),
        replace(SNAPSHOT, config={"k": "w"}),
        replace(SNAPSHOT, fields=FIELDS[1:3]),
        replace(SNAPSHOT, fields=(FIELDS[0], Field(1, "c1", pa.int64(), False, "bigint"))),
    ],
)
def test_every_part_of_a_manifest_affects_the_digest(other: Snapshot) -> None:
    assert snapshot_digest(other) != snapshot_digest(SNAPSHOT)


def test_the_version_and_its_time_are_not_content() -> None:
    other = replace(SNAPSHOT, uri="u", version=3, committed_at=None)
    assert snapshot_digest(other) == snapshot_digest(SNAPSHOT)


class Color(Enum):
    RED = "red"


def test_an_enum_is_its_value() -> None:
    assert value_digest(Color.RED) == value_digest("red")
