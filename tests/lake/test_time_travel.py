from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import lance
import pyarrow as pa
import pytest

from lancestat.errors import LakeError, UsageError
from lancestat.lake.observe import observe_at, parse_version


def test_without_version_or_tag_the_latest_is_read(
    orders: lance.LanceDataset, rows: Callable[[int, int], pa.Table]
) -> None:
    orders.insert(rows(100, 101))
    assert observe_at(orders.uri, None, None).version == 2
    assert observe_at(orders.uri, 1, None).version == 1


def test_a_tag_means_its_version(
    orders: lance.LanceDataset, rows: Callable[[int, int], pa.Table]
) -> None:
    orders.insert(rows(100, 101))
    orders.tags.create("before", 1)
    orders.tags.create("after", 2)
    assert observe_at(orders.uri, None, "before").version == 1
    assert observe_at(orders.uri, None, "after").version == 2


def test_version_and_tag_together_are_refused() -> None:
    with pytest.raises(UsageError) as caught:
        observe_at("t.lance", 3, "before")
    assert caught.value.code == "LS410"
    assert caught.value.message == "both version 3 and tag 'before' are given for t.lance"


def test_an_unknown_tag_names_the_others(orders: lance.LanceDataset) -> None:
    with pytest.raises(LakeError) as caught:
        observe_at(orders.uri, None, "before")
    assert (caught.value.code, caught.value.hint) == ("LS208", "the dataset has no tags")
    orders.tags.create("before", 1)
    orders.tags.create("zero", 1)
    with pytest.raises(LakeError) as caught:
        observe_at(orders.uri, None, "befor")
    assert caught.value.message == f"{orders.uri} has no tag 'befor'"
    assert caught.value.hint == "did you mean 'before'? tags: before, zero"


def test_a_long_list_of_tags_is_shortened(orders: lance.LanceDataset) -> None:
    for number in range(12):
        orders.tags.create(f"t{number:02}", 1)
    with pytest.raises(LakeError) as caught:
        observe_at(orders.uri, None, "/ '")
    assert caught.value.hint is not None
    assert caught.value.hint.endswith("t09 and 2 more")


def test_a_tag_is_never_looked_up_in_one_dataset_and_read_in_another(
    orders: lance.LanceDataset,
    rows: Callable[[int, int], pa.Table],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The dataset is dropped and created again before each call of Lance."""
    orders.insert(rows(100, 101))
    orders.tags.create("before", 1)
    uri, open_dataset, codes = orders.uri, lance.dataset, []

    def replaced_before(moment: int) -> Callable[..., lance.LanceDataset]:
        moments = iter(range(10))

        def open_later(*arguments: Any, **options: Any) -> lance.LanceDataset:
            if next(moments) == moment:
                shutil.rmtree(uri)
                lance.write_dataset(rows(900, 901), uri)
                lance.write_dataset(rows(901, 902), uri, mode="append")
            return open_dataset(*arguments, **options)

        return open_later

    for moment in range(1, 4):
        shutil.rmtree(uri)
        lance.write_dataset(rows(0, 100), uri)
        lance.write_dataset(rows(100, 101), uri, mode="append").tags.create("before", 1)
        monkeypatch.setattr(lance, "dataset", replaced_before(moment))
        with pytest.raises(LakeError) as caught:
            observe_at(uri, None, "before")
        monkeypatch.undo()
        codes.append(caught.value.code)
    assert codes == ["LS209"] * 3


def test_a_tag_of_a_branch_is_refused(
    orders: lance.LanceDataset, rows: Callable[[int, int], pa.Table]
) -> None:
    branch = orders.create_branch("aside")
    branch.insert(rows(100, 101))
    orders.tags.create("aside-2", ("aside", 2))
    with pytest.raises(LakeError) as caught:
        observe_at(orders.uri, None, "aside-2")
    assert caught.value.code == "LS208"
    assert "is on branch 'aside'" in caught.value.message


def test_a_tag_of_a_missing_dataset_is_an_error() -> None:
    with pytest.raises(LakeError) as caught:
        observe_at("nowhere/t.lance", None, "before")
    assert caught.value.code == "LS201"


def test_a_number_beyond_the_latest_is_refused_by_opening(
    orders: lance.LanceDataset,
) -> None:
    with pytest.raises(LakeError) as caught:
        observe_at(orders.uri, 40, None)
    assert caught.value.code == "LS206"


@pytest.mark.parametrize("version", [0, -1, 2**63, True, 1.0, "1"])
def test_numbers_that_are_not_versions_are_refused(version: object) -> None:
    with pytest.raises(UsageError) as caught:
        observe_at("t.lance", version, None)  # type: ignore[arg-type]
    assert caught.value.code == "LS411"
    assert f"'{version}'" in caught.value.message


def test_versions_are_parsed_from_text() -> None:
    assert parse_version("12") == 12
    assert parse_version(" 007 ") == 7
    assert parse_version(str(2**63 - 1)) == 2**63 - 1


@pytest.mark.parametrize("text", ["", "latest", "-1", "0", "1.0", "1_0", "²", str(2**63), "9" * 99])
def test_texts_that_are_not_versions_are_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_version(text)
    assert caught.value.code == "LS411"
