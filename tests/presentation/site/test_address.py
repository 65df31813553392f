from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lancestat.presentation.site.text import addresses, slug
from tests.presentation.site.reports import join_report, table_report


@pytest.mark.parametrize("name", ["orders", "line_item", "orders-2024", "a", "0"])
def test_a_plain_name_is_its_own_address(name: str) -> None:
    assert slug(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "Orders",
        "..",
        "../../etc/passwd",
        "a/b",
        "a\\b",
        "CON",
        "con",
        "com1",
        "nul",
        "-",
        "",
        " ",
        "straße",
        "表",
        "a" * 5000,
        "a.b",
        "a\0b",
        "\ud800",
        "<script>",
        "orders-",
        "x:y",
    ],
)
def test_any_other_name_gets_a_file_name_that_every_system_takes(name: str) -> None:
    made = slug(name)
    assert re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,79}", made)
    assert made != name
    assert made.partition(".")[0] not in {"con", "nul", "com1"}


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.text(max_size=80), unique=True, min_size=2, max_size=20))
def test_different_names_have_different_addresses_ignoring_case(names: list[str]) -> None:
    assert len({slug(name).lower() for name in names}) == len(names)


def test_a_name_like_the_address_of_another_has_its_own_address() -> None:
    taken = slug("Orders")
    assert slug(taken) != taken


def test_tables_and_joins_have_their_own_folders() -> None:
    paths = addresses([table_report("orders"), join_report("similar")])
    assert paths == {"orders": "tables/orders.html", "similar": "joins/similar.html"}
