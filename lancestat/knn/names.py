"""Names of a result's columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lancestat.errors import UsageError
from lancestat.knn.request import DISTANCE, RANK

SUFFIX = "_right"


@dataclass(frozen=True, slots=True)
class OutputNames:
    """What the columns of a result are called, in their order.

    `left` and `right` are parallel to the selected columns of the sides; `measures` are `_distance`
    and, where it is asked for, `_rank`.
    """

    left: tuple[str, ...]
    right: tuple[str, ...]
    measures: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        """Every column of the result."""
        return self.left + self.right + self.measures


def output_names(left: Sequence[str], right: Sequence[str], *, with_rank: bool) -> OutputNames:
    """Name a result's columns so that Spark, which does not tell cases apart, can read each.

    Args:
        left: The columns selected on the left, which keep their names.
        right: The columns selected on the right; one that the left has too gets the suffix
            `_right`.
        with_rank: Whether there is a column `_rank`.

    Raises:
        UsageError: a side selects a column twice (LS450) or one that is called like what the join
            adds (LS451), or a name with its suffix is taken (LS452).
    """
    measures = (DISTANCE, RANK) if with_rank else (DISTANCE,)
    for side, names in (("left", left), ("right", right)):
        _check_side(side, names, measures)
    on_left = {name.lower() for name in left}
    shown = tuple(name + SUFFIX if name.lower() in on_left else name for name in right)
    on_right = {name.lower() for name in right}
    for name, renamed in zip(right, shown, strict=True):
        if renamed == name:
            continue
        side = "left" if renamed.lower() in on_left else "right"
        if renamed.lower() in on_left | on_right:
            raise UsageError(
                "LS452",
                f"the right column '{name}' would be called '{renamed}' in the result, since the "
                f"left side has a '{name}' too, but the {side} side selects a column of that name",
                hint="rename one of them, or leave it out of 'select'",
            )
    return OutputNames(tuple(left), shown, measures)


def _check_side(side: str, names: Sequence[str], measures: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for name in names:
        folded = name.lower()
        if folded in measures:
            raise UsageError(
                "LS451",
                f"the {side} side selects '{name}', which is what the join calls a column of its "
                "own",
                hint="rename it, or leave it out of 'select'",
            )
        if folded in seen:
            both = f"'{name}' twice" if seen[folded] == name else f"'{seen[folded]}' and '{name}'"
            raise UsageError(
                "LS450",
                f"the {side} side selects {both}, which Spark cannot tell apart",
                hint="leave one of them out of 'select'",
            )
        seen[folded] = name
