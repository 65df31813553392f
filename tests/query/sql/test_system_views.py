from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from lancestat.query.sql.statement import QueryContext, hint_for
from lancestat.query.sql.view_query import mentioned_views, view_schema
from lancestat.spark.start import VIEW_SCHEMA_SETTING, defaults

NAMES = ("statistics", "runs", "fragments")


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("select 1", ()),
        ("select * from orders join runs using (id)", ()),
        ("select * from my_lancestat.runs", ()),
        ("select * from lancestat.runs", ("runs",)),
        ("select * from LanceStat . `Statistics` s", ("statistics",)),
        ("select * from `lancestat`.`fragments`", ("fragments",)),
        ("select * from lancestat.runs natural join lancestat.fragments", ("runs", "fragments")),
        ("show views in lancestat", NAMES),
        ("select * from lancestat.statistic", NAMES),
    ],
)
def test_only_views_that_a_query_may_read_are_made(query: str, wanted: tuple[str, ...]) -> None:
    assert mentioned_views(query, "lancestat", NAMES) == wanted


@dataclass
class Session:
    """A session with a configuration; missing keys have the defaults of Spark."""

    conf: dict[str, str]

    def get(self, key: str) -> str:
        return self.conf.get(key, "global_temp")


@pytest.mark.parametrize(
    ("conf", "schema"),
    [
        ({}, "global_temp"),
        ({VIEW_SCHEMA_SETTING: "shared"}, "shared"),
        (defaults("local[1]", {}), "lancestat"),
    ],
)
def test_the_schema_is_that_with_which_spark_was_started(conf: dict[str, str], schema: str) -> None:
    assert view_schema(SimpleNamespace(conf=Session(conf))) == schema  # type: ignore[arg-type]


def test_in_an_existing_session_views_have_its_schema() -> None:
    assert mentioned_views("select * from lancestat.runs", "global_temp", NAMES) == ()
    assert mentioned_views("select * from global_temp.runs", "global_temp", NAMES) == ("runs",)


@pytest.mark.parametrize(
    ("schema", "name", "hint"),
    [
        ("lancestat", "lancestat.statistic", "did you mean 'lancestat.statistics'?"),
        ("lancestat", "LANCESTAT.Run", "did you mean 'lancestat.runs'?"),
        (
            "lancestat",
            "lancestat.zzz",
            "there are lancestat.statistics, lancestat.runs, lancestat.fragments",
        ),
        ("global_temp", "lancestat.runs", "did you mean 'global_temp.runs'?"),
        ("lancestat", "ordres", "did you mean 'orders'?"),
        ("lancestat", "other.zzz", "declared tables: orders"),
    ],
)
def test_an_unknown_view_has_a_hint(schema: str, name: str, hint: str) -> None:
    views = tuple(f"{schema}.{view}" for view in NAMES)
    assert hint_for(name, QueryContext({"orders": None}, views=views)) == hint
