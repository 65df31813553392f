"""What listeners hear of a run, in order, and that they cannot fail it."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import lance
import pytest

import lancestat
from lancestat import Project
from lancestat.runs import events as module
from lancestat.runs.events import (
    Event,
    EventStream,
    FragmentsRead,
    NodeFinished,
    NodeStarted,
    RunFinished,
    RunStarted,
    StageReached,
    TableToRead,
    Warned,
)
from lancestat.runs.result import Status
from tests.runs.world import orders, write_project


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with a table that can be read, and one that is not there."""
    write_project(tmp_path, "here", "gone")
    lance.write_dataset(orders(0, 30), str(tmp_path / "here.lance"), max_rows_per_file=10)
    return tmp_path


def heard(folder: Path) -> list[Event]:
    """The events of a run."""
    events: list[Event] = []
    Project.load(folder).run(threads=1, on_event=events.append)
    return events


def test_a_run_is_told_from_its_start_to_its_end(folder: Path) -> None:
    started, *between, finished = heard(folder)
    assert isinstance(started, RunStarted)
    assert isinstance(finished, RunFinished)
    assert started.run_id == finished.result.run_id
    assert (started.command, started.project, started.target) == ("run", "shop", "dev")
    assert {node.name for node in started.nodes} == {"here", "gone"}
    [table] = started.tables
    assert (table.node, table.fragments) == ("here", 3)
    here = [event for event in between if '"here"' in json.dumps(event.to_json())]
    kinds = [type(event) for event in here if not isinstance(event, FragmentsRead)]
    assert kinds == [NodeStarted, *[StageReached] * 3, NodeFinished]
    stages = [event.progress.stage.name for event in here if isinstance(event, StageReached)]
    assert stages == ["read", "merge", "publish"]
    last = [event for event in here if isinstance(event, FragmentsRead)][-1]
    assert (last.fragments, last.size_bytes) == (3, table.size_bytes)
    ends = {event.result.name: event.result for event in between if isinstance(event, NodeFinished)}
    assert {name: end.status for name, end in ends.items()} == {
        "here": Status.SUCCESS,
        "gone": Status.ERROR,
    }
    assert {node.name: node for node in finished.result.nodes} == ends
    moments = [event.at for event in (started, *between, finished)]
    assert all(moment.tzinfo is not None for moment in moments)
    assert here == sorted(here, key=lambda event: event.at)


def test_nodes_that_are_left_as_they_are_begin_and_end(folder: Path) -> None:
    heard(folder)
    told = [event.name for event in heard(folder) if '"here"' in json.dumps(event.to_json())]
    assert told == ["node_started", "node_finished"]


def test_a_listener_that_fails_gets_no_more_and_the_run_goes_on(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Event] = []

    def broken(event: Event) -> None:
        seen.append(event)
        raise RuntimeError("no room")

    with caplog.at_level(logging.WARNING):
        result = Project.load(folder).run(select="here", on_event=broken)
    assert result.ok
    assert len(seen) == 1
    assert "a listener to events of runs failed, and gets no more: RuntimeError: no room" in (
        caplog.messages
    )


def test_what_lancestat_warns_of_is_an_event_while_the_run_goes_on() -> None:
    told: list[Event] = []
    stream, log = EventStream([told.append]), logging.getLogger("lancestat.test")
    log.warning("before")
    with stream.with_warnings():
        log.info("no warning")
        log.warning("of %s", "these")
        logging.getLogger(module.__name__).warning("another logger below, too")
        logging.getLogger("lancestat.events").warning("of a listener")
    log.warning("after")
    assert [event.text for event in told if isinstance(event, Warned)] == [
        "of these",
        "another logger below, too",
    ]


def test_the_events_are_public() -> None:
    assert lancestat.events.RunStarted is module.RunStarted
    assert "events" in dir(lancestat)
    assert TableToRead("a", 1, 2) == lancestat.events.TableToRead("a", 1, 2)
