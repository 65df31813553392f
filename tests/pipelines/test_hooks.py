"""Hooks of a project: functions, and webhooks that a server on loopback gets."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import lance
import pytest
from click.testing import CliRunner, Result

from lancestat.cli.main import cli
from lancestat.events import Event, RunFinished, RunStarted
from lancestat.pipelines import hooks as module
from lancestat.pipelines.hooks import signature
from tests.http_server import Handler, serving
from tests.runs.world import orders

SECRET = "hook-canary-71f0c2"


class Receiver(Handler):
    """Keeps what it gets, and answers with the statuses of `answers` first."""

    received: ClassVar[list[tuple[dict[str, str], bytes]]] = []
    answers: ClassVar[list[int]] = []

    def do_POST(self) -> None:  # noqa: N802
        self.received.append(({k.lower(): v for k, v in self.headers.items()}, self.body()))
        status = self.answers.pop(0) if self.answers else 204
        if status == 0:
            time.sleep(1)
        self.answer(status or 204, b"", {"Location": f"http://{self.headers['Host']}/elsewhere"})

    def do_GET(self) -> None:  # noqa: N802
        self.do_POST()


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(Receiver, "received", [])
    monkeypatch.setattr(Receiver, "answers", [])
    monkeypatch.setattr(module, "_PAUSE_SECONDS", 0.01)
    with serving(Receiver) as address:
        yield f"{address}/{SECRET}-path"


def project(folder: Path, hooks: dict[str, Any], *tables: str) -> None:
    (folder / "specs").mkdir(exist_ok=True)
    written = {"name": "shop", "targets": {"dev": {"state": "state"}}, "hooks": hooks}
    (folder / "lancestat_project.yml").write_text(json.dumps(written, indent=1))
    nodes = [{"name": name, "uri": f"{name}.lance"} for name in tables]
    (folder / "specs" / "shop.yml").write_text(json.dumps({"tables": nodes}))
    lance.write_dataset(orders(0, 30), str(folder / "here.lance"), mode="overwrite")


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "installed"))


def invoke(*words: str) -> Result:
    return CliRunner().invoke(cli, words)


def messages() -> list[dict[str, Any]]:
    return [json.loads(body) for _, body in Receiver.received]


def test_a_webhook_gets_how_the_run_went(tmp_path: Path, url: str) -> None:
    hook = {"webhook": url, "secret": SECRET}
    project(tmp_path, {"on_run_start": [hook], "on_run_end": [hook]}, "here", "gone")
    done = invoke("run", "--output", "json")
    assert done.exit_code == 1
    started, finished = sorted(messages(), key=lambda message: message["timestamp"])
    assert (started["type"], finished["type"]) == ("run_started", "run_finished")
    assert started["data"]["nodes"] == ["here", "gone"]
    data = finished["data"]
    assert data["run_id"] == started["data"]["run_id"]
    assert (data["project"], data["target"], data["command"]) == ("shop", "dev", "run")
    assert data["status"] == "error"
    printed = json.loads(done.stdout)
    for node, shown in zip(data["nodes"], printed["nodes"], strict=True):
        assert (node["name"], node["status"]) == (shown["name"], shown["status"])
        assert (node["code"], node["rows_scanned"]) == (shown["code"], shown["rows_scanned"])
    for headers, body in Receiver.received:
        signed = (headers["webhook-id"], headers["webhook-timestamp"])
        assert headers["webhook-signature"] == signature(SECRET, *signed, body)
        assert abs(int(signed[1]) - time.time()) < 60
    assert len({headers["webhook-id"] for headers, _ in Receiver.received}) == 2


def test_signatures_are_those_of_standard_webhooks() -> None:
    """The example of the specification's own libraries."""
    found = signature(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "1614265330",
        b'{"test": 2432232314}',
    )
    assert found == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize(("tables", "expected"), [(["here"], ["b", "c"]), (["gone"], ["a", "c"])])
