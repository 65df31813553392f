"""Calls what a project declares under `hooks` when a run starts and ends.

A webhook is signed as Standard Webhooks has it (https://www.standardwebhooks.com): the receiver
compares the header `webhook-signature` with the HMAC-SHA256 of ID, time and body. Whatever becomes
of a hook, the run goes on: a failure is a warning.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import pkgutil
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from importlib.metadata import entry_points
from typing import Any

from lancestat.errors import HookNotFound, InvalidProject, LancestatError, did_you_mean
from lancestat.formats import format_instant
from lancestat.redact import Audience
from lancestat.runs.events import Event, RunFinished, RunStarted
from lancestat.runs.execute import stored_result
from lancestat.runs.result import RunResult
from lancestat.spec.hooks import ENCODED, Hook, When
from lancestat.spec.model import ProjectSpec
from lancestat.version import __version__

_log = logging.getLogger("lancestat.hooks")

GROUP = "lancestat.hooks"
"""The group of entry points that `call` names."""

ATTEMPTS = 3
ATTEMPT_SECONDS = 10.0
TOTAL_SECONDS = 30.0
"""A run waits no longer for a webhook, with all its attempts."""

_PAUSE_SECONDS = 1.0
_BUSY = frozenset((408, 425, 429))

Function = Callable[[Event], object]


class HookCaller:
    """Listens to the events of one run, and calls the hooks of its project.

    Webhooks that a run's start calls are sent while it goes on.

    Raises:
        InvalidProject: A hook needs an environment variable that is not set.
        HookNotFound: A function cannot be imported.
    """

    def __init__(self, spec: ProjectSpec) -> None:
        hooks = spec.hooks
        if hooks.errors:
            raise spec.redactor.error(InvalidProject(hooks.errors), Audience.PUBLIC)
        self._spec = spec
        every = (*hooks.on_run_start, *hooks.on_run_end)
        self._functions = {hook.call: _function(hook) for hook in every if hook.call is not None}
        self._sending: list[_Sending] = []

    def __call__(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._call(self._spec.hooks.on_run_start, event)
            case RunFinished(result=result):
                is_well = result.ok and all(each.severity != "error" for each in result.findings)
                unwanted = When.FAILURE if is_well else When.SUCCESS
                ending = self._spec.hooks.on_run_end
                self._call([hook for hook in ending if hook.when != unwanted], event)
                for sending in self._sending:
                    sending.wait()

    def _call(self, hooks: Iterable[Hook], event: RunStarted | RunFinished) -> None:
        content: dict[str, object] = {}
        for hook in hooks:
            if hook.call is None:
                content = content or self._content(event)
                self._sending.append(_Sending(hook, event, content))
                continue
            try:
                self._functions[hook.call](event)
            except Exception as error:
                _log.warning("%s failed: %s: %s", hook, type(error).__name__, error)

    def _content(self, event: RunStarted | RunFinished) -> dict[str, object]:
        """Return what webhooks get of an event."""
        if isinstance(event, RunFinished):
            return self._finished(event.result)
        return {
            "run_id": event.run_id,
            "project": event.project,
            "target": event.target,
            "command": event.command,
            "nodes": [node.name for node in event.nodes],
        }

    def _finished(self, result: RunResult) -> dict[str, object]:
        started, finished = result.started_at, result.finished_at
        elapsed = (finished - started).total_seconds() if started and finished else None
        content: dict[str, object] = {
            "run_id": result.run_id,
            "project": result.project,
            "target": result.target,
            "command": result.command,
            "status": result.status.value,
            "started_at": _instant(started),
            "finished_at": _instant(finished),
            "elapsed_seconds": elapsed,
            "nodes": [stored_result(self._spec, node).to_json() for node in result.nodes],
            "findings": [finding.to_json() for finding in result.findings],
        }
        redactor = self._spec.redactor
        return {key: redactor.json(value, Audience.PUBLIC) for key, value in content.items()}


def _function(hook: Hook) -> Function:
    name = str(hook.call)
    function: object = None
    try:
        if ":" in name:
            function = pkgutil.resolve_name(name)
        else:
            found = entry_points(group=GROUP)
            if name not in found.names:
                raise HookNotFound(
                    f"no entry point '{name}' of the group {GROUP} is installed",
                    location=hook.location,
                    hint=did_you_mean(name, sorted(found.names), "installed"),
                )
            function = found[name].load()
    except LancestatError:
        raise
    except Exception as error:
        raise HookNotFound(
            f"{hook} cannot be imported: {type(error).__name__}: {error}",
            location=hook.location,
            hint="install the package that has it where lancestat runs",
        ) from None
    if not callable(function):
        raise HookNotFound(f"{hook} is not a function", location=hook.location)
    return function


class _Sending:
    """A webhook on its way, for whose end a run waits a limited time."""

    def __init__(self, hook: Hook, event: Event, content: Mapping[str, object]) -> None:
        self._hook = hook
        self._end = time.monotonic() + TOTAL_SECONDS
        self._thread = threading.Thread(target=self._send, args=(event, content), daemon=True)
        self._problem: str | None = None
        self._thread.start()

    def wait(self) -> None:
        """Wait for the end, and warn if the webhook did not arrive."""
        self._thread.join(max(0.0, self._end - time.monotonic()))
        if self._thread.is_alive():
            self._problem = f"it does not answer within {TOTAL_SECONDS:.0f} s"
        if self._problem is not None:
            _log.warning("the %s failed: %s", self._hook, self._problem)

    def _send(self, event: Event, content: Mapping[str, object]) -> None:
        try:
            _post(self._hook, event, content)
        except _NotDeliveredError as error:
            self._problem = str(error)
        except Exception as error:
            # A URL or a proxy that `urllib` cannot use; its words may have the URL.
            self._problem = type(error).__name__


class _NotDeliveredError(Exception):
    """A webhook did not arrive, and why, without its URL."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow none: another server would get what was meant for this one."""


