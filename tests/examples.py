"""How many examples property tests try: all of them, or a share in the profile `quick`."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

THOROUGH, QUICK = "thorough", "quick"

settings.register_profile(
    THOROUGH, deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=100
)
settings.register_profile(QUICK, settings.get_profile(THOROUGH), max_examples=20)


def examples(thorough: int) -> int:
    """Return a number of examples, or its share in the profile that is loaded."""
    return max(1, thorough * settings().max_examples // 100)
