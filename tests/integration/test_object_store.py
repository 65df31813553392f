from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance import LanceOperation

from lancestat.errors import LakeError
from lancestat.lake.files import store_options
from lancestat.lake.history import Effect, commits_since
from lancestat.lake.open import observe_dataset, observe_snapshots, snapshot
from lancestat.lake.snapshot import Snapshot
from tests.integration.object_store import (
    ACCESS_KEY,
    HOST,
    SECRET_KEY,
    ObjectStore,
    free_ports,
    running_object_store,
)

pytestmark = pytest.mark.s3


def rows(start: int, stop: int) -> pa.Table:
    return pa.table({"id": pa.array(range(start, stop), pa.int64())})


@pytest.fixture
def table(object_store: ObjectStore) -> str:
    uri = object_store.fresh_uri("orders.lance")
    options = store_options(uri, object_store.storage_options)
    lance.write_dataset(rows(0, 100), uri, max_rows_per_file=20, storage_options=options)
    return uri


def refused(uri: str, options: dict[str, str]) -> LakeError:
    with pytest.raises(LakeError) as caught:
        observe_dataset(uri, storage_options=options)
    return caught.value


def test_snapshots_and_history(object_store: ObjectStore, table: str) -> None:
    dataset = observe_dataset(table, storage_options=object_store.storage_options)
    before = snapshot(dataset)
    dataset.create_scalar_index("id", "BTREE")
    dataset.optimize.compact_files()
    now = observe_dataset(table, storage_options=object_store.storage_options)

    assert (before.rows, len(before.fragments)) == (100, 5)
    assert (snapshot(now).rows, len(snapshot(now).fragments)) == (100, 1)
    history = commits_since(now, before.version)
    assert history.rows_unchanged
    assert len(history.rewrites) == 1
    again = observe_dataset(table, version=1, storage_options=object_store.storage_options)
    assert snapshot(again).fragments == before.fragments


def in_parallel(actions: list[Callable[[], object]]) -> None:
    failures: list[BaseException] = []

    def run(action: Callable[[], object]) -> None:
        try:
            action()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_parallel_appends_and_commits_are_all_kept(object_store: ObjectStore, table: str) -> None:
    """The store's conditional put decides which commit takes which version."""
    options = store_options(table, object_store.storage_options)

    def append(number: int) -> None:
        batch = rows(1000 + number * 10, 1000 + number * 10 + 10)
        lance.write_dataset(batch, table, mode="append", storage_options=options)

    def configure(number: int) -> None:
        update = LanceOperation.UpdateMap({f"key{number}": str(number)}, False)
        transaction = lance.Transaction(
            1,
            LanceOperation.UpdateConfig(config_updates=update),
            transaction_properties={"number": str(number)},
        )
        lance.LanceDataset.commit(table, transaction, storage_options=options)

    in_parallel(
        [
            *(lambda number=number: append(number) for number in range(8)),
            *(lambda number=number: configure(number) for number in range(4)),
        ]
    )

    dataset = observe_dataset(table, storage_options=object_store.storage_options)
    observed = snapshot(dataset)
    assert observed.version == 13
    assert observed.rows == 180
    assert {
        key: observed.config[key] for key in sorted(observed.config) if key.startswith("key")
    } == {f"key{number}": str(number) for number in range(4)}
    history = commits_since(dataset, 1)
    assert history.is_complete
    counts = [commit.effect for commit in history.commits]
    assert (counts.count(Effect.APPENDED), counts.count(Effect.ROWS_UNCHANGED)) == (8, 4)
    numbers = [c.properties["number"] for c in history.commits if "number" in c.properties]
    assert sorted(numbers) == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"aws_secret_access_key": "another-secret-of-someone"},
        {"aws_access_key_id": "another-id-of-someone"},
    ],
    ids=["key", "id"],
)
def test_wrong_credentials_are_an_error(
    object_store: ObjectStore, table: str, wrong: dict[str, str]
) -> None:
    error = refused(table, {**object_store.storage_options, **wrong})
    assert error.code == "LS202"
    assert table in error.message
    for secret in (SECRET_KEY, ACCESS_KEY, *wrong.values()):
        assert secret not in str(error)
        assert secret not in repr(error)
    assert error.__cause__ is None
    assert ".rs:" not in error.message


@pytest.mark.parametrize("place", ["lake/nowhere.lance", "no-such-bucket/t.lance"])
def test_a_missing_table_is_an_error(object_store: ObjectStore, place: str) -> None:
    error = refused(f"s3://{place}", dict(object_store.storage_options))
    assert error.code == "LS201"
    assert SECRET_KEY not in str(error)


def test_an_unreachable_store_is_an_error(object_store: ObjectStore) -> None:
    (port,) = free_ports(1)
    options = {**object_store.storage_options, "aws_endpoint": f"http://{HOST}:{port}"}
    error = refused("s3://lake/t.lance", options)
    assert error.code == "LS205"
    assert SECRET_KEY not in str(error)


@pytest.mark.fault
def test_a_store_that_stops_after_it_has_answered_is_an_error(tmp_path: Path) -> None:
    with running_object_store(tmp_path) as store:
        uri = store.uri("t.lance")
        options = store_options(uri, store.storage_options)
        lance.write_dataset(rows(0, 10), uri, storage_options=options)
        assert observe_dataset(uri, storage_options=store.storage_options).count_rows() == 10
    assert refused(uri, dict(store.storage_options)).code == "LS205"


def test_a_store_that_does_not_answer_fails_its_tables_together(
    object_store: ObjectStore, tmp_path: Path
) -> None:
    """Each would take minutes by itself: one request to the store decides for all."""
    local = str(tmp_path / "local.lance")
    lance.write_dataset(rows(0, 3), local)
    requests = [(f"t{number}", f"s3://lake/t{number}.lance") for number in range(100)]
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        listener.listen(200)
        endpoint = f"http://{HOST}:{listener.getsockname()[1]}"
        options = {**object_store.storage_options, "aws_endpoint": endpoint, "timeout": "1s"}
        snapshots = observe_snapshots([*requests, ("local", local)], options, threads=2)
    assert isinstance(snapshots.pop("local"), Snapshot)
    errors = {str(error) for error in snapshots.values()}
    assert len(snapshots) == 100
    assert len(errors) == 1
    (message,) = errors
    assert message.startswith("LS205  the store of s3://lake does not answer")
    assert SECRET_KEY not in message
