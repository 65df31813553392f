"""The state on a real S3 server."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from lancestat.errors import StateError
from lancestat.state.garbage import GarbageReport, collect_state_garbage
from lancestat.state.partials import block_keys
from lancestat.state.store import LanceState, open_state
from lancestat.tables.stored import (
    add_partials,
    add_summary,
    read_blocks,
    read_partials,
    table_records,
)
from tests.integration.object_store import SECRET_KEY, ObjectStore
from tests.state.conftest import blocks, fingerprint, record, run, stored, summary

pytestmark = pytest.mark.s3

ROOT = Path(__file__).parents[2]
X = frozenset({"x"})


@pytest.fixture
def uri(object_store: ObjectStore) -> str:
    return object_store.fresh_uri("some/state")


@pytest.fixture
def state(object_store: ObjectStore, uri: str) -> LanceState:
    return open_state(uri, object_store.storage_options, retention=timedelta(0))


def objects(object_store: ObjectStore, uri: str) -> list[str]:
    from pyarrow.fs import FileSelector

    selector = FileSelector(uri.removeprefix("s3://"), recursive=True, allow_not_found=True)
    files = object_store.filesystem().get_file_info(selector)
    return [file.path for file in files if file.is_file]


def test_partials_and_runs_round_trip(
    object_store: ObjectStore, uri: str, state: LanceState
) -> None:
    assert table_records(state) == {}
    assert objects(object_store, uri) == []
    add_partials(state, "t", [stored("a", x=1), stored(("b", "c"), x=2)])
    state.add_run(run(1, record("t", 1)))
    again = open_state(uri, object_store.storage_options)
    assert table_records(again) == {"t": record("t", 1)}
    assert again.runs(5) == [run(1, record("t", 1))]
    assert set(again.partial_index("t").singles) == {fingerprint("a")}
    assert list(read_partials(again, "t", {(fingerprint("a"),): X})) == [stored("a", x=1)]


def test_summaries_round_trip(object_store: ObjectStore, uri: str, state: LanceState) -> None:
    stored_summary = summary(7, "a", "b")
    add_summary(state, "t", stored_summary, blocks(stored_summary, "x", "y"))
    again = open_state(uri, object_store.storage_options)
    assert again.summary("t") == stored_summary
    assert len(list(read_blocks(again, "t", block_keys(stored_summary)))) == 4


def test_the_state_does_not_grow_with_the_number_of_runs(
    object_store: ObjectStore, uri: str, state: LanceState
) -> None:
    live = frozenset({fingerprint("a")})
    for number in range(40):
        add_partials(state, "t", [stored("a", x=1)])
        state.add_run(run(number, record("t", number)))
        state.expire({"t": live})
    assert len(objects(object_store, uri)) < 150
    assert list(read_partials(state, "t", {(fingerprint("a"),): X})) == [stored("a", x=1)]
    assert table_records(state)["t"].version == 39


def test_damage_is_set_aside_and_removed(
    object_store: ObjectStore, uri: str, state: LanceState, caplog: pytest.LogCaptureFixture
) -> None:
    add_partials(state, "t", [stored("a", x=1)])
    [data] = [path for path in objects(object_store, uri) if "/data/" in path]
    with object_store.filesystem().open_output_stream(data) as stream:
        stream.write(b"cut")
    again = open_state(uri, object_store.storage_options)
    assert dict(again.partial_index("t").singles) == {}
    assert "v2/partials-1.lance is set aside" in caplog.text
    add_partials(again, "t", [stored("b", x=1)])
    assert set(state.partial_index("t").singles) == {fingerprint("b")}
    assert collect_state_garbage(again, frozenset({"t"}), dry_run=False) == GarbageReport(
        0, 0, 1, 0
    )
    assert all("partials-2" in path for path in objects(object_store, uri))


def test_concurrent_runs_lose_nothing(
    object_store: ObjectStore, uri: str, state: LanceState
) -> None:
    names = ["w0", "w1"]
    credentials = {key.upper(): value for key, value in object_store.storage_options.items()}
    writers = [
        subprocess.Popen(
            [sys.executable, str(ROOT / "tests/state/writer.py"), uri, name, "6", "900"],
            env={**os.environ, **credentials, "PYTHONPATH": str(ROOT)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    for writer in writers:
        _, errors = writer.communicate(timeout=300)
        assert writer.returncode == 0, errors
    assert len(state.partial_index("shared").singles) == 2 * 6 * 3
    assert {name: table_record.version for name, table_record in table_records(state).items()} == {
        "w0": 6,
        "w1": 6,
    }
    assert [place.generation for place in state.folder.locations()] == [1, 1]


@pytest.mark.parametrize("change", [{"aws_secret_access_key": "wrong"}, {"bucket": "no-such"}])
def test_denied_access_is_an_error_but_not_damage(
    object_store: ObjectStore, uri: str, state: LanceState, change: dict[str, str]
) -> None:
    state.add_run(run(1, record("t", 1)))
    options = {**object_store.storage_options, **change}
    elsewhere = uri.replace(f"//{object_store.bucket}/", f"//{options.pop('bucket', 'lake')}/")
    refused = open_state(elsewhere, options)
    for action in (lambda: table_records(refused), lambda: refused.add_run(run(2, record("t", 2)))):
        with pytest.raises(StateError) as caught:
            action()
        assert caught.value.code == "LS301"
        assert SECRET_KEY not in repr(caught.value)
        assert "wrong" not in repr(caught.value)
    assert table_records(state)["t"].version == 1
