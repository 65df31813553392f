"""The starter project: its files fit together, and its sample tables are as they are described."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

from lancestat.scaffold import orders, products, starter_project, starter_templates
from lancestat.spec.load import load_project
from lancestat.spec.model import NodeKind, ProjectSpec
from tests.spec.conftest import write


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The starter's YAML with its KNN join."""
    write(tmp_path, {n.removesuffix(".example"): t for n, t in starter_templates().items()})
    return tmp_path


def test_every_declaration_is_valid_and_used(project: Path) -> None:
    spec = load_project(project)
    assert {node.kind for node in spec.nodes} == {NodeKind.TABLE, NodeKind.KNN_JOIN}
    assert [table.name for table in spec.tables] == ["orders", "products"]
    assert spec.policies.keys() == {spec.tables[0].policy.name}
    assert places(spec) == {
        str((project / "sample" / f"{t.name}.lance").resolve()) for t in spec.tables
    }


def test_the_page_on_removal_names_all_that_init_writes() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "uninstall.md").read_text("utf-8")
    made = starter_project()
    for path in (*made.files, *made.editor_files):
        if path.startswith("specs/"):
            continue
        assert f"`{path}`" in page or f"`{Path(path).parts[0]}`" in page, path


def places(spec: ProjectSpec) -> set[str]:
    return {table.uri for table in spec.tables}


def test_the_target_for_production_is_valid(project: Path) -> None:
    spec = load_project(project, target="prod", environment={"AWS_REGION": "eu-west-1"})
    assert spec.target.storage_options == {"aws_region": "eu-west-1"}


def test_every_order_is_of_a_product_that_is_there() -> None:
    known, ordered = products()["product_id"], orders()["product_id"]
    assert pc.all(pc.is_in(ordered, value_set=known.combine_chunks())).as_py()
    assert len(set(orders()["order_id"].to_pylist())) == orders().num_rows
    assert len(set(known.to_pylist())) == products().num_rows


def test_few_products_have_most_orders() -> None:
    counts = sorted(np.bincount(orders()["product_id"].to_numpy()), reverse=True)
    assert sum(counts[:16]) > sum(counts[16:])


def test_the_nearest_products_are_things_of_the_same_kind() -> None:
    names = products()["name"].to_pylist()
    vectors = np.array(products()["embedding"].to_pylist())
    distances = np.linalg.norm(vectors[:, None] - vectors[None], axis=2)
    for index, name in enumerate(names):
        nearest = [names[other] for other in np.argsort(distances[index])[:3]]
        assert nearest[0] == name
        assert {other.split()[1] for other in nearest} == {name.split()[1]}
