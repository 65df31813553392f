"""Errors, signals and closed pipes end a command in order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lancestat.cli.main import COMMANDS, Terminated, termination_raised
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
        (("plan", "--select", "a", "b"), "--select 'orders lineitem'"),
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


class PanicException(BaseException):
    """Stands for the panic of a native library, which is no Exception."""


AGAIN = "      hint: run it again with --verbose to see where, and report that\n"


@pytest.mark.parametrize(
    ("raised", "code", "printed"),
    [
        (
            StoreUnreachable("the store does not answer", hint="is it up?"),
            1,
            "LS205  the store does not answer\n      hint: is it up?\n",
        ),
        (
            ZeroDivisionError("division\nby zero"),
            1,
            f"LS001  internal error: ZeroDivisionError: division by zero\n{AGAIN}",
        ),
        (
            PanicException("index out of bounds"),
            1,
            f"LS001  internal error: PanicException: index out of bounds\n{AGAIN}",
        ),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
    ids=["ours", "unexpected", "panic", "interrupt"],
)
def test_an_error_is_printed_without_a_traceback(
    raised: BaseException, code: int, printed: str, lancestat: Lancestat, project: FakeProject
) -> None:
    project.failure = raised
    result = lancestat("plan")
    assert (result.exit_code, result.stdout, result.stderr) == (code, "", printed)


@pytest.mark.parametrize(
    ("args", "environment"),
    [
        (("--verbose", "plan"), {}),
        (("plan", "--verbose"), {}),
        (("plan",), {"LANCESTAT_VERBOSE": "1"}),
        (("plan",), {"LANCESTAT_VERBOSE": "0"}),
    ],
)
def test_verbose_shows_the_traceback(
    args: tuple[str, ...],
    environment: dict[str, str],
    lancestat: Lancestat,
    project: FakeProject,
) -> None:
    project.failure = ZeroDivisionError("by zero")
    shown = "Traceback (most recent call last)" in lancestat(*args, **environment).stderr
    assert shown == (environment != {"LANCESTAT_VERBOSE": "0"})


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


@pytest.fixture(autouse=True)
def before() -> Iterator[None]:
    handler = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGTERM, handler)
    signal.signal(signal.SIGINT, interrupt)


@pytest.mark.parametrize(
    ("number", "raised"), [(signal.SIGTERM, Terminated), (signal.SIGINT, KeyboardInterrupt)]
)
def test_a_signal_leaves_a_block_and_a_second_one_ends_the_process(
    number: signal.Signals, raised: type[KeyboardInterrupt]
) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt) as caught, termination_raised():
        try:
            os.kill(os.getpid(), number)
            threading.Event().wait(60)
        finally:
            cleaned = signal.getsignal(number)
    assert caught.type is raised
    assert cleaned is signal.SIG_DFL
    assert signal.getsignal(number) is before


def test_the_previous_handler_is_restored_afterwards() -> None:
    with termination_raised():
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_handler_of_the_host_program_is_kept() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with termination_raised():
        os.kill(os.getpid(), signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_other_threads_do_not_handle_signals() -> None:
    seen = []

    def enter() -> None:
        with termination_raised():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [signal.SIG_DFL]
