"""NEAREST BY beside the connector's extensions: who answers, and how it shows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import lance
import numpy as np
import pyarrow as pa
import pytest

import lancestat
from lancestat.joins.nearest_by import install

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENABLED, FEWEST = "spark.lancestat.nearestBy.enabled", "spark.lancestat.nearestBy.minRightRows"
QUERY = """
    SELECT q.id AS q, p.id AS p FROM lance.near_queries q
    INNER JOIN lance.near_parts p EXACT NEAREST 2 BY DISTANCE vector_l2_distance(q.v, p.v)
"""


def vectors(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def nearest(warehouse: Path) -> set[tuple[int, int]]:
    """Write two tables to the connector's catalog; returns the pairs that are to be found."""
    queries, parts = vectors(1, 20), vectors(2, 300)
    for name, rows in (("near_queries", queries), ("near_parts", parts)):
        lists = pa.array(rows.tolist(), pa.list_(pa.float32()))
        table = pa.table({"id": pa.array(range(len(rows)), pa.int64()), "v": lists})
        lance.write_dataset(table, str(warehouse / f"{name}.lance"), mode="overwrite")
    distances = ((queries[:, None, :].astype(float) - parts) ** 2).sum(axis=2)
    return {(q, int(p)) for q, row in enumerate(distances) for p in np.argsort(row)[:2]}


def test_lancestat_answers_over_tables_of_the_connector_and_says_so(
    session: SparkSession, nearest: set[tuple[int, int]]
) -> None:
    install(session)
    session.conf.set(FEWEST, "0")
    frame = session.sql(QUERY)
    text = str(lancestat.explain(frame))
    assert "NEAREST BY inner, 2 by vector_l2_distance, exact: exact, since" in text
    assert {(row.q, row.p) for row in frame.collect()} == nearest


def test_without_lancestats_rule_the_others_answer_and_explain_says_why(
    session: SparkSession, nearest: set[tuple[int, int]]
) -> None:
    install(session)
    session.conf.set(ENABLED, "false")
    try:
        frame = session.sql(QUERY)
        assert f"{ENABLED} is false" in str(lancestat.explain(frame))
        assert {(row.q, row.p) for row in frame.collect()} == nearest
    finally:
        session.conf.unset(ENABLED)
