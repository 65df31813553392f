"""Facts and texts on pages, and the YAML that they show."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lancestat.errors import Location
from lancestat.joins.record import JoinGroups
from lancestat.presentation.site import text as page_text
from lancestat.presentation.site.facts import join_facts, side_facts
from lancestat.presentation.site.text import PageSanitizer, Sources, addresses, shorten, slug
from lancestat.redact import KnownValue, Redactor, redact_line
from lancestat.review.values import Mask, node_properties
from lancestat.spec.load import load_project
from tests.presentation.site.reports import join, join_report, table_report


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text())
def test_shown_text_has_no_control_or_bidirectional_characters(text: str) -> None:
    for output in (
        PageSanitizer().line(text),
        str(PageSanitizer().verbatim(text.replace("\n", " "))),
    ):
        assert not [c for c in output if unicodedata.category(c) in ("Cc", "Cs") and c != "\t"]
        assert not set(output) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200b")


def test_a_control_character_leaves_a_mark() -> None:
    assert PageSanitizer().line("or\x1b[31mders\u202e") == "or\\x1b[31mders\\u202e"


def test_hidden_texts_are_replaced_everywhere() -> None:
    known = (
        KnownValue("hunter2-long", "***", True),
        KnownValue("s3://inner/bucket", "{{ env_var('B') }}"),
    )
    plain = PageSanitizer(Redactor(known))
    assert plain.line("at s3://inner/bucket/t, key hunter2-long") == (
        "at {{ env_var('B') }}/t, key ***"
    )
    assert plain.verbatim("  password: hunter2-long") == "  password: ***"


def test_secrets_in_uris_are_masked() -> None:
    output = PageSanitizer().line("s3://user:pa55word@host/t?token=abc")
    assert "pa55word" not in output
    assert "abc" not in output
    assert "pa55word" not in PageSanitizer().verbatim("uri: s3://user:pa55word@host/t")


def test_a_secret_that_a_cut_would_split_does_not_show_in_part() -> None:
    secret = "s3cr3t-" + "x" * 40
    assert "s3cr3t" not in PageSanitizer(
        Redactor([KnownValue(secret, "***", is_secret=True)])
    ).line(" " * 1980 + secret)


def test_a_line_of_source_keeps_its_spaces_and_is_escaped() -> None:
    assert PageSanitizer().verbatim("    a:  <b>   # c  \n") == "    a:  &lt;b&gt;   # c"


def test_patterns_of_secrets_see_the_beginning_of_a_long_text_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The patterns take too long for a megabyte."""
    lengths = []

    def counted(line: str) -> str:
        lengths.append(len(line))
        return redact_line(line)

    monkeypatch.setattr(page_text, "redact_line", counted)
    assert len(PageSanitizer().line("a.rs " * 200_000)) <= 600
    assert len(PageSanitizer().verbatim("a" * 1_000_000)) <= 600
    assert len(PageSanitizer().line("x" * 1_000_000)) <= 600
    assert len(lengths) == 3
    assert max(lengths) <= 2_000


def test_shortened_text_ends_in_an_ellipsis() -> None:
    assert shorten("abcdef", 6) == "abcdef"
    assert shorten("abcdefg", 6) == "abcde\u2026"


@pytest.mark.parametrize("name", ["orders", "line_item", "orders-2024", "a", "0"])
def test_a_plain_name_is_its_own_address(name: str) -> None:
    assert slug(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "Orders",
        "..",
        "../../etc/passwd",
        "a/b",
        "a\\b",
        "CON",
        "con",
        "com1",
        "nul",
        "-",
        "",
        " ",
        "straße",
        "表",
        "a" * 5000,
        "a.b",
        "a\0b",
        "\ud800",
        "<script>",
        "orders-",
        "x:y",
    ],
)
def test_any_other_name_gets_a_file_name_that_every_system_takes(name: str) -> None:
    made = slug(name)
    assert re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,79}", made)
    assert made != name
    assert made.partition(".")[0] not in {"con", "nul", "com1"}


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.text(max_size=80), unique=True, min_size=2, max_size=20))
def test_different_names_have_different_addresses_ignoring_case(names: list[str]) -> None:
    assert len({slug(name).lower() for name in names}) == len(names)


