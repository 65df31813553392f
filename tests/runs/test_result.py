"""Results of nodes round-trip through the JSON of runs."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancestat.errors import DatasetMissing, LancestatError, Location, NodesFailed
from lancestat.joins.action import JoinFigures
from lancestat.joins.record import JOIN_MEASURES, Accuracy, JoinCounts
from lancestat.nodes import NODE_TYPES
from lancestat.runs.result import NodeFailure, NodeResult, RunResult, Status, failed, interrupted

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
