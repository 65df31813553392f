"""Problems name the variables, and not the bounds that the environment gave."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import lance
import pytest

from lancestat.spec.load import load_project
from lancestat.spec.model import Table
from tests.report.gathering import Gathering
from tests.runs.world import orders
from tests.spec.conftest import PROJECT

ENVIRONMENT = {
    "B_VERSIONS": "0",
    "B_AGE": "37m",
    "B_ROWS": "0.0123",
    "B_WARN": "41m",
    "B_ERR": "43m",
}


def declared(folder: Path, policy: str) -> Table:
    (folder / "lancestat_project.yml").write_text(PROJECT)
    (folder / "specs").mkdir()
    (folder / "specs" / "shop.yml").write_text(f"""\
policies: [{{name: lazy, allow.stale: {policy}}}]
tables:
  - name: orders
    uri: orders.lance
    policy: lazy
    freshness:
      warn_after: "{{{{ env_var('B_WARN') }}}}"
      error_after: "{{{{ env_var('B_ERR') }}}}"
""")
    spec = load_project(folder, environment=ENVIRONMENT)
    [table] = spec.nodes
    assert isinstance(table, Table)
    return table


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        (
            "max_versions: \"{{ env_var('B_VERSIONS') | int }}\"",
            "{{ env_var('B_VERSIONS') | int }}",
        ),
        ("max_age: \"{{ env_var('B_AGE') }}\"", "{{ env_var('B_AGE') }}"),
        (
            "max_changed_rows: \"{{ env_var('B_ROWS') | float }}\"",
            "{{ env_var('B_ROWS') | float }}",
        ),
    ],
)
def test_problems_name_the_variables_of_bounds(
    gathering: Gathering, tmp_path: Path, bound: str, words: str
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    table = declared(folder, f"{{{bound}}}")
    gathering.world.run()
    lance.write_dataset(orders(100, 125), str(gathering.world.path), mode="append")
    gathering.world.clock.now = gathering.committed_at(2) + timedelta(hours=1)
    report = gathering.report(policy=table.policy, freshness=table.freshness)
    refused, outdated = report.problems
    assert refused.endswith(f"the policy accepts {words}.")
    assert outdated.endswith("error_after is {{ env_var('B_ERR') }}.")
    gathering.world.clock.now = gathering.committed_at(2) + timedelta(minutes=42)
    warned = gathering.report(freshness=table.freshness, policy=table.policy).problems[-1]
    assert warned.endswith("warn_after is {{ env_var('B_WARN') }}.")
