"""What a diff says of expectations: those of BASE, of the nodes that change."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import lance
import pytest
from click.testing import CliRunner

from lancestat import Project
from lancestat.cli.main import cli
from lancestat.review.values import NodeDiff
from tests.runs.world import orders, write_project

EXPECT = [{"not_null": "o_id"}, {"between": {"column": "o_id", "max": 10}}, {"unique": "o_total"}]


class Sides:
    """A project before and after a change, whose table is the same."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.uri = str(folder / "orders.lance")
        self.target = {"state": str(folder / "state")}
        lance.write_dataset(orders(0, 30), self.uri)

    def write(self, side: str, **keys: object) -> Project:
        place = self.folder / side
        place.mkdir(exist_ok=True)
        return write_project(place, {"name": "orders", "uri": self.uri, **keys}, target=self.target)

    def diff(self, **options: bool) -> Sequence[NodeDiff]:
        head, base = self.folder / "head", self.folder / "base"
        return Project.diff(head, str(base), str(head), **options).nodes


@pytest.fixture
def sides(tmp_path: Path) -> Sides:
    return Sides(tmp_path)


def test_a_changed_table_has_the_verdicts_of_base(sides: Sides) -> None:
    sides.write("base", expect=EXPECT).run()
    sides.write("head", expect=EXPECT, owner="o")
    [node] = sides.diff()
    [note] = [note for note in node.notes if "expects" in note]
    assert note == "of what BASE expects: 1 proved, 1 refuted, 1 unknown (between(o_id))"


def test_what_a_change_expects_is_answered_nowhere(sides: Sides) -> None:
    # Whoever may open pull requests, and not read the table, could search for a value.
    sides.write("base", expect=EXPECT[:1]).run()
    for bound in (10, 100):
        expect = [*EXPECT[:1], {"between": {"column": "o_id", "max": bound}}]
        sides.write("head", expect=expect)
        [node] = sides.diff()
        assert [note for note in node.notes if "expects" in note] == [
            "of what BASE expects: 1 proved"
        ]


def test_values_that_base_does_not_show_are_in_no_comment(sides: Sides) -> None:
    text = [{"accepted_values": {"column": "o_status", "values": ["done"]}}]
    sides.write("base", expect=text, show_values=False).run()
    sides.write("head", expect=text, show_values=True)
    [node] = sides.diff()
    [note] = [note for note in node.notes if "expects" in note]
    assert "1 refuted" in note and "open" not in note


@pytest.mark.parametrize("change", ["elsewhere", "state", "options", "added", "unchanged"])
def test_nothing_is_said_of_what_base_does_not_vouch_for(sides: Sides, change: str) -> None:
    keys = {} if change == "unchanged" else {"owner": "o"}
    sides.write("base", expect=EXPECT).run()
    if change == "added":
        write_project(sides.folder / "base", "other", target=sides.target)
    if change == "elsewhere":
        keys["uri"] = str(sides.folder / "other.lance")
        lance.write_dataset(orders(0, 30), keys["uri"])
    if change == "state":
        sides.target = {"state": str(sides.folder / "other")}
    if change == "options":
        sides.target = {**sides.target, "storage_options": {"aws_region": "x"}}  # type: ignore[dict-item]
    sides.write("head", expect=EXPECT, **keys)
    notes = [note for node in sides.diff() for note in node.notes]
    # At another place it is still BASE's table that is looked at.
    assert any("expects" in note for note in notes) is (change == "elsewhere")


def test_no_dataset_is_opened_for_it_where_none_is_to_be(sides: Sides) -> None:
    sides.write("base", expect=EXPECT).run()
    sides.write("head", expect=EXPECT, owner="o")
    assert not any(
        "expects" in note for node in sides.diff(with_datasets=False) for note in node.notes
    )


def test_the_comment_has_them(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    sides.write("base", expect=EXPECT).run()
    sides.write("head", expect=EXPECT, owner="o")
    head = str(sides.folder / "head")
    words = ("--project-dir", head, "diff", str(sides.folder / "base"), head)
    done = CliRunner().invoke(cli, [*words, "--output", "markdown"])
    assert "of what BASE expects: 1 proved, 1 refuted, 1 unknown" in done.stdout.replace("\\", "")
