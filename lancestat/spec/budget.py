"""What a run may read, and how long it may begin nodes; and which nodes come first then."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

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
