"""Edits of YAML in its own text, against what a parser reads of the result."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from lancestat.query.workload.edit import CannotEditError, SpecText, flow

Edit = Callable[[SpecText], None]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("columns: [a, b]", "columns: [a, b, c]"),
        ("columns: [a, b] # why", "columns: [a, b, c] # why"),
        ("columns: [ a, 'b' ]", "columns: [ a, 'b', c ]"),
        ("columns: []", "columns: [c]"),
        ("columns: [a,\n      b,\n    ]", "columns: [a,\n      b, c,\n    ]"),
        ("columns:\n    - a\n    - b # why", "columns:\n    - a\n    - b # why\n    - c"),
        ("columns:\n  - a\n  - b\n  tags: [x]", "columns:\n  - a\n  - b\n  - c\n  tags: [x]"),
        (
            "columns:\n    - a\n    # last\n  tags: [x]",
            "columns:\n    - a\n    - c\n    # last\n  tags: [x]",
        ),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_items_are_appended_in_the_style_of_the_list(before: str, after: str, newline: str) -> None:
    head = "# Ours.\ntables:\n- name: t\n  "
    text = SpecText(f"{head}{before}\n".replace("\n", newline))
    text.append(0, ["columns"], ["c"])
    assert text.text == f"{head}{after}\n".replace("\n", newline)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("columns: [a, b]", "columns: [b]"),
        ("columns: [b, a] # why", "columns: [b] # why"),
        ("columns: [b, a, c]", "columns: [b, c]"),
        ("columns:\n    - b # why\n    - a # gone\n    - c", "columns:\n    - b # why\n    - c"),
    ],
)
def test_an_item_is_removed_with_its_line(before: str, after: str) -> None:
    head = "tables:\n- name: t\n  "
    text = SpecText(f"{head}{before}\n")
    text.remove(0, ["columns"], frozenset("a"))
    assert text.text == f"{head}{after}\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("- name: t", "- name: t\n  histogram: true"),
        ("- {name: t}", "- {name: t, histogram: true}"),
        ("- name: t # why\n- name: u", "- name: t # why\n  histogram: true\n- name: u"),
        (
            "- name: t\n  tags:\n  - x\n  - y # z\n",
            "- name: t\n  tags:\n  - x\n  - y # z\n  histogram: true\n",
        ),
        (
            "- name: t\n  description: |\n    Two\n    lines.\n",
            "- name: t\n  description: |\n    Two\n    lines.\n  histogram: true\n",
        ),
    ],
)
def test_a_key_goes_after_those_that_a_table_has(before: str, after: str) -> None:
    text = SpecText(f"tables:\n{before}\n")
    text.add_key(0, [], "histogram", True)
    assert text.text == f"tables:\n{after}\n"


@pytest.mark.parametrize("head", ["|+", ">+", "|+2 # kept", "&a |2+", "|", "|-"])
@pytest.mark.parametrize("end", ["", "\n", "\n  \n", "\n\n# The end.\n"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_blocks_of_text_keep_their_end(head: str, end: str, newline: str) -> None:
    block = f"tables:\n- name: t\n  description: {head}\n    Two\n    lines.\n{end}"
    for before in (block, f"{block}  tags: [x]\n", f"{block}- name: u\n"):
        text = SpecText(before.replace("\n", newline))
        expected = yaml.safe_load(text.text)
        text.add_key(0, [], "histogram", True)
        expected["tables"][0]["histogram"] = True
        assert yaml.safe_load(text.text) == expected
        text = SpecText(before.replace("\n", newline))
        expected = [*yaml.safe_load(text.text)["tables"], {"name": "added"}]
        text.add_table([("name", "added")])
        assert yaml.safe_load(text.text) == {"tables": expected}


@pytest.mark.parametrize("end", ["", "\n", "\n\n", "\n\n# The end.\n"])
def test_tables_come_behind_blocks_of_text(end: str) -> None:
    before = f"sources:\n- uri: .\n  defaults:\n    owner: |+\n      We.\n{end}"
    text = SpecText(before)
    text.add_table([("name", "added")])
    assert yaml.safe_load(text.text) == {**yaml.safe_load(before), "tables": [{"name": "added"}]}


ALIASES = """\
tables:
- &first
  name: t
  columns: &shared [a, b]
- name: u
  columns: *shared
- <<: *first
  name: v
"""


@pytest.mark.parametrize(
    ("index", "why"),
    [
        (0, "writes the table for others too"),
        (1, "writes 'columns' for others too"),
        (2, "merges other mappings into the table"),
    ],
)
def test_what_is_written_for_others_too_is_refused(index: int, why: str) -> None:
    text = SpecText(ALIASES)
    with pytest.raises(CannotEditError, match=why):
        text.append(index, ["columns"], ["c"])
    assert text.text == ALIASES


@given(st.text())
def test_strings_are_read_as_they_were(value: str) -> None:
    printable = "".join(char for char in value if char.isprintable())
    assert yaml.safe_load(f"a: {flow(printable)}") == {"a": printable}


@pytest.mark.parametrize("word", ["no", "On", "null", "12", "1e3", "~", "a: b", "#", "- a", ""])
def test_words_with_a_meaning_are_quoted(word: str) -> None:
    assert flow(word) == f'"{word}"'


NAMES = st.lists(st.sampled_from("abcdef"), min_size=2, max_size=6, unique=True)


@given(NAMES, st.booleans(), st.lists(st.tuples(st.booleans(), st.sampled_from("abcdefgh"))))
def test_edits_do_what_they_do_to_a_list(
    names: list[str], is_flow: bool, edits: list[tuple[bool, str]]
) -> None:
    listed = f" [{', '.join(names)}] # kept" if is_flow else "".join(f"\n  - {n}" for n in names)
    text = SpecText(f"# kept\ntables:\n- name: t # kept\n  columns:{listed}\n  tags: [z] # kept\n")
    expected = list(names)
    for is_removal, name in edits:
        try:
            if is_removal:
                text.remove(0, ["columns"], frozenset(name))
                expected.remove(name)
            else:
                text.append(0, ["columns"], [name])
                expected.append(name)
        except CannotEditError:
            assert expected.count(name) != 1 or len(expected) == 1
    table = {"name": "t", "columns": expected, "tags": ["z"]}
    assert yaml.safe_load(text.text) == {"tables": [table]}
    assert text.text.count("# kept") == (4 if is_flow else 3)
