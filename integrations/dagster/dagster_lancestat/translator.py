"""How a node of a manifest becomes a Dagster asset with checks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import dagster as dg

from dagster_lancestat.checks import Node, checks_of

NODE_METADATA_KEY = "lancestat/node"
"""The metadata of an asset that has the name of its node."""

_NOT_IN_KEYS = re.compile(r"[^A-Za-z0-9_.-]")
_NOT_IN_IDENTIFIERS = re.compile(r"[^A-Za-z0-9_]")
_EMAIL_OR_TEAM = re.compile(r"team:[\w-]+|[^@\s]+@[^@\s]+\.[^@\s]+")


def identifier(name: str) -> str:
    """Return a name as Dagster allows it for groups and ops."""
    return _NOT_IN_IDENTIFIERS.sub("_", name)


class DagsterLancestatTranslator:
    """Makes asset keys, specs and checks of nodes. Override its methods to change them.

    Args:
        docs_url: Where the pages that `lancestat docs` writes are served. Assets link to it.
    """

    def __init__(self, docs_url: str | None = None) -> None:
        self._docs_url = docs_url

    def get_asset_key(self, node: Node) -> dg.AssetKey:
        """Return the key of a node's asset: by default the project, then the node's name.

        Characters that Dagster does not allow become `_`.
        """
        path = (_project_of(node), node["name"])
        return dg.AssetKey([_NOT_IN_KEYS.sub("_", part) for part in path])

    def get_dataset_key(self, uri: str) -> dg.AssetKey:
        """Return the key of a dataset that no node writes: by default `lance/orders`.

        That is the last part of its URI, without `.lance`. Give the asset that writes the dataset
        this key, and the nodes that read it depend on it.
        """
        name = uri.rstrip("/").rpartition("/")[2].removesuffix(".lance")
        return dg.AssetKey(["lance", _NOT_IN_KEYS.sub("_", name)])

    def get_asset_spec(self, node: Node) -> dg.AssetSpec:
        """Return the spec of a node's asset, without the dependencies that the manifest has."""
        owner = node["owner"]
        metadata: dict[str, Any] = {
            NODE_METADATA_KEY: node["name"],
            "dagster/storage_kind": node["format"],
            "dagster/table_name": node["uri"],
        }
        if self._docs_url is not None:
            metadata["lancestat/pages"] = dg.MetadataValue.url(self._docs_url)
        return dg.AssetSpec(
            self.get_asset_key(node),
            description=node["description"],
            group_name=identifier(_project_of(node)),
            owners=[owner] if owner and _EMAIL_OR_TEAM.fullmatch(owner) else None,
            tags={_NOT_IN_KEYS.sub("_", tag): "" for tag in node["tags"]},
            kinds={"lancestat", node["format"]},
            metadata=metadata,
        )

    def get_check_specs(self, node: Node, key: dg.AssetKey) -> Iterable[dg.AssetCheckSpec]:
        """Return the checks of a node: of its statistics if it is a table, and of its policies."""
        return [check.spec(key) for check in checks_of(node).values()]


def _project_of(node: Node) -> str:
    unique_id: str = node["unique_id"]
    return unique_id.removeprefix(f"{node['resource_type']}.").removesuffix(f".{node['name']}")
