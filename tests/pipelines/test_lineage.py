"""Events of OpenLineage, in files and at a server on loopback."""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import ClassVar
from unittest.mock import patch

import lance
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from lancestat import Project
from lancestat.cli.main import cli
from lancestat.events import Cancelling, Event, NodeFinished
from lancestat.pipelines import lineage as module
from lancestat.pipelines.column_facet import FACET, generated_files
from lancestat.pipelines.openlineage import dataset_name
from lancestat.runs.result import RunInterrupted
from lancestat.tables.analyze import RangePartials, ScanTask
from lancestat.tables.work_items import ScanRange
from tests import canaries
from tests.examples import sample
from tests.http_server import Handler, serving
from tests.pipelines.openlineage_events import TOP, Json, check, ended, events_of, only, to_file
from tests.runs.world import orders, write_project

RUN_ID = "0190a0e0-0000-7000-8000-000000000001"
NO_RETRY = '{"total": 0}'


@pytest.fixture(autouse=True)
def sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where events are sent: a file. The project has a table, and one that is not there."""
    path = tmp_path / "events.jsonl"
    write_project(tmp_path, "here", "gone")
    lance.write_dataset(orders(0, 30), str(tmp_path / "here.lance"), max_rows_per_file=10)
    monkeypatch.chdir(tmp_path)
    with only(**to_file(path)):
        yield path


def invoke(*words: str) -> Result:
    return CliRunner().invoke(cli, words)


def warnings(result: Result) -> list[str]:
    return [line for line in result.stderr.splitlines() if line.startswith("warning:")]


def facets_of(sent: Path, table: str = "here") -> Json:
    [dataset] = ended(events_of(sent), f"table.shop.{table}")["inputs"]
    facets: Json = dataset["facets"]
    return facets


def test_a_run_is_the_parent_of_the_runs_of_its_nodes(sent: Path) -> None:
    assert invoke("run").exit_code == 1
    events = events_of(sent)
    run = ended(events, "lancestat-run-shop")
    assert {event["job"]["namespace"] for event in events} == {"lancestat"}
    assert run["eventType"] == "FAIL"
    assert run["run"]["facets"]["errorMessage"]["message"] == "1 of 2 nodes failed: gone"
    for name, state in (("here", "COMPLETE"), ("gone", "FAIL")):
        node = ended(events, f"table.shop.{name}")
        assert node["eventType"] == state
        parent = node["run"]["facets"]["parent"]
        assert parent["run"]["runId"] == parent["root"]["run"]["runId"] == run["run"]["runId"]
        assert parent["job"]["name"] == parent["root"]["job"]["name"] == "lancestat-run-shop"
        [dataset] = node["inputs"]
        assert (dataset["namespace"], dataset["name"]) == (
            "file",
            str(Path(f"{name}.lance").resolve()),
        )
        assert node["outputs"] == []
    assert (
        "LS201 specs/shop.yml:3:12  there is no Lance dataset at"
        in (ended(events, "table.shop.gone")["run"]["facets"]["errorMessage"]["message"])
    )


def test_a_table_comes_with_its_statistics(sent: Path, tmp_path: Path) -> None:
    rows = pa.table(
        {
            "day": [date(2024, 1, 1) + timedelta(number) for number in range(4)],
            "price": pa.array([Decimal(number) / 4 for number in range(4)], pa.decimal128(9, 2)),
            "name": ["a", "b", None, "d"],
            "size": [1.5, 2.5, 3.5, 4.5],
            "count": pa.array([1, 2, 3, 2**53 + 1], pa.int64()),
        }
    )
    lance.write_dataset(rows, str(tmp_path / "here.lance"), mode="overwrite")
    invoke("run")
    [dataset] = ended(events_of(sent), "table.shop.here")["inputs"]
    facets, metrics = dataset["facets"], dataset["facets"]["dataQualityMetrics"]
    assert facets["version"]["datasetVersion"] == "2"
    assert lance.dataset("here.lance").version == 3
    assert facets["storage"]["storageLayer"] == "lance"
    types = {column["name"]: column["type"] for column in facets["schema"]["fields"]}
    assert types == {
        "day": "date",
        "price": "decimal(9,2)",
        "name": "string",
        "size": "double",
        "count": "bigint",
    }
    assert (metrics["rowCount"], metrics["fileCount"]) == (4, 1)
    assert metrics["bytes"] > 0
    columns = metrics["columnMetrics"]
    counts = {"nullCount": 0, "distinctCount": 4, "count": 4}
    assert columns["size"] == {**counts, "min": 1.5, "max": 4.5}
    assert columns["count"] == {**counts, "min": 1, "max": 2**53 + 1}
    assert columns["day"] == columns["price"] == counts
    assert columns["name"] == {"nullCount": 1, "distinctCount": 3, "count": 3}
    bounds = {
        name: (column.get("min"), column.get("max"))
        for name, column in facets[FACET]["columns"].items()
    }
    assert bounds == {
        "day": ("2024-01-01", "2024-01-04"),
        "price": ("0.00", "0.75"),
        "name": ("a", "d"),
        "size": (None, None),
        "count": (None, None),
    }
    older = dataset["inputFacets"]["dataQualityMetrics"]
    assert (older["rowCount"], older["columnMetrics"]) == (4, columns)
    assert dataset["inputFacets"]["inputStatistics"]["rowCount"] == 4
    assert dataset["inputFacets"]["inputStatistics"]["size"] > 0


@pytest.mark.parametrize("publish", ["manifest", "none"])
def test_bounds_of_strings_are_left_out_where_values_are_not_shown(
    sent: Path, tmp_path: Path, publish: str
) -> None:
    table = {"name": "here", "uri": "here.lance", "publish": publish}
    for shows in (True, False):
        sent.unlink(missing_ok=True)
        write_project(tmp_path, {**table, "show_values": shows})
        assert invoke("run", "--full-refresh").exit_code == 0
        status = facets_of(sent)[FACET]["columns"]["o_status"]
        assert ("open" in json.dumps(status)) == shows
        assert facets_of(sent)["dataQualityMetrics"]["columnMetrics"]["o_id"]["max"] == 29


def test_the_statistics_are_of_the_version_that_was_read(sent: Path) -> None:
    def append(event: Event) -> None:
        if isinstance(event, NodeFinished):
            more = orders(30, 5).append_column("more", pa.array(range(5)))
            lance.write_dataset(more, "here.lance", mode="overwrite")

    Project.load().run(select="here", on_event=append)
    facets = facets_of(sent)
    assert facets["version"]["datasetVersion"] == "1"
    assert facets["dataQualityMetrics"]["rowCount"] == 30
    assert "more" not in [column["name"] for column in facets["schema"]["fields"]]


def test_a_table_that_is_left_as_it_was_has_no_statistics(sent: Path) -> None:
    invoke("run")
    sent.unlink()
    assert invoke("run", "--select", "here").exit_code == 0
    events = events_of(sent)
    assert [event["eventType"] for event in events] == ["START", "START", "COMPLETE", "COMPLETE"]
    facets = facets_of(sent)
    assert facets["version"]["datasetVersion"] == "2"
    assert not {"dataQualityMetrics", FACET} & facets.keys()


def test_retry_and_analyze_are_runs_too(sent: Path) -> None:
    invoke("run")
    sent.unlink()
    invoke("retry")
    assert ended(events_of(sent), "table.shop.gone")["eventType"] == "FAIL"
    sent.unlink()
    Project.load().analyze("here", ["o_id"])
    assert ended(events_of(sent), "table.shop.here")["eventType"] == "COMPLETE"


def test_other_commands_send_nothing(sent: Path) -> None:
    commands = [["validate"], ["plan"], ["status"], ["diff", ".", "."], ["list"], ["show", "here"]]
    for words in (*commands, ["docs"], ["runs"], ["gc"]):
        invoke(*words)
    assert not sent.exists()


def test_the_run_that_started_it_is_its_parent(sent: Path) -> None:
    root = RUN_ID[:-1] + "2"
    os.environ["OPENLINEAGE_NAMESPACE"] = "prod"
    os.environ["OPENLINEAGE_PARENT_ID"] = f"airflow/daily.lancestat/{RUN_ID}"
    invoke("run")
    events = events_of(sent)
    assert {event["job"]["namespace"] for event in events} == {"prod"}
    parent = ended(events, "lancestat-run-shop")["run"]["facets"]["parent"]
    assert parent["run"]["runId"] == parent["root"]["run"]["runId"] == RUN_ID
    assert (parent["job"]["namespace"], parent["job"]["name"]) == ("airflow", "daily.lancestat")
    sent.unlink()
    os.environ["OPENLINEAGE_ROOT_PARENT_ID"] = f"airflow/daily/{root}"
    invoke("run")
    node = ended(events_of(sent), "table.shop.here")["run"]["facets"]["parent"]
    assert node["job"]["name"] == "lancestat-run-shop"
    assert (node["root"]["run"]["runId"], node["root"]["job"]["name"]) == (root, "daily")


def test_names_of_jobs_stay_where_the_project_reads_the_same_value(
    sent: Path, tmp_path: Path
) -> None:
    table = {"name": "here", "uri": "{{ env_var('FOLDER') }}/here.lance"}
    (tmp_path / "production").mkdir()
    (tmp_path / "here.lance").rename(tmp_path / "production" / "here.lance")
    os.environ.update({"FOLDER": "production", "OPENLINEAGE_NAMESPACE": "production"})
    write_project(tmp_path, table)
    os.environ["OPENLINEAGE_PARENT_ID"] = f"production/daily/{RUN_ID}"
    assert invoke("run").exit_code == 0
    events = events_of(sent)
    assert {event["job"]["namespace"] for event in events} == {"production"}
    parent = ended(events, "lancestat-run-shop")["run"]["facets"]["parent"]
    assert parent["job"]["namespace"] == "production"
    [dataset] = ended(events, "table.shop.here")["inputs"]
    assert dataset["name"].endswith("{{ env_var('FOLDER') }}/here.lance")


@pytest.mark.parametrize("text", ["airflow", "airflow/daily/17", f"a/b/c/{RUN_ID}"])
def test_a_parent_that_cannot_be_read_is_a_warning(sent: Path, text: str) -> None:
    os.environ["OPENLINEAGE_PARENT_ID"] = text
    result = invoke("run", "--select", "here")
    assert result.exit_code == 0
    assert warnings(result) == [
        "warning: OPENLINEAGE_PARENT_ID is ignored: it is not NAMESPACE/JOB/RUN_ID"
    ]
    assert "parent" not in ended(events_of(sent), "lancestat-run-shop")["run"]["facets"]


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("s3://Bucket/a/b.lance/", ("s3://bucket", "a/b.lance")),
        ("s3a://bucket//a/b.lance", ("s3://bucket", "a/b.lance")),
        ("s3://key:secret@bucket/b.lance?token=secret", ("s3://bucket", "b.lance")),
        ("gs://bucket/b.lance", ("gs://bucket", "b.lance")),
        (
            "abfss://box@shop.dfs.core.windows.net/b.lance",
            ("abfss://box@shop.dfs.core.windows.net", "b.lance"),
        ),
        ("hdfs://name:8020/a/b.lance", ("hdfs://name:8020", "/a/b.lance")),
        ("file:///lake/b%20c.lance", ("file", "/lake/b c.lance")),
        ("/lake/b.lance", ("file", "/lake/b.lance")),
    ],
)
def test_datasets_are_named_by_the_conventions(uri: str, expected: tuple[str, str]) -> None:
    assert dataset_name(uri) == expected


def test_a_table_of_a_catalog_has_its_name_there_as_well(sent: Path, tmp_path: Path) -> None:
    catalogs = {"lake": {"impl": "dir", "properties": {"root": str(tmp_path / "lake")}}}
    target = {"state": "state", "catalogs": catalogs}
    write_project(tmp_path, {"name": "parts", "table": "lake.parts"}, target=target)
    lance.write_dataset(orders(0, 5), str(tmp_path / "lake" / "parts.lance"))
    result = invoke("run")
    assert result.exit_code == 0, result.output
    [dataset] = ended(events_of(sent), "table.shop.parts")["inputs"]
    assert dataset["name"] == str((tmp_path / "lake" / "parts.lance").resolve())
    [symlink] = dataset["facets"]["symlinks"]["identifiers"]
    assert symlink == {"namespace": "lake", "name": "lake.parts", "type": "TABLE"}
    catalog = dataset["facets"]["catalog"]
    assert (catalog["framework"], catalog["type"], catalog["name"]) == ("lance", "dir", "lake")
    assert dataset["facets"]["dataQualityMetrics"]["rowCount"] == 5


def test_an_interrupted_run_is_aborted(sent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled, read = threading.Event(), ScanTask.read

    def reading(task: ScanTask, part: ScanRange) -> RangePartials:
        os.kill(os.getpid(), signal.SIGINT)
        assert cancelled.wait(60)
        return read(task, part)

    def heard(event: Event) -> None:
        if isinstance(event, Cancelling):
            cancelled.set()

    monkeypatch.setattr(ScanTask, "read", reading)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(RunInterrupted):
            Project.load().run(select="here", on_event=heard)
    finally:
        signal.signal(signal.SIGINT, handler)
    events = events_of(sent)
    assert ended(events, "table.shop.here")["eventType"] == "ABORT"
    assert ended(events, "lancestat-run-shop")["eventType"] == "ABORT"


def test_no_event_holds_what_the_environment_does(sent: Path, tmp_path: Path) -> None:
    canaries.write(tmp_path)
    os.environ.update(canaries.ENVIRONMENT)
    assert invoke("run").exit_code == 1
    text = sent.read_text()
    assert len(events_of(sent)) == 16
    assert "{{ env_var('C_LAKE') }}" in text
    assert canaries.seen(text, canaries.ENVIRONMENT) == []


def test_a_secret_in_an_error_or_a_uri_is_in_no_event(sent: Path, tmp_path: Path) -> None:
    secret = "qzcanary17secret"
    table = {"name": "far", "uri": f"s3://user:{secret}@127.0.0.1:1/far.lance"}
    options = {"aws_secret_access_key": secret, "aws_endpoint": "http://127.0.0.1:1"}
    write_project(tmp_path, table, target={"state": "state", "storage_options": options})
    assert invoke("run").exit_code == 1
    assert ended(events_of(sent), "table.shop.far")["eventType"] == "FAIL"
    assert canaries.seen(sent.read_text(), {"secret": secret}) == []


class Receiver(Handler):
    """Keeps what it gets; answers after `seconds` with `status`."""

    received: ClassVar[list[tuple[str, str | None, Json]]] = []
    status: ClassVar[int] = 201
    seconds: ClassVar[float] = 0

    def do_POST(self) -> None:  # noqa: N802
        key = self.headers["Authorization"]
        self.received.append((self.path, key, json.loads(self.body())))
        time.sleep(self.seconds)
        self.answer(self.status, b"", {"Location": "/elsewhere"})

    def do_GET(self) -> None:  # noqa: N802
        """What a redirect makes of a POST."""
        self.received.append((self.path, None, None))
        self.answer(200, b"")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have events sent to a server, once each."""
    monkeypatch.setattr(Receiver, "received", [])
    with serving(Receiver) as url:
        send_to(url)
        yield


