"""A Prefect flow with a task for the run and one for the checks."""

from __future__ import annotations

import sys

from prefect import flow, get_run_logger, task

from lancestat import Project


@task(retries=2, retry_delay_seconds=60)
def run(folder: str, target: str | None) -> list[str]:
    """Run what is due; nodes that were brought up to date are not read again by a retry."""
    result = Project.load(folder, target=target).run()
    # Without this, nodes that fail would leave the task green.
    result.raise_for_status()
    return [node.name for node in result.nodes]


@task
def check(folder: str, target: str | None) -> None:
    """Fail where tables are not as expected; reads no rows."""
    checked = Project.load(folder, target=target).check()
    get_run_logger().info("%s", checked)
    if not checked.ok:
        raise RuntimeError(checked.summary)


@flow
def statistics(folder: str = ".", target: str | None = None) -> None:
    run(folder, target)
    check(folder, target)


if __name__ == "__main__":
    statistics(*sys.argv[1:])
