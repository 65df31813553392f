"""Projects whose tables are in catalogs."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import lance
import lance_namespace as ns
import pyarrow as pa
from click.testing import CliRunner, Result
from lance_namespace.errors import NamespaceAlreadyExistsError

from lancestat.cli.main import cli
from lancestat.tables.wire import unstamped

SERVING = "tests.catalogs.serving.ServingCatalog"
# Properties by which a directory catalog owns the versions of its tables.
TRACKED = {"table_version_tracking_enabled": "true", "table_version_storage_enabled": "true"}


def rows(count: int = 40) -> pa.Table:
    numbers = range(count)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "status": ["open" if number % 3 else None for number in numbers],
            "total": [number / 4 for number in numbers],
        }
    )


def write_items(uri: str, count: int = 12) -> None:
    """Write vectors on a line, unless they are there."""
    if not Path(uri).exists():
        vectors = pa.FixedSizeListArray.from_arrays(
            pa.array([float(number) for item in range(count) for number in (item**2, 1)], "float"),
            2,
        )
        lance.write_dataset(pa.table({"item": list(range(count)), "v": vectors}), uri)


@dataclass
class Shop:
    """A project in `folder` with one catalog, `lake`, which it declares with more properties."""

    folder: Path
    impl: str = "dir"
    properties: dict[str, str] = field(default_factory=dict)
    declared: dict[str, str] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        return self.folder / "lake"

    @property
    def target(self) -> dict[str, object]:
        """Further keys of the target."""
        return {}

    @property
    def opening(self) -> dict[str, str] | None:
        """The storage options of tables, under those that the catalog gives."""
        return None

    @property
    def client(self) -> ns.LanceNamespace:
        return ns.connect(self.impl, self.properties)

    def create(self, *identifier: str, count: int = 40) -> str:
        """Create a table through the catalog, and return where it is."""
        client = self.client
        if len(identifier) > 1:
            with suppress(NamespaceAlreadyExistsError):
                client.create_namespace(ns.CreateNamespaceRequest(id=list(identifier[:-1])))
        self.write(rows(count), *identifier, mode="create")
        return self.location(*identifier)

    def write(self, table: pa.Table, *identifier: str, mode: str = "append") -> None:
        """Write rows into a table of the catalog, ten to a file."""
        lance.write_dataset(
            table,
            namespace_client=self.client,
            table_id=list(identifier),
            mode=mode,
            storage_options=self.opening,
            max_rows_per_file=10,
        )

    def location(self, *identifier: str) -> str:
        described = self.client.describe_table(ns.DescribeTableRequest(id=list(identifier)))
        assert described.location is not None
        return described.location

    def announce(self, *identifier: str) -> str:
        """Have the catalog take on a table that is to be written, and return where."""
        declared = self.client.declare_table(ns.DeclareTableRequest(id=list(identifier)))
        assert declared.location is not None
        return declared.location

    def declare_joins(self, **outputs: dict[str, str]) -> None:
        """Write the YAML of a project with a join of items with themselves for each output."""
        side = {"lance": str(self.folder / "items.lance"), "vector": "v"}
        write_items(side["lance"])
        self.declare()
        joins = [
            {"name": name, "left": side, "right": side, "k": 2, "output": output}
            for name, output in outputs.items()
        ]
        (self.folder / "specs" / "shop.yml").write_text(json.dumps({"knn_joins": joins}))

    def declare(self, *tables: dict[str, object], catalog: bool = True) -> None:
        """Write the YAML of a project with these tables."""
        (self.folder / "specs").mkdir(exist_ok=True)
        lake = {"impl": self.impl, "properties": {**self.properties, **self.declared}}
        catalogs = {"catalogs": {"lake": lake}} if catalog else {}
        target = {"state": "state", **catalogs, **self.target}
        project = {"name": "shop", "default_target": "dev", "targets": {"dev": target}}
        (self.folder / "lancestat_project.yml").write_text(json.dumps(project))
        lines = ["tables:", *(f"  - {json.dumps(table)}" for table in tables)]
        (self.folder / "specs" / "shop.yml").write_text("\n".join(lines) + "\n")

    def lancestat(self, *args: str) -> Result:
        command = ("--project-dir", str(self.folder), *args)
        return CliRunner().invoke(cli, command, prog_name="lancestat")

    def read(self, *identifier: str) -> lance.LanceDataset:
        """The table as readers see it through the catalog."""
        return lance.dataset(
            namespace_client=self.client, table_id=list(identifier), storage_options=self.opening
        )

    def published(self, *identifier: str) -> dict[str, str]:
        """The published entries about the rows."""
        return unstamped(self.read(*identifier).config())
