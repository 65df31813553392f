"""Connects to Spark Connect servers."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from lancestat.errors import LancestatError, SparkNotStarted
from lancestat.redact import redact_line
from lancestat.spark.outage import CONNECT_TIMEOUT, limit_retries
from lancestat.spark.versions import has_python_sources
from lancestat.spec.spark_master import remote_address, remote_secrets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SECONDS_TO_CONNECT = 10
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")


def connect(
    remote: str, conf: Mapping[str, str], app_name: str, timeout: timedelta = CONNECT_TIMEOUT
) -> SparkSession:
    """Return a new session on a Spark Connect server.

    Args:
        remote: Its URL; the value may hold a token.
        conf: Settings of the session; Spark ignores those that only a server can have.
        app_name: As Spark shows it.
        timeout: For how long a server that does not answer is tried from then on.

    Raises:
        SparkNotStarted: the server cannot be reached or refuses, PySpark is older than 4.0, or
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
