"""What a run may read, and how long it may begin nodes; and which nodes come first then."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from lancestat.arguments import check, check_whole, is_number
from lancestat.formats import count, size
from lancestat.spec.declaration import SIZE, Resource, Shape, key, resource, whole_number

MINUTES = Shape(
    title="a number of minutes above 0",
    keywords={"type": "number", "exclusiveMinimum": 0, "maximum": 1_000_000},
    read=float,
)
PRIORITY = whole_number("a whole number from -1000 to 1000", minimum=-1000, maximum=1000)


@resource
class Budget:
    """What a run may read and how long it may take, None where that is not bounded."""

    bytes: int | None = key(
        replace(SIZE, title="a size such as 100GB, or a number of bytes"),
        "How much a run reads of tables. Joins are not counted.",
        default=None,
    )
    minutes: float | None = key(
        MINUTES,
        "After how long a run begins nothing more, and tables stop reading. Joins that have begun "
        "are carried through.",
        default=None,
    )

    declares: ClassVar[Resource] = Resource(
        "a mapping with 'bytes' and 'minutes'",
        "What a run may read, and how long it may take. What does not fit is deferred to later "
        "runs.",
        is_filled=True,
    )

    def bounded(self, max_bytes: int | None, max_minutes: float | None) -> Budget:
        """Return the budget with the bounds that callers of the Python interface pass, if any.

        Raises:
            InvalidArgument: A bound is no number, or too small.
        """
        check_whole("max_bytes", max_bytes, 0)
        is_span = max_minutes is None or (is_number(max_minutes) and max_minutes > 0)
        check("max_minutes", max_minutes, is_span, "a number above 0, or None")
        return Budget(
            bytes=self.bytes if max_bytes is None else max_bytes,
            minutes=self.minutes if max_minutes is None else max_minutes,
        )

    def __bool__(self) -> bool:
        """Whether anything is bounded."""
        return self.bytes is not None or self.minutes is not None

    def __str__(self) -> str:
        """Return it in words: `100 GB and 30 minutes`."""
        parts = [] if self.bytes is None else [size(self.bytes)]
        parts += [] if self.minutes is None else [minutes_text(self.minutes)]
        return " and ".join(parts)


def minutes_text(minutes: float) -> str:
    """Return a number of minutes in words."""
    return count(int(minutes), "minute") if minutes == int(minutes) else f"{minutes:g} minutes"


NO_BUDGET = Budget()
