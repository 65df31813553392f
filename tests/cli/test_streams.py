"""What commands print on real terminals, and in encodings that lack most characters."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path
from typing import IO

import lance
import pyarrow as pa
import pytest

from tests.examples import each, sample

pytestmark = pytest.mark.whole

EVIL = "red\x1b[31m\x9b2J\u202e"
ASCII = {"PYTHONUTF8": "0", "LC_ALL": "C"}
PROJECT = "name: shop\ntargets: {dev: {state: state}}\n"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project in a folder with a name beyond ASCII, and a published table of odd columns."""
    folder = tmp_path_factory.mktemp("streams") / "größe"
    (folder / "specs").mkdir(parents=True)
    (folder / "lancestat_project.yml").write_text(PROJECT)
    (folder / "specs" / "shop.yml").write_text("tables: [{name: t, uri: t.lance}]\n")
    columns = {EVIL: [1, 2], "größe": [3, 4], "漢": [5, 6]}
    lance.write_dataset(pa.table(columns), str(folder / "t.lance"))
    result = lancestat(folder, "run")
    assert result.returncode == 0, result.stderr
    return folder


def lancestat(
    folder: Path, *args: str, stdout: int | IO[bytes] = subprocess.PIPE, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "lancestat", *args]
    variables = {**os.environ, **environment}
    return subprocess.run(
        command, cwd=folder, env=variables, stdout=stdout, stderr=subprocess.PIPE, timeout=300
    )


# Commands in the words after the first, one after the other, with the first word between them.
SEVERAL = """
import shlex, sys
from lancestat.cli.main import main
separator, *commands = sys.argv[1:]
for command in commands:
    sys.argv = ["lancestat", *shlex.split(command)]
    try:
        main()
    except SystemExit as ended:
        print(f"{separator}{ended.code or 0}{separator}", end="", flush=True)
"""
SEPARATOR = "-- the next --"


def in_each_form(folder: Path, command: str, **environment: str) -> dict[str, tuple[int, bytes]]:
    """Return exit codes and output of a command in text, JSON and CSV, by one process."""
    forms = ("text", "json", "csv")
    commands = [f"{command} --output {form}" for form in forms]
    ended = subprocess.run(
        [sys.executable, "-c", SEVERAL, SEPARATOR, *commands],
        cwd=folder, env={**os.environ, **environment}, capture_output=True, timeout=300,
    )  # fmt: skip
    *printed, rest = ended.stdout.split(SEPARATOR.encode())
    assert not rest, ended.stderr
    codes = map(int, printed[1::2])
    return dict(zip(forms, zip(codes, printed[::2], strict=True), strict=True))


def on_terminal(folder: Path, *args: str) -> bytes:
    """Return what a command writes to a terminal."""
    controller, terminal = pty.openpty()
    command = [sys.executable, "-m", "lancestat", *args]
    process = subprocess.Popen(
        command, cwd=folder, stdin=terminal, stdout=terminal, stderr=terminal, close_fds=True
    )
    os.close(terminal)
    written = b""
    while True:
        try:
            piece = os.read(controller, 65536)
        except OSError:
            # Linux says so that the other side is closed.
            break
        if not piece:
            break
        written += piece
    os.close(controller)
    assert process.wait(timeout=60) == 0, written
    return written


@pytest.mark.parametrize("form", sample(["csv", "json"], 1))
def test_no_name_controls_a_terminal(form: str, shop: Path) -> None:
    text = on_terminal(shop, "show", "t", "--output", form).decode()
    assert "red" in text
    assert "\x1b" not in text
    assert "\x9b" not in text
    assert "\u202e" not in text
    assert "größe" in text


def test_no_name_adds_colours_to_the_text_on_a_terminal(shop: Path) -> None:
    text = on_terminal(shop, "show", "t").decode()
    assert "red\\x1b[31m\\x9b2J\\u202e" in text


def test_csv_in_a_pipe_has_the_names_as_they_are(shop: Path) -> None:
    result = lancestat(shop, "show", "t", "--output", "csv", PYTHONUTF8="1")
    assert result.returncode == 0, result.stderr
    rows = list(csv.DictReader(io.StringIO(result.stdout.decode())))
    assert {EVIL, "größe"} <= {row["column"] for row in rows}


@pytest.fixture(scope="module")
def plain(shop: Path) -> Path:
    """The same project in a folder whose name is ASCII."""
    folder = shop.with_name("plain")
    shutil.copytree(shop, folder)
    return folder


def test_an_encoding_without_a_character_is_no_failure(plain: Path) -> None:
    for form, (code, printed) in in_each_form(plain, "show t", PYTHONIOENCODING="latin-1").items():
        text = printed.decode("latin-1")
        assert code == 0, text
        if form == "json":
            assert {EVIL, "größe", "漢"} <= set(json.loads(text)["columns"])
        else:
            assert "größe" in text
            assert "\\u6f22" in text


def test_ascii_is_taken_for_utf8(plain: Path) -> None:
    """PYTHONUTF8=0 keeps Python from doing that itself in the locale C."""
    for form, (code, printed) in in_each_form(plain, "show t", **ASCII).items():
        text = printed.decode("utf-8")
        assert code == 0, text
        assert "漢" in (json.loads(text)["columns"] if form == "json" else text)


@pytest.mark.parametrize(("form", "name"), each(["text", "json"], ["show", "plan"]))
def test_a_folder_that_python_cannot_name_says_what_to_set(
    form: str, name: str, shop: Path
) -> None:
    selected = ["t"] if name == "show" else ["--select", "t"]
    result = lancestat(shop, name, *selected, "--output", form, **ASCII)
    assert result.returncode == 1
    assert b"LS219" in result.stderr
    # The path from its start, although Lance's words are searched without its slashes.
    assert f"'{shop.parent}/gr\\udcc3".encode() in result.stderr
    assert b"PYTHONUTF8=1" in result.stderr
    if form == "json":
        [error] = json.loads(result.stdout)["errors"]
        assert error["code"] == "LS219"


def test_python_in_the_locale_c_takes_names_for_utf8(shop: Path) -> None:
    result = lancestat(shop, "show", "t", LC_ALL="C")
    assert result.returncode == 0, result.stderr
    assert "größe" in result.stdout.decode()


@pytest.mark.spark
def test_spark_starts_in_a_folder_with_a_name_beyond_ascii(shop: Path) -> None:
    """The classes of the relation and temporary files lie below folders of that name."""
    folder = shop / "tmp"
    folder.mkdir(exist_ok=True)
    query = "select sum(`größe`) from t"
    result = lancestat(shop, "sql", query, LC_ALL="C", TMPDIR=str(folder))
    assert result.returncode == 0, result.stderr
    assert "7" in result.stdout.decode()


def test_an_output_without_room_is_an_error_of_the_place(shop: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        result = lancestat(shop, "show", "t", stdout=full)
    assert (result.returncode, result.stderr.decode()) == (
        1,
        "LS403  cannot write to the output: No space left on device\n      hint: make room there\n",
    )


def test_an_error_in_such_an_encoding_is_whole(plain: Path) -> None:
    result = lancestat(plain, "show", "ü", "--output", "json", **ASCII)
    assert result.returncode == 2, result.stderr
    [error] = json.loads(result.stdout)["errors"]
    assert error["code"] != "LS001", error
