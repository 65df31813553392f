from __future__ import annotations

import json

from lancestat.runs.node_result import planned
from tests.conftest import Golden
from tests.joins.joins import every_join
from tests.presentation.rendering import as_json
from tests.tables.plans import blocked, every_action, plan, skip


def test_the_json_of_a_plan_is_a_contract(golden: Golden) -> None:
    golden("plan/every_action.json", json.dumps(as_json(every_action()), indent=2) + "\n")


def test_a_node_of_a_plan_has_the_form_of_a_node_of_a_run() -> None:
    example = every_action()
    nodes = as_json(example)["nodes"]
    assert nodes == [planned(action).to_json() for action in example.actions]


def test_the_status_reports_blocked_nodes() -> None:
    assert as_json(plan(skip()))["status"] == "planned"
    assert as_json(plan(skip(), blocked()))["status"] == "error"


def test_the_json_of_joins_has_additional_fields(golden: Golden) -> None:
    golden("plan/every_join.json", json.dumps(as_json(every_join()), indent=2) + "\n")


def test_a_join_of_a_plan_has_the_form_of_a_join_of_a_run() -> None:
    example = every_join()
    assert as_json(example)["nodes"] == [planned(action).to_json() for action in example.actions]
