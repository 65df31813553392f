"""Commits with requirements: those that land, conflict or are reverted."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancestat.errors import LakeError
from lancestat.lake.commit import (
    CommitOutcome,
    Conflict,
    Landed,
    Requirement,
    SameDataset,
    VersionIs,
    commit,
    commit_properties,
)
from lancestat.lake.snapshot import Pin, pin_of

ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture
def uri(tmp_path: Path) -> str:
    place = str(tmp_path / "t.lance")
    lance.write_dataset(ROWS, place)
    return place


def pin(uri: str) -> Pin:
    return pin_of(lance.dataset(uri), uri)


def append(uri: str) -> None:
    lance.write_dataset(ROWS, uri, mode="append")


def recreate(uri: str) -> None:
    shutil.rmtree(uri)
    lance.write_dataset(pa.table({"other": ["a"]}), uri)


def configure(
    uri: str,
    requirements: Sequence[Requirement] = (),
    *,
    value: str = "v",
    undo: Callable[[lance.LanceDataset], object] | None = None,
) -> CommitOutcome:
    """Commit a change of the config that was made for version 1."""
    operation = lance.LanceOperation
    update = operation.UpdateConfig(config_updates=operation.UpdateMap({"key": value}, False))
    properties = commit_properties("a test", "run-1")
    return commit(uri, update, 1, requirements, properties=properties, undo=undo)


def before_commit(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Let something happen between the last look and the commit."""
    real = lance.LanceDataset.commit

    def late(*arguments: object, **options: object) -> object:
        monkeypatch.undo()
        act()
        return real(*arguments, **options)

    monkeypatch.setattr(lance.LanceDataset, "commit", late)


def test_a_change_lands_on_the_next_version_with_its_properties(uri: str) -> None:
    read = pin(uri)
    outcome = configure(uri, [VersionIs(read), SameDataset(read)])
    assert isinstance(outcome, Landed) and not outcome.is_late
    assert outcome.pin == pin(uri)
    properties = lance.dataset(uri).read_transaction(2).transaction_properties
    assert properties["__lance_commit_message"].endswith(": a test")
    assert properties["lancestat.run"] == "run-1"


def test_a_required_version_that_has_passed_is_a_conflict(uri: str) -> None:
    read = pin(uri)
    append(uri)
    outcome = configure(uri, [VersionIs(read)])
    assert outcome == Conflict("version 1 was read, the table is at version 2")
    late = configure(uri, [VersionIs(read, or_later=True)])
    assert isinstance(late, Landed) and late.is_late
    assert late.version == 3


@pytest.mark.parametrize("is_strict", [True, False])
def test_a_commit_in_between_is_reported(
    uri: str, is_strict: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    requirements = [VersionIs(pin(uri))] if is_strict else []
    before_commit(monkeypatch, lambda: append(uri))
    outcome = configure(uri, requirements)
    assert isinstance(outcome, Landed) and outcome.is_late
    assert outcome.version == 3


def test_changes_that_exclude_each_other_conflict(uri: str) -> None:
    assert isinstance(configure(uri), Landed)
    assert isinstance(configure(uri, value="w"), Conflict)
    assert lance.dataset(uri).config() == {"key": "v"}


def test_an_overwrite_is_never_rebased_onto_unseen_commits(uri: str) -> None:
    append(uri)
    overwrite = lance.LanceOperation.Overwrite(ROWS.schema, [])
    assert isinstance(commit(uri, overwrite, 1), Conflict)
    assert lance.dataset(uri).count_rows() == 6


def test_one_of_two_concurrent_creations_lands(tmp_path: Path) -> None:
    uri, create = str(tmp_path / "new.lance"), lance.LanceOperation.Overwrite(ROWS.schema, [])
    first, second = commit(uri, create, 0), commit(uri, create, 0)
    assert isinstance(first, Landed) and not first.is_late
    assert first.version == 1
    assert isinstance(second, Conflict)


def test_a_dataset_that_replaced_the_expected_one_gets_no_commit(uri: str) -> None:
    requirement = SameDataset(pin(uri))
    recreate(uri)
    undone: list[object] = []
    outcome = configure(uri, [requirement], undo=undone.append)
    assert isinstance(outcome, Conflict)
    assert "replaced" in outcome.detail
    assert not undone
    assert lance.dataset(uri).version == 1


def test_a_commit_to_another_dataset_is_reverted(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    requirement = SameDataset(pin(uri))
    before_commit(monkeypatch, lambda: recreate(uri))
    outcome = configure(
        uri,
        [requirement],
        undo=lambda landed: lance.dataset(uri, version=landed.version - 1).restore(),
    )
    assert isinstance(outcome, Conflict)
    assert "replaced" in outcome.detail
    assert lance.dataset(uri).config() == {}


@pytest.mark.parametrize("or_cleaned_up", [True, False])
def test_a_version_that_is_gone_after_the_commit_proves_nothing(
    uri: str, monkeypatch: pytest.MonkeyPatch, or_cleaned_up: bool
) -> None:
    requirement = SameDataset(pin(uri), or_cleaned_up)
    real = lance.LanceDataset.commit
    undone: list[object] = []

    def clean_up_after(*arguments: object, **options: object) -> object:
        monkeypatch.undo()
        landed = real(*arguments, **options)
        landed.cleanup_old_versions(retain_versions=1)
        return landed

    monkeypatch.setattr(lance.LanceDataset, "commit", clean_up_after)
    outcome = configure(uri, [requirement], undo=undone.append)
    assert isinstance(outcome, Landed if or_cleaned_up else Conflict)
    assert len(undone) == (0 if or_cleaned_up else 1)
    assert [version["version"] for version in lance.dataset(uri).versions()] == [2]


def test_a_missing_dataset_is_an_error(uri: str) -> None:
    requirement = VersionIs(pin(uri))
    shutil.rmtree(uri)
    with pytest.raises(LakeError, match="there is no Lance dataset"):
        configure(uri, [requirement])
