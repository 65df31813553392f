"""Sessions of Spark: started or connected to, found, and lent to the nodes of a run."""

from __future__ import annotations

import os
import socket
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from lancestat.arguments import check_session
from lancestat.errors import Cancelled, LancestatError, SparkConnectSession, SparkNotStarted
from lancestat.redact import redact_line
from lancestat.spark import daemon
from lancestat.spark.failure import (
    CONNECT_TIMEOUT,
    SessionLostError,
    abandon,
    has_gone,
    is_forgotten,
    limit_retries,
    outages_said,
    silent_query_logger,
)
from lancestat.spark.jvm import (
    CONNECT_VARIABLES,
    changed_environment,
    not_started,
    spark_defaults,
    start_jvm,
)
from lancestat.spark.package import package_settings, require_same_versions
from lancestat.spark.versions import (
    THREAD_VARIABLES,
    has_nearest_by_join,
    has_python_sources,
    is_connect,
    session_class,
    time_settings,
)
from lancestat.spec.model import Target, is_local, remote_address, remote_secrets, with_attempts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Spark has one schema of views that belong to no database; it is named when the first session of a
# process starts, and so is lancestat's in sessions that lancestat starts.
VIEW_SCHEMA_SETTING = "spark.sql.globalTempDatabase"
VIEW_SCHEMA = "lancestat"


