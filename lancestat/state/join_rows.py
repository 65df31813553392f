"""Records of joins as JSON, which rows of runs hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timezone

from lancestat.state.stored_json import count, instant, text
from lancestat.state.values import InputRecord, JoinRecord, ResultRecord


def encode_join(record: JoinRecord) -> str:
    """The stored form of a join's record: JSON."""
    stored = asdict(record)
    stored["finished_at"] = record.finished_at.astimezone(timezone.utc).isoformat()
    return json.dumps(stored, separators=(",", ":"))


def decode_join(stored: str) -> JoinRecord:
    """The inverse of `encode_join`; raises ValueError on anything else."""
    found = json.loads(stored)
    try:
        return JoinRecord(
            node=text(found["node"]),
            digest=text(found["digest"]),
            left=_input(found["left"]),
            right=_input(found["right"]),
            result=_result(found["result"]),
            left_rows=count(found["left_rows"]),
            right_rows=count(found["right_rows"]),
            unmatched_left_rows=count(found["unmatched_left_rows"]),
            excluded_right_rows=count(found["excluded_right_rows"]),
            strategy=text(found["strategy"]),
            finished_at=instant(datetime.fromisoformat(text(found["finished_at"]))),
            recall=_optional_share(found["recall"]),
            nprobes=_optional_count(found["nprobes"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a record of a join: {error}") from None


def _input(found: Mapping[str, object]) -> InputRecord:
    return InputRecord(
        digest=text(found["digest"]),
        fragments=count(found["fragments"]),
        last_fragment=count(found["last_fragment"]),
        rows=_optional_count(found["rows"]),
        unproven=_unproven(found.get("unproven")),
    )


def _unproven(found: object) -> tuple[str, ...] | None:
    # Records of earlier releases have nothing about it.
    if found is None:
        return None
    if not isinstance(found, list):
        raise ValueError(f"expected a list, found {type(found).__name__}")
    return tuple(map(text, found))


def _result(found: Mapping[str, object]) -> ResultRecord:
    generation = found["generation"]
    return ResultRecord(
        rows=count(found["rows"]),
        digest=text(found["digest"]),
        version=_optional_count(found["version"]),
        generation=None if generation is None else text(generation),
    )


def _optional_count(found: object) -> int | None:
    return None if found is None else count(found)


def _optional_share(found: object) -> float | None:
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise ValueError(f"expected a number, found {type(found).__name__}")
    return float(found)
