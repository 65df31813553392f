from __future__ import annotations

import ctypes
import gc
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from lancestat.errors import RunError
from lancestat.spark import jvm
from lancestat.spark.jvm import Java, _properties_file, find_java
from lancestat.spark.session import (
    ALLOCATOR_VARIABLES,
    connect,
    daemon_settings,
    defaults,
    joins_by_nearest_by,
    start_session,
    stop_session,
)
from lancestat.spec.model import Target, remote_address, remote_secrets, with_attempts
from tests import connect_client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("local", "local[1,4]"),
        ("local[*]", "local[*,4]"),
        ("local[3]", "local[3,4]"),
        ("local[3,1]", "local[3,1]"),
        ("local[*, 2]", "local[*, 2]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        ("yarn", "yarn"),
        ("spark://host:7077", "spark://host:7077"),
        ("k8s://https://host:6443", "k8s://https://host:6443"),
    ],
)
def test_local_masters_retry_as_clusters_do(given: str, expected: str) -> None:
    assert with_attempts(given) == expected


def test_properties_follow_those_of_sparks_own_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last of two properties of one name counts."""
    (tmp_path / "spark-defaults.conf").write_text("spark.a 1\nspark.b 2")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    with _properties_file({"spark.b": "3"}) as path:
        lines = path.read_text().splitlines()
    assert lines == ["spark.a 1", "spark.b 2", "spark.b=3"]


def test_a_given_number_of_attempts_is_kept() -> None:
    assert with_attempts("local[2]", "7") == "local[2,7]"


def test_workers_get_as_many_threads_as_their_tasks_have_cores() -> None:
    one, three = defaults("local[2]", {}), defaults("yarn", {"spark.task.cpus": "3"})
    for name in ("POLARS_MAX_THREADS", "LANCE_CPU_THREADS", "OMP_NUM_THREADS"):
        assert one[f"spark.executorEnv.{name}"] == "1"
        assert three[f"spark.executorEnv.{name}"] == "3"


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_workers_reserve_few_addresses_beyond_what_they_use() -> None:
    """A limit on a worker's memory counts reserved addresses too."""
    program = """
import pyarrow as pa
def addresses():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) >> 10 for line in status if line.startswith("VmSize"))
before = addresses()
held = pa.allocate_buffer(1 << 20)
print(addresses() - before)
"""
    environment = {**os.environ, **ALLOCATOR_VARIABLES}
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert int(ended.stdout) < 256


@pytest.mark.parametrize(
    ("master", "conf", "expected"),
    [
        ("local[2]", {}, {"spark.python.daemon.module": "lancestat.spark.daemon"}),
        ("local[2]", {"spark.python.daemon.module": "mine"}, {}),
        ("local[2]", {"spark.pyspark.python": "/opt/other/bin/python3"}, {}),
        ("local-cluster[2,1,1024]", {}, {}),
        ("yarn", {"spark.pyspark.python": sys.executable}, {}),
    ],
)
def test_local_workers_of_this_python_have_a_daemon_of_lancestat(
    monkeypatch: pytest.MonkeyPatch, master: str, conf: dict[str, str], expected: dict[str, str]
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert daemon_settings(master, conf) == expected
    # There lancestat may be one of the files that come with the job.
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert daemon_settings(master, conf) == {}


def test_only_local_sessions_lose_their_user_interface() -> None:
    assert defaults("local[2]", {})["spark.ui.enabled"] == "false"
    assert "spark.ui.enabled" not in defaults("yarn", {})


def unix_sockets(master: str, **conf: str) -> str | None:
    return defaults(master, conf).get("spark.python.unix.domain.socket.enabled")


def test_workers_of_a_local_session_are_reached_over_unix_sockets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert unix_sockets("local[2]") == "true"
    assert unix_sockets("local-cluster[2,1,1024]") == "true"
    assert unix_sockets("yarn") is None, "its temporary folders have long paths"

    elsewhere = "-Xmx1g -Djava.io.tmpdir=/a/very/long/path"
    assert unix_sockets("local", **{"spark.driver.extraJavaOptions": elsewhere}) is None
    monkeypatch.setenv("JDK_JAVA_OPTIONS", elsewhere)
    assert unix_sockets("local") is None
    monkeypatch.delenv("JDK_JAVA_OPTIONS")
    monkeypatch.setattr("sys.platform", "win32")
    assert unix_sockets("local") is None


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("output", "version"),
    [('openjdk version "17.0.15" 2025-04-15', 17), ('java version "21" 2023-09-19', 21)],
)
def test_java_is_found_with_its_version(java_home: Path, output: str, version: int) -> None:
    path = executable(java_home / "bin" / "java", f"echo '{output}' >&2")
    assert find_java() == Java(path, version)


