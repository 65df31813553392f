"""Outcomes of each node's last runs in every implementation of the state."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import lance
import pytest

from lancestat.state.store import LanceState, open_state
from lancestat.state.values import NodeRun, RunRecord
from lancestat.tables.stored import add_partials, table_records
from tests.state.conftest import EPOCH, fingerprint, stored

MakeState = Callable[[], LanceState]


def ended(number: int, *nodes: str, minutes: int | None = None, target: str = "dev") -> RunRecord:
    at = EPOCH + timedelta(minutes=number if minutes is None else minutes)
    return RunRecord(
        run_id=f"run {number}",
        command="run",
        target=target,
        started_at=at,
        finished_at=at,
        status="success",
        nodes=tuple(NodeRun(node, "table", "d", {"number": number}, None) for node in nodes),
    )


def ids(state: LanceState, limit: int) -> dict[str, list[str]]:
    by_node = state.outcomes("shop", "dev", limit)
    return {node: [outcome.run_id for outcome in outcomes] for node, outcomes in by_node.items()}


def test_outcomes_of_each_node_are_listed_newest_first(make_state: MakeState) -> None:
    writer = make_state()
    # As they are stored: clocks of those who run may differ.
    for run in (ended(2, "a", "b"), ended(1, "a"), ended(4, "a"), ended(3), ended(5, "c", "a")):
        writer.add_run(run)
    state = make_state()
    assert ids(state, 9) == {
        "a": ["run 5", "run 4", "run 1", "run 2"],
        "b": ["run 2"],
        "c": ["run 5"],
    }
    assert ids(state, 2) == {"a": ["run 5", "run 4"], "b": ["run 2"], "c": ["run 5"]}
    assert ids(state, 1) == {"a": ["run 5"], "b": ["run 2"], "c": ["run 5"]}
    assert not any(state.outcomes("shop", "dev", 0).values())


def test_projects_that_share_a_state_have_outcomes_of_their_own(make_state: MakeState) -> None:
    # Earlier releases have not recorded the project.
    for number, project in enumerate(("shop", "bank", "")):
        make_state().add_run(replace(ended(number, "a", f"b{number}"), project=project))
    state = make_state()
    assert ids(state, 9) == {"a": ["run 2", "run 0"], "b0": ["run 0"], "b2": ["run 2"]}
    assert set(state.digests("bank", "dev")) == {"a", "b1", "b2"}
    assert [(run.project, run.target) for run in state.runs(9)] == [
        ("", "dev"),
        ("bank", "dev"),
        ("shop", "dev"),
    ]


def test_an_outcome_has_the_fields_of_its_run(make_state: MakeState) -> None:
    make_state().add_run(ended(7, "a", target="prod"))
    [outcome] = make_state().outcomes("shop", "prod", 1)["a"]
    assert (outcome.run_id, outcome.command, outcome.target) == ("run 7", "run", "prod")
    assert outcome.finished_at == EPOCH + timedelta(minutes=7)
    [node] = outcome.nodes
    assert (node.node, node.kind, node.result) == ("a", "table", {"number": 7})


def test_outcomes_of_other_targets_are_ignored(make_state: MakeState) -> None:
    writer = make_state()
    for number, target in enumerate(("dev", "prod", "dev", "prod", "prod")):
        writer.add_run(ended(number, "a", target=target))
    assert ids(make_state(), 1) == {"a": ["run 2"]}
    assert ids(make_state(), 9) == {"a": ["run 2", "run 0"]}
    assert len(make_state().outcomes("shop", "prod", 9)["a"]) == 3
    assert make_state().outcomes("shop", "none", 9) == {}


def test_an_outcome_that_does_not_decode_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = open_state(str(tmp_path))
    state.add_run(ended(1, "a", "b"))
    dataset = state.run_table.dataset()
    assert dataset is not None
    lance.dataset(dataset.uri).update({"result_json": "'[]'"}, where="node = 'a'")
    with caplog.at_level(logging.WARNING, logger="lancestat.state"):
        assert set(open_state(str(tmp_path)).outcomes("shop", "dev", 1)) == {"b"}
    assert "1 outcomes of runs do not decode" in caplog.text


def test_indexes_of_several_tables_are_those_of_each(make_state: MakeState) -> None:
    writer = make_state()
    add_partials(writer, "t", [stored("a", x=1), stored("b", x=2, y=3)])
    add_partials(writer, "u", [stored(("a", "b"), x=4)])
    add_partials(writer, "t", [stored("a", y=5)])
    state = make_state()
    table_records(state)
    indexes = state.partial_indexes(["u", "t", "v"])
    assert set(indexes) == {"t", "u", "v"}
    for table, index in indexes.items():
        alone = state.partial_index(table)
        assert index == alone
    assert indexes["t"].singles[fingerprint("a")] == {"x", "y"}
    assert (dict(indexes["u"].singles), len(indexes["u"].groups)) == ({}, 1)
    many = state.partial_indexes([f"none {number}" for number in range(100)] + ["t"])
    assert many["t"].singles == indexes["t"].singles


def test_no_outcome_is_looked_for_among_deleted_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `take_rows`."""
    state = open_state(str(tmp_path))
    for number in range(5):
        state.add_run(ended(number, "a"))
    [folder] = tmp_path.glob("v2/runs-*.lance")
    runs = lance.dataset(str(folder))
    runs.optimize.compact_files()
    runs.delete("run_id = 'run 1'")
    monkeypatch.delattr(lance.LanceDataset, "take")
    assert ids(open_state(str(tmp_path)), 9) == {"a": ["run 4", "run 3", "run 2", "run 0"]}
