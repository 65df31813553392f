"""The datasets of a task as OpenLineage names them. It imports Airflow's provider for that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from airflow.providers.common.compat.openlineage.facet import Dataset
from airflow.providers.openlineage.extractors import OperatorLineage

# Names of datasets begin with a slash there, unlike in object stores.
_ROOTED = frozenset({"hdfs", "viewfs"})


def lineage_of(artifacts: Mapping[str, Any]) -> OperatorLineage[Any, Any]:
    """Return the inputs and outputs of the nodes that a run or a check has been about.

    A table is an input alone: its rows stay. A join has its sides as inputs, and its result as
    output. Tables that only a catalog knows, and URIs with secrets, have no name here.
    """
    nodes = artifacts.get("manifest.json", {}).get("nodes", {})
    results = artifacts.get("run_results.json", {}).get("results", ())
    inputs: list[str] = []
    outputs: list[str] = []
    for node in (nodes[result["unique_id"]] for result in results):
        inputs += (nodes[parent]["uri"] for parent in node["depends_on"]["nodes"])
        inputs += node["inputs"]
        if node["resource_type"] != "table":
            outputs.append(node["uri"])
    return OperatorLineage(inputs=_datasets(inputs), outputs=_datasets(outputs))


def _datasets(uris: Iterable[str | None]) -> list[Any]:
    names = (_name(uri) for uri in dict.fromkeys(uris) if uri is not None)
    return [Dataset(*name) for name in names if name is not None]


def _name(uri: str) -> tuple[str, str] | None:
    """Return the namespace and name of a dataset (https://openlineage.io/docs/spec/naming)."""
    if "{{" in uri:
        return None
    if uri.startswith("/"):
        return "file", uri
    parts = urlsplit(uri)
    if not parts.netloc:
        return None
    name = parts.path.strip("/")
    return f"{parts.scheme}://{parts.netloc}", f"/{name}" if parts.scheme in _ROOTED else name
