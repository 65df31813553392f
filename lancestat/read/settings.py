"""What a session and a scan say about statistics."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

ENABLED = "cbo.column.stats.enabled"
ALLOW_STALE = "cbo.column.stats.allow.stale"
SPARK_PREFIX = "spark.lance."
CBO = "spark.sql.cbo.enabled"

_log = logging.getLogger("lancestat.read")


@dataclass(frozen=True, slots=True)
class Settings:
    """What of statistics is wanted.

    `enabled` switches column statistics, `allow_stale` accepts any staleness or none, where None
    leaves that to the policy; `samples` asks for samples where Spark's own estimation gives up.
    """

    enabled: bool = True
    allow_stale: bool | None = None
    samples: bool = False


def read_settings(conf: Mapping[str, str], options: Mapping[str, str]) -> Settings:
    """Settings of a scan: Spark's configuration comes before the scan's own options.

    A value that is neither true nor false counts as the cautious one: off, and nothing stale.

    Args:
        conf: The session's `spark.lance.cbo.column.stats.*` entries, and whether its cost-based
            optimizer is on.
        options: The scan's options, their keys in lower case.
    """
    enabled = _flag(conf, options, ENABLED)
    return Settings(
        enabled is not False,
        _flag(conf, options, ALLOW_STALE),
        enabled is not False and conf.get(CBO) == "true",
    )


def _flag(conf: Mapping[str, str], options: Mapping[str, str], key: str) -> bool | None:
    spark_key = SPARK_PREFIX + key
    named, text = (spark_key, conf[spark_key]) if spark_key in conf else (key, options.get(key))
    if text is None:
        return None
    word = text.strip().lower()
    if word not in ("true", "false"):
        _log.warning("%s is %r, neither true nor false: taken as false", named, text)
    return word == "true"
