from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.formats import (
    count,
    duration,
    escape_commands,
    escape_json_commands,
    large,
    message_lines,
    size,
    visible,
)
from lancestat.report.values import Health
from lancestat.runs.actions import Reason
from lancestat.runs.result import Status
from lancestat.spec.declaration import Risk
from lancestat.spec.model import StaleBounds
from lancestat.spec.table import staleness_words
from lancestat.tables.wire import GuardReason

WORDS: dict[Callable[..., str], dict[Any, str]] = {
    count: {
        (0, "row"): "0 rows",
        (1, "row"): "1 row",
        (4_250_000, "row"): "4,250,000 rows",
        (12,): "12",
        (2, "entry", "entries"): "2 entries",
    },
    size: {
        (0,): "0 B",
        (999,): "999 B",
        (1000,): "1.0 kB",
        (9_949,): "9.9 kB",
        (9_950,): "10 kB",
        (999_499,): "999 kB",
        (999_500,): "1.0 MB",
        (212_345_678,): "212 MB",
        (5_000_000_000_000_000_000,): "5,000 PB",
    },
    duration: {
        (0,): "0 ms",
        (0.0994,): "99 ms",
        (0.0995,): "0.1 s",
        (1.24,): "1.2 s",
        (9.96,): "10 s",
        (59.6,): "1 min",
        (125,): "2 min 5 s",
        (3600,): "1 h",
        (3601,): "1 h",
        (11_040,): "3 h 4 min",
        (90_000,): "1 d 1 h",
        (90_061,): "1 d 1 h",
    },
    large: {
        (0,): "0",
        (950,): "950",
        (999.6,): "1.0 thousand",
        (12_345,): "12 thousand",
        (2_000_000,): "2.0 million",
        (1.24e9,): "1.2 billion",
        (999.5e9,): "1.0 trillion",
        (5e15,): "5,000 trillion",
    },
    staleness_words: {
        (False,): "never stale",
        (True,): "any staleness",
        (StaleBounds(max_versions=1),): "up to 1 version",
        (StaleBounds(20, timedelta(hours=24), 0.05),): (
            "up to 20 versions, up to 1 d, up to 5 % of the rows"
        ),
    },
}


@pytest.mark.parametrize("function", WORDS)
def test_numbers_are_rounded_and_named(function: Callable[..., str]) -> None:
    texts = {arguments: function(*arguments) for arguments in WORDS[function]}
    assert texts == WORDS[function]


@given(st.integers(1000, 10**18 - 10**15))
def test_a_size_is_never_off_by_more_than_its_rounding(size_bytes: int) -> None:
    digits, unit = size(size_bytes).split()
    factor = 1000 ** ["B", "kB", "MB", "GB", "TB", "PB"].index(unit)
    assert abs(float(digits) * factor - size_bytes) <= 0.051 * size_bytes


BREAKS = ["\n", "\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
HIDDEN = ["\x1b[2J", "\x9b1m", "\u202e", "\u2066", "\u200b", "\x00", "\x07", "\ud800", "\ufdd1"]


@pytest.mark.parametrize("char", BREAKS + HIDDEN)
def test_invisible_characters_are_escaped(char: str) -> None:
    escaped = visible(f"a{char}b")
    assert escaped.isprintable()
    assert escaped.splitlines() == [escaped]
    assert "\\" in escaped


@given(st.text())
def test_a_message_has_only_the_lines_that_lancestat_makes(text: str) -> None:
    lines = message_lines(f"LS1  found {text}\n      hint: {text}")
    assert all(line.startswith(("LS1", "      ")) for line in lines)
    assert all(line.splitlines() == [line] for line in lines)


@pytest.mark.parametrize(
    "line",
    [
        "::set-output name=a::b",
        "   ::add-mask::x",
        "\ufdd1::set-env name=a::b",
        "a ##[add-matcher]/x",
        "##vso[task.setvariable variable=a]b",
        "x ##VSO[task]",
        "##teamcity[message]",
    ],
)
def test_no_text_forms_a_command_of_a_log(line: str) -> None:
    escaped = escape_commands(line)
    assert not escaped.lstrip(" \ufdd1").startswith("::")
    assert not {"##[", "##vso[", "##VSO[", "##teamcity["} & {
        escaped[at : at + n] for at in range(len(escaped)) for n in (3, 6, 11)
    }


@given(st.dictionaries(st.text(), st.text()), st.text(alphabet="#[v]o:\x9b\u202e\x85a"))
def test_escaped_json_has_the_same_value_and_forms_no_command(
    value: dict[str, str], more: str
) -> None:
    text = json.dumps({**value, "more": more}, indent=2, ensure_ascii=False)
    escaped = escape_json_commands(text)
    assert json.loads(escaped) == {**value, "more": more}
    assert "##[" not in escaped
    assert all(char.isprintable() or char == "\n" for char in escaped)


def test_words_of_contracts_print_as_they_are() -> None:
    for kind in (Status, Health, Risk, Reason, GuardReason):
        for member in kind:
            assert (str(member), f"{member}", f"{member:>20}".strip()) == (member.value,) * 3
