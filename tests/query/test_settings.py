"""Precedence of session, scan and policy."""

from __future__ import annotations

import logging

import pytest

from lancestat.query.table import ReadSettings, read_settings

ENABLED = "spark.lance.cbo.column.stats.enabled"
STALE = "spark.lance.cbo.column.stats.allow.stale"
CBO = "spark.sql.cbo.enabled"
PUSHDOWN = "spark.lancestat.aggregate.pushdown.enabled"


@pytest.mark.parametrize(
    ("conf", "options", "expected"),
    [
        ({}, {}, ReadSettings(True, None)),
        ({ENABLED: "false"}, {}, ReadSettings(False, None)),
        ({}, {"cbo.column.stats.enabled": "false"}, ReadSettings(False, None)),
        ({ENABLED: "true"}, {"cbo.column.stats.enabled": "false"}, ReadSettings(True, None)),
        ({ENABLED: " FALSE "}, {"cbo.column.stats.enabled": "true"}, ReadSettings(False, None)),
        ({STALE: "true"}, {}, ReadSettings(True, True)),
        ({CBO: "true"}, {}, ReadSettings(True, None, samples=True)),
        ({CBO: "true", ENABLED: "false"}, {}, ReadSettings(False, None)),
        ({CBO: "false"}, {}, ReadSettings(True, None)),
        ({STALE: "false"}, {"cbo.column.stats.allow.stale": "true"}, ReadSettings(True, False)),
        ({}, {"cbo.column.stats.allow.stale": "True"}, ReadSettings(True, True)),
        ({PUSHDOWN: "false"}, {}, ReadSettings(pushdown=False)),
        ({}, {"aggregate.pushdown.enabled": "off"}, ReadSettings(pushdown=False)),
        ({PUSHDOWN: "true"}, {"aggregate.pushdown.enabled": "false"}, ReadSettings()),
        ({ENABLED: "false", PUSHDOWN: "true"}, {}, ReadSettings(False)),
    ],
)
def test_settings_of_the_session_override_those_of_the_scan(
    conf: dict[str, str], options: dict[str, str], expected: ReadSettings
) -> None:
    assert read_settings(conf, options) == expected


def test_a_value_that_is_not_a_boolean_is_false_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "lancestat.read"):
        assert read_settings({ENABLED: "yes"}, {}) == ReadSettings(False, None)
        assert read_settings({}, {"cbo.column.stats.allow.stale": "1"}) == ReadSettings(True, False)
    assert [record.getMessage() for record in caplog.records] == [
        f"{ENABLED} is 'yes', neither true nor false: taken as false",
        "cbo.column.stats.allow.stale is '1', neither true nor false: taken as false",
    ]