def test_an_old_java_is_refused(java_home: Path) -> None:
    executable(java_home / "bin" / "java", "echo 'openjdk version \"1.8.0_392\"' >&2")
    with pytest.raises(RunError, match=r"needs Java 17 or newer, and .*bin/java is Java 8") as bad:
        find_java()
    assert bad.value.code == "LS521"
    assert bad.value.hint is not None


@pytest.mark.parametrize("script", ["exit 3", "echo strange >&2"])
def test_a_java_that_does_not_answer_is_refused(java_home: Path, script: str) -> None:
    executable(java_home / "bin" / "java", script)
    with pytest.raises(RunError) as bad:
        find_java()
    assert bad.value.code == "LS520"


def test_a_java_home_without_java_is_named(java_home: Path) -> None:
    with pytest.raises(RunError, match=f"JAVA_HOME is {java_home}, which holds no bin/java") as bad:
        find_java()
    assert bad.value.code == "LS520"


def test_a_missing_java_is_an_error_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(jvm, "_USUAL_HOMES", ())
    with pytest.raises(RunError, match="no java is on the PATH") as bad:
        start_session(Target("dev", "state"), "test")
    assert bad.value.code == "LS520"


@pytest.mark.parametrize(
    "on_path", [None, "echo no Java is installed >&2; exit 1", 'echo version \\"11.0.2\\" >&2']
)
def test_java_is_found_where_it_is_usually_installed(
    on_path: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/bin")
    monkeypatch.setattr(
        "shutil.which", lambda name: None if name == "java" else os.access(name, os.X_OK) or None
    )
    if on_path is not None:
        stub = executable(tmp_path / "stub" / "java", on_path)
        monkeypatch.setattr(
            "shutil.which",
            lambda name: str(stub if name == "java" else name) * Path(name).is_file(),
        )
    homes = ((str(tmp_path / "jvm"), "*"), (str(tmp_path / "mac"), "*/Contents/Home"))
    monkeypatch.setattr(jvm, "_USUAL_HOMES", homes)
    for home, version in [
        ("jvm/8", "1.8.0"),
        ("jvm/25", "25"),
        ("mac/jdk/Contents/Home", "17.0.1"),
    ]:
        executable(tmp_path / home / "bin" / "java", f"echo 'java version \"{version}\"' >&2")
    (tmp_path / "jvm" / "docs").mkdir()
    java = find_java()
    assert (java.home, java.version) == (tmp_path / "mac/jdk/Contents/Home", 17)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_failed_start_of_the_jvm_is_an_error_with_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    executable(
        tmp_path / "bin" / "java",
        'if [ "$1" = -version ]; then echo \'openjdk version "17.0.1"\' >&2; exit 0; fi\n'
        'echo "Error: Could not create the Java Virtual Machine" >&2; exit 1',
    )
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    with pytest.raises(RunError, match="Could not create the Java Virtual Machine") as bad:
        start_session(Target("dev", "state", spark_conf={"spark.x": "1"}), "test")

    # PySpark leaves the pipe to the dead process to the collector, which warns of it.
    code = bad.value.code
    del bad
    gc.collect()
    assert code == "LS522"
    assert "PYSPARK_SUBMIT_ARGS" not in os.environ
    assert capfd.readouterr().err == ""


@pytest.mark.skipif(sys.platform == "win32", reason="getenv of the C library")
def test_variables_for_spark_change_none_of_the_c_library() -> None:
    """Threads of Lance read those, and crash where one is set meanwhile."""
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p

    def set_elsewhere() -> None:
        os.environ["LANCESTAT_ELSEWHERE"] = "1"

    try:
        with jvm.changed_environment(LANCESTAT_OUTER="1"):
            with jvm.changed_environment(LANCESTAT_OUTER=None, LANCESTAT_INNER="1"):
                assert "LANCESTAT_OUTER" not in os.environ
            os.environ["LANCESTAT_OF_PYSPARK"] = "1"
            names = ["LANCESTAT_OUTER", "LANCESTAT_OF_PYSPARK"]
            assert [os.environ[name] for name in names] == ["1", "1"]
            assert [getenv(name.encode()) for name in names] == [None, None]
            program = "import os; print('LANCESTAT_OUTER' in os.environ)"
            started = subprocess.run([sys.executable, "-c", program], env=os.environ, stdout=-1)
            assert started.stdout == b"True\n"
            thread = threading.Thread(target=set_elsewhere)
            thread.start()
            thread.join()
            assert getenv(b"LANCESTAT_ELSEWHERE") == b"1"
        assert "LANCESTAT_OUTER" not in os.environ
        os.environ["LANCESTAT_AFTERWARDS"] = "1"
        assert getenv(b"LANCESTAT_AFTERWARDS") == b"1"
    finally:
        for name in ("LANCESTAT_OF_PYSPARK", "LANCESTAT_ELSEWHERE", "LANCESTAT_AFTERWARDS"):
            os.environ.pop(name, None)


@pytest.mark.parametrize(
    ("remote", "address", "secrets"),
    [
        ("sc://host", ("host", 15002), set()),
        ("sc://host:9/", ("host", 9), set()),
        ("sc://[::1]:9/;token=a%2Fb;use_ssl=true", ("::1", 9), {"a%2Fb", "a/b"}),
        ("sc://host/;x-a=1;user_id=orders;x-b=s3cr3tpart", ("host", 15002), {"s3cr3tpart"}),
    ],
)
def test_urls_of_servers_have_addresses_and_secrets(
    remote: str, address: tuple[str, int], secrets: set[str]
) -> None:
    assert remote_address(remote) == address
    assert set(remote_secrets(remote)) == {remote} | secrets


def test_a_server_that_is_not_there_is_an_error_at_once() -> None:
    assert connect_client.FOLDER.is_dir()
    with socket.socket() as taken:
        # Bound, and nobody listens.
        taken.bind(("127.0.0.1", 0))
        remote = f"sc://127.0.0.1:{taken.getsockname()[1]}/;token=s3cr3t"
        with pytest.raises(RunError, match="cannot be reached: Connection refused") as bad:
            connect(remote, {}, "test")
    assert bad.value.code == "LS522"
    assert "s3cr3t" not in str(bad.value)


def test_small_joins_over_connect_do_without_nearest_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lancestat.spark.session.has_nearest_by_join", lambda: True)
    assert joins_by_nearest_by(Target("dev", "state"))
    assert not joins_by_nearest_by(Target("dev", "state", spark_remote="sc://host"))


class FakeSession:
    """A session whose JVM this process started, with what happens to both."""

    # What a classic session has.
    _jsc = None

    def __init__(self, master: str, conf: dict[str, str]) -> None:
        self.happened: list[str] = []
        stdin = SimpleNamespace(close=lambda: self.happened.append("input ended"))
        self.sparkContext = SimpleNamespace(
            master=master,
            getConf=lambda: conf,
            _gateway=SimpleNamespace(proc=SimpleNamespace(stdin=stdin)),
        )

    def stop(self) -> None:
        self.happened.append("stopped")


@pytest.mark.parametrize(
    ("master", "conf", "ends_process", "happens"),
    [
        ("local[2,4]", {}, True, "input ended"),
        ("local[*]", {"spark.eventLog.enabled": "false"}, True, "input ended"),
        ("local[2,4]", {}, False, "stopped"),
        ("local[2,4]", {"spark.eventLog.enabled": "true"}, True, "stopped"),
        ("local[2,4]", {"spark.extraListeners": "org.example.Audit"}, True, "stopped"),
        ("local-cluster[2,1,1024]", {}, True, "stopped"),
        ("yarn", {}, True, "stopped"),
    ],
)
def test_a_process_that_ends_waits_for_spark_where_others_see_its_end(
    master: str, conf: dict[str, str], ends_process: bool, happens: str
) -> None:
    session = FakeSession(master, conf)
    stop_session(cast("SparkSession", session), ends_process=ends_process)
    assert session.happened == [happens]
