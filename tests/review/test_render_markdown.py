from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from lancestat.errors import Location
from lancestat.presentation.markdown import MAX_CHARACTERS, cell, prose, span
from lancestat.review.comment import has_no_changes
from lancestat.review.values import (
    Change,
    ColumnsChange,
    Diff,
    NodeDiff,
    Property,
    PropertyChange,
    Risk,
    RiskNote,
)
from lancestat.spec.model import NodeKind
from tests.presentation.rendering import as_markdown

EVIL = (
    "a|b`c``d <script>alert(1)</script> @team #12 [x](http://evil) ![i](u) ~~s~~ $x$ www.e.vil "
    "&#64;q"
)


def change(name: str, old: str, new: str) -> PropertyChange:
    return PropertyChange(name, Property(old, old, old), Property(new, new, new))


def node(name: str = "orders", text: str = "x") -> NodeDiff:
    return NodeDiff(
        name=name,
        kind=NodeKind.TABLE,
        change=Change.CHANGED,
        location=Location(f"specs/{text}.yml", 3, 5),
        owners=(text,),
        properties=(change("description", text, f"{text}\nand more"), change("owner", text, "y")),
        columns=ColumnsChange((text,), (text,), True),
        risks=(RiskNote(Risk.COVERAGE_LOST, f"1 column loses statistics: {text}"),),
        notes=(f"the dataset cannot be opened: {text}",),
    )


def diff(*nodes: NodeDiff) -> Diff:
    return Diff("shop", "dev", "main", ".", nodes, 0)


def outside_code(markdown: str) -> str:
    """Return Markdown without code blocks, code spans and escaped characters."""
    text = re.sub(r"^ *(`{3,})diff\n.*?^ *\1$", "", markdown, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<code>[^<]*</code>", "", text)
    text = re.sub(r"(?<![`\\])(`+)(?!`).*?(?<!`)\1(?!`)", "", text)
    return re.sub(r"\\[!-/:-@\[-`{-~]", "", text)


def test_nothing_of_a_specification_becomes_markup() -> None:
    page = as_markdown(diff(node(EVIL, EVIL)))
    left = outside_code(page)
    assert re.findall(r"</?[a-z]+", left) == ["<details", "<summary", "</summary", "</details"]
    assert not re.search(r"@\w|#\w|://|www\.", left)
    assert not re.search(r"[`\[\]~$&]", left.replace("| ~ |", "").replace("<summary>~", ""))
    rows = [line for line in page.splitlines() if line.startswith("| ~")]
    assert [len(re.findall(r"(?<!\\)\|", row)) for row in rows] == [6]


def structure(page: str) -> list[str]:
    """Return the rendered elements of a page, and raw HTML, without any text."""
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    elements: list[str] = []
    for token in parser.parse(page):
        if token.type == "html_block":
            elements += re.findall(r"</?\w+[^>]*>", token.content)
        elements.append(token.type)
        inside = [child.type for child in token.children or ()]
        elements += [type for type in inside if type not in ("text", "text_special")]
    return elements


TEXTS = st.text(st.sampled_from("`|\\<>&#@!*_~[]()-+.:/\"'$ \tab0é\u202e"), min_size=1, max_size=30)


@given(TEXTS.filter(lambda text: text.strip()))
def test_texts_do_not_change_the_elements_of_a_page(text: str) -> None:
    assert structure(as_markdown(diff(node(text, text)))) == structure(
        as_markdown(diff(node("x", "x")))
    )


@given(st.text(st.sampled_from("`| a\\@<\n"), min_size=1))
def test_a_span_is_one_span(text: str) -> None:
    code = span(text)
    ticks = re.match("`+", code)
    assert ticks is not None
    inside = code[len(ticks.group()) : -len(ticks.group())]
    assert code.endswith(ticks.group())
    assert ticks.group() not in re.findall("`+", inside)
    assert "\n" not in code
    assert not re.search(r"(?<!\\)\|", cell(text))


@given(st.text())
def test_prose_mentions_no_user(text: str) -> None:
    escaped = prose(text)
    assert not re.search(r"@[^\u200b]|(?<!\\)[`<\[\]*_|]", f"{escaped} ")
    assert "\n" not in escaped


def test_a_code_block_cannot_be_closed_by_its_text() -> None:
    text = "select 1\n```\n@team <b>\n````"
    page = as_markdown(diff(replace(node(), properties=(change("right.sql", "select 1", text),))))
    fences = re.findall(r"^ *(`{3,})(?:diff)?$", page, flags=re.MULTILINE)
    assert fences[0] == fences[-1] == "`````"


@pytest.mark.parametrize(
    ("count", "length"), [(1, 3), (1, 200_000), (40, 3), (40, 900), (40, 20_000), (2000, 3)]
)
def test_a_page_has_a_maximum_length_and_counts_omitted_nodes(count: int, length: int) -> None:
    nodes = [node(f"n{number}", "x" * length) for number in range(count)]
    page = as_markdown(diff(*nodes))
    assert len(page) <= MAX_CHARACTERS
    listed = page.count("\n| ~ |")
    left = re.search(r"^\*([\d,]+) nodes? (?:is|are) left out for length", page, re.MULTILINE)
    assert listed + (int(left.group(1).replace(",", "")) if left else 0) == count
    folded = page.count("<details>")
    left = re.search(r"^\*([\d,]+) details? (?:is|are) left out for length", page, re.MULTILINE)
    assert folded + (int(left.group(1).replace(",", "")) if left else 0) == count
    assert page.count("<details>") == page.count("</details>")


def test_an_empty_diff_is_recognized() -> None:
    assert has_no_changes(as_markdown(diff()))
    assert not has_no_changes(as_markdown(diff(node())))
