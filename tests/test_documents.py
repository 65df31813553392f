"""The documents name existing files, links, packages, commands, options, keys and words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
import yaml

from lancestat.cli.command import Command, ExitCode
from lancestat.cli.main import COMMANDS, load_command
from lancestat.query.estimates import PruningReason, PushDownReason
from lancestat.query.table import ALLOW_STALE, ENABLED, OWN_SPARK_PREFIX, PUSHDOWN, SPARK_PREFIX
from lancestat.review.values import Risk
from lancestat.runs.actions import Reason
from lancestat.tables import wire
from lancestat.tables.wire import GuardReason

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("examples/**/*.md"),
        *ROOT.glob("benchmarks/*.md"),
    )
)
# Pages about the repository's own files; others are also about users' files.
OF_THE_CODE = [page for page in PAGES if page[0].isupper() or page.startswith("docs/")]

# Declarations with a mistake, which the page goes on to correct; tests/documents runs them.
MISTAKES = {"docs/tutorials/first-project.md": "colums:"}

_FENCE = re.compile(r"^ *```(\w*)(?: title=[^\n]*)?\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_ADDED = re.compile(r"^--- /dev/null\n\+\+\+ b/(\S+)", re.MULTILINE)
_SPAN = re.compile(r"`([^`\n]+)`")
_OWN_FOLDERS = ("lancestat", "tests", "docs", "examples", "schemas", "benchmarks", "ci", ".ci")
_PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)*/?")


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, *languages: str) -> Iterator[str]:
    for language, block in _FENCE.findall(text_of(page)):
        if language in languages:
            yield block


def prose(page: str) -> str:
    return _FENCE.sub("", text_of(page))


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def is_path(span: str) -> bool:
    if not _PATH.fullmatch(span) or "/" not in span:
        return False
    return span.endswith((".py", ".java")) or span.split("/")[0] in _OWN_FOLDERS


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings(page: str) -> None:
    for target in _LINK.findall(prose(page)):
        if target.startswith(("https://", "http://")):
            continue
        file, _, anchor = target.partition("#")
        path = (ROOT / page).parent / file if file else ROOT / page
        assert (path).exists(), f"{page} links to {target}"
        assert not anchor or anchor in anchors(path), f"{page} links to {target}"


@pytest.mark.parametrize("page", OF_THE_CODE)
def test_paths_that_are_named_exist(page: str) -> None:
    named = [span for span in _SPAN.findall(prose(page)) if is_path(span)]
    patch = (ROOT / page).with_suffix(".patch")
    added = _ADDED.findall(patch.read_text("utf-8")) if patch.exists() else []
    missing = [
        span
        for span in named
        if not any((top / span).exists() for top in (ROOT, ROOT / "lancestat"))
        and span not in added
    ]
    assert not missing, f"{page} names {missing}"


def test_the_packages_are_the_layers_of_the_import_contract() -> None:
    layers = text_of("pyproject.toml").split("layers = [")[1].split("]")[0]
    section = text_of("ARCHITECTURE.md").split("## Packages")[1].split("\n## ")[0]
    packages = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert [f"lancestat.{package}" for package in packages] == re.findall(r'"([\w.]+)"', layers)


def test_the_command_line_page_lists_every_command_in_the_order_of_the_help() -> None:
    page = text_of("docs/reference/cli.md")
    section = page.split("## Commands")[1].split("\n## ")[0]
    assert re.findall(r"^\| `([a-z]+)", section, re.MULTILINE) == list(COMMANDS)
    section = page.split("## Exit codes")[1].split("\n## ")[0]
    for code in ExitCode:
        assert str(code.value) in section


@pytest.mark.parametrize("page", PAGES)
def test_commands_that_are_shown_have_these_options(page: str) -> None:
    for block in blocks(page, "console"):
        for line in re.findall(r"^\$ lancestat (.*)$", block, re.MULTILINE):
            words = line.split("  #")[0].split()
            command = load_command(words[0])
            assert isinstance(command, Command)
            known = {option for param in command.params for option in param.opts}
            assert {word.split("=")[0] for word in words if word.startswith("--")} <= known, line


# Code and headings, in which words are not explained.
_CODE = re.compile(_FENCE.pattern + r"|^#[^\n]*$|`[^`\n]*`|<!--.*?-->", re.MULTILINE | re.DOTALL)
_OWN_WORDS = {
    "node": r"nodes?",
    "partial": r"partials?(?! clone)",
    "guard": "guard",
    "state": "state",
}
READ_FIRST = [
    page
    for page in PAGES
    if page == "README.md" or page.startswith(("docs/tutorials", "docs/how-to", "docs/explanation"))
]


@pytest.mark.parametrize("page", READ_FIRST)
def test_the_first_use_of_our_own_words_leads_to_the_glossary(page: str) -> None:
    text = _CODE.sub("", text_of(page))
    for word, pattern in _OWN_WORDS.items():
        if first := re.search(rf"(?<![-\w.#/]){pattern}(?![-\w])", text):
            link = rf"\]\([./docs]*glossary\.md#{word}\)"
            around = text[first.start() - 30 : first.end() + 30]
            assert re.match(link, text[first.end() :]), f"{page}: {around}"


FILES_TO_COPY = ("examples/ci/github.yml", "examples/ci/gitlab.yml", "action.yml")


@pytest.mark.parametrize("page", [*PAGES, *FILES_TO_COPY])
def test_nothing_says_that_pip_finds_lancestat_by_its_name(page: str) -> None:
    text = text_of(page)
    if re.search(r"pip install (-[-\w]+ )*lancestat\b(?!\[)", text):
        assert "not on PyPI yet" in text


@pytest.mark.parametrize("page", [*PAGES, *FILES_TO_COPY])
def test_a_placeholder_comes_with_what_to_put_there(page: str) -> None:
    lines = [line for line in text_of(page).splitlines() if "OWNER" in line]
    if lines and page != "CHANGELOG.md":
        assert any("in place of" in line or "is the repository" in line for line in lines)


@pytest.mark.parametrize("page", PAGES)
def test_targets_of_make_that_are_named_exist(page: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE))
    lines = "\n".join(blocks(page, "console"))
    named = {*re.findall(r"`make ([a-z-]+)", prose(page)), *re.findall(r"\$ make ([a-z-]+)", lines)}
    assert named <= targets


@pytest.mark.parametrize("page", PAGES)
def test_yaml_that_is_shown_is_valid(page: str) -> None:
    for block in blocks(page, "yaml"):
        if page in MISTAKES and MISTAKES[page] in block:
            continue
        document = yaml.safe_load(block)
        kind = "project" if "targets" in document else "specs"
        if "repos" not in document:
            schema = json.loads(text_of(f"schemas/lancestat_{kind}.schema.json"))
            jsonschema.validate(document, schema)


def test_statistics_explains_every_word_and_key() -> None:
    page = text_of("docs/explanation/statistics.md")
    words = [reason.value for reason in (*Reason, *GuardReason)]
    keys = [
        wire.VERSION,
        wire.COMPLETE,
        wire.COMPUTED_AT_VERSION,
        wire.COMPUTED_AT,
        wire.NUM_ROWS,
        wire.NEWEST_FRAGMENT,
        wire.SCHEMA_HASH,
    ]
    assert not [word for word in (*words, *keys) if f"`{word}`" not in page]


def test_spark_explains_every_word_of_an_explanation() -> None:
    page = text_of("docs/how-to/spark.md")
    words = [reason.value for reason in (*PruningReason, *PushDownReason)]
    assert not [word for word in words if f"| `{word}` |" not in page]
    for key in (SPARK_PREFIX + ENABLED, SPARK_PREFIX + ALLOW_STALE, OWN_SPARK_PREFIX + PUSHDOWN):
        assert f"| `{key}` |" in page


def test_every_risk_is_explained() -> None:
    page = text_of("docs/how-to/ci.md")
    assert not [risk.value for risk in Risk if f"| `{risk.value}` |" not in page]
