"""Errors, values and logs show no secret to a program that uses lancestat as a library."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lancestat import Project
from lancestat.errors import LancestatError, StateUnreachable

SECRET = "qzpasswordvalue"
FILES = {
    "lancestat_project.yml": "name: shop\ndefault_target: dev\ntargets: {dev: {state: state}}\n",
    "specs/shop.yml": """\
tables:
  - {name: orders, uri: "lake/{{ env_var('L_DB_PASSWORD') }}/orders.lance"}
knn_joins:
  - name: near
    left: {table: orders, vector: v}
    right: {lance: "lake/{{ env_var('L_DB_PASSWORD') }}.lance", vector: v}
    k: 3
    output: {lance: near.lance}
""",
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("L_DB_PASSWORD", SECRET)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return Project.load(tmp_path)


@pytest.mark.parametrize(
    "call",
    [
        lambda project: project.show("orders"),
        lambda project: project.analyze("orders", ["id"]),
        lambda project: project.nodes(SECRET),
        lambda project: project.plan(SECRET),
        lambda project: project.load_plan(f"{SECRET}.json"),
    ],
)
def test_errors_show_no_secret(project: Project, call: Callable[[Project], object]) -> None:
    with pytest.raises(LancestatError) as raised:
        call(project)
    text = "".join(traceback.format_exception(raised.value))
    assert "env_var('L_DB_PASSWORD')" in text
    assert SECRET not in text
    assert raised.value.__context__ is None
    # The frames that raised it are still there.
    assert len(traceback.extract_tb(raised.value.__traceback__)) > 2


def test_plans_and_reports_show_no_secret(project: Project) -> None:
    plan, report = project.plan(), project.report()
    fields = [(node.problems, node.error) for node in report.nodes]
    told = [str(plan), plan._repr_html_(), str(report), report._repr_html_(), repr(fields)]
    told += [repr([action.error for action in plan.actions]), repr(plan.to_arrow().to_pylist())]
    for text in told:
        assert "env_var(" in text
        assert "L_DB_PASSWORD" in text
    removed = project.unpublish("orders", dry_run=True)
    shown = [*told, *map(repr, (plan, plan.actions, report, report.nodes, project, project.state))]
    shown += [str(removed), repr(removed), repr(removed.failures), repr(removed.nodes)]
    assert all(SECRET not in text for text in shown)


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """The log of a program that set up logging before it used lancestat."""
    stream, logger = io.StringIO(), logging.getLogger("lancestat")
    before, is_above = logger.handlers, logging.StreamHandler(stream)
    logger.handlers = [logging.StreamHandler(stream)]
    logging.getLogger().addHandler(is_above)
    yield stream
    logging.getLogger().removeHandler(is_above)
    logger.handlers = before


@pytest.mark.parametrize("name", ["lancestat", "lancestat.run", "lancestat.knn"])
def test_logs_show_no_secret(logged: io.StringIO, project: Project, name: str) -> None:
    try:
        raise ValueError(f"{SECRET}\n::error::x")
    except ValueError:
        logging.getLogger(name).warning("at %s\n::error::y", SECRET, exc_info=True)
    text = logged.getvalue()
    assert text.count("at {{ env_var('L_DB_PASSWORD') }}\\n::error::y\n") == 2
    assert SECRET not in text
    assert not any(line.lstrip().startswith("::") for line in text.splitlines())


def test_the_hint_of_a_logged_error_is_in_parentheses(
    logged: io.StringIO, project: Project
) -> None:
    error = StateUnreachable(f"no {SECRET}", hint="check it")
    logging.getLogger("lancestat.run").warning("the run is not recorded: %s", error)
    line = "the run is not recorded: LS301  no {{ env_var('L_DB_PASSWORD') }} (hint: check it)\n"
    assert logged.getvalue() == line * 2


def test_handlers_of_a_child_logger_receive_no_secret(project: Project) -> None:
    stream, logger = io.StringIO(), logging.getLogger("lancestat.run")
    handler = logging.StreamHandler(stream)
    logger.addHandler(handler)
    try:
        logger.warning("at %s", SECRET)
    finally:
        logger.removeHandler(handler)
    assert stream.getvalue() == "at {{ env_var('L_DB_PASSWORD') }}\n"


def test_warnings_are_printed_without_configured_logging(project: Project) -> None:
    code = (
        "import logging, lancestat; project = lancestat.Project.load('.');"
        f"logging.getLogger('lancestat.state').warning('at {SECRET}')"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code],
        cwd=project.spec.root,
        capture_output=True,
        text=True,
        check=True,
    )
    assert completed.stderr == "at {{ env_var('L_DB_PASSWORD') }}\n"


def test_records_without_a_logger_are_left_alone(project: Project) -> None:
    record = logging.makeLogRecord({"msg": "of another library"})
    assert record.getMessage() == "of another library"