def test_hooks_are_called_after_the_runs_that_they_are_for(
    tmp_path: Path, url: str, tables: list[str], expected: list[str]
) -> None:
    whens = {"a": "failure", "b": "success", "c": "always"}
    hooks = [{"webhook": f"{url}/{name}", "when": when} for name, when in whens.items()]
    called: list[str] = []

    def post(handler: Receiver) -> None:
        handler.body()
        called.append(handler.path[-1])
        handler.answer(200, b"")

    project(tmp_path, {"on_run_end": hooks}, *tables)
    with patch.object(Receiver, "do_POST", post):
        invoke("run")
    assert sorted(called) == expected


def warnings(result: Result) -> list[str]:
    return [line for line in result.stderr.splitlines() if line.startswith("warning:")]


@pytest.mark.parametrize(
    ("answers", "attempts", "problem"),
    [
        ([500, 503], 3, None),
        ([500, 429, 502], 3, "it answers 502, 3 times"),
        ([0, 0], 3, None),
        ([404], 1, "it answers 404"),
        ([302], 1, "it answers 302, and redirects are not followed"),
    ],
)
def test_a_webhook_is_sent_again_where_that_may_help(
    tmp_path: Path,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    answers: list[int],
    attempts: int,
    problem: str | None,
) -> None:
    monkeypatch.setattr(module, "ATTEMPT_SECONDS", 0.2)
    project(tmp_path, {"on_run_end": [{"webhook": url}]}, "here")
    Receiver.answers[:] = answers
    done = invoke("run")
    assert done.exit_code == 0
    assert len(Receiver.received) == attempts
    assert len({headers["webhook-id"] for headers, _ in Receiver.received}) == 1
    line = Path("lancestat_project.yml").read_text().splitlines().index("   {") + 1
    place = f"lancestat_project.yml:{line}:4"
    expected = [] if problem is None else [f"warning: the webhook at {place} failed: {problem}"]
    assert warnings(done) == expected


