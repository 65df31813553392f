"""What OpenLineage gets of joins: what they read and write, and where columns come from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lance
import pytest

from lancestat import Project
from lancestat.lake.files import local_path
from tests.catalogs.shops import Shop
from tests.integration.test_joins_in_catalogs import declare, fill, vectors
from tests.pipelines.openlineage_events import Json, ended, events_of, only, to_file
from tests.runs.world import write_project

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

Run = Callable[[Project], list[Json]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a project, and return what OpenLineage gets of that."""
    path = tmp_path / "events.jsonl"

    def sent(project: Project) -> list[Json]:
        path.unlink(missing_ok=True)
        with only(**to_file(path)):
            result = project.run()
        assert result.ok, result.failures
        return events_of(path)

    return sent


def write(folder: Path) -> None:
    for name, column, count in (("queries", "v", 20), ("parts", "w", 30)):
        lance.write_dataset(vectors(count, column), str(folder / f"{name}.lance"))


def near(left: Json, right: Json, **more: object) -> Json:
    return {"name": "near", "left": left, "right": right, "k": 2, **more}


LEFT: Json = {"table": "queries", "vector": "v", "select": ["id", "key"]}
OUTPUT: Json = {"output": {"lance": "near.lance"}}


def sources(columns: Json) -> dict[str, list[tuple[str, str, str]]]:
    """Where each column comes from: the dataset's file, its column, and how."""
    return {
        name: [
            (Path(each["name"]).stem, each["field"], each["transformations"][0]["subtype"])
            for each in column["inputFields"]
        ]
        for name, column in columns.items()
    }


def test_a_join_reads_both_sides_and_writes_its_result(tmp_path: Path, run: Run) -> None:
    write(tmp_path)
    right = {"lance": "parts.lance", "vector": "w", "select": ["key"]}
    join = near(LEFT, right, on=["key"], rank=True, **OUTPUT)
    project = write_project(tmp_path, "queries", knn_joins=[join])
    event = ended(run(project), "knn_join.shop.near")
    assert event["run"]["facets"]["processing_engine"]["name"] == "spark"
    inputs = {Path(dataset["name"]).stem: dataset for dataset in event["inputs"]}
    assert inputs.keys() == {"queries", "parts"}
    rows = {name: one["inputFacets"]["inputStatistics"] for name, one in inputs.items()}
    assert {name: facet["rowCount"] for name, facet in rows.items()} == {"queries": 20, "parts": 30}
    assert inputs["parts"]["facets"]["version"]["datasetVersion"] == "1"
    [output] = event["outputs"]
    written = lance.dataset(str(tmp_path / "near.lance"))
    assert (output["namespace"], output["name"]) == ("file", str(tmp_path / "near.lance"))
    assert output["facets"]["version"]["datasetVersion"] == str(written.version)
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == written.count_rows()
    assert output["outputFacets"]["outputStatistics"]["fileCount"] >= 1
    columns = [column["name"] for column in output["facets"]["schema"]["fields"]]
    assert columns == ["id", "key", "key_right", "_distance", "_rank"]
    lineage = output["facets"]["columnLineage"]
    vectors_of = [("queries", "v", "TRANSFORMATION"), ("parts", "w", "TRANSFORMATION")]
    assert sources(lineage["fields"]) == {
        "id": [("queries", "id", "IDENTITY")],
        "key": [("queries", "key", "IDENTITY")],
        "key_right": [("parts", "key", "IDENTITY")],
        "_distance": vectors_of,
        "_rank": vectors_of,
    }
    assert [each["field"] for each in lineage["dataset"]] == ["v", "w", "key", "key"]


