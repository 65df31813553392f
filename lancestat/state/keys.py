"""The key under which a column's partial is stored: its field key, marked when it has quantiles.

A partial with quantiles is a second kind of partial of the same column: what only knows the first
kind is covered by both, and a table that gets a histogram has to read its columns once more.
"""

from __future__ import annotations

from functools import lru_cache

# Spark's types hold no plus sign.
_QUANTILES = "+quantiles"

# 4 kB and 20 kB, in memory.
_PARTIALS_PER_QUANTILES = 5


def quantile_key(field_key: str) -> str:
    """The key of a column's partial with quantiles."""
    return field_key + _QUANTILES


def has_quantiles(key: str) -> bool:
    """Whether a partial stored under this key has quantiles."""
    return key.endswith(_QUANTILES)


def plain_key(key: str) -> str:
    """The field key behind a stored key."""
    return key.removesuffix(_QUANTILES)


# Fragments of a table mostly have the same columns, so that few sets are asked for, often.
@lru_cache(maxsize=1024)
def plain_keys(keys: frozenset[str]) -> frozenset[str]:
    """The field keys behind stored keys."""
    return frozenset(map(plain_key, keys))


@lru_cache(maxsize=1024)
def weight(keys: frozenset[str]) -> int:
    """How many partials without quantiles take as much memory as those of these keys."""
    return len(keys) + _PARTIALS_PER_QUANTILES * sum(map(has_quantiles, keys))


def answered(keys: frozenset[str]) -> frozenset[str]:
    """The keys that partials stored under `keys` can be asked for: also those without quantiles."""
    return keys | plain_keys(keys) if any(map(has_quantiles, keys)) else keys