_opener = urllib.request.build_opener(_NoRedirects)


def _post(hook: Hook, event: Event, content: Mapping[str, object]) -> None:
    """Send an event to a webhook, again where that may help.

    Raises:
        _NotDeliveredError: All attempts failed, or the server refuses it.
    """
    message = {"type": event.name, "timestamp": format_instant(event.at), "data": content}
    body = json.dumps(message, ensure_ascii=False, allow_nan=False).encode()
    # The same on every attempt, so that a receiver can tell what it has already.
    id = f"{content['run_id']}.{event.name}"
    pause = _PAUSE_SECONDS
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _post_once(hook, id, body)
            return
        except urllib.error.HTTPError as error:
            problem, status = f"it answers {error.code}", error.code
            error.close()
            if 300 <= status < 400:
                raise _NotDeliveredError(f"{problem}, and redirects are not followed") from None
            if status < 500 and status not in _BUSY:
                raise _NotDeliveredError(problem) from None
        except TimeoutError:
            problem = f"it does not answer within {ATTEMPT_SECONDS:.0f} s"
        except OSError as error:
            reason = getattr(error, "reason", error)
            problem = getattr(reason, "strerror", None) or type(reason).__name__
            if isinstance(reason, TimeoutError):
                problem = f"it cannot be reached within {ATTEMPT_SECONDS:.0f} s"
        if attempt < ATTEMPTS:
            time.sleep(pause)
            pause *= 2
    raise _NotDeliveredError(f"{problem}, {ATTEMPTS} times")


def _post_once(hook: Hook, id: str, body: bytes) -> None:
    sent = str(int(time.time()))
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"lancestat/{__version__}",
        "webhook-id": id,
        "webhook-timestamp": sent,
    }
    if hook.secret is not None:
        headers["webhook-signature"] = signature(hook.secret, id, sent, body)
    request = urllib.request.Request(str(hook.webhook), body, headers, method="POST")
    with _opener.open(request, timeout=ATTEMPT_SECONDS) as response:
        response.read(1)


def signature(secret: str, id: str, sent: str, body: bytes) -> str:
    """Return the signature of a webhook by Standard Webhooks.

    Args:
        secret: `whsec_` and the key in Base64, or any other text, whose bytes are the key.
        id: The header `webhook-id`.
        sent: The header `webhook-timestamp`, in seconds since 1970.
        body: What is posted.
    """
    encoded = secret.removeprefix(ENCODED)
    key = secret.encode() if encoded == secret else base64.b64decode(encoded)
    digest = hmac.new(key, b".".join((id.encode(), sent.encode(), body)), hashlib.sha256)
    return f"v1,{base64.b64encode(digest.digest()).decode()}"


def _instant(at: datetime | None) -> str | None:
    return format_instant(at) if at else None
