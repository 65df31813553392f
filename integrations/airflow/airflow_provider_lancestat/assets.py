"""Airflow's assets of nodes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from airflow.sdk import Asset

from airflow_provider_lancestat.checks import Node


def read_by(node: Node, nodes: Mapping[str, Node]) -> list[Asset]:
    """Return the datasets that a node reads."""
    parents = (nodes[parent]["uri"] for parent in node["depends_on"]["nodes"])
    uris = dict.fromkeys([*parents, *node["inputs"]])
    return [asset for uri in uris if (asset := _dataset(uri)) is not None]


def brought_up_to_date_by(project: str, node: Node) -> list[Asset]:
    """Return what a run of a node changes: the result of a join, the statistics of a table.

    The dataset of a table is no such asset: its rows stay, and a DAG that is scheduled on it would
    trigger itself.
    """
    if node["resource_type"] == "table":
        return [Asset(f"x-lancestat://{project}/{node['name']}")]
    asset = _dataset(node["uri"])
    return [] if asset is None else [asset]


def _dataset(uri: str | None) -> Asset | None:
    """Return the asset of a dataset, None where its URI has secrets that only lancestat knows.

    Paths become `file://` URIs; names of tables in catalogs stay as they are.
    """
    if uri is None or "{{" in uri:
        return None
    return Asset(Path(uri).as_uri() if uri.startswith("/") else uri)
