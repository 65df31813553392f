from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lancestat.cli.main import COMMANDS
from lancestat.errors import (
    InvalidProject,
    Location,
    StoreUnreachable,
    UnknownKey,
    UnknownReference,
)
from lancestat.spec.model import Target
from tests.cli.conftest import FakeProject, Lancestat, spec
from tests.conftest import Golden

SECRET = "wJalrXUtnFEMIK7MDENG"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("paln",), "No such command 'paln'. Did you mean 'plan'?"),
        (("xyzzy",), f"There are {', '.join(COMMANDS)}."),
        (("plan", "--full-refesh"), "--full-refresh"),
        (("--traget", "dev", "plan"), "--target"),
        (("plan", "--output", "xml"), "'xml' is not one of"),
        (("run", "--threads", "0"), "not in the range"),
        (("run", "--threads", "many"), "'many' is not a valid integer"),
        (("show",), "Missing argument 'TABLE'"),
        (("list", "--output", "markdown"), "'list' prints text or json, not markdown."),
        (("list", "--quiet", "--verbose"), "exclude each other"),
        (("--quiet", "list", "--verbose"), "exclude each other"),
        (("--vars", "[1]", "list"), "is not a YAML mapping"),
        (("--vars", "a: [", "list"), "--vars:1:4 this '[' is not closed"),
        (("--vars", "{a: 1, a: 2}", "list"), "--vars:1:8 key 'a' is written twice"),
        (("--vars", "a: !!python/name:os.system", "list"), "--vars:1:4 unknown tag"),
        (("--vars", "a: &b [*b]", "list"), "--vars:1:8 anchor 'b' contains itself"),
        (("--vars", "a: \udcff", "list"), "--vars:1:4 byte 0xff is not UTF-8"),
        (("list", "--vars", "plain"), "write 'name: value'"),
    ],
)
def test_wrong_usage_exits_with_2_and_suggests_similar_names(
    args: tuple[str, ...], message: str, lancestat: Lancestat
) -> None:
    result = lancestat(*args)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert result.stdout == ""


def test_all_errors_of_a_project_are_printed(
    lancestat: Lancestat, project: FakeProject, golden: Golden
) -> None:
    project.failure = InvalidProject(
        [
            UnknownKey(
                "unknown key 'colums' in table 'orders'",
                location=Location("specs/shop.yml", 14, 5),
                hint="did you mean 'columns'?",
            ),
            UnknownReference("no targets", location=Location("lancestat_project.yml", 1, 1)),
        ]
    )
    result = lancestat("plan")
    assert (result.exit_code, result.stdout) == (1, "")
    golden("cli/invalid_project.txt", result.stderr)


def test_a_lancestat_error_is_printed_as_its_text(
    lancestat: Lancestat, project: FakeProject
) -> None:
    project.failure = StoreUnreachable("the store does not answer", hint="is it up?")
    result = lancestat("plan")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "LS205  the store does not answer\n      hint: is it up?\n"


def test_an_unexpected_error_is_one_line_and_a_hint(
    lancestat: Lancestat, project: FakeProject
) -> None:
    project.failure = ZeroDivisionError("division\nby zero")
    result = lancestat("plan")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines() == [
        "LS001  internal error: ZeroDivisionError: division by zero",
        "      hint: run it again with --verbose to see where, and report that",
    ]


@pytest.mark.parametrize("args", [("--verbose", "plan"), ("plan", "--verbose")])
def test_verbose_shows_the_traceback(
    args: tuple[str, ...], lancestat: Lancestat, project: FakeProject
) -> None:
    project.failure = ZeroDivisionError("by zero")
    assert "Traceback (most recent call last)" in lancestat(*args).stderr


class PanicException(BaseException):
    """Stands for the panic of a native library, which is no Exception."""


def test_a_panic_is_an_internal_error(lancestat: Lancestat, project: FakeProject) -> None:
    project.failure = PanicException("index out of bounds")
    result = lancestat("plan")
    assert result.exit_code == 1
    assert result.stderr.startswith("LS001  internal error: PanicException: index out of bounds")


def test_an_interrupt_is_one_line(lancestat: Lancestat, project: FakeProject) -> None:
    project.failure = KeyboardInterrupt()
    result = lancestat("plan")
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "interrupted\n")


@pytest.mark.parametrize("option", [[], ["--verbose"]])
def test_secrets_in_a_librarys_exception_are_masked(
    option: list[str], lancestat: Lancestat, project: FakeProject
) -> None:
    options = {"aws_secret_access_key": SECRET, "aws_region": "eu-west-1"}
    project.spec = spec(Target("dev", "state", storage_options=options))
    project.failure = RuntimeError(f"options were {options}")
    stderr = lancestat("plan", *option).stderr
    assert SECRET not in stderr
    assert "eu-west-1" not in stderr
    assert "aws_region" in stderr


def test_a_closed_pipe_is_not_an_error(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        completed = subprocess.run(
            [sys.executable, "-m", "lancestat", "init"],
            cwd=tmp_path,
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        os.close(writer)
    assert (completed.returncode, completed.stderr) == (141, "")
