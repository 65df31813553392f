from __future__ import annotations

import re

import pytest

from lancestat.errors import InvalidProject
from lancestat.spec.document import MAX_BYTES, read_document


def read(text: str | bytes) -> object:
    return read_document(text.encode() if isinstance(text, str) else text, "x.yml").value


def fault(text: str | bytes) -> str:
    with pytest.raises(InvalidProject) as caught:
        read(text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"),
        ("off", "off"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("12", 12),
        ("-7", -7),
        ("007", 7),
        ("0o17", 15),
        ("0x1F", 31),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("2024-01-01", "2024-01-01"),
        ("1.50", 1.5),
        (".5e2", 50.0),
        ("5%", "5%"),
        ("+", "+"),
        ("'12'", "12"),
        ("!!str 12", "12"),
        ("! 12", "12"),
        ("!!float 3", 3.0),
        ("!!int 3", 3),
        ("!!bool true", True),
        ("!!null ''", None),
    ],
)
def test_scalars_follow_the_core_schema_of_yaml_1_2(text: str, value: object) -> None:
    scalar = read(f"a: {text}")
    assert scalar == {"a": value}
    assert type(scalar["a"]) is type(value)  # type: ignore[index]


def test_every_key_and_value_has_its_place() -> None:
    document = read_document(b"a: 1\nb:\n  - x\n  - {c: 2, d: [3]}\n", "f.yml")
    assert str(document.at(("b", 1, "d", 0))) == "f.yml:4:16"
    assert str(document.key_at(("b", 1, "d"))) == "f.yml:4:12"
    assert str(document.at(("b", 1))) == "f.yml:4:5"
    assert str(document.key_at(("b", 0))) == "f.yml:3:5"
    assert str(document.at(("b", 1, "no", "such"))) == "f.yml:4:5"


def test_places_count_characters_and_not_bytes() -> None:
    document = read_document("{é: 'ü€', b: 1}".encode(), "f.yml")
    assert str(document.at(("b",))) == "f.yml:1:14"


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    assert read(b"\xef\xbb\xbfa: 1") == {"a": 1}


def test_the_text_of_numbers_is_kept() -> None:
    document = read_document(b"a: 1.10\nb: '1.10'\nc: 0x10", "f.yml")
    assert document.numbers == {("a",): "1.10", ("c",): "0x10"}


def test_aliases_and_merge_keys_are_resolved() -> None:
    text = """
    base: &base {a: 1, b: 2}
    other: &other {b: 3, c: 4}
    same: *base
    merged: {b: 9, <<: *base}
    both: {<<: [*base, *other], d: 5}
    quoted: {'<<': 1}
    """
    assert read(text) == {
        "base": {"a": 1, "b": 2},
        "other": {"b": 3, "c": 4},
        "same": {"a": 1, "b": 2},
        "merged": {"a": 1, "b": 9},
        "both": {"a": 1, "b": 2, "c": 4, "d": 5},
        "quoted": {"<<": 1},
    }


def test_a_merged_value_has_the_place_where_it_was_written() -> None:
    document = read_document(b"a: &a {x: [1, 2]}\nb: {<<: *a}", "f.yml")
    assert str(document.at(("b", "x", 1))) == "f.yml:1:15"
    assert str(document.key_at(("b", "x"))) == "f.yml:1:8"


def test_an_anchor_may_be_defined_again() -> None:
    assert read("[&a 1, *a, &a 2, *a]") == [1, 1, 2, 2]


def test_duplicate_keys_are_all_reported_once_with_both_places() -> None:
    text = fault("a: &a {x: 1, x: 2}\nb: *a\nc: {<<: *a}\na: 3\n")
    assert text.splitlines() == [
        "LS104 x.yml:1:14  key 'x' is written twice, first at x.yml:1:8",
        "LS104 x.yml:4:1  key 'a' is written twice, first at x.yml:1:1",
    ]


def test_two_merge_keys_are_duplicates() -> None:
    assert "LS104 x.yml:3:12" in fault("a: &a {x: 1}\nb: &b {y: 1}\nc: {<<: *a,<<: *b}\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("---\n", "LS101 x.yml:1:1  the file is empty"),
        (b"a: b\nc: \xff", "LS101 x.yml:2:4  byte 0xff is not UTF-8"),
        ("a: b\0", "LS102 x.yml:1:5  character U+0000 is not allowed"),
        ("a: 1\nb: \u2028\x07", "LS102 x.yml:2:5  character U+0007 is not allowed"),
        ("a: !!python/name:os.system x", "LS102 x.yml:1:4  unknown tag '!!python/name:os.system'"),
        ("a: !env X", "LS102 x.yml:1:4  unknown tag '!env'"),
        ("a: !!omap [x: 1]", "LS102 x.yml:1:4  unknown tag '!!omap'"),
        ("!!int a: 1", "LS102 x.yml:1:1  unknown tag '!!int'"),
        ("a: !!int b", "LS107 x.yml:1:4  'b' is not what its tag !!int says"),
        ("[a, *b]", "LS102 x.yml:1:5  alias '*b' names no anchor"),
        ("a: {<<: 1}", "LS102 x.yml:1:9  '<<' merges mappings"),
        ("a: .inf", "LS107 x.yml:1:4  '.inf' is not a finite number"),
        ("a: 1e999", "LS107 x.yml:1:4  '1e999' is not a finite number"),
        ("a: " + "1" * 5000, "LS107 x.yml:1:4  a number of 5000 characters is too long"),
        ("{a: " * 100, "LS113 x.yml:1:257  nested more than 64 levels deep"),
    ],
)
def test_unreadable_yaml_has_a_location(text: str | bytes, expected: str) -> None:
    assert fault(text).startswith(expected)


def test_a_file_that_is_too_large_is_not_parsed() -> None:
    # What is read of a file ends there, so that its real size is not known.
    assert "the file has more than 16,777,216 bytes" in fault(b"#" * (MAX_BYTES + 1))


def test_billions_of_aliased_values_are_refused_at_once() -> None:
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    assert "LS113 x.yml:6:10  aliases unfold to more than 100,000 values" in fault("\n".join(lines))


def test_billions_of_merged_values_are_refused() -> None:
    keys = ", ".join(f"k{n}: v" for n in range(400))
    merges = "\n".join(f"- {{<<: *a, m{n}: 1}}" for n in range(400))
    assert "aliases unfold to more than 100,000 values" in fault(f"- &a {{{keys}}}\n{merges}")


def test_long_texts_count_as_many_values_when_aliases_repeat_them() -> None:
    text = "x" * 100_000
    assert "aliases unfold to more than 100,000 values" in fault(f"- &a {text}\n" + "- *a\n" * 101)


def test_nesting_beyond_the_parsers_own_limit_is_the_same_error() -> None:
    # It has one since libyaml 0.2.6, and meets it before the first list is known.
    assert re.match(r"LS113 x\.yml:1:\d+  nested more than 64 levels deep", fault("[" * 10_000))


def test_nesting_through_aliases_is_bounded() -> None:
    lines = ["- &a0 [x]"] + [f"- &a{n} [*a{n - 1}]" for n in range(1, 100)]
    assert "nested more than 64 levels deep" in fault("\n".join(lines))