def test_a_name_like_the_address_of_another_has_its_own_address() -> None:
    taken = slug("Orders")
    assert slug(taken) != taken


def test_tables_and_joins_have_their_own_folders() -> None:
    paths = addresses([table_report("orders"), join_report("similar")])
    assert paths == {"orders": "tables/orders.html", "similar": "joins/similar.html"}


def test_lines_are_those_of_the_item_alone(root: Path) -> None:
    sources = Sources(root)
    assert sources.of(Location("specs/shop.yml", 2, 11)) == [
        "- name: orders",
        "  uri: \"{{ var('warehouse') }}/orders.lance\"",
        "  # Kept for ten years.",
        "  policy: tolerant",
    ]
    join = sources.of(Location("specs/shop.yml", 8, 11))
    assert join is not None
    assert join[-1] == "  k: 10"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            "tables: [{name: a, uri: x}, {name: b, uri: y}]",
            ["tables: [{name: a, uri: x}, {name: b, uri: y}]"],
        ),
        ("tables:\n- uri: x\n  name: a\n\n\n- name: b\n  uri: y\n", ["- uri: x", "  name: a"]),
        ("tables:\n  - {name: a,\n     uri: x\n    }\n", ["- {name: a,", "   uri: x", "  }"]),
        (
            "tables:\n  - name: a\n    uri: x\n    description: |\n      One.\n\n      Two.\n",
            ["- name: a", "  uri: x", "  description: |", "    One.", "", "    Two."],
        ),
    ],
)
def test_items_are_found_in_every_spelling(text: str, lines: list[str], tmp_path: Path) -> None:
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "t.yml").write_text(text, encoding="utf-8")
    (tmp_path / "lancestat_project.yml").write_text(
        "name: p\ndefault_target: d\ntargets: {d: {state: s}}\n", encoding="utf-8"
    )
    node = load_project(tmp_path).nodes[0]
    assert Sources(tmp_path).of(node.location) == lines


@pytest.mark.parametrize(
    "content", [None, b"\xff\xfe", b"tables: [", b"", b"- a", b"tables: {a: b}"]
)
def test_a_file_that_changed_since_it_was_loaded_has_no_lines(
    content: bytes | None, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "t.yml").write_bytes(content)
    assert Sources(tmp_path).of(Location("t.yml", 1, 1)) is None


def test_keys_distances_and_filters_are_shown() -> None:
    spec = join(on=(("tenant", "tenant"), ("shop_id", "store_id")), max_distance=0.3)
    left = replace(spec.left, where="lang = 'en'")
    report = join_report(spec=replace(spec, left=left))
    facts = dict(join_facts(report))
    assert facts["Meaning"] == "10 nearest within 0.3 by cosine, inner join"
    once = join_report(spec=replace(spec, exclude_self=True, pairs="unordered"))
    assert dict(join_facts(once))["Meaning"] == (
        "10 nearest within 0.3 by cosine, inner join, without the row itself, each pair once"
    )
    assert facts["Keys"] == "tenant, shop_id = store_id"
    sides = [dict(facts) for *_, facts in side_facts(report)]
    assert sides[0]["Where"] == "lang = 'en'"
    assert "Where" not in sides[1]


def test_a_join_of_all_rows_shows_none_of_them() -> None:
    facts = dict(join_facts(join_report()))
    assert facts["Meaning"] == "10 nearest by cosine, inner join"
    assert "Keys" not in facts


def test_groups_of_the_last_run_are_shown() -> None:
    report = join_report()
    assert report.record is not None
    record = replace(report.record, groups=JoinGroups(12, 25_000, 300, 1000))
    facts = dict(join_facts(replace(report, record=record)))
    assert facts["Groups"] == "12 of equal keys, with 25,000 pairs"


def test_keys_are_one_property_of_a_diff() -> None:
    spec = join(on=(("tenant", "tenant"), ("shop_id", "store_id")))
    entry = node_properties(spec, {}, Mask())["on"]
    assert entry.text == "tenant, shop_id = store_id"
    assert entry.value == [["tenant", "tenant"], ["shop_id", "store_id"]]
    assert "on" not in node_properties(join(), {}, Mask())
