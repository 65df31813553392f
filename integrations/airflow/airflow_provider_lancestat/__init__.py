"""Airflow operators and a task group of lancestat's tables and KNN joins."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow_provider_lancestat.version import __version__

if TYPE_CHECKING:
    from airflow_provider_lancestat.operators import (
        LancestatCheckOperator,
        LancestatPlanOperator,
        LancestatRunOperator,
    )
    from airflow_provider_lancestat.task_group import (
        LancestatTaskGroup,
        ProjectConfig,
        RenderConfig,
        TargetConfig,
    )

__all__ = [
    "LancestatCheckOperator",
    "LancestatPlanOperator",
    "LancestatRunOperator",
    "LancestatTaskGroup",
    "ProjectConfig",
    "RenderConfig",
    "TargetConfig",
    "__version__",
    "get_provider_info",
]

_MODULES = {
    "LancestatCheckOperator": "operators",
    "LancestatPlanOperator": "operators",
    "LancestatRunOperator": "operators",
    "LancestatTaskGroup": "task_group",
    "ProjectConfig": "task_group",
    "RenderConfig": "task_group",
    "TargetConfig": "task_group",
}


def get_provider_info() -> dict[str, Any]:
    """Return what Airflow asks a provider for."""
    return {
        "package-name": "airflow-provider-lancestat",
        "name": "lancestat",
        "description": "Statistics of Lance tables and KNN joins, by lancestat.",
        "versions": [__version__],
        "extra-links": ["airflow_provider_lancestat.links.LancestatPagesLink"],
    }


def __getattr__(name: str) -> object:
    # Airflow calls `get_provider_info` while it starts, before operators can be imported.
    if name not in _MODULES:
        raise AttributeError(f"module 'airflow_provider_lancestat' has no attribute '{name}'")
    return getattr(import_module(f"airflow_provider_lancestat.{_MODULES[name]}"), name)
