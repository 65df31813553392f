"""Whether a policy lets readers use older statistics than another."""

from __future__ import annotations

from datetime import timedelta

from lancestat.review.values import Risk
from lancestat.spec.model import Policy, Refresh, StaleBounds

_INFINITE = float("inf")


def staleness_risks(old: Policy, new: Policy) -> tuple[Risk, ...]:
    """Loosened, tightened, both or neither.

    `false` is below all bounds and `true` above them; a bound that is not given is infinite, and
    each is compared by itself, so that a change may be both. `refresh: when_stale` loosens where
    readers accept anything stale at all: until they refuse, runs bring nothing up to date.
    """
    before, after = _reach(old), _reach(new)
    loosened = any(then < now for then, now in zip(before, after, strict=True))
    tightened = any(then > now for then, now in zip(before, after, strict=True))
    found = ((Risk.STALENESS_LOOSENED, loosened), (Risk.STALENESS_TIGHTENED, tightened))
    return tuple(risk for risk, is_there in found if is_there)


def _reach(policy: Policy) -> tuple[float, ...]:
    """How far statistics may lag: versions, seconds, share of rows, and whether runs let them."""
    allowed = policy.allow_stale
    waits = policy.refresh is Refresh.WHEN_STALE and allowed is not False
    if isinstance(allowed, bool):
        # Below 0, where a bound may be: that readers accept a version behind is not yet allowed.
        return (*((_INFINITE if allowed else -1.0,) * 3), float(waits))
    if allowed == StaleBounds():
        return (-1.0, -1.0, -1.0, float(waits))
    return (
        _bound(allowed.max_versions),
        _bound(allowed.max_age),
        _bound(allowed.max_changed_rows),
        float(waits),
    )


def _bound(bound: float | timedelta | None) -> float:
    if bound is None:
        return _INFINITE
    return bound.total_seconds() if isinstance(bound, timedelta) else float(bound)
