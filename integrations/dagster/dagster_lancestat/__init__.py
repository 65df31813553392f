"""Dagster assets and asset checks of lancestat's tables and KNN joins."""

from dagster_shared.libraries import DagsterLibraryRegistry

from dagster_lancestat.assets import build_lancestat_asset_selection, lancestat_assets
from dagster_lancestat.component import LancestatProjectComponent
from dagster_lancestat.invocation import LancestatCliInvocation
from dagster_lancestat.resource import LancestatCliResource
from dagster_lancestat.translator import DagsterLancestatTranslator
from dagster_lancestat.version import __version__

__all__ = [
    "DagsterLancestatTranslator",
    "LancestatCliInvocation",
    "LancestatCliResource",
    "LancestatProjectComponent",
    "__version__",
    "build_lancestat_asset_selection",
    "lancestat_assets",
]

DagsterLibraryRegistry.register("dagster-lancestat", __version__, is_dagster_package=False)