def test_new_rows_alone_are_not_taken_for_the_whole_result(tmp_path: Path, run: Run) -> None:
    write(tmp_path)
    join = near(LEFT, {"lance": "parts.lance", "vector": "w"}, **OUTPUT)
    project = write_project(tmp_path, "queries", knn_joins=[join])
    run(project)
    lance.write_dataset(vectors(5, "v"), str(tmp_path / "queries.lance"), mode="append")
    event = ended(run(project), "knn_join.shop.near")
    assert not any(dataset["inputFacets"] for dataset in event["inputs"])
    [output] = event["outputs"]
    assert output["outputFacets"] == {}
    # All columns of the right side are selected.
    assert {"id_right", "key_right", "w"} <= output["facets"]["columnLineage"]["fields"].keys()


def test_a_table_that_is_both_sides_is_one_input(tmp_path: Path, run: Run) -> None:
    write(tmp_path)
    join = near(LEFT, {"table": "queries", "vector": "v", "select": ["id"]}, **OUTPUT)
    project = write_project(tmp_path, "queries", knn_joins=[join])
    event = ended(run(project), "knn_join.shop.near")
    assert len(event["inputs"]) == 1
    lineage = event["outputs"][0]["facets"]["columnLineage"]
    assert sources(lineage["fields"])["_distance"] == [("queries", "v", "TRANSFORMATION")]
    assert [each["field"] for each in lineage["dataset"]] == ["v"]


def test_groups_of_near_duplicates_come_from_their_table(tmp_path: Path, run: Run) -> None:
    write(tmp_path)
    node = {
        "name": "same",
        "table": "queries",
        "vector": "v",
        "on": ["key"],
        "max_distance": 100,
        "keep": {"order_by": ["id desc"]},
        "select": ["id"],
        "output": {"lance": "same.lance"},
    }
    project = write_project(tmp_path, "queries", duplicates=[node])
    event = ended(run(project), "duplicates.shop.same")
    [dataset], [output] = event["inputs"], event["outputs"]
    assert (Path(dataset["name"]).stem, Path(output["name"]).stem) == ("queries", "same")
    lineage = output["facets"]["columnLineage"]
    compared = [("queries", name, "TRANSFORMATION") for name in ("v", "key")]
    made = dict.fromkeys(("group_id", "is_kept", "_distance", "_row_hash"), compared)
    made["is_kept"] = [*compared, ("queries", "id", "SORT")]
    assert sources(lineage["fields"]) == {"id": [("queries", "id", "IDENTITY")], **made}
    assert {column["name"] for column in output["facets"]["schema"]["fields"]} == {"id", *made}


def test_a_query_has_datasets_and_no_columns(tmp_path: Path, run: Run) -> None:
    write(tmp_path)
    query = {"sql": "select id, v as w from {{ ref('queries') }}", "vector": "w"}
    named = {**query, "select": ["id"]}
    join = near(LEFT, named, output={"parquet": "near"})
    project = write_project(tmp_path, "queries", knn_joins=[join])
    event = ended(run(project), "knn_join.shop.near")
    [dataset], [output] = event["inputs"], event["outputs"]
    assert Path(dataset["name"]).stem == "queries"
    assert output["facets"]["storage"]["storageLayer"] == "parquet"
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 40
    found = sources(output["facets"]["columnLineage"]["fields"])
    assert found == {
        "id": [("queries", "id", "IDENTITY")],
        "key": [("queries", "key", "IDENTITY")],
        "_distance": [("queries", "v", "TRANSFORMATION")],
    }


def test_a_result_in_a_catalog_has_its_name_there(tmp_path: Path, run: Run) -> None:
    shop = Shop(tmp_path, "dir", {"root": str(tmp_path / "lake")})
    fill(shop)
    event = ended(run(declare(shop)), "knn_join.shop.near")
    [output] = event["outputs"]
    named = [*event["inputs"], output]
    names = [one["facets"]["symlinks"]["identifiers"][0]["name"] for one in named]
    assert names == ["lake.sales.queries", "lake.sales.parts", "lake.sales.near"]
    assert Path(output["name"]) == local_path(shop.read("sales", "near").uri)
    assert all(one["facets"]["version"]["datasetVersion"] for one in named)