def send_to(url: str) -> None:
    for name in to_file(Path()):
        del os.environ[name]
    os.environ["OPENLINEAGE__TRANSPORT__TYPE"] = "http"
    os.environ["OPENLINEAGE__TRANSPORT__URL"] = url
    os.environ["OPENLINEAGE__TRANSPORT__RETRY"] = NO_RETRY


def lost(result: Result) -> str:
    """What the one warning says of events that were not sent; the run is as it would be."""
    assert result.exit_code == 0
    [warning] = warnings(result)
    assert set(result.stderr.splitlines()) >= {warning}
    assert "urllib3" not in result.stderr and "Retry(" not in result.stderr
    start, _, problem = warning.partition(" of the run: ")
    assert start == "warning: OpenLineage did not get all events"
    return problem


def test_a_server_gets_the_events(sent: Path) -> None:
    for name in to_file(sent):
        del os.environ[name]
    Receiver.received.clear()
    with serving(Receiver) as url:
        os.environ.update({"OPENLINEAGE_URL": url, "OPENLINEAGE_API_KEY": "key-canary"})
        result = invoke("run", "--select", "here")
    assert (result.exit_code, warnings(result)) == (0, [])
    assert {(path, key) for path, key, _ in Receiver.received} == {
        ("/api/v1/lineage", "Bearer key-canary")
    }
    states = [event["eventType"] for _, _, event in Receiver.received]
    assert states == ["START", "START", "COMPLETE", "COMPLETE"]
    for _, _, event in Receiver.received:
        check(event)
        assert "key-canary" not in json.dumps(event)


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(("status", "words"), [(404, "404 Client Error"), (500, "500 error")])
def test_a_server_that_refuses_events_is_one_warning(
    monkeypatch: pytest.MonkeyPatch, status: int, words: str
) -> None:
    monkeypatch.setattr(Receiver, "status", status)
    assert words in lost(invoke("run", "--select", "here"))
    # It may take the others.
    assert len(Receiver.received) >= (4 if status == 404 else 1)


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("status", [302, 308])
def test_a_redirect_is_not_followed(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    monkeypatch.setattr(Receiver, "status", status)
    problem = f"TooManyRedirects: it answers {status}, and redirects are not followed"
    assert lost(invoke("run", "--select", "here")) == problem
    assert {path for path, *_ in Receiver.received} == {"/api/v1/lineage"}


@pytest.mark.usefixtures("server")
def test_a_run_does_not_wait_long_for_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Receiver, "seconds", 2)
    monkeypatch.setattr(module, "TOTAL_SECONDS", 0.2)
    assert lost(invoke("run", "--select", "here")) == "it does not answer within 0 s"


