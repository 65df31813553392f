from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from lancestat.errors import EventLogUnreadable
from lancestat.query.workload import event_log
from lancestat.query.workload.event_log import LeftOut, find_logs, read_lines
from lancestat.query.workload.spark_events import read_workload
from tests.query.workload.logs import ended, lines, operator, scan, stage, started, write_log

FILTER = operator("Filter", "Filter (o_day#2 = 7)", scan("orders", "o_id#1L", "o_day#2"))


def test_a_path_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(EventLogUnreadable, match="nothing-here: No such file"):
        list(find_logs([tmp_path / "nothing-here"], LeftOut()))


def test_a_rolled_log_is_read_in_the_order_of_its_numbers(tmp_path: Path) -> None:
    folder = tmp_path / "eventlog_v2_app-1"
    folder.mkdir()
    for name in ("events_10_app-1", "events_9_app-1.zstd", "appstatus_app-1", "events_2_app-1"):
        (folder / name).touch()
    [log] = find_logs([tmp_path], LeftOut())
    assert [path.name for path in log] == [
        "events_2_app-1",
        "events_9_app-1.zstd",
        "events_10_app-1",
    ]


def test_hidden_files_are_left_out(tmp_path: Path) -> None:
    (tmp_path / ".app-1.crc").touch()
    write_log(tmp_path / "app-1", FILTER)
    assert read_workload([tmp_path]).logs == 1


def test_a_query_may_go_on_in_the_next_file_of_a_rolled_log(tmp_path: Path) -> None:
    folder = tmp_path / "eventlog_v2_app-1"
    folder.mkdir()
    (folder / "events_1_app-1").write_bytes(lines(started(FILTER)))
    (folder / "events_2_app-1").write_bytes(lines(ended()))
    reader = read_workload([tmp_path])
    assert (reader.logs, reader.workload.queries, reader.left_out_words) == (1, 1, "")


def rolled(folder: Path, *names: str) -> Path:
    """A rolled log with a query in each of its parts."""
    folder.mkdir(parents=True)
    for id, name in enumerate(names):
        (folder / name).write_bytes(lines(started(FILTER, id), ended(id)))
    return folder


@pytest.mark.parametrize(
    ("names", "queries", "left_out"),
    [
        (("events_1_a", "events_2_a"), 2, ""),
        (("events_1_a", "events_2_a", "events_5_a"), 3, "2 missing parts of rolled logs"),
        (("events_2_a",), 1, "1 missing part of a rolled log"),
        # A compact part has what is left of those up to it, which may be there yet.
        (("events_1_a", "events_1_a.compact", "events_2_a"), 2, ""),
        (("events_1_a", "events_3_a.zstd.compact", "events_3_a.zstd", "events_4_a.zstd"), 2, ""),
        (("events_3_a.compact", "events_5_a"), 2, "1 missing part of a rolled log"),
        (("events_2_a.compact", "events_4_a.compact", "events_5_a"), 2, ""),
        (("events_1_a", "events_2_a", "events_2_a.compact.inprogress"), 2, ""),
        (("appstatus_a",), 0, ""),
    ],
)
def test_parts_of_rolled_logs_count_once(
    tmp_path: Path, names: tuple[str, ...], queries: int, left_out: str
) -> None:
    rolled(tmp_path / "eventlog_v2_a", *names)
    reader = read_workload([tmp_path])
    assert (reader.workload.queries, reader.left_out_words) == (queries, left_out)


def test_a_log_that_is_named_twice_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = rolled(tmp_path / "logs" / "eventlog_v2_a", "events_2_a", "events_3_a")
    one = write_log(tmp_path / "logs" / "app-1", FILTER)
    (tmp_path / "logs" / "app-2").symlink_to(one)
    (tmp_path / "link").symlink_to(parts)
    monkeypatch.chdir(parts)
    named = [
        parts / "events_3_a",
        one,
        tmp_path / "logs",
        tmp_path / "link",
        Path(),
        Path("../app-1"),
    ]
    for paths in (named, named[::-1]):
        reader = read_workload(paths)
        assert (reader.logs, reader.workload.queries) == (2, 3)
        assert reader.left_out_words == "1 missing part of a rolled log"


