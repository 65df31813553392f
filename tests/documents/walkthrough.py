"""Runs the commands that a page shows, as its reader would, and compares what they print.

A page is a sequence of blocks. A block with a title (`yaml title="specs/a.yml"`) is a file, and is
written to that path. A `console` block has commands after `$`, which go on for lines that are
indented while a quotation is open, and below each what it prints. Other blocks are only read.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.documents.clean import ROOT

FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
ELLIPSIS = "..."
# In place of the folder where the test runs.
HOME = "/home/you"
_COMMENT = re.compile(r"  +# .*$")
# What a run says of its progress where there is no terminal; on one, it draws a bar.
_PROGRESS = re.compile(r"^[\d-]{10} [\d:]{8} UTC INFO .*\n", re.MULTILINE)
_ERROR = re.compile(r"LS\d{3}\b")
_ENDED = "\x1e"


@dataclass
class Command:
    """A command of a page, and the lines that the page shows as its output."""

    text: str
    shown: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class WrittenFile:
    """A file that the reader is to write."""

    path: str
    text: str


Step = Command | WrittenFile


@dataclass(frozen=True)
class Printed:
    """What a command printed, both streams in one, and its exit code."""

    output: str
    code: int


def steps(page: Path) -> Iterator[Step]:
    """Yield the files and commands of a page in their order."""
    for fence in FENCE.finditer(page.read_text("utf-8")):
        text = _dedented(fence["text"], len(fence["indent"]))
        if fence["title"]:
            yield WrittenFile(fence["title"], text)
        elif fence["language"] == "console":
            yield from commands(text)


def commands(block: str) -> Iterator[Command]:
    """Yield the commands of a console block."""
    command: Command | None = None
    for line in block.splitlines():
        if line.startswith("$ "):
            if command:
                yield command
            command = Command(_COMMENT.sub("", line.removeprefix("$ ")))
        elif command and not command.shown and line.startswith("    ") and _is_open(command.text):
            command.text += f"\n{line}"
        elif command:
            command.shown.append(line)
    if command:
        yield command


def _is_open(text: str) -> bool:
    """Whether a quotation or a line that ends in a backslash goes on."""
    return text.count('"') % 2 == 1 or text.count("'") % 2 == 1 or text.endswith("\\")


def _dedented(text: str, indent: int) -> str:
    return "".join(line.removeprefix(" " * indent) for line in text.splitlines(keepends=True))


def run(
    steps: list[Step], folder: Path, environment: Mapping[str, str], timeout_seconds: int = 900
) -> list[tuple[Command, Printed]]:
    """Do the steps in one shell, which keeps its folder and variables between commands.

    Returns:
        Each command with what it printed; those after one that failed are run too.
    """
    lines = ["exec 2>&1"]
    for number, step in enumerate(steps):
        if isinstance(step, WrittenFile):
            source = folder.parent / f"{folder.name}-{number}"
            source.write_text(step.text, "utf-8")
            lines.append(f'mkdir -p "$(dirname "{step.path}")" && cp "{source}" "{step.path}"')
        else:
            lines += [step.text, f"printf '%s%s%s' '{_ENDED}' $? '{_ENDED}'"]
    ended = subprocess.run(
        ["bash", "-c", "\n".join(lines)],
        cwd=folder,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        timeout=timeout_seconds,
    )
    parts = [_PROGRESS.sub("", part) for part in ended.stdout.split(_ENDED)]
    printed = [
        Printed(text, int(code)) for text, code in zip(parts[::2], parts[1::2], strict=False)
    ]
    return list(zip((s for s in steps if isinstance(s, Command)), printed, strict=True))


_VARYING = (
    # Durations, ages, dates, and digests of commits.
    (re.compile(r"\b\d[\d,.]* ?(?:µs|ms|s|min|h|days?)\b(?: \d+ ?(?:s|min|h)\b)*"), "TIME"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?(?: UTC|Z)?"), "MOMENT"),
    (re.compile(r"\b[0-9a-f]{7,40}\b(?=\)| )"), "DIGEST"),
    # Files are compressed a little differently by each release of Lance.
    (re.compile(r"\b\d[\d,.]* (?:B|kB|MB)\b"), "SIZE"),
    (re.compile(r"(?<=\S)  +"), "  "),
)


def comparable(lines: list[str], folder: Path) -> list[str]:
    """Return lines without what differs from run to run, blank lines left out."""
    result = []
    for line in lines:
        text = line.replace(str(folder), HOME).rstrip()
        for pattern, name in _VARYING:
            text = pattern.sub(name, text)
        result.append(text)
    return [line for line in result if line]


def is_as_shown(shown: list[str], printed: list[str]) -> bool:
    """Whether lines are those that a page shows, where `...` stands for any lines."""
    if not shown:
        return not printed
    if shown[0].strip() == ELLIPSIS:
        return any(is_as_shown(shown[1:], printed[start:]) for start in range(len(printed) + 1))
    return bool(printed) and shown[0] == printed[0] and is_as_shown(shown[1:], printed[1:])


def check(page: Path, results: list[tuple[Command, Printed]], folder: Path) -> None:
    """Fail where a command failed, or printed something else than the page shows below it."""
    for command, printed in results:
        where = f"{page.relative_to(ROOT)}\n$ {command.text}\n{printed.output}"
        is_error = any(_ERROR.match(line) for line in command.shown)
        assert (printed.code != 0) == is_error, f"exit code {printed.code}: {where}"
        if command.shown:
            shown = comparable(command.shown, folder)
            lines = comparable(printed.output.splitlines(), folder)
            assert is_as_shown(shown, lines), f"not as shown: {where}"


def rewrite(page: Path, results: list[tuple[Command, Printed]], folder: Path) -> None:
    """Put what commands printed below them, but where the page leaves lines out."""
    text = page.read_text("utf-8")
    position = 0
    for command, printed in results:
        position = text.index("\n", text.index(f"$ {command.text}", position)) + 1
        if not command.shown or any(line.strip() == ELLIPSIS for line in command.shown):
            continue
        old = "".join(f"{line}\n" for line in command.shown)
        assert text.startswith(old, position), command.text
        new = printed.output.replace(str(folder), HOME).strip("\n") + "\n"
        text = text[:position] + new + text[position + len(old) :]
        position += len(new)
    page.write_text(text, "utf-8")
