"""A project on S3, with a local target and one for the cluster."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
from pyarrow.fs import FileSelector

from tests.cluster.standalone import Standalone, lancestat
from tests.integration import faulty_daemon
from tests.integration.faulty_daemon import Faults
from tests.integration.knn_oracle import Row, Vector, awkward, joined, table
from tests.integration.object_store import ACCESS_KEY, HOST, SECRET_KEY, ObjectStore
from tests.runs.world import orders

TABLES = ("orders", "l", "r")
ORDERS, LEFTS, RIGHTS, K = 1200, 60, 240, 3
CREDENTIALS = {"KEY_ID": ACCESS_KEY, "SECRET": SECRET_KEY}
PROJECT = """
name: shop
default_target: cluster
targets:
  local: &local
    state: {root}/state-local
    scratch: {root}/scratch
    spark: {{master: "local[2]", conf: {{spark.driver.memory: 700m}}}}
    storage_options:
      aws_endpoint: "{endpoint}"
      aws_region: us-east-1
      allow_http: true
      aws_access_key_id: "{{{{ env_var('KEY_ID') }}}}"
      aws_secret_access_key: "{{{{ env_var('SECRET') }}}}"
  cluster:
    <<: *local
    state: {root}/state-cluster
    spark: {{master: "{master}", package: {package}, conf: {{{conf}}}}}
"""
SPECS = """
tables:
  - {{name: orders, uri: {root}/orders.lance}}
  - {{name: l, uri: {root}/l.lance}}
  - {{name: r, uri: {root}/r.lance}}
knn_joins:
  - name: exact
    left: {{sql: "select * from {{{{ ref('l') }}}} where id >= 0", vector: emb, select: [id]}}
    right: {{sql: "select * from {{{{ ref('r') }}}} where id >= 0", vector: emb, select: [id]}}
    k: {k}
    rank: true
    output: {{lance: "{root}/exact-{{{{ target.name }}}}.lance"}}
"""
CONF = {
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.driver.memory": "700m",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.3",
}


@dataclass
class Shop:
    """The project in `folder`; `root` is its place on S3."""

    folder: Path
    root: str
    store: ObjectStore
    cluster: Standalone
    faults: Faults

    @property
    def options(self) -> dict[str, str]:
        return dict(self.store.storage_options)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the command with the credentials."""
        return lancestat(*words, folder=self.folder, **CREDENTIALS)

    def statistics(self) -> Mapping[str, Mapping[str, str]]:
        """What readers are told of each table, without the time at which it was computed."""
        configs = {
            name: lance.dataset(f"{self.root}/{name}.lance", storage_options=self.options).config()
            for name in TABLES
        }
        return {
            name: {
                key: value
                for key, value in config.items()
                if key.startswith("lance.stats.") and not key.endswith(("computedAt", "version"))
            }
            for name, config in configs.items()
        }

    def partials(self, target: str) -> list[tuple[str, bytes, str, list[bytes]]]:
        """The partials in a target's state, byte for byte."""
        folder = f"{self.root}/state-{target}/v2"
        selector = FileSelector(folder.removeprefix("s3://"))
        names = [file.base_name for file in self.store.filesystem().get_file_info(selector)]
        newest = max(
            int(found[1])
            for name in names
            if (found := re.fullmatch(r"partials-(\d+)\.lance", name))
        )
        uri = f"{folder}/partials-{newest}.lance"
        stored = lance.dataset(uri, storage_options=self.options).to_table().to_pylist()
        return sorted(
            (row["table"], row["fingerprints"], row["fields"], row["partials"]) for row in stored
        )

    def neighbours(self, target: str) -> pa.Table:
        uri = f"{self.root}/exact-{target}.lance"
        return lance.dataset(uri, storage_options=self.options).to_table()

    def rows(self, target: str) -> list[Row]:
        """The neighbours as `expected` has them."""
        columns = self.neighbours(target).select(["id", "id_right", "_distance", "_rank"])
        return list(zip(*(column.to_pylist() for column in columns.columns), strict=True))

    def scratch(self) -> list[str]:
        """The files in scratch."""
        folder = f"{self.root.removeprefix('s3://')}/scratch"
        selector = FileSelector(folder, allow_not_found=True, recursive=True)
        return [file.path for file in self.store.filesystem().get_file_info(selector)]


def side(rows: int) -> list[Vector]:
    return awkward(np.random.default_rng(rows), rows, 4)


def expected() -> list[Row]:
    """The rows that the join has to have, by brute force."""
    return joined(side(LEFTS), side(RIGHTS), K, "l2", "inner")


def open_shop(
    folder: Path,
    package: Path,
    store: ObjectStore,
    cluster: Standalone,
    *,
    cores: int | None = None,
) -> Shop:
    """Write the tables and the project, on so many cores without faults, or on all with faults."""
    root = store.fresh_uri("shop")
    faults = Faults(folder / "faults")
    shop = Shop(folder, root, store, cluster, faults)
    options = shop.options
    rows = orders(0, ORDERS)
    # So many small fragments that tasks read runs of them, and merge their partials.
    lance.write_dataset(rows, f"{root}/orders.lance", max_rows_per_file=10, storage_options=options)
    for name, count in (("l", LEFTS), ("r", RIGHTS)):
        vectors = table(side(count), pa.list_(pa.float32()))
        lance.write_dataset(
            vectors, f"{root}/{name}.lance", max_rows_per_file=50, storage_options=options
        )
    extra = {"spark.cores.max": str(cores)} if cores else _faulty(folder, faults)
    conf = {**CONF, **extra}
    text = ", ".join(f'{key}: "{value}"' for key, value in conf.items())
    project = PROJECT.format(
        root=root, endpoint=store.endpoint, master=cluster.url, package=package, conf=text
    )
    (folder / "lancestat_project.yml").write_text(project)
    (folder / "specs").mkdir()
    (folder / "specs" / "shop.yml").write_text(SPECS.format(root=root, k=K))
    return shop


def _faulty(folder: Path, faults: Faults) -> dict[str, str]:
    # Alone in its folder: workers must not find the repository.
    daemon = folder / "daemon"
    daemon.mkdir()
    shutil.copy(faulty_daemon.__file__, daemon)
    return {
        "spark.python.daemon.module": "faulty_daemon",
        f"spark.executorEnv.{faulty_daemon.FOLDER}": str(faults.folder),
        "spark.executorEnv.PYTHONPATH": str(daemon),
    }