@pytest.mark.parametrize(
    ("content", "left_out"),
    [
        (b"ZV" + bytes(100), "1 file compressed with LZF"),
        (b"\x1f\x8b cut off", "1 file that is cut off or damaged"),
    ],
)
def test_a_file_is_left_out_for_one_reason(tmp_path: Path, content: bytes, left_out: str) -> None:
    (tmp_path / "app-1").write_bytes(content)
    assert read_workload([tmp_path]).left_out_words == left_out


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for path in (tmp_path / "pipe", tmp_path / "link", Path("/dev/null")):
        with pytest.raises(EventLogUnreadable, match=f"{path}: it is neither a file nor a folder"):
            read_workload([path])
    assert read_workload([tmp_path]).left_out_words == ""


@pytest.mark.parametrize("cut", [1, 40, 200])
def test_a_log_that_is_cut_off_is_read_as_far_as_it_goes(tmp_path: Path, cut: int) -> None:
    content = lines(started(FILTER, 0), ended(0), started(FILTER, 1))
    (tmp_path / "app-1.inprogress").write_bytes(content[:-cut])
    reader = read_workload([tmp_path])
    assert reader.workload.queries == 1 + (cut == 1)
    assert reader.left_out_words == ("" if cut == 1 else "1 line that is no event")


def test_an_event_that_nobody_needs_is_seen_to_be_cut_behind_a_brace(tmp_path: Path) -> None:
    unneeded = {"Event": "SparkListenerJobStart", "Properties": {"a": "b"}, "Job ID": 1}
    content = lines(started(FILTER), ended(), unneeded)
    (tmp_path / "app-1").write_bytes(content[: content.rindex(b"}", 0, -2) + 1])
    assert read_workload([tmp_path]).left_out_words == "1 line that is no event"


def test_a_compressed_log_that_is_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    events = [event for id in range(500) for event in (started(FILTER, id), ended(id))]
    content = gzip.compress(lines(*events))
    (tmp_path / "app-1").write_bytes(content[: len(content) // 2])
    reader = read_workload([tmp_path])
    assert 100 < reader.workload.queries < 500
    assert "1 file that is cut off or damaged" in reader.left_out_words


def test_files_of_other_tools_are_counted(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no JSON\n" * 3)
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": []}))
    (tmp_path / "picture.png").write_bytes(bytes(range(256)) * 50)
    write_log(tmp_path / "app-1", FILTER)
    reader = read_workload([tmp_path])
    assert reader.left_out_words == "3 files that are no event logs"
    assert reader.workload.queries == 1


def test_long_lines_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "MAX_LINE_BYTES", 1000)
    monkeypatch.setattr(event_log, "CHUNK_BYTES", 100)
    path = tmp_path / "app-1"
    path.write_bytes(b"a" * 2000 + b"\nshort\n" + b"b" * 5000)
    left_out = LeftOut()
    assert list(read_lines(path, left_out)) == [b"short"]
    assert str(left_out) == "2 lines longer than 64 MB"


def test_nothing_of_a_query_is_held_but_names_of_tables_and_columns(tmp_path: Path) -> None:
    text = "Filter (((o_note#3 = TOP-SECRET) AND (o_day#2 > 7)) AND Contains(o_note#3, TOP-SECRET))"
    plan = operator("Filter", text, scan("orders", "o_day#2", "o_note#3"), rows=5)
    path = tmp_path / "app-1"
    path.write_bytes(lines(started(plan, text=text), stage({5: 3}), ended()))
    reader = read_workload([path])
    assert reader.workload.queries == 1
    assert ("orders", ("o_note",)) in reader.workload.sets
    assert "SECRET" not in repr(reader)