def test_a_run_does_not_wait_long_for_a_webhook(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TOTAL_SECONDS", 0.2)
    project(tmp_path, {"on_run_end": [{"webhook": url}]}, "here")
    Receiver.answers[:] = [0]
    done = invoke("run")
    [warning] = warnings(done)
    assert done.exit_code == 0 and warning.endswith("it does not answer within 0 s")


@pytest.mark.usefixtures("url")
def test_a_server_that_is_down_is_a_warning(tmp_path: Path) -> None:
    project(tmp_path, {"on_run_start": [{"webhook": "http://127.0.0.1:1/x"}]}, "here")
    done = invoke("run")
    [warning] = warnings(done)
    assert done.exit_code == 0 and warning.endswith("Connection refused, 3 times")


def test_secrets_of_hooks_are_shown_nowhere(tmp_path: Path, url: str) -> None:
    Receiver.answers[:] = [404, 404]
    hook = {"webhook": url, "secret": SECRET}
    project(tmp_path, {"on_run_start": [hook], "on_run_end": [hook]}, "here", "gone")
    said = [invoke(*words) for words in (["run"], ["plan"], ["runs"], ["debug"], ["list"])]
    assert not [result.output for result in said if SECRET in result.output + result.stderr]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    holding = [path.name for path in files if SECRET.encode() in path.read_bytes()]
    assert holding == ["lancestat_project.yml"]


@pytest.mark.parametrize(
    "hook",
    [
        {"webhook": f"ftp://x.example/{SECRET}"},
        {"webhook": f"https://x.example/{SECRET}", "secret": f"whsec_{SECRET}!"},
        {"webhook": f"https://x.example/{SECRET}", "secret": [SECRET]},
        {"webhook": f"https://x.example/{SECRET}", "when": "never"},
        {"webhook": f"https://x.example/{SECRET}", "call": f"https://x.example/{SECRET}"},
    ],
)
def test_errors_in_hooks_show_no_secret(tmp_path: Path, hook: dict[str, Any]) -> None:
    project(tmp_path, {"on_run_end": []}, "here")
    text = json.dumps({"name": "shop", "targets": {"dev": {}}, "hooks": {"on_run_end": [hook]}})
    Path("lancestat_project.yml").write_text(text)
    done = invoke("validate")
    assert done.exit_code == 1 and "lancestat_project.yml:1:" in done.stderr
    assert SECRET not in done.output + done.stderr


def test_hooks_need_their_variables_only_when_they_are_called(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = {"webhook": url, "secret": "{{ env_var('HOOK_KEY') }}"}
    project(tmp_path, {"on_run_end": [hook]}, "here")
    for words in (["validate"], ["plan"], ["docs"], ["diff", ".", "."]):
        done = invoke(*words)
        assert done.exit_code == 0, done.output
    done = invoke("run")
    assert done.exit_code == 1
    assert "LS108 lancestat_project.yml:" in done.stderr
    assert "environment variable 'HOOK_KEY' is not set" in done.stderr
    assert lance.dataset("here.lance").version == 1
    assert Receiver.received == []
    monkeypatch.setenv("HOOK_KEY", SECRET)
    assert invoke("run").exit_code == 0
    assert len(Receiver.received) == 1


def test_a_function_gets_the_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / "installed"
    installed.mkdir()
    (installed / "shop_hooks.py").write_text(
        "events = []\ndef keep(event): events.append(event)\ndef fail(event): 1 / 0\n"
    )
    found = EntryPoints([EntryPoint("keep", "shop_hooks:keep", module.GROUP)])
    monkeypatch.setattr(module, "entry_points", lambda group: found.select(group=group))
    hooks = {
        "on_run_start": [{"call": "shop_hooks:fail"}, {"call": "shop_hooks:keep"}],
        "on_run_end": [{"call": "keep"}],
    }
    project(tmp_path, hooks, "here")
    assert invoke("plan").exit_code == 0
    assert "shop_hooks" not in sys.modules
    done = invoke("run")
    assert done.exit_code == 0
    assert warnings(done) == [
        "warning: hook 'shop_hooks:fail' failed: ZeroDivisionError: division by zero"
    ]
    events: list[Event] = sys.modules.pop("shop_hooks").events
    started, finished = events
    assert isinstance(started, RunStarted) and isinstance(finished, RunFinished)
    assert started.run_id == finished.result.run_id


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("nothing_such", "no entry point 'nothing_such' of the group lancestat.hooks is installed"),
        ("no_module:f", "cannot be imported: ModuleNotFoundError: No module named 'no_module'"),
        ("json:nothing", "cannot be imported: AttributeError"),
        ("sys:path", "hook 'sys:path' is not a function"),
    ],
)
def test_a_function_that_is_not_there_ends_the_run_before_it_begins(
    tmp_path: Path, call: str, message: str
) -> None:
    project(tmp_path, {"on_run_end": [{"call": call}]}, "here")
    done = invoke("run")
    assert done.exit_code == 1
    assert "LS525 lancestat_project.yml:" in done.stderr and message in done.stderr
    assert lance.dataset("here.lance").version == 1


@pytest.mark.parametrize(
    ("hooks", "message"),
    [
        ({"on_run_end": [{"call": "a:b", "webhook": "https://x.example"}]}, "found 'call' and"),
        ({"on_run_end": [{}]}, "must have exactly one of 'call', 'webhook'"),
        ({"on_run_end": [{"webhook": "ftp://x.example"}]}, "'webhook' must be an http"),
        ({"on_run_end": [{"call": "a:b", "secret": "long enough"}]}, "'webhook'"),
        ({"on_run_start": [{"call": "a:b", "when": "failure"}]}, "'when' is for hooks of"),
        ({"on_run_end": [{"call": "a:b", "when": "never"}]}, "must be one of 'success', 'failure'"),
        (
            {"on_run_end": [{"webhook": "https://x.example", "secret": "whsec_no!base64"}]},
            "'secret' begins with 'whsec_', and the rest is not Base64",
        ),
        ({"on_run_end": [{"webhook": "{{ nothing }}"}]}, "template:"),
    ],
)
def test_what_is_wrong_with_hooks_is_found_by_validate(
    tmp_path: Path, hooks: dict[str, Any], message: str
) -> None:
    project(tmp_path, hooks, "here")
    done = invoke("validate")
    assert done.exit_code == 1
    assert message in done.stderr and "lancestat_project.yml:" in done.stderr, done.stderr
