"""Assets of the nodes of a manifest, and selections of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
from lancestat import Project

from dagster_lancestat.checks import Node
from dagster_lancestat.translator import DagsterLancestatTranslator

Manifest = Mapping[str, Any]
"""The content of lancestat's `manifest.json`."""

Selector = str | Sequence[str] | None


def lancestat_assets(
    *,
    manifest: Manifest | str | Path,
    project: Project | None = None,
    select: Selector = None,
    exclude: Selector = None,
    translator: DagsterLancestatTranslator | None = None,
    name: str | None = None,
    op_tags: Mapping[str, Any] | None = None,
    pool: str | None = None,
    backfill_policy: dg.BackfillPolicy | None = None,
    retry_policy: dg.RetryPolicy | None = None,
    required_resource_keys: set[str] | None = None,
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Make an asset of each node, in one op of which any subset can run.

    Args:
        manifest: What `lancestat.Project.manifest` returns, or the path of a `manifest.json`.
        project: The project of the manifest, which `select` and `exclude` need.
        select: Selectors of nodes, as for `lancestat run --select`; None selects all.
        exclude: Selectors of nodes to leave out.
        translator: Makes keys, specs and checks of nodes.
        name: The name of the op; None is the name of the function.
        op_tags: Tags of the op.
        pool: The pool that limits how many such ops run at once.
        backfill_policy: How backfills are cut into runs.
        retry_policy: When Dagster runs the op again. Nodes that are up to date cost nothing then.
        required_resource_keys: Keys of resources that the function uses through its context.

    Example:
        ```python
        project = lancestat.Project.load("statistics")

        @lancestat_assets(manifest=project.manifest())
        def shop(context: dg.AssetExecutionContext, lancestat: LancestatCliResource):
            yield from lancestat.cli(["run"], context=context).stream()
        ```
    """
    content = manifest if isinstance(manifest, Mapping) else _read(Path(manifest))
    nodes = _selected(content, project, select, exclude)
    translator = translator or DagsterLancestatTranslator()
    specs = _asset_specs(content, nodes, translator)
    return dg.multi_asset(
        specs=specs,
        check_specs=[
            check
            for node, spec in zip(nodes, specs, strict=True)
            for check in translator.get_check_specs(node, spec.key)
        ],
        can_subset=True,
        name=name,
        op_tags=op_tags,
        pool=pool,
        backfill_policy=backfill_policy,
        retry_policy=retry_policy,
        required_resource_keys=required_resource_keys,
    )


def build_lancestat_asset_selection(
    project: Project,
    select: Selector = None,
    exclude: Selector = None,
    translator: DagsterLancestatTranslator | None = None,
) -> dg.AssetSelection:
    """Return the assets of the nodes that selectors select, for jobs and schedules.

    Args:
        project: The project whose nodes are assets.
        select: Selectors of nodes, as for `lancestat run --select`; None selects all.
        exclude: Selectors of nodes to leave out.
        translator: The translator that the assets were made with.
    """
    translator = translator or DagsterLancestatTranslator()
    nodes = _selected(project.manifest(), project, select, exclude)
    return dg.AssetSelection.assets(*(translator.get_asset_spec(node).key for node in nodes))


def _asset_specs(
    manifest: Manifest, selected: Collection[Node], translator: DagsterLancestatTranslator
) -> list[dg.AssetSpec]:
    """Return the specs of the selected nodes of a manifest, with what each depends on."""
    nodes: Mapping[str, Node] = manifest["nodes"]
    keys = {unique_id: translator.get_asset_spec(node).key for unique_id, node in nodes.items()}
    specs: list[dg.AssetSpec] = []
    for node in selected:
        spec = translator.get_asset_spec(node)
        upstream = [keys[parent] for parent in node["depends_on"]["nodes"]]
        upstream += map(translator.get_dataset_key, node["inputs"])
        deps = {dep.asset_key: dep for dep in (*spec.deps, *map(dg.AssetDep, upstream))}
        specs.append(spec.replace_attributes(deps=list(deps.values())))
    return specs


def _selected(
    manifest: Manifest, project: Project | None, select: Selector, exclude: Selector
) -> list[Node]:
    nodes: Mapping[str, Node] = manifest["nodes"]
    if select is None and exclude is None:
        return list(nodes.values())
    if project is None:
        raise dg.DagsterInvalidDefinitionError("select and exclude need `project`")
    names = {node.name for node in project.nodes(select, exclude)}
    return [node for node in nodes.values() if node["name"] in names]


def _read(path: Path) -> Manifest:
    if not path.exists():
        raise dg.DagsterInvalidDefinitionError(
            f"there is no {path}: `lancestat plan` writes it, or pass `Project.manifest()`"
        )
    content: Manifest = json.loads(path.read_text("utf-8"))
    return content
