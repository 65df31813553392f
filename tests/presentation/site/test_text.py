from __future__ import annotations

import unicodedata

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lancestat.presentation.site import text as page_text
from lancestat.presentation.site.text import PageSanitizer, shorten
from lancestat.redact import KnownValue, Redactor, redact_line


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
