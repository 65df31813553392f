"""What a join's page shows of what the join compares."""

from __future__ import annotations

from dataclasses import replace

from lancestat.joins.record import JoinGroups
from lancestat.presentation.site.facts import join_facts, side_facts
from lancestat.review.values import Mask, node_properties
from tests.presentation.site.reports import join, join_report


def test_keys_distances_and_filters_are_shown() -> None:
    spec = join(on=(("tenant", "tenant"), ("shop_id", "store_id")), max_distance=0.3)
    left = replace(spec.left, where="lang = 'en'")
    report = join_report(spec=replace(spec, left=left))
    facts = dict(join_facts(report))
    assert facts["Meaning"] == "10 nearest within 0.3 by cosine, inner join"
    once = join_report(spec=replace(spec, exclude_self=True, pairs="unordered"))
    assert dict(join_facts(once))["Meaning"] == (
        "10 nearest within 0.3 by cosine, inner join, without the row itself, each pair once"
    )
    assert facts["Keys"] == "tenant, shop_id = store_id"
    sides = [dict(facts) for *_, facts in side_facts(report)]
    assert sides[0]["Where"] == "lang = 'en'"
    assert "Where" not in sides[1]


def test_a_join_of_all_rows_shows_none_of_them() -> None:
    facts = dict(join_facts(join_report()))
    assert facts["Meaning"] == "10 nearest by cosine, inner join"
    assert "Keys" not in facts


def test_groups_of_the_last_run_are_shown() -> None:
    report = join_report()
    assert report.record is not None
    record = replace(report.record, groups=JoinGroups(12, 25_000, 300, 1000))
    facts = dict(join_facts(replace(report, record=record)))
    assert facts["Groups"] == "12 of equal keys, with 25,000 pairs"


def test_keys_are_one_property_of_a_diff() -> None:
    spec = join(on=(("tenant", "tenant"), ("shop_id", "store_id")))
    entry = node_properties(spec, {}, Mask())["on"]
    assert entry.text == "tenant, shop_id = store_id"
    assert entry.value == [["tenant", "tenant"], ["shop_id", "store_id"]]
    assert "on" not in node_properties(join(), {}, Mask())
