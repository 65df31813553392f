"""The page that the demo prints: steps, commands, their output and comments."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

import click

WIDEST = 96
# Where no terminal sets a width: room for each line of a plan.
PIPED = "112"


class Page:
    """Prints to stdout: in colour on a terminal, as plain text elsewhere."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._steps = 0
        self._width = min(shutil.get_terminal_size((WIDEST, 24)).columns, WIDEST)

    def title(self, title: str) -> None:
        """The head of the page."""
        _print("", click.style(title, bold=True), "")

    def step(self, title: str) -> None:
        """A numbered heading."""
        self._steps += 1
        self.heading(f"{self._steps}. {title}")

    def heading(self, title: str) -> None:
        """A heading across the page."""
        line = _dash() * max(2, self._width - len(title) - 4)
        title = click.style(title, bold=True)
        _print("", f"{_blue(_dash() * 2)} {title} {_blue(line)}", "")

    def paragraph(self, text: str) -> None:
        """Print a paragraph, wrapped to the width of the page."""
        words = " ".join(text.split())
        _print(*textwrap.wrap(words, self._width, break_on_hyphens=False), "")

    def grid(
        self, rows: Sequence[Sequence[str]], head: Sequence[str] = (), right: Sequence[int] = ()
    ) -> None:
        """Cells under each other, those of the columns in `right` flush right."""
        lines = [head, *rows] if head else rows
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        for number, line in enumerate(lines):
            cells = [
                f"{cell:>{width}}" if index in right else f"{cell:<{width}}"
                for index, (cell, width) in enumerate(zip(line, widths, strict=True))
            ]
            text = "  " + "  ".join(cells).rstrip()
            _print(click.style(text, dim=True) if head and number == 0 else text)
        _print("")

    def command(self, *arguments: str) -> float:
        """Run lancestat like a user and print its output; return the elapsed seconds."""
        return self._run("lancestat", lancestat(), *arguments)

    def script(self, *arguments: str) -> None:
        """Run a script of the example in the same way."""
        self._run("python", sys.executable, *arguments)

    def _run(self, name: str, program: str, *arguments: str) -> float:
        words = [name, *(f'"{word}"' if " " in word else word for word in arguments)]
        _print(f"{_blue('$')} {click.style(' '.join(words), bold=True)}")
        started = time.monotonic()
        completed = subprocess.run([program, *arguments], cwd=self._folder, env=_environment())
        elapsed_seconds = time.monotonic() - started
        if completed.returncode:
            sys.exit(f"the demo ends here: {name} gave exit code {completed.returncode}")
        _print("")
        return elapsed_seconds


def lancestat() -> str:
    """The lancestat of this environment, else of the PATH."""
    beside = Path(sys.executable).parent
    path = shutil.which("lancestat", path=beside) or shutil.which("lancestat")
    if path is None:
        sys.exit("lancestat is not installed: make install")
    return path


def setup_commands(folder: Path) -> list[str]:
    """Return the commands that put `lancestat` on the path and select the project of a folder."""
    lines = [] if Path.cwd() == folder else [f"cd {typed(folder, Path.cwd())}"]
    activate = Path(lancestat()).with_name("activate")
    if shutil.which("lancestat") != lancestat() and activate.exists():
        lines.append(f"source {typed(activate, folder)}")
    return lines


def typed(path: str | Path, folder: Path) -> str:
    """A path as one would type it in a folder."""
    return os.path.relpath(path, folder)


def _environment() -> dict[str, str]:
    # The demo uses its own project, regardless of the user's settings.
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith("LANCESTAT_")
    }
    piped = {"COLUMNS": PIPED, "LANCESTAT_QUIET": "1"}
    return environment if sys.stdout.isatty() else {**piped, **environment}


def _print(*lines: str) -> None:
    for line in lines:
        # Flushed, since the next line may come from another process.
        click.echo(line, color=False if os.environ.get("NO_COLOR") else None)
    sys.stdout.flush()


def _blue(text: str) -> str:
    return click.style(text, fg="cyan")


def _dash() -> str:
    return "─" if (sys.stdout.encoding or "").lower().startswith("utf") else "-"
