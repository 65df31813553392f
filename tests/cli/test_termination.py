from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from lancestat.cli.main import Terminated, termination_raised


@pytest.fixture(autouse=True)
def before() -> Iterator[None]:
    handler = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGTERM, handler)
    signal.signal(signal.SIGINT, interrupt)


def test_sigterm_leaves_a_block_like_an_interrupt() -> None:
    cleaned = []
    with pytest.raises(KeyboardInterrupt) as caught, termination_raised():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            threading.Event().wait(60)
        finally:
            # A second signal would end the process.
            cleaned.append(signal.getsignal(signal.SIGTERM))
    assert caught.type is Terminated
    assert cleaned == [signal.SIG_DFL]


def test_ctrl_c_leaves_a_block_and_a_second_one_ends_the_process() -> None:
    with pytest.raises(KeyboardInterrupt) as caught, termination_raised():
        try:
            os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait(60)
        finally:
            cleaned = signal.getsignal(signal.SIGINT)
    assert caught.type is KeyboardInterrupt
    assert cleaned is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


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