# Batches come and go all the time. Left to itself, glibc gives their memory back to the system and
# faults it in again, which takes a fifth of a worker's time; what is larger than it keeps comes in
# huge pages. Arrow's allocator reserves addresses ahead, which count towards
# spark.executor.pyspark.memory: 64 MB here, in place of a gigabyte.
ALLOCATOR_VARIABLES = {
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TOP_PAD_": str(16 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "MIMALLOC_ARENA_RESERVE": str((64 << 20) >> 10),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}


def start_session(
    target: Target, app_name: str, *, quiet: bool = True, is_short_lived: bool = False
) -> SparkSession:
    """Return the Spark session of a target, started unless this process has one.

    With a Spark Connect server, it is a new session there. Else the target's configuration takes
    precedence over lancestat's `defaults`. Storage options never become Spark properties. `quiet`
    shows what the JVM prints only if it fails to start; the code of a short-lived one is not
    optimised. RunError if Spark does not start or the server cannot be reached.
    """
    running = running_session()
    if running is not None:
        return running
    remote = remote_of(target)
    if remote is not None:
        timeout = target.spark_connect_timeout or CONNECT_TIMEOUT
        return connect(remote, target.spark_conf, app_name, timeout)
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    with changed_environment(**dict.fromkeys(CONNECT_VARIABLES)):
        master = target.master
        if SparkContext._active_spark_context is None and SparkContext._gateway is None:
            start_jvm(master, target.spark_conf, quiet=quiet, is_short_lived=is_short_lived)
        configured = {**dict(SparkConf().getAll()), **target.spark_conf}
        master = master or configured.get("spark.master") or "local[*]"
        conf = {**defaults(master, target.spark_conf), **target.spark_conf}
        if target.spark_package is not None and not is_local(master):
            require_same_versions(target.spark_package, target.package_location)
            conf |= package_settings(target.spark_package, configured)
        conf["spark.master"] = with_attempts(master, conf.get("spark.task.maxFailures"))
        conf |= daemon_settings(master, configured)
        builder = SparkSession.builder.appName(app_name)
        for key, value in conf.items():
            builder = builder.config(key, value)
        try:
            with changed_environment(PYSPARK_PYTHON=workers_python(master, configured)):
                session = builder.getOrCreate()
        except Exception as error:
            raise not_started(str(error), conf) from None
    if quiet:
        session.sparkContext.setLogLevel("ERROR")
    return session


# What records jobs wants to see the end of Spark, which a container may cut short.
_RECORDERS = (
    "spark.eventLog.enabled",
    "spark.extraListeners",
    "spark.plugins",
    "spark.sql.queryExecutionListeners",
    "spark.sql.streaming.streamingQueryListeners",
)


def stop_session(session: SparkSession, *, ends_process: bool) -> None:
    """Stop a session that `start_session` started and that runs no job.

    With `ends_process`, a local Spark without event log and listeners is not waited for: its JVM
    stops it and removes its files after this process.
    """
    if is_connect(session):
        if has_gone(session):
            abandon(session)
        else:
            session.stop()
        return
    context = session.sparkContext
    jvm = context._gateway.proc if context._gateway is not None else None
    configured = context.getConf()
    records = any(configured.get(name) not in (None, "", "false") for name in _RECORDERS)
    is_waited_for = records or sys.platform == "win32" or not is_local(context.master)
    if not ends_process or jvm is None or is_waited_for:
        session.stop()
    else:
        # Spark's JVM exits at the end of its input.
        jvm.stdin.close()


def workers_python(master: str, conf: Mapping[str, str]) -> str:
    """Return the Python that Spark's workers run: what is configured, else one like this.

    A path on this machine means nothing on others, and Spark refuses another minor version.
    """
    chosen = conf.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    like_this = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return chosen or (sys.executable if is_local(master) else like_this)


def daemon_settings(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """Return what has workers forked by `lancestat.spark.daemon`: nothing on other machines.

    Neither where one is configured, nor where workers run another Python than this process or may
    get lancestat from spark-submit.
    """
    is_here = is_local(master) and workers_python(master, conf) == sys.executable
    if not is_here or daemon.SETTING in conf or "PYSPARK_GATEWAY_PORT" in os.environ:
        return {}
    return {daemon.SETTING: daemon.__name__}


def running_session() -> SparkSession | None:
    """Return the Spark session of this thread, or else of the process, if there is any.

    One of Spark Connect comes first: its server may run in this process, with a classic session of
    its own that the caller knows nothing of.
    """
    remote = sys.modules.get("pyspark.sql.connect.session")
    if remote is not None:
        sessions = remote.SparkSession
        for session in (sessions.getActiveSession(), sessions._default_session):
            if session is not None and not session.client.is_closed:
                return cast("SparkSession", session)
    # PySpark leaves this behind when it stops a session of Spark Connect, and would then find no
    # classic session, nor start one.
    os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is None:
        session = SparkSession._instantiatedSession
    if session is None or is_connect(session):
        return session
    return None if session._jsc.sc().isStopped() else session


def remote_of(target: Target) -> str | None:
    """Return the URL of the Spark Connect server of a target, None where Spark is to be started.

    As in PySpark, `SPARK_REMOTE` names one where nothing else says where Spark is.
    """
    if target.spark_remote is not None or target.master is not None:
        return target.spark_remote
    remote = os.environ.get("SPARK_REMOTE", "")
    return remote if remote.startswith("sc://") else None


@contextmanager
def active(session: SparkSession) -> Iterator[None]:
    """Make a session the thread's active one while the block runs.

    Spark asks the active session, and not the one that it works for, for the configuration of
    estimates and for the data sources that are registered.
    """
    if is_connect(session):
        yield
        return
    sessions = session_class(session)
    before = sessions.getActiveSession()
    if before.isDefined() and before.get().equals(session._jsparkSession):
        yield
        return
    sessions.setActiveSession(session._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


NEEDS_JVM = (
    "attach, read_table, explain and sql need the driver's JVM, which a session of Spark Connect "
    "lacks: "
    "format('lancestat') reads tables there, and statistics in the manifest serve a server that "
    "has the connector"
)


def require_classic(session: object) -> None:
    """Raise SparkConnectSession for a session without a JVM of its own."""
    check_session("spark", session)
    if is_connect(session):
        raise SparkConnectSession(NEEDS_JVM, hint=_ELSEWHERE)


def classic_session(target: Target, app_name: str) -> SparkSession:
    """Return `start_session`, or raise SparkConnectSession where that is of Spark Connect."""
    running = running_session()
    if running is None and remote_of(target) is not None:
        raise SparkConnectSession(NEEDS_JVM, hint=_ELSEWHERE)
    if running is not None:
        require_classic(running)
    return running or start_session(target, app_name)


_ELSEWHERE = (
    "run, retry, ANALYZE TABLE and KNN joins work over Spark Connect; use a target with a master, "
    "or no session of Spark Connect, for the rest"
)


def task_threads(spark: SparkSession) -> int:
    """Return the number of cores that each task of a session has: `spark.task.cpus`."""
    return int(spark.conf.get("spark.task.cpus", "1") or 1)


def defaults(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """Return the configuration that lancestat prefers and a target may override."""
    threads = conf.get("spark.task.cpus", "1")
    chosen = {f"spark.executorEnv.{name}": threads for name in THREAD_VARIABLES}
    chosen |= {f"spark.executorEnv.{name}": value for name, value in ALLOCATOR_VARIABLES.items()}
    chosen["spark.ui.showConsoleProgress"] = "false"
    chosen[VIEW_SCHEMA_SETTING] = VIEW_SCHEMA
    chosen |= time_settings()
    if master.startswith("local"):
        chosen["spark.ui.enabled"] = "false"
        chosen["spark.driver.host"] = "127.0.0.1"
        chosen["spark.driver.bindAddress"] = "127.0.0.1"
        if _has_unix_sockets(conf):
            chosen["spark.python.unix.domain.socket.enabled"] = "true"
    return chosen


def _has_unix_sockets(conf: Mapping[str, str]) -> bool:
    # Over TCP the last bytes of a task wait 40 ms for an acknowledgement. A socket's path may have
    # about 100 bytes, half of which are Spark's, and so only the usual folder is trusted.
    options = [os.environ.get(name, "") for name in ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")]
    options += [value for key, value in conf.items() if key.endswith("JavaOptions")]
    is_elsewhere = any("java.io.tmpdir" in option for option in options)
    return hasattr(socket, "AF_UNIX") and sys.platform != "win32" and not is_elsewhere


def optimizer_settings(conf: Mapping[str, str]) -> dict[str, str]:
    """Return settings with which Spark uses column statistics, where none are configured."""
    settings = {"spark.sql.cbo.enabled": "true", "spark.sql.cbo.joinReorder.enabled": "true"}
    return {key: value for key, value in settings.items() if key not in conf}


_SECONDS_TO_CONNECT = 10
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")


def connect(
    remote: str, conf: Mapping[str, str], app_name: str, timeout: timedelta = CONNECT_TIMEOUT
) -> SparkSession:
    """Return a new session on a Spark Connect server, which is retried for `timeout`.

    SparkNotStarted if the server cannot be reached or refuses, PySpark is older than 4.0, or
    libraries are missing.
    """
    # PySpark 4.0 has both. Over Spark 3.5's Connect lancestat's jobs were seen not to end.
    if not has_python_sources():
        raise SparkNotStarted(
            "lancestat works over Spark Connect from Spark 4.0 on, and this is an older PySpark",
            hint="give the target a 'master' in place of 'remote', or install a newer PySpark",
        )
    try:
        from pyspark.sql.connect.session import SparkSession as RemoteSession
    except ImportError as error:
        raise SparkNotStarted(
            f"Spark Connect needs more libraries: {redact_line(str(error))}",
            hint="pip install 'lancestat[connect]'",
        ) from None
    try:
        _require_server(remote)
        builder = RemoteSession.builder.remote(remote).appName(app_name)
        for key, value in conf.items():
            builder = builder.config(key, value)
        session = builder.create()
        limit_retries(session, timeout)
        # The first answer of the server: one that refuses a token does so here.
        _ = session.version
    except LancestatError:
        raise
    except Exception as error:
        _forget(RemoteSession)
        raise SparkNotStarted(
            f"the Spark Connect server refuses: {redact_line(str(error), remote_secrets(remote))}",
            hint="check the target's 'remote'",
        ) from None
    return cast("SparkSession", session)


def _forget(sessions: Any) -> None:
    """Stop the session that PySpark registered before the server was asked for anything."""
    session = sessions._default_session or sessions.getActiveSession()
    if session is not None:
        # The server would be asked to release what it never granted.
        session.release_session_on_close = False
        with suppress(Exception):
            session.stop()


def _require_server(remote: str) -> None:
    """Refuse an address at which nobody listens; Spark would go on trying it for minutes."""
    if any(os.environ.get(name) or os.environ.get(name.upper()) for name in _PROXIES):
        return
    try:
        socket.create_connection(remote_address(remote), timeout=_SECONDS_TO_CONNECT).close()
    except OSError as error:
        raise SparkNotStarted(
            f"the Spark Connect server cannot be reached: {error.strerror or error}",
            hint="check the target's 'remote', and that the server runs",
        ) from None


# Where options of spark-submit can say where Spark runs.
_NAMES_OF_MASTERS = ("--master", "--remote", "--properties-file", "spark.master", "spark.remote")


def in_process_bytes(target: Target) -> int:
    """Return how much less of a table is read without Spark, 0 where Spark is to read all of it.

    That is so where a session is running already, under spark-submit, over Spark Connect, and where
    the master is not local. Neither pyspark is imported nor Java started to find out.
    """
    if _is_spark_running() or not _is_local(target):
        return 0
    return target.spark_min_bytes


# Plain PySpark has taken 8 to 11 s on machines with two cores (benchmarks/README.md).
_START_SECONDS = 9.0


def start_seconds(target: Target) -> float | None:
    """Estimate how long the target's Spark takes to start: none if it runs, or is a server.

    None where it is not local, since machines of clusters start in their own time.
    """
    if _is_spark_running() or remote_of(target) is not None:
        return 0.0
    return _START_SECONDS if _is_local(target) else None


def uses_package(target: Target) -> bool:
    """Whether workers take their modules from the target's package once its Spark is started.

    They do not where a session is running already, or where Spark is local or a server.
    """
    if target.spark_package is None or remote_of(target) is not None or _is_local(target):
        return False
    return "pyspark" not in sys.modules or running_session() is None


def joins_by_nearest_by(target: Target, session: SparkSession | None = None) -> bool:
    """Whether Spark's `nearestByJoin` can be used for joins: not over Spark Connect."""
    return has_nearest_by_join() and not _is_over_connect(target, session)


def _is_over_connect(target: Target, session: SparkSession | None) -> bool:
    if session is None and "pyspark" in sys.modules:
        session = running_session()
    return remote_of(target) is not None if session is None else is_connect(session)


def _is_spark_running() -> bool:
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return True
    return "pyspark" in sys.modules and running_session() is not None


def _is_local(target: Target) -> bool:
    if remote_of(target) is not None:
        return False
    if target.master is not None:
        return is_local(target.master)
    submitted = os.environ.get("PYSPARK_SUBMIT_ARGS", "")
    is_named = any(word in submitted for word in _NAMES_OF_MASTERS) or "MASTER" in os.environ
    return not is_named and not _has_default_master()


def _has_default_master() -> bool:
    return any(line.strip().startswith("spark.master") for line in spark_defaults().splitlines())


APP_NAME = "lancestat"
# A server that restarts more often may do so because of what the run asks of it.
MAX_SERVER_RESTARTS = 2


class RunSession:
    """The session of a run on a target's Spark; no JVM starts before it is first needed.

    A session that was there before, `session` or else that of the thread which enters this one or
    of the process, is used as it is and left running. Threads that wait for Spark return only when
    their jobs end, or after `cancel`. `computes` is whether long computations are to come, for
    which the JVM takes time to optimise its code. Where the process ends next, Spark's end is not
    awaited.
    """

    def __init__(
        self,
        target: Target,
        *,
        computes: bool = False,
        session: SparkSession | None = None,
        ends_process: bool = False,
    ) -> None:
        self._target = target
        self._computes = computes
        self._ends_process = ends_process
        self._starting = threading.Lock()
        self._quiet = ExitStack()
        self._given = session
        self._session: SparkSession | None = None
        self._is_own_session = False
        self._groups: set[str] = set()
        self._is_cancelled = False
        self._failure: SparkNotStarted | None = None
        self._restarts = 0

    def __enter__(self) -> RunSession:
        if self._given is None and "pyspark" in sys.modules:
            # Other threads, in which nodes are worked on, do not see a session of this one.
            self._given = running_session()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._quiet.close()
        if kind is not None:
            self.cancel()
        if self._session is not None and self._is_own_session:
            stop_session(self._session, ends_process=self._ends_process)

    @contextmanager
    def working(
        self, what: str, before_start: Callable[[], None] = lambda: None
    ) -> Iterator[tuple[SparkSession, str]]:
        """Lend the session, which is started if need be, and a group of jobs that `cancel` ends.

        `what` is being done, for messages; `before_start` is called where a session has to be
        started. SparkNotStarted if Spark did not start or its server has gone, also for all later
        calls; SessionLostError if the server restarted meanwhile; Cancelled once the run was
        cancelled.
        """
        session = self._started(before_start)
        with self._cancellable(session, what) as group:
            yield session, group

    @contextmanager
    def _cancellable(self, session: SparkSession, what: str) -> Iterator[str]:
        """A group of Spark jobs that `cancel` ends."""
        group = f"{APP_NAME}-{uuid.uuid4().hex}"
        self._groups.add(group)
        try:
            self.refuse_when_cancelled(what)
            yield group
        except SparkNotStarted as error:
            self._failure = self._failure or error
            raise
        except Exception as error:
            if is_connect(session) and (session is not self._session or is_forgotten(error)):
                raise self._without(session) from error
            raise
        finally:
            self._groups.discard(group)

    def _without(self, session: SparkSession) -> Exception:
        """Drop an own session that its server has forgotten, and return the error for its work."""
        with self._starting:
            if not self._is_own_session:
                self._failure = self._failure or SparkNotStarted(
                    "the Spark Connect server has restarted, and no longer knows the session",
                    hint="create a session, then run lancestat retry",
                )
            elif self._session is session:
                self._session = None
                self._restarts += 1
                abandon(session)
                if self._restarts > MAX_SERVER_RESTARTS:
                    times = f"{self._restarts} times in this run"
                    self._failure = SparkNotStarted(
                        f"the Spark Connect server has restarted {times}",
                        hint="look for the cause in the server's log, then run lancestat retry",
                    )
            return self._failure or SessionLostError("the Spark Connect server has restarted")

    def cancel(self) -> None:
        """Stop all work that goes on, and refuse more with `Cancelled`."""
        self._is_cancelled = True
        if self._session is not None:
            from lancestat.spark.jobs import jobs_of

            jobs = jobs_of(self._session)
            for group in tuple(self._groups):
                jobs.cancel(group, lambda group=group: group not in self._groups)  # type: ignore[misc]

    def _started(self, before_start: Callable[[], None]) -> SparkSession:
        with self._starting:
            if self._failure is not None:
                raise self._failure
            if self._session is None:
                try:
                    self._start(before_start)
                except SparkNotStarted as error:
                    self._failure = error
                    raise
            assert self._session is not None
            return self._session

    def _start(self, before_start: Callable[[], None]) -> None:
        running = self._given or running_session()
        if running is None:
            before_start()
        self._session = running or start_session(
            self._target, APP_NAME, is_short_lived=not self._computes
        )
        self._is_own_session = running is None
        self._quiet.enter_context(silent_query_logger())
        if running is not None and is_connect(running):
            self._quiet.enter_context(outages_said(running))

    def refuse_when_cancelled(self, what: str) -> None:
        """Raise `Cancelled` once the run is cancelled."""
        if self._is_cancelled:
            raise Cancelled(f"{what} was cancelled")