def test_a_server_that_is_down_is_one_warning() -> None:
    send_to("http://127.0.0.1:1")
    assert "Connection refused" in lost(invoke("run", "--select", "here"))


def test_a_file_that_cannot_be_written_is_one_warning(sent: Path) -> None:
    sent.mkdir()
    assert "Failed to write" in lost(invoke("run", "--select", "here"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("transport: {type: nothing.such}", "ImportError: Failed to import nothing.such"),
        ("transport: {url: 'http://127.0.0.1:1'}", "ValueError: no transport is configured"),
    ],
)
def test_settings_that_are_wrong_are_one_warning(sent: Path, text: str, problem: str) -> None:
    for name in to_file(sent):
        del os.environ[name]
    Path("openlineage.yml").write_text(text)
    assert lost(invoke("run", "--select", "here")) == problem


def test_a_client_that_is_not_installed_is_one_warning() -> None:
    with patch.dict(sys.modules, {"openlineage.client": None}):
        problem = lost(invoke("run", "--select", "here"))
    assert problem.endswith("pip install 'lancestat[openlineage]'")


IMPORTED = """
import sys
from lancestat import Project
Project.load().run(select="here").raise_for_status()
print("openlineage.client" in sys.modules, "requests" in sys.modules)
"""


@pytest.mark.whole
@pytest.mark.parametrize(
    ("variables", "file", "is_imported"),
    sample(
        [
            ({}, None, False),
            ({"OPENLINEAGE_NAMESPACE": "prod"}, None, False),
            (
                {"OPENLINEAGE_URL": "http://127.0.0.1:1", "OPENLINEAGE_DISABLED": "True"},
                None,
                False,
            ),
            ({}, "openlineage.yml", True),
            ({}, ".openlineage/openlineage.yml", True),
            ({"OPENLINEAGE_CONFIG": "lineage.yml"}, "lineage.yml", True),
        ],
        2,
    ),
)
def test_the_client_is_imported_only_where_it_is_configured(
    sent: Path, tmp_path: Path, variables: dict[str, str], file: str | None, is_imported: bool
) -> None:
    transport = {"type": "file", "log_file_path": str(sent), "append": True}
    if file is not None:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(json.dumps({"transport": transport}))
    with only(HOME=str(tmp_path), **variables):
        done = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True)
    assert done.stdout.splitlines() == [f"{is_imported} {is_imported}"], done.stderr
    assert sent.exists() == is_imported


def test_a_user_without_a_home_folder_can_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_: object) -> None:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with only():
        del os.environ["HOME"]
        result = invoke("run", "--select", "here")
    assert (result.exit_code, warnings(result)) == (0, [])


def test_the_schema_of_the_facet_is_the_generated_one() -> None:
    for path, text in generated_files().items():
        assert (TOP / path).read_text("utf-8") == text, "run make generate"
