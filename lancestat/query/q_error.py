"""How far estimates of rows are off, and how much of that operators have from their inputs.

Source: G. Moerkotte, T. Neumann, G. Steidl, Preventing bad plans by bounding the impact of
cardinality estimation errors, VLDB 2009.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod


def row_ratio(estimated: float, true: float) -> float:
    """Return estimated rows divided by true ones, each of them at least 1."""
    return max(estimated, 1.0) / max(true, 1.0)


def q_error(ratio: float) -> float:
    """Return the factor between estimated and true rows, at least 1, of their ratio."""
    return max(ratio, 1 / ratio)


def added_error(ratio: float, inputs: Sequence[float]) -> float:
    """Return the part of an operator's q-error that those of its inputs do not explain.

    A join may have the errors of one side or of both, and an aggregation less than that of its
    input, so whatever lies between these is taken for inherited.

    Args:
        ratio: Estimated rows of the operator by true ones.
        inputs: Those of its inputs.
    """
    inherited = (1.0, *inputs, prod(inputs))
    return max(1.0, ratio / max(inherited), min(inherited) / ratio)
