"""Sends what happens in runs to OpenLineage, where its client is installed and configured.

The client's own settings alone decide: its environment variables and `openlineage.yml`. Without
them nothing of it is imported. A thread makes and sends the events, so that no node waits for a
server. Whatever becomes of them, the run goes on: what is not sent is one warning.
"""

from __future__ import annotations

import logging
import os
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING

from lancestat.redact import redact_line
from lancestat.runs.events import (
    Event,
    FragmentsRead,
    Listener,
    NodeFinished,
    NodeStarted,
    RunFinished,
    RunStarted,
)
from lancestat.spec.model import ProjectSpec

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import RunEvent
    from openlineage.client.transport import Transport
    from requests import Response

_log = logging.getLogger("lancestat.lineage")

TOTAL_SECONDS = 30.0
"""A run that has ended waits no longer for its events to be sent."""

_VARIABLES = (
    "OPENLINEAGE_URL",
    "OPENLINEAGE_CONFIG",
    "OPENLINEAGE__TRANSPORT",
    "OPENLINEAGE__TRANSPORT__TYPE",
)
_FILES = ("openlineage.yml", "~/.openlineage/openlineage.yml")


def lineage_listener(spec: ProjectSpec) -> Listener | None:
    """Return what sends the events of one run to OpenLineage, None where that is not configured."""
    if os.environ.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return None
    # Those of Path fail without a home folder, or where it cannot be read.
    is_configured = any(map(os.environ.get, _VARIABLES)) or any(
        os.path.isfile(os.path.expanduser(file))  # noqa: PTH111, PTH113
        for file in _FILES
    )
    return Lineage(spec) if is_configured else None


class Lineage:
    """Listens to the events of one run, and sends them on as those of OpenLineage."""

    def __init__(self, spec: ProjectSpec) -> None:
        self._spec = spec
        self._waiting: SimpleQueue[Event | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._send_all, name="lineage", daemon=True)
        self._has_ended = threading.Event()
        self._problem: str | None = None

    def __call__(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._waiting.put(event)
                self._thread.start()
            case NodeStarted() | FragmentsRead() | NodeFinished():
                self._waiting.put(event)
            case RunFinished():
                self._has_ended.set()
                self._waiting.put(event)
                self._waiting.put(None)
                self._wait()

    def _wait(self) -> None:
        """Wait for the last event to be sent, and warn if any was not."""
        self._thread.join(TOTAL_SECONDS)
        if self._thread.is_alive():
            self._problem = f"it does not answer within {TOTAL_SECONDS:.0f} s"
        if self._problem is not None:
            _log.warning("OpenLineage did not get all events of the run: %s", self._problem)

    def _send_all(self) -> None:
        try:
            from openlineage.client import OpenLineageClient

            from lancestat.pipelines.openlineage import RunEvents
        except ImportError:
            self._problem = "its client is missing or too old, pip install 'lancestat[openlineage]'"
            return
        # Without a handler of the program, what they log would be printed beside the one warning.
        for library in ("openlineage", "urllib3"):
            logging.getLogger(library).addHandler(logging.NullHandler())
        try:
            client, events = OpenLineageClient(), RunEvents(self._spec)
            if client.transport.kind == "console" and not (client.config.transport or {}).get(
                "type"
            ):
                raise ValueError("no transport is configured")
            _refuse_redirects(client.transport)
        except Exception as error:
            self._problem = _words(error)
            return
        for event in iter(self._waiting.get, None):
            try:
                for made in events.of(event):
                    if not self._is_sent(client, made) and self._has_ended.is_set():
                        # Nobody answers there, and the run waits.
                        return
            except Exception as error:
                self._problem = _words(error)
        if not client.close(TOTAL_SECONDS):
            self._problem = "some were not sent when the run ended"

    def _is_sent(self, client: OpenLineageClient, event: RunEvent) -> bool:
        """Send an event, and return whether there was an answer, if only that it is refused."""
        try:
            client.emit(event)
        except Exception as error:
            self._problem = _words(error)
            return getattr(error, "response", None) is not None
        return True


def _refuse_redirects(transport: Transport) -> None:
    """Let events that are redirected be errors: most redirects drop what is posted."""
    for each in getattr(transport, "transports", [transport]):
        if each.kind == "http":
            each.session.hooks["response"].append(_refuse_redirect)


def _refuse_redirect(response: Response, **_: object) -> None:
    from requests import TooManyRedirects

    if response.is_redirect:
        raise TooManyRedirects(
            f"it answers {response.status_code}, and redirects are not followed", response=response
        )


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {redact_line(str(error))}"
