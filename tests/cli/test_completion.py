from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lancestat.cli.completion import ZshCompletion
from lancestat.cli.main import cli
from tests.cli.conftest import Lancestat

pytestmark = pytest.mark.whole

ROOT = Path(__file__).parent.parent.parent
PROJECT = "name: shop\ntargets: {dev: {}, prod: {state: \"{{ env_var('X') }}\"}, 'p;q': {}}\n"
SHOP = """\
tables:
  - {name: orders, uri: o, tags: [nightly], description: "One per\\norder.\\e[31m"}
  - {name: order_lines, uri: l, tags: [nightly, big]}
  - {name: "{{ var('x') }}", uri: x}
  - {name: "rm;touch x", uri: x}
  - {name: "--project-dir=/elsewhere", uri: x}
"""
NEAR = "knn_joins: [{name: near, left: {}, right: {}}]\n"
ORDERS = ["orders", "order_lines"]
NODES = [*ORDERS, "near"]
SELECTORS = [
    *NODES,
    *(
        "tag:nightly",
        "tag:big",
        "kind:table",
        "kind:duplicates",
        "kind:knn_join",
        "state:new",
        "state:modified",
    ),
    *("path:specs/near.yaml", "path:specs/shop.yml"),
]
Complete = Callable[..., list[str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project whose values are wrong in more than one way; its names can be read."""
    (tmp_path / "specs").mkdir()
    (tmp_path / "lancestat_project.yml").write_text(PROJECT)
    (tmp_path / "specs" / "shop.yml").write_text(SHOP)
    (tmp_path / "specs" / "near.yaml").write_text(NEAR)
    return tmp_path


@pytest.fixture
def complete(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Complete:
    """Return the completions of the last of some words."""
    monkeypatch.chdir(folder)

    def offered(*words: str) -> list[str]:
        shell = ZshCompletion(cli, {}, "lancestat", "_LANCESTAT_COMPLETE")
        return [item.value for item in shell.get_completions([*words[:-1]], words[-1])]

    return offered


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["sh"], ["show"]),
        (["show", "ord"], ORDERS),
        (["show", "ne"], []),
        (["plan", "--select", "ord"], ORDERS),
        (["plan", "--select=order_"], ["--select=order_lines"]),
        (["run", "-s", "near"], ["near"]),
        (["list", "--exclude", "kind:"], ["kind:table", "kind:duplicates", "kind:knn_join"]),
        (["list", "-s", "state:m"], ["state:modified"]),
        (["list", "-s", "path:specs/s"], ["path:specs/shop.yml"]),
        (["list", "-s", "+ne"], ["+near"]),
        (["list", "-s", "tag:nightly,kind:t"], ["tag:nightly,kind:table"]),
        (["list", "-s", "orders ne"], ["orders near"]),
        (["list", "-s", "near tag:b,+order_"], ["near tag:b,+order_lines"]),
        (["list", "-s", "nothing"], []),
        (["plan", "--target", ""], ["dev", "prod"]),
        (["--target", "p"], ["prod"]),
        (["plan", "-t", "d"], ["dev"]),
        (["plan", "--target=p"], ["--target=prod"]),
        (["schema", "tab"], ["table"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["plan", "--che"], ["--check"]),
        (["plam", "--target", "p"], ["prod"]),
        (["--vars", "{", "plan", "-s", "near"], ["near"]),
    ],
)
def test_completion_offers_the_expected_words(
    words: list[str], expected: list[str], complete: Complete
) -> None:
    assert sorted(complete(*words)) == sorted(expected)


def test_all_selectors_are_offered_for_an_empty_word(complete: Complete) -> None:
    assert sorted(complete("plan", "--select", "")) == sorted(SELECTORS)


@pytest.mark.parametrize(
    "words", [["--project-dir", "{}", "show", "o"], ["show", "--project-dir", "{}", "o"]]
)
def test_completion_reads_the_project_of_the_option_project_dir(
    words: list[str],
    folder: Path,
    complete: Complete,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert complete(*(word.format(folder) for word in words)) == ORDERS
    monkeypatch.setenv("LANCESTAT_PROJECT_DIR", str(folder))
    assert complete("show", "o") == ORDERS


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("specs/shop.yml", b"tables: [\n"),
        ("specs/shop.yml", b"\xff\xfe\x00"),
        ("specs/shop.yml", b"tables: {a: 1}\nknn_joins: 3\n"),
        ("specs/shop.yml", b"tables: [3, null, {}, {name: [x]}, {name: 3}]\n"),
        ("specs/shop.yml", b""),
    ],
)
def test_an_unreadable_file_hides_no_other(
    file: str, content: bytes, folder: Path, complete: Complete
) -> None:
    (folder / file).write_bytes(content)
    assert complete("plan", "-s", "n") == ["near"]


@pytest.mark.parametrize("content", ["", "name: [", "spec_paths: 3\n", "- a\n", "targets: 3\n"])
def test_a_broken_project_file_is_not_an_error(
    content: str, folder: Path, complete: Complete
) -> None:
    (folder / "lancestat_project.yml").write_text(content)
    assert complete("plan", "--target", "") == []


@pytest.mark.parametrize("place", ["nowhere", "specs"])
def test_a_missing_project_is_not_an_error(place: str, complete: Complete) -> None:
    assert complete("--project-dir", place, "show", "") == []


def test_an_internal_error_prints_nothing_at_a_prompt(
    complete: Complete, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(root: Path) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("lancestat.spec.files.outline", broken)
    assert complete("show", "") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_receives_one_line_per_word_without_control_characters(
    shell: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    asked = {
        "_LANCESTAT_COMPLETE": f"{shell}_complete",
        "COMP_LINE": "lancestat show ord",
        "COMP_WORDS": "lancestat show ord",
        "COMP_CWORD": "ord" if shell == "fish" else "2",
    }
    environment = {**os.environ, **asked}
    command = [sys.executable, "-m", "lancestat"]
    completed = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False
    )
    expected = {
        "bash": "plain,orders\nplain,order_lines\n",
        "zsh": "plain\norders\nOne per order.[31m\nplain\norder_lines\ntable\n",
        "fish": "plain,orders\tOne per order.[31m\nplain,order_lines\ttable\n",
    }
    assert (completed.stdout, completed.stderr) == (expected[shell], "")


def test_words_with_commas_are_not_split_in_fish(lancestat: Lancestat) -> None:
    assert 'string split -m 1 "," $completion' in lancestat("completion", "fish").stdout


def test_an_unknown_shell_is_wrong_usage(lancestat: Lancestat) -> None:
    result = lancestat("completion", "tcsh")
    assert result.exit_code == 2
    assert "bash" in result.stderr


class Terminal:
    """Bash in a pseudo-terminal: types a line, presses Tab and reads the line."""

    def __init__(self, folder: Path, setup: str) -> None:
        (folder / "bin").mkdir()
        command = folder / "bin" / "lancestat"
        command.write_text(
            f'#!/bin/bash\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m lancestat "$@"\n'
        )
        command.chmod(0o755)
        path = f"{folder / 'bin'}:{os.environ['PATH']}"
        self.terminal, theirs = pty.openpty()
        self.process = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-i"],
            cwd=folder,
            env={"PATH": path, "TERM": "dumb", "HOME": str(folder), "LC_ALL": "C.UTF-8"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        # The prompt as it is typed differs from the prompt as it is shown.
        self.type(f"{setup}; bind 'set enable-bracketed-paste off'; PS1='rea''dy> '\r")
        self.wait("ready> ")

    def tab(self, line: str) -> str:
        """Return the line after Tab at its end."""
        # At the start of the line: the rest is a text that is printed.
        self.type(f"{line}\t\x01printf '<%q>' \r")
        output = self.wait(">ready> ")
        words = output[output.rindex("<lancestat>") :].removesuffix(">ready> ").split("><")
        return " ".join(word.strip("<>").replace("\\", "") for word in words)

    def type(self, keys: str) -> None:
        os.write(self.terminal, keys.encode())

    def wait(self, end: str) -> str:
        output = ""
        until = time.monotonic() + 60
        while not output.endswith(end):
            ready, _, _ = select.select([self.terminal], [], [], until - time.monotonic())
            assert ready, f"bash shows {output!r}"
            output += os.read(self.terminal, 4096).decode(errors="replace")
        return output

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.terminal)


BROKEN_WORDS = {
    "lancestat plan -s tag:ni": "lancestat plan -s tag:nightly",
    "lancestat plan -s path:specs/s": "lancestat plan -s path:specs/shop.yml",
    "lancestat plan -s tag:big,ki": "lancestat plan -s tag:big,kind:",
    "lancestat plan --target=pr": "lancestat plan --target=prod",
}
WHOLE_WORDS = {
    "lancestat show orde": "lancestat show order",
    "lancestat show order_": "lancestat show order_lines",
    'lancestat plan -s "near order_': "lancestat plan -s near order_lines",
    "lancestat --project-dir spe": "lancestat --project-dir specs/",
}


@pytest.mark.parametrize(
    ("settings", "lines"),
    [
        ("", {**WHOLE_WORDS, **BROKEN_WORDS}),
        ("COMP_WORDBREAKS=${COMP_WORDBREAKS//[:=]/}; ", BROKEN_WORDS),
    ],
    ids=["default word breaks", "without : and ="],
)
def test_completion_works_in_bash(settings: str, lines: dict[str, str], folder: Path) -> None:
    terminal = Terminal(folder, f"{settings}source <(lancestat completion bash)")
    try:
        assert {line: terminal.tab(line) for line in lines} == lines
    finally:
        terminal.close()
