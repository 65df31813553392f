"""Records of joins."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import MISSING, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.joins.record import (
    JOIN_MEASURES,
    Accuracy,
    InputRecord,
    JoinCounts,
    JoinDistances,
    JoinGroups,
    JoinRecord,
    OutputState,
    RankDistances,
    decode_record,
)
from lancestat.state.garbage import collect_state_garbage
from lancestat.state.store import LanceState, open_state
from lancestat.state.values import NodeRun, RunRecord, result_identity
from lancestat.tables.stored import table_records
from tests.joins.records import join_records
from tests.state.conftest import EPOCH, record, run

MakeState = Callable[[], LanceState]

JOIN = JoinRecord(
    node="j",
    digest="d1",
    left=InputRecord("aa", 3, 7, 300),
    right=InputRecord("bb"),
    result=OutputState(900, "cc", 4),
    counts=JoinCounts(300, 1000, 2, 1),
    strategy="exact",
    finished_at=EPOCH,
)
MEASURED = replace(
    JOIN,
    distances=JoinDistances(
        300, 0.25, 0.125, (RankDistances(1, (200, 0, 97), 0, 1, (0.25, 0.5, None)),)
    ),
    groups=JoinGroups(12, 25_000, 300, 1000),
)


def join_run(number: int, *joins: JoinRecord) -> RunRecord:
    return run(
        number,
        nodes=tuple(
            NodeRun(join.node, "knn_join", join.digest, {"name": join.node}, join.stored(join.node))
            for join in joins
        ),
    )


def test_the_newest_record_of_every_join_is_kept(make_state: MakeState) -> None:
    state = make_state()
    newer = replace(MEASURED, strategy="partitioned", accuracy=Accuracy(0.97, 12))
    other = replace(JOIN, node="k", result=OutputState(1, "dd", generation="g7"))
    state.add_run(join_run(2, JOIN, other))
    state.add_run(join_run(1, newer))
    assert dict(join_records(make_state())) == {"j": newer, "k": other}


def test_joins_and_tables_have_separate_records(make_state: MakeState) -> None:
    state = make_state()
    assert dict(join_records(state)) == {}
    state.add_run(run(1, record("t", 1)))
    state.add_run(join_run(2, JOIN))
    assert dict(table_records(make_state())) == {"t": record("t", 1)}
    assert dict(join_records(make_state())) == {"j": JOIN}
    assert make_state().digests("shop", "dev")["j"] == "d1"
    assert make_state().runs(5) == [join_run(2, JOIN), run(1, record("t", 1))]


def test_a_join_that_failed_keeps_its_last_record(make_state: MakeState) -> None:
    state = make_state()
    state.add_run(join_run(1, JOIN))
    failed = NodeRun("j", "knn_join", "d2", {"status": "error"}, None)
    state.add_run(run(2, nodes=(failed,)))
    assert dict(join_records(make_state())) == {"j": JOIN}
    assert dict(make_state().digests("shop", "dev")) == {"j": "d2"}


@pytest.mark.usefixtures("few_runs_kept")
def test_many_runs_do_not_expire_the_record_of_a_join(folder: Path) -> None:
    state = open_state(str(folder))
    state.add_run(join_run(0, JOIN))
    for number in range(1, 80):
        state.add_run(run(number))
    state.expire({})
    assert len(state.runs(1000)) < 80
    assert dict(join_records(open_state(str(folder)))) == {"j": JOIN}


def test_joins_that_are_no_longer_declared_are_removed(folder: Path) -> None:
    state = open_state(str(folder))
    state.add_run(join_run(1, JOIN, replace(JOIN, node="gone")))
    report = collect_state_garbage(
        state, frozenset({result_identity("knn_join", "j")}), dry_run=False
    )
    assert report.runs_dropped == 1
    assert set(join_records(open_state(str(folder)))) == {"j"}


@given(
    st.builds(
        JoinRecord,
        node=st.text(),
        digest=st.text(),
        left=st.builds(InputRecord),
        right=st.builds(InputRecord),
        result=st.builds(OutputState),
        strategy=st.text(),
        finished_at=st.integers(0, 10**9).map(lambda seconds: EPOCH + timedelta(seconds=seconds)),
        counts=st.builds(JoinCounts, *[st.integers(0, 2**53)] * 4),
        accuracy=st.builds(
            Accuracy, st.none() | st.floats(0, 1), st.none() | st.integers(1, 10**5)
        ),
        distances=st.sampled_from([None, MEASURED.distances]),
        groups=st.sampled_from([None, MEASURED.groups]),
    )
)
def test_records_round_trip(record: JoinRecord) -> None:
    assert decode_record(record.stored("j")[1]) == record


WRONG = [[], {}, True, "x", 1.5]
NULLS = {"generation": str, "recall": float, "unproven": list, "rows": int, "version": int}
MEMBERS = [field for field in fields(JoinRecord) if field.name not in JOIN_MEASURES]
PARTS = {
    None: (*MEMBERS, *fields(JoinCounts), *fields(Accuracy)),
    "left": fields(InputRecord),
    "right": fields(InputRecord),
    "result": fields(OutputState),
    "distances": fields(JoinDistances),
    "groups": fields(JoinGroups),
}


@given(st.data())
def test_damaged_records_are_refused_with_one_error(data: st.DataObject) -> None:
    stored = json.loads(MEASURED.stored("j")[1])
    part = data.draw(st.sampled_from([*PARTS]))
    place = stored if part is None else stored[part]
    field = data.draw(st.sampled_from(PARTS[part]))
    right = NULLS.get(field.name, type(place[field.name]))
    wrong = [value for value in WRONG if type(value) is not right]
    if field.default is MISSING and data.draw(st.booleans()):
        del place[field.name]
    else:
        place[field.name] = data.draw(st.sampled_from(wrong))
    with pytest.raises(ValueError, match=f"{field.name}|{part}"):
        decode_record(json.dumps(stored))


@pytest.mark.parametrize(
    "changes",
    [
        {"ranks": []},
        {"width": 0.0},
        {"width": float("nan")},
        {"start": float("inf")},
        {"counts": []},
        {"quantiles": [0.5]},
    ],
    ids=str,
)
def test_distances_that_no_page_can_draw_are_damage(changes: dict[str, Any]) -> None:
    stored = json.loads(MEASURED.stored("j")[1])
    [rank] = stored["distances"]["ranks"]
    for name, value in changes.items():
        (rank if name in rank else stored["distances"])[name] = value
    with pytest.raises(ValueError, match=r"distances|quantiles|intervals"):
        decode_record(json.dumps(stored))


def test_unknown_fields_of_records_are_ignored_and_missing_ones_have_defaults() -> None:
    stored = json.loads(JOIN.stored("j")[1])
    stored["left"]["novelty"] = stored["novelty"] = {"a": 1}
    for key in ("unproven", "fragments", "last_fragment", "rows"):
        del stored["right"][key]
    # Earlier releases stored none of these.
    del stored["recall"], stored["nprobes"], stored["result"]["generation"]
    del stored["distances"], stored["groups"], stored["neighbours"]
    assert decode_record(json.dumps(stored)) == JOIN


def test_the_stored_form_of_a_record_is_stable() -> None:
    assert replace(JOIN, accuracy=Accuracy(0.5)).stored("j")[1] == (
        '{"node":"j","digest":"d1",'
        '"left":{"digest":"aa","fragments":3,"last_fragment":7,"rows":300,"unproven":null},'
        '"right":{"digest":"bb","fragments":0,"last_fragment":-1,"rows":null,"unproven":null},'
        '"result":{"rows":900,"digest":"cc","version":4,"generation":null},'
        '"left_rows":300,"right_rows":1000,"unmatched_left_rows":2,"excluded_right_rows":1,'
        '"strategy":"exact","finished_at":"2025-01-01T00:00:00+00:00","recall":0.5,"nprobes":null,'
        '"distances":null,"groups":null,"neighbours":[]}'
    )
    assert MEASURED.stored("j")[1].partition('"distances":')[2] == (
        '{"left_rows":300,"start":0.25,"width":0.125,"ranks":[{"rank":1,"counts":[200,0,97],'
        '"below":0,"above":1,"quantiles":[0.25,0.5,null]}]},'
        '"groups":{"groups":12,"pairs":25000,"left_rows":300,"right_rows":1000},"neighbours":[]}'
    )


@pytest.mark.parametrize("damage", ["{", "null", '"j"', "{}", ""])
def test_a_damaged_record_is_treated_as_absent(
    folder: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    open_state(str(folder)).add_run(join_run(1, JOIN, replace(JOIN, node="sound")))
    dataset = lance.dataset(str(folder / "v2" / "runs-1.lance"))
    dataset.update({"record_json": f"'{damage}'"}, where="node = 'j'")
    with caplog.at_level(logging.WARNING, logger="lancestat.state"):
        assert set(join_records(open_state(str(folder)))) == {"sound"}
    assert "1 stored knn join records do not decode" in caplog.text


def test_runs_that_wrote_a_result_are_listed_whatever_was_run_since(make_state: MakeState) -> None:
    state = make_state()
    for number in range(12):
        idle = NodeRun("j", "knn_join", "d1", {"number": number}, None)
        made = replace(idle, record=JOIN.stored("j") if number % 4 == 1 else None)
        table = NodeRun("t", "table", "d", {"number": number}, record("t", number).stored())
        state.add_run(run(number, nodes=(made, table)))
    results = make_state().recorded("knn_join", "shop", "dev", 2)
    assert {name: [past.nodes[0].result["number"] for past in runs]
            for name, runs in results.items()} == {"j": [9, 5]}  # fmt: skip
    assert len(make_state().recorded("knn_join", "shop", "dev", 9)["j"]) == 3
    assert make_state().recorded("knn_join", "shop", "prod", 9) == {}
