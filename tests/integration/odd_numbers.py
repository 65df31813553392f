"""Conditions on a column of floats in which NaN, infinities or zeros of both signs matter."""

from __future__ import annotations

CONDITIONS = (
    "{c} > 99.99",
    "{c} >= 1e30",
    "{c} > 0",
    "{c} >= 0",
    "{c} < 0",
    "{c} <= -0.0D",
    "{c} = 0",
    "{c} = 3",
    "{c} in (1, 2, 3)",
    "{c} = double('NaN')",
    "{c} <=> float('NaN')",
    "{c} >= double('NaN')",
    "{c} < double('NaN')",
    "not ({c} < double('NaN'))",
    "{c} > double('Infinity')",
    "{c} = double('-Infinity')",
    "{c} is null",
    "isnan({c})",
    "{c} <> 3 and {c} > -50 or {c} > 1e300",
)
