"""No output, log or state of a run on Spark shows values of the environment."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from tests.canaries import ENVIRONMENT, ORDINARY, SECRET, seen, write
from tests.integration.commands import lancestat

pytestmark = pytest.mark.spark


def stored(folder: Path) -> str:
    """Return the content of a folder of Lance datasets: rows as text, and bytes of all files."""
    texts = [
        str(lance.dataset(str(place)).to_table().to_pylist())
        + str(lance.dataset(str(place)).config())
        for place in folder.rglob("*.lance")
        if place.is_dir()
    ]
    texts += [path.read_bytes().decode("latin-1") for path in folder.rglob("*") if path.is_file()]
    return "\n".join(texts)


def test_a_run_and_its_queries_hide_values_of_the_environment(tmp_path: Path) -> None:
    write(tmp_path)
    vectors = pa.array([[1.0, 0.0]] * 3, pa.list_(pa.float32(), 2))
    rows = pa.table({"id": [1, 2, 3], "v": vectors, ORDINARY["C_VECTOR"]: vectors})
    lance.write_dataset(rows, str(tmp_path / ORDINARY["C_LAKE"] / "orders.lance"))
    state = tmp_path / ORDINARY["C_STATE"] / "state"

    [outcome] = lancestat(tmp_path, ENVIRONMENT, ("--verbose", "run"))
    assert outcome.returncode == 1, outcome.stderr
    assert "1 table and 1 duplicates node brought up to date" in outcome.stdout
    assert "failed" in outcome.stdout
    assert seen(outcome.stdout + outcome.stderr, SECRET) == []
    assert ORDINARY["C_LAKE"] in outcome.stdout

    # The run is remembered, with its errors.
    content = stored(state)
    assert "near" in content
    assert "LS201" in content
    assert "env_var('C_LAKE')" in content
    assert seen(content, ENVIRONMENT) == []

    *personal, made = lancestat(
        tmp_path,
        ENVIRONMENT,
        ("--verbose", "sql", "select * from gone"),
        ("--verbose", "sql", "select nothing from orders"),
        ("--verbose", "sql", "--explain", "select count(*) from orders where id > 1"),
        ("--verbose", "sql", "--analyze", "select count(*) from orders where id > 1"),
        ("--verbose", "sql", "select node, message from lancestat.runs"),
        ("--verbose", "retry", "--output", "json"),
        ("--verbose", "debug"),
        ("--verbose", "docs", "--out", "site"),
    )
    for ended in personal:
        assert seen(ended.stdout + ended.stderr, SECRET) == []
        assert "LS001" not in ended.stderr

    assert made.returncode == 0, made.stderr
    assert seen(made.stdout + made.stderr, ENVIRONMENT) == []
    for page in (tmp_path / "site").rglob("*"):
        if page.is_file():
            assert seen(page.read_bytes().decode("latin-1"), ENVIRONMENT) == [], page
    assert seen(stored(state), ENVIRONMENT) == []
