"""`lancestat run` and reads on a standalone cluster whose machines have no lancestat."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.shop import CREDENTIALS, ORDERS, expected, open_shop
from tests.cluster.standalone import Standalone, python, running_cluster
from tests.integration.faulty_daemon import REPOSITORY
from tests.integration.knn_oracle import assert_same
from tests.integration.object_store import SECRET_KEY, ObjectStore
from tests.runs.world import orders

pytestmark = [pytest.mark.fault, pytest.mark.s3, pytest.mark.spark]

# In the analysis, while a side of the join is written, and while its result is.
FAULTS = {"read": "kill executor", "scratch": "kill machine", "materialize": "kill worker"}

# Most of the time would go into packing 700 MB, and into unpacking them for each process of Spark.
UNCOMPRESSED = """
from lancestat.cli.main import main
from lancestat.spark import package

package._COMPRESSION = 0
main()
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("package")
    ended = python("-c", UNCOMPRESSED, "package", "--output", "json", folder=folder)
    assert ended.returncode == 0, ended.stderr
    printed = json.loads(ended.stdout)
    assert {"lancestat", "pylance", "msgspec"} <= printed["packages"].keys()
    assert not {"pyspark", "py4j"} & printed["packages"].keys()
    assert printed["conf"]["spark.archives"] == "lancestat.tar.gz#lancestat"
    return folder / "lancestat.tar.gz"


@pytest.fixture(scope="module")
def running(disk: Path) -> Iterator[Standalone]:
    with running_cluster(disk) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Standalone) -> Standalone:
    running.complete()
    return running


@pytest.mark.thorough
def test_a_run_survives_lost_workers_and_equals_a_local_one(
    cluster: Standalone, package: Path, object_store: ObjectStore, tmp_path: Path
) -> None:
    shop = open_shop(tmp_path, package, object_store, cluster)
    local = shop.run("run", "--target", "local")
    assert local.returncode == 0, local.stdout + local.stderr
    statistics = shop.statistics()
    assert all(statistics.values())
    for point, fault in FAULTS.items():
        shop.faults.plan(point, fault)

    ended = shop.run("run", "--full-refresh")

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert shop.faults.end() == len(FAULTS)
    assert SECRET_KEY not in ended.stdout + ended.stderr
    assert sum(worker.poll() is not None for worker in shop.cluster.workers) == 1
    assert shop.statistics() == statistics
    assert shop.partials("cluster") == shop.partials("local")
    assert shop.neighbours("cluster").equals(shop.neighbours("local"))
    assert_same(shop.rows("cluster"), expected())
    assert shop.scratch() == []


def test_the_workers_python_has_no_lancestat(cluster: Standalone) -> None:
    ended = subprocess.run(
        [cluster.python, "-c", "import lancestat"],
        cwd=cluster.folder,
        env=cluster.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "No module named 'lancestat'" in ended.stderr


def test_runs_reads_and_joins_with_the_package_survive_a_lost_machine(
    cluster: Standalone, package: Path, object_store: ObjectStore, tmp_path: Path
) -> None:
    # Each executor unpacks the package: there is one at a time.
    shop = open_shop(tmp_path, package, object_store, cluster, cores=1)
    local = shop.run("run", "--target", "local", "--select", "kind:table")
    assert local.returncode == 0, local.stdout + local.stderr
    statistics = shop.statistics()
    assert all(statistics.values())

    ended = python(
        "-m", "tests.cluster.reads", str(tmp_path), shop.root, folder=REPOSITORY, **CREDENTIALS
    )

    assert ended.returncode == 0, ended.stderr[-4000:]
    assert SECRET_KEY not in ended.stdout + ended.stderr
    assert sum(worker.poll() is not None for worker in cluster.workers) == 1
    assert shop.statistics() == statistics
    assert shop.partials("cluster") == shop.partials("local")
    assert_same(shop.rows("cluster"), expected())
    answers = json.loads(ended.stdout.splitlines()[-1])
    late = orders(ORDERS // 2, ORDERS - ORDERS // 2)
    rows = [list(row.values()) for row in late.to_pylist()]
    for name, answer in answers["tables"].items():
        assert answer == rows, name
    assert_same([tuple(row) for row in answers["neighbours"]], expected())
    assert shop.scratch() == []
    for place in answers["places"]:
        assert Path(place).is_relative_to(cluster.folder / "work")
