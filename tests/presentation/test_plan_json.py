from __future__ import annotations

import json

from tests.conftest import Golden
from tests.joins.joins import every_join
from tests.presentation.rendering import as_json
from tests.tables.plans import blocked, every_action, plan, skip


def test_the_json_of_a_plan_is_a_contract(golden: Golden) -> None:
    golden("plan/every_action.json", json.dumps(as_json(every_action()), indent=2) + "\n")


def test_the_status_reports_blocked_nodes() -> None:
    assert as_json(plan(skip()))["status"] == "planned"
    assert as_json(plan(skip(), blocked()))["status"] == "error"


def test_the_json_of_joins_has_additional_fields(golden: Golden) -> None:
    golden("plan/every_join.json", json.dumps(as_json(every_join()), indent=2) + "\n")
