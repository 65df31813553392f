"""A run on Spark whose time is over while it reads a table."""

from __future__ import annotations

import time
from pathlib import Path

import lance
import pytest
from pyspark.sql import SparkSession

import lancestat.tables.run as module
from lancestat.events import Event, FragmentsRead
from lancestat.runs.result import Status
from tests.runs.world import orders, write_project

pytestmark = pytest.mark.spark

FRAGMENTS = 100


def test_a_table_goes_on_in_the_next_run_where_its_time_was_over(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = str(tmp_path / "orders.lance")
    lance.write_dataset(orders(0, 10 * FRAGMENTS), uri, max_rows_per_file=10)
    project = write_project(tmp_path, "orders", min_bytes="0")
    # A job for each fragment, of which each takes a moment at least.
    monkeypatch.setattr(module, "_BYTES_PER_TIMED_JOB", 1)

    def slowly(event: Event) -> None:
        if isinstance(event, FragmentsRead):
            time.sleep(0.1)

    result = project.run(max_minutes=0.1, on_event=slowly, session=spark)
    [node] = result.nodes
    assert (node.status, result.ok) == (Status.DEFERRED, True)
    stored = node.fragments_scanned or 0
    assert stored < FRAGMENTS
    assert lance.dataset(uri).version == 1

    [node] = project.run(session=spark).nodes
    assert (node.status, node.fragments_scanned) == (Status.SUCCESS, FRAGMENTS - stored)
    statistics = project.show("orders").columns
    assert statistics["o_id"].distinct == pytest.approx(10 * FRAGMENTS, rel=0.05)
