"""Plan files: their form, refused files, atomic writes, and differences of two saved plans."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancestat.runs import plan_file
from lancestat.runs.plan_file import (
    NotWritten,
    PlaceOccupied,
    PlanFileError,
    PlanOptions,
    SavedNode,
    SavedPlan,
    decode_plan,
    read_plan_file,
    write_plan_file,
)

SAVED = SavedPlan(
    lancestat="0.1.0",
    made_at=datetime(2026, 1, 1, tzinfo=timezone.utc),
    project="shop",
    target="dev",
    state="0" * 24,
    scratch=None,
    options=PlanOptions(("tag:nightly",), None, True),
    nodes=(
        SavedNode(
            plan={"name": "orders", "kind": "table", "action": "skip", "reasons": ["unchanged"]},
            rests_on={"declaration": "m", "datasets": "i", "record": None, "work": "w"},
        ),
    ),
)


def instants() -> st.SearchStrategy[datetime]:
    return st.datetimes(timezones=st.just(timezone.utc))


def texts() -> st.SearchStrategy[str]:
    """Any text, half characters too: names of files may hold them."""
    return st.text(st.characters(), max_size=20)


def optional(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.none() | strategy


def plans() -> st.SearchStrategy[SavedPlan]:
    figures = st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    variables = st.builds(
        lambda name, rest: {**rest, "name": name},
        texts(),
        st.dictionaries(texts(), figures | texts() | st.lists(texts(), max_size=3), max_size=5),
    )
    nodes = st.builds(SavedNode, variables, st.dictionaries(texts(), optional(texts())))
    selectors = optional(st.lists(texts(), max_size=3).map(tuple))
    return st.builds(
        SavedPlan,
        texts(),
        instants(),
        texts(),
        texts(),
        texts(),
        optional(texts()),
        st.builds(PlanOptions, selectors, selectors, st.booleans()),
        st.lists(nodes, max_size=3).map(tuple),
    )


@settings(deadline=None)
@given(plans())
def test_a_plan_round_trips_through_its_file(plan: SavedPlan) -> None:
    stored = plan.encoded().encode("utf-8", "surrogatepass")
    assert decode_plan(json.loads(stored.decode("utf-8", "surrogatepass"))) == plan


def test_a_file_holds_a_plan(tmp_path: Path) -> None:
    write_plan_file(tmp_path / "plan.json", SAVED)
    assert read_plan_file(tmp_path / "plan.json") == SAVED
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def text_of(plan: SavedPlan = SAVED) -> str:
    return plan.encoded()


def without(key: str) -> str:
    document = json.loads(text_of())
    del document[key]
    return json.dumps(document)


def with_value(key: str, value: object) -> str:
    return json.dumps({**json.loads(text_of()), key: value})


NAMELESS = {**json.loads(text_of())["nodes"][0], "plan": {"kind": "table"}}


@pytest.mark.parametrize(
    ("content", "code", "expected"),
    [
        ("", "LS622", "it is empty"),
        ("  \n", "LS622", "it is empty"),
        ("tables: []", "LS622", "it is not JSON, see line 1, column 1"),
        (text_of()[:-3], "LS622", "it ends early, at line 38"),
        (text_of()[:100], "LS622", "it ends early"),
        (text_of().replace('"state": ', '"state" '), "LS622", "it is not JSON, see line 8"),
        ("[" * 100_000, "LS622", "JSON that no plan looks like"),
        # Python before 3.10.7 reads numbers of any length.
        ("1" * 10_000, "LS622", "no plan"),
        ("{}", "LS622", "this JSON is no plan"),
        ("[]", "LS622", "this JSON is no plan"),
        ('"lancestat plan"', "LS622", "this JSON is no plan"),
        (without("kind"), "LS622", "this JSON is no plan"),
        (with_value("format_version", 1), "LS623", "is of format '1', and this release reads"),
        (with_value("format_version", "x\x1b[2J"), "LS623", "is of format 'x\\x1b[2J'"),
        (without("format_version"), "LS623", "is of format 'None'"),
        (without("nodes"), "LS622", "it is damaged: Object missing required field `nodes`"),
        (with_value("nodes", {}), "LS622", "Expected `array`, got `object` - at `$.nodes`"),
        (with_value("nodes", [1]), "LS622", "Expected `object`, got `int` - at `$.nodes[0]`"),
        (
            with_value("nodes", [{"plan": {}}]),
            "LS622",
            "field `rests_on` - at `$.nodes[0]`",
        ),
        (with_value("nodes", [NAMELESS]), "LS622", "it is damaged: a node has no name"),
        (with_value("target", 1), "LS622", "Expected `str`, got `int` - at `$.target`"),
        (with_value("made_at", "soon"), "LS622", "encoded datetime - at `$.made_at`"),
        (with_value("made_at", "2026-01-01T00:00:00"), "LS622", "`datetime` with a timezone"),
        (with_value("options", {"select": "a"}), "LS622", "got `str` - at `$.options.select`"),
        (
            with_value("options", {"select": None, "exclude": None, "full_refresh": 1}),
            "LS622",
            "Expected `bool`, got `int` - at `$.options.full_refresh`",
        ),
    ],
)
def test_a_file_that_is_not_a_plan_is_an_error(
    content: str, code: str, expected: str, tmp_path: Path
) -> None:
    path = tmp_path / "plan.json"
    path.write_text(content)
    with pytest.raises(PlanFileError) as raised:
        read_plan_file(path)
    assert raised.value.code == code
    assert expected in raised.value.message
    assert raised.value.hint


def missing(path: Path) -> None:
    pass


def a_folder(path: Path) -> None:
    path.mkdir()


def binary(path: Path) -> None:
    path.write_bytes(b"\x89PNG\r\n\x1a\n\xff")


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (missing, "no such file or directory"),
        (a_folder, "is a directory"),
        (binary, "it is not text"),
        (endless, "it is larger than 1 MiB, as no plan is"),
    ],
)
def test_an_unreadable_plan_file_is_an_error(
    make: Callable[[Path], None], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_file, "MAX_BYTES", 1 << 20)
    make(tmp_path / "plan.json")
    with pytest.raises(PlanFileError) as raised:
        read_plan_file(tmp_path / "plan.json")
    assert (raised.value.code, expected in raised.value.message) == ("LS622", True)


def test_names_that_no_file_can_have_are_an_error() -> None:
    with pytest.raises(PlanFileError, match="LS622"):
        read_plan_file(Path("a\0b"))
    with pytest.raises(NotWritten, match="LS403"):
        write_plan_file(Path("a\0b"), SAVED)


def test_an_older_plan_is_replaced_even_through_a_link(tmp_path: Path) -> None:
    place, link = tmp_path / "plans" / "plan.json", tmp_path / "plan.json"
    place.parent.mkdir()
    place.write_text(with_value("format_version", 0))
    link.symlink_to(place)
    write_plan_file(link, SAVED)
    assert link.is_symlink()
    assert read_plan_file(place) == SAVED


@pytest.mark.parametrize("content", ["", "precious", "{}", '{"kind": "other"}', "\x89"])
def test_a_file_that_is_not_a_plan_is_not_replaced(content: str, tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    path.write_text(content)
    with pytest.raises(PlaceOccupied, match=r"LS650.*it holds something else than a plan"):
        write_plan_file(path, SAVED)
    assert path.read_text() == content


def test_a_plan_needs_a_folder(tmp_path: Path) -> None:
    with pytest.raises(PlaceOccupied, match=r"LS650.*it is a folder"):
        write_plan_file(tmp_path, SAVED)
    with pytest.raises(NotWritten, match=r"LS403.*there is no folder"):
        write_plan_file(tmp_path / "no" / "plan.json", SAVED)
    (tmp_path / "file").write_text("")
    with pytest.raises(NotWritten, match=r"LS403.*there is no folder"):
        write_plan_file(tmp_path / "file" / "plan.json", SAVED)


def test_a_failed_write_leaves_the_older_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "plan.json"
    path.write_text(with_value("project", "older"))

    def full(path: Path, content: bytes) -> int:
        path.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(NotWritten, match=r"LS403.*no space left on device"):
        write_plan_file(path, SAVED)
    assert read_plan_file(path).project == "older"
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


[NODE, *_] = SAVED.nodes


def resting_on(**digests: str | None) -> SavedNode:
    return replace(NODE, rests_on={**NODE.rests_on, **digests})


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (resting_on(work="other"), "what it reads, or what the state has stored of it, "
         "has changed"),
        (resting_on(result="other"), "its result has changed"),
        (resting_on(datasets="other", work="other"), "what it reads has changed"),
        (resting_on(declaration="n", record="r"),
         "its declaration has changed; the state has another record of it"),
        (replace(NODE, plan={**NODE.plan, "message": "line 3"}), None),
    ],
)  # fmt: skip
def test_nodes_that_differ_are_named(now: SavedNode, expected: str | None) -> None:
    lines = [] if expected is None else [f"orders: {expected}"]
    assert SAVED.drift(replace(SAVED, nodes=(now,))) == lines


def test_the_order_of_nodes_is_part_of_a_plan() -> None:
    other = replace(NODE, plan={**NODE.plan, "name": "returns"})
    for then, now in (((NODE, other), (other, NODE)), ((NODE, NODE), (NODE,))):
        lines = replace(SAVED, nodes=then).drift(replace(SAVED, nodes=now))
        assert lines == ["the nodes are in another order"]


def test_control_characters_of_a_file_are_spelled_out() -> None:
    then = replace(NODE, plan={"name": "\x1b[2Jorders", "action": "\nskip"})
    assert replace(SAVED, nodes=(then,)).drift(replace(SAVED, nodes=())) == [
        "\\x1b[2Jorders: it is no longer among the planned nodes"
    ]
