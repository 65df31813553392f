"""The component that makes a lancestat project part of a Dagster project."""

import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import dagster as dg
from dagster.components.resolved.core_models import OpSpec
from dagster.components.scaffold.scaffold import scaffold_with
from dagster.components.utils.translation import TranslationFn, TranslationFnResolver
from lancestat import Project
from pydantic import BaseModel, Field

from dagster_lancestat.assets import lancestat_assets
from dagster_lancestat.checks import Node
from dagster_lancestat.resource import LancestatCliResource
from dagster_lancestat.translator import DagsterLancestatTranslator, identifier


def _resolve_folder(context: dg.ResolutionContext, folder: str) -> str:
    """Return a folder that may be relative to the file that names it."""
    resolved: str = context.resolve_value(folder, as_type=str)
    return str(context.resolve_source_relative_path(resolved))


class LancestatScaffoldParams(BaseModel):
    """What `dg scaffold defs` asks for."""

    project: str = Field(description="The folder that contains lancestat_project.yml.")
    target: str | None = Field(default=None, description="One of the project's targets.")


class LancestatProjectScaffolder(dg.Scaffolder[LancestatScaffoldParams]):
    """Writes the `defs.yaml` of a project."""

    @classmethod
    def get_scaffold_params(cls) -> type[LancestatScaffoldParams]:
        return LancestatScaffoldParams

    def scaffold(self, request: dg.ScaffoldRequest[LancestatScaffoldParams]) -> None:
        root = request.project_root or Path.cwd()
        folder = os.path.relpath(request.params.project, start=root)
        attributes = {"project": f"{{{{ context.project_root }}}}/{folder}"}
        if request.params.target is not None:
            attributes["target"] = request.params.target
        dg.scaffold_component(request, attributes)


@scaffold_with(LancestatProjectScaffolder)
class LancestatProjectComponent(dg.Component, dg.Model, dg.Resolvable):
    """The tables and KNN joins of a lancestat project as assets, with checks of their policies.

    The project is loaded with the definitions. No dataset is opened for that; sources are searched.

    Example:
        ```yaml
        type: dagster_lancestat.LancestatProjectComponent
        attributes:
          project: "{{ context.project_root }}/statistics"
          target: prod
          select: tag:nightly
          translation:
            group_name: statistics
        ```
    """

    project: Annotated[
        str,
        dg.Resolver(
            _resolve_folder,
            model_field_type=str,
            description="The folder that contains `lancestat_project.yml`.",
            examples=["{{ context.project_root }}/statistics"],
        ),
    ]
    target: str | None = Field(
        default=None, description="One of the project's targets; the default is the project's."
    )
    vars: dict[str, Any] = Field(
        default_factory=dict, description="Values that override the project's `vars`."
    )
    select: str | list[str] | None = Field(
        default=None, description="Selectors of nodes, as for `--select`; the default is all."
    )
    exclude: str | list[str] | None = Field(
        default=None, description="Selectors of nodes to leave out."
    )
    cli_args: list[str] = Field(
        default_factory=lambda: ["run"],
        description="The command that assets run, with its options.",
        examples=[["run", "--threads", "4"]],
    )
    retries: int = Field(
        default=0,
        ge=0,
        description="How often a step that failed is run again, up to date nodes being skipped.",
    )
    docs_url: str | None = Field(
        default=None, description="Where the pages of `lancestat docs` are served."
    )
    op: OpSpec | None = Field(default=None, description="Options of the op of the assets.")
    translation: Annotated[
        TranslationFn[Node] | None,
        TranslationFnResolver(template_vars_for_translation_fn=lambda node: {"node": node}),
    ] = None

    @cached_property
    def translator(self) -> DagsterLancestatTranslator:
        """The translator of the assets, which also selections of them need."""
        return _ComponentTranslator(self)

    @cached_property
    def lancestat(self) -> LancestatCliResource:
        """The resource that runs the project."""
        return LancestatCliResource(
            project_dir=self.project, target=self.target, vars=dict(self.vars)
        )

    def get_asset_spec(self, node: Node) -> dg.AssetSpec:
        """Return the spec of a node's asset; override it for more than `translation` can do."""
        spec = DagsterLancestatTranslator.get_asset_spec(self.translator, node)
        return spec if self.translation is None else self.translation(spec, node)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        project: Project = self.lancestat.load_project()
        manifest = project.manifest()
        op = self.op or OpSpec()

        @lancestat_assets(
            manifest=manifest,
            project=project,
            select=self.select,
            exclude=self.exclude,
            translator=self.translator,
            name=op.name or identifier(manifest["metadata"]["project"]),
            op_tags=op.tags,
            pool=op.pool,
            backfill_policy=op.backfill_policy,
            retry_policy=dg.RetryPolicy(max_retries=self.retries) if self.retries else None,
        )
        def assets(context: dg.AssetExecutionContext) -> Iterator[Any]:
            yield from self.execute(context, self.lancestat)

        return dg.Definitions(assets=[assets])

    def execute(
        self, context: dg.AssetExecutionContext, lancestat: LancestatCliResource
    ) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
        """Run the selected assets and checks; override it to do more around that."""
        yield from lancestat.cli(self.cli_args, context=context).stream()


class _ComponentTranslator(DagsterLancestatTranslator):
    """Asks the component for specs, so that subclasses of it can change them."""

    def __init__(self, component: LancestatProjectComponent) -> None:
        super().__init__(component.docs_url)
        self._component = component

    def get_asset_spec(self, node: Node) -> dg.AssetSpec:
        return self._component.get_asset_spec(node)
