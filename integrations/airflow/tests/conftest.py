from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sample import write_shop

# Airflow's processes for lineage outlive the task that forks them, and may write meanwhile.
HOME = tempfile.TemporaryDirectory(prefix="airflow-", ignore_cleanup_errors=True)
# Airflow reads them when it is imported.
os.environ |= {
    "AIRFLOW_HOME": HOME.name,
    "AIRFLOW__CORE__DAGS_FOLDER": f"{HOME.name}/dags",
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(
        {"type": "file", "log_file_path": f"{HOME.name}/lineage.json", "append": True}
    ),
    "NO_COLOR": "1",
}


@pytest.fixture(scope="session", autouse=True)
def airflow() -> Iterator[None]:
    """An Airflow with SQLite in a folder of its own."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.utils.db import initdb

    Path(HOME.name, "dags").mkdir()
    initdb()
    DagBundlesManager().sync_bundles_to_db()
    yield
    HOME.cleanup()


@pytest.fixture(scope="module")
def lineage() -> Path:
    """The file that gets Airflow's events of OpenLineage."""
    path = Path(HOME.name, "lineage.json")
    path.unlink(missing_ok=True)
    return path


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A project of two tables and a join that nothing was run for yet."""
    write_shop(tmp_path)
    return tmp_path
