"""The link from a task to the pages of `lancestat docs`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey


class LancestatPagesLink(BaseOperatorLink):
    """Leads to the `docs_url` of an operator; a disabled button where it has none."""

    @property
    def name(self) -> str:
        return "lancestat"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        return getattr(operator, "docs_url", None) or ""
