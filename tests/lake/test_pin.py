"""Pins distinguish datasets that have the same URI and version number."""

from __future__ import annotations

import ast
import re
import shutil
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lancestat
from lancestat.errors import LakeError
from lancestat.lake.observe import snapshot
from lancestat.lake.open import open_pinned, pinned_history, pinned_reads, replacement
from lancestat.lake.snapshot import manifest_identity, pin_of
from tests.pins import pinned

ROWS = pa.table({"id": range(10)})


@pytest.fixture
def uri(tmp_path: Path) -> str:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(ROWS, uri)
    lance.write_dataset(ROWS, uri, mode="append")
    return uri


def recreate(uri: str) -> None:
    shutil.rmtree(uri)
    lance.write_dataset(ROWS, uri)
    lance.write_dataset(ROWS, uri, mode="append")


def code(error: pytest.ExceptionInfo[LakeError]) -> str:
    return error.value.code


def test_a_pinned_dataset_opens_while_it_exists(uri: str) -> None:
    pin = pinned(uri)
    lance.write_dataset(ROWS, uri, mode="append")
    assert open_pinned(pin).count_rows() == 20
    assert replacement(pin) is None


def test_a_snapshot_and_an_open_dataset_have_one_pin(uri: str) -> None:
    lance.dataset(uri).delete("id = 3")
    dataset = lance.dataset(uri)
    dataset.update({"id": "id + 1"}, where="id = 5")
    dataset = lance.dataset(uri)
    assert snapshot(dataset, uri).pin == pin_of(dataset, uri)
    empty = lance.write_dataset(ROWS.slice(0, 0), f"{uri}.empty")
    assert snapshot(empty).pin == pin_of(empty)


def test_a_recreated_dataset_has_another_pin(uri: str) -> None:
    pin = pinned(uri)
    recreate(uri)
    assert pinned(uri).version == pin.version
    with pytest.raises(LakeError, match="has been replaced: its version 2 is not the one") as bad:
        open_pinned(pin)
    assert code(bad) == "LS209"
    assert bad.value.hint is not None
    assert "attach" in bad.value.hint


def test_a_restored_backup_continues_with_another_pin(uri: str, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    shutil.copytree(uri, backup)
    before = pinned(uri)
    lance.write_dataset(ROWS, uri, mode="append")
    after = pinned(uri)
    shutil.rmtree(uri)
    shutil.copytree(backup, uri)
    assert open_pinned(before).count_rows() == 20
    with pytest.raises(LakeError) as gone:
        open_pinned(after)
    assert code(gone) == "LS206"
    lance.write_dataset(ROWS, uri, mode="append")
    with pytest.raises(LakeError) as replaced:
        open_pinned(after)
    assert code(replaced) == "LS209"


def test_histories_of_one_frozen_clock_differ_by_their_files(uri: str) -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
    first = replace(snapshot(lance.dataset(uri), uri), committed_at=noon)
    recreate(uri)
    second = replace(snapshot(lance.dataset(uri), uri), committed_at=noon)
    assert first.version == second.version
    assert first.pin != second.pin


def test_commit_times_count_to_the_microsecond_in_any_zone() -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
    assert manifest_identity(noon, None) != manifest_identity(
        noon + timedelta(microseconds=1), None
    )
    berlin = noon.astimezone(timezone(timedelta(hours=1)))
    assert manifest_identity(noon, None) == manifest_identity(berlin, None)


def test_apparent_damage_of_a_replaced_dataset_is_reported_as_a_replacement(uri: str) -> None:
    pin = pinned(uri)
    dataset = open_pinned(pin)
    recreate(uri)
    with pytest.raises(LakeError) as bad, pinned_reads(pin):
        dataset.to_table()
    assert code(bad) == "LS209"


def test_damage_is_reported_as_damage(uri: str) -> None:
    pin = pinned(uri)
    dataset = open_pinned(pin)
    shutil.rmtree(Path(uri) / "data")
    with pytest.raises(LakeError) as bad, pinned_reads(pin):
        dataset.to_table()
    assert code(bad) not in ("LS206", "LS209")


def test_a_dataset_replaced_while_its_history_is_read_is_refused(uri: str) -> None:
    pin = pinned(uri)
    with pytest.raises(LakeError) as bad, pinned_history(pin) as dataset:
        recreate(uri)
        # The first version of the other dataset.
        assert dataset.checkout_version(1).count_rows() == 10
    assert code(bad) == "LS209"


# Datasets are opened only here, or through a pin that identifies them.
OPENERS = {"lake/open.py", "state/stored_table.py"}
# These read versions of a dataset of `pinned_history`, or of one that lancestat owns.
TRAVELLERS = {
    "lake/observe.py",
    "lake/history.py",
    "joins/output/abandoned_files.py",
    "joins/output/past_results.py",
    "state/garbage_collection.py",
}


def test_datasets_are_opened_in_one_place() -> None:
    package = Path(lancestat.__file__).parent
    callers: dict[str, set[str]] = {"open": set(), "travel": set()}
    for path in package.rglob("*.py"):
        name = path.relative_to(package).as_posix()
        text = path.read_text()
        if not re.search(r"LanceDataset|lance\.dataset|checkout_|versions|asof", text):
            continue
        for node in ast.walk(ast.parse(text)):
            match node:
                case (
                    ast.Call(func=ast.Attribute(value=ast.Name(id="lance"), attr="dataset"))
                    | ast.Call(func=ast.Attribute(attr="LanceDataset"))
                    | ast.Call(func=ast.Name(id="LanceDataset"))
                ):
                    callers["open"].add(name)
                case ast.Call(
                    func=ast.Attribute(
                        attr="checkout_version" | "checkout_latest" | "versions" | "asof"
                    )
                ):
                    callers["travel"].add(name)
    assert callers == {"open": OPENERS, "travel": TRAVELLERS}
