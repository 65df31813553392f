from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lancestat.errors import ClassArchiveNotMade
from lancestat.query import warm_up
from lancestat.spark.jvm import (
    Java,
    archive_options,
    find_archive,
    find_java,
    keep_archive,
    new_archive,
    spark_home,
)

JAVA = Java(Path("/opt/java/bin/java"), 17, "openjdk version 17.0.15")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # The run of the tests names an archive of its own in these.
    for name in ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "my cache"))
    return tmp_path / "my cache"


def made(java: Java = JAVA, content: bytes = b"classes") -> Path:
    draft = new_archive(java)
    draft.write_bytes(content)
    return keep_archive(java, draft)


def test_an_archive_is_kept_for_one_java_and_one_spark(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_archive(JAVA) is None
    assert archive_options(JAVA, {}) == ""
    archive = made()
    assert find_archive(JAVA) == archive
    option, *_ = shlex.split(archive_options(JAVA, {}))
    assert option == f"-XX:SharedArchiveFile={archive}"
    assert archive.parent.stat().st_mode & 0o777 == 0o700

    assert find_archive(Java(JAVA.path, 17, "openjdk version 17.0.16")) is None
    assert find_archive(Java(Path("/opt/other/bin/java"), 17, JAVA.build)) is None
    (tmp_path / "jars").mkdir()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert find_archive(JAVA) is None
    (tmp_path / "jars" / "spark-core_2.13-4.0.0.jar").touch()
    of_release = made()
    (tmp_path / "jars" / "spark-core_2.13-4.0.0.jar").rename(
        tmp_path / "jars" / "spark-core_2.13-4.0.1.jar"
    )
    assert find_archive(JAVA) is None
    assert of_release.is_file()


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b"clasSes"),
        lambda path: path.write_bytes(b"class"),
        lambda path: path.write_bytes(b""),
        lambda path: path.rename(path.with_name("elsewhere")) and path.symlink_to("elsewhere"),
        lambda path: path.unlink() or path.mkdir(),
        lambda path: path.chmod(0o622),
        lambda path: path.parent.chmod(0o777),
        lambda path: path.parent.parent.chmod(0o775),
    ],
    ids=["changed", "cut", "empty", "link", "folder", "writable", "in writable", "below writable"],
)
def test_an_archive_that_is_not_whole_or_not_safe_is_not_used(
    damage: Callable[[Path], object], cache: Path
) -> None:
    archive = made()
    damage(archive)
    assert find_archive(JAVA) is None
    assert archive_options(JAVA, {}) == ""


@pytest.mark.parametrize("place", ["archive", "folder", "cache"])
def test_another_users_archive_is_not_used(
    place: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = made()
    foreign = {"archive": archive, "folder": archive.parent, "cache": cache}[place]
    lstat = os.lstat

    def of_another(path: Path) -> os.stat_result:
        status = list(lstat(path))
        if path == foreign:
            status[4] = 12345
        return os.stat_result(status)

    monkeypatch.setattr("os.lstat", of_another)
    assert find_archive(JAVA) is None
    if place != "archive":
        with pytest.raises(ClassArchiveNotMade, match="belongs to another user"):
            new_archive(JAVA)


def test_the_last_of_two_archives_made_at_once_is_kept(cache: Path) -> None:
    first, second = new_archive(JAVA), new_archive(JAVA)
    first.write_bytes(b"first")
    second.write_bytes(b"second")
    assert find_archive(JAVA) is None
    keep_archive(JAVA, first)
    archive = keep_archive(JAVA, second)
    assert find_archive(JAVA) == archive
    assert list(archive.parent.iterdir()) == [archive]


def test_archives_that_are_long_unused_are_removed(cache: Path) -> None:
    old, recent = made(Java(Path("/old/java"), 17)), made(Java(Path("/recent/java"), 17))
    os.utime(old, (0, 0))
    os.utime(recent, (0, 0))
    assert archive_options(Java(Path("/recent/java"), 17), {})
    made()
    assert recent.exists()
    assert not old.exists()


def test_a_cache_that_cannot_be_written_is_an_error(cache: Path) -> None:
    cache.write_text("a file")
    with pytest.raises(ClassArchiveNotMade, match="my cache/lancestat cannot be written: "):
        new_archive(JAVA)
    assert find_archive(JAVA) is None


def test_a_java_that_writes_nothing_is_an_error(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk."""
    monkeypatch.setattr(warm_up, "find_java", lambda: JAVA)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ClassArchiveNotMade, match="Java made no archive: "):
        warm_up.make_class_archive()
    assert not list((cache / "lancestat").iterdir())


@pytest.mark.parametrize(
    "options",
    ["-Xshare:off", "-Xmx1g -XX:SharedArchiveFile=mine.jsa", "-XX:+AutoCreateSharedArchive"],
)
@pytest.mark.parametrize("name", ["JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "SPARK_SUBMIT_OPTS"])
def test_users_own_options_count(
    name: str, options: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made()
    monkeypatch.setenv(name, options)
    assert archive_options(JAVA, {}) == ""
    with pytest.raises(ClassArchiveNotMade, match=f"{name} says how Java shares classes"):
        warm_up.make_class_archive()


def test_users_own_properties_count(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made()
    assert archive_options(JAVA, {"spark.driver.extraJavaOptions": "-Xmx1g"})
    assert archive_options(JAVA, {"spark.driver.extraJavaOptions": "-Xshare:off"}) == ""
    defaults = tmp_path / "spark-defaults.conf"
    defaults.write_text("spark.driver.defaultJavaOptions  -Xshare:auto\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert archive_options(JAVA, {}) == ""


SESSION = """
import sys
from lancestat.spark.session import start_session
from lancestat.spec.model import Target
spark = start_session(Target("test", sys.argv[1], spark_master="local[1]"), "test")
pid = spark.sparkContext._gateway.proc.pid
print({line.split(maxsplit=5)[-1].strip() for line in open(f"/proc/{pid}/maps") if ".jsa" in line})
"""


@pytest.mark.spark
def test_spark_starts_with_the_archive_and_java_without_one_that_does_not_fit(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
    java, home = find_java(), spark_home()
    draft = new_archive(java)
    # Few of Spark's classes, with the class path that its launcher chooses.
    subprocess.run(
        [f"{home}/bin/spark-submit", "--version"],
        env={**os.environ, "SPARK_SUBMIT_OPTS": f'"-XX:ArchiveClassesAtExit={draft}"'},
        check=True,
        capture_output=True,
    )
    archive = keep_archive(java, draft)
    started = subprocess.run(
        [sys.executable, "-c", SESSION, str(tmp_path)], check=True, capture_output=True, text=True
    )
    assert str(archive) in started.stdout
    assert started.stderr == ""

    options = shlex.split(archive_options(java, {}))
    other = subprocess.run(
        [java.path, *options, "-cp", str(tmp_path / "other.jar"), "-version"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert other.stdout == ""
    assert "warning" not in other.stderr
