"""Runs DAGs by `dag.test()`, and keeps what Airflow has of them then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
from airflow.models.asset import AssetEvent
from airflow.models.dagrun import DagRun
from airflow.models.renderedtifields import RenderedTaskInstanceFields
from airflow.models.xcom import XComModel
from airflow.sdk import DAG
from airflow.utils.session import create_session
from sqlalchemy import select


@dataclass
class Shop:
    """A DAG, and the errors of its last run by task."""

    dag: DAG
    errors: dict[str, str] = field(default_factory=dict)

    def run(self, *, conf: Mapping[str, Any] | None = None, home: Path | None = None) -> DagRun:
        self.errors.clear()
        bag = DagBag(dag_folder=str(home or Path(__file__).parent / "none"))
        bag.bag_dag(self.dag)
        sync_bag_to_db(bag, "dags-folder", None)
        return self.dag.test(run_conf=dict(conf or {}))

    def failed(self, context: Mapping[str, Any]) -> None:
        self.errors[context["task"].task_id] = str(context["exception"])


@contextmanager
def dag(name: str = "shop", **default_args: Any) -> Iterator[Shop]:
    """Make a DAG of the operators in the block."""
    with DAG(name, schedule=None, render_template_as_native_obj=True) as made:
        shop = Shop(made)
        made.default_args |= {"on_failure_callback": shop.failed, **default_args}
        yield shop


def states(run: DagRun) -> dict[str, str]:
    return {ti.task_id: str(ti.state) for ti in run.get_task_instances()}


def xcom(run: DagRun, task: str, key: str = "return_value") -> Any:
    with create_session() as session:
        found = session.scalars(
            XComModel.get_many(run_id=run.run_id, dag_ids=run.dag_id, task_ids=task, key=key)
        ).first()
        return None if found is None else XComModel.deserialize_value(found)


def rendered(run: DagRun) -> list[Any]:
    with create_session() as session:
        query = select(RenderedTaskInstanceFields).filter_by(run_id=run.run_id)
        return [row.rendered_fields for row in session.scalars(query)]


def asset_events(run: DagRun) -> dict[str, Any]:
    with create_session() as session:
        query = select(AssetEvent).filter_by(source_run_id=run.run_id)
        return {event.asset.uri: event.extra for event in session.scalars(query)}
