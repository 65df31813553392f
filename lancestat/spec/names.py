"""Declared names: one place per name, and a nearest name for one that is not declared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from lancestat.errors import LancestatError, Location, SpecError, did_you_mean
from lancestat.redact import Origin
from lancestat.spec import codes
from lancestat.spec.item import Item
from lancestat.spec.quoting import quoted

T = TypeVar("T")


@dataclass(slots=True)
class Namespace(Generic[T]):
    """Names of one kind of thing. They must differ by more than case, as Spark's views must.

    A name whose item is broken is declared without a value, so that what refers to it is not
    reported as well.
    """

    noun: str
    values: dict[str, T | None] = field(default_factory=dict)
    places: dict[str, tuple[str, Location]] = field(default_factory=dict)

    def declare(self, name: str, location: Location, errors: list[LancestatError]) -> bool:
        """Take a name; False, and an error, when it is taken."""
        first = self.places.setdefault(name.casefold(), (name, location))
        if first[1] == location:
            self.values[name] = None
            return True
        spelled = "" if first[0] == name else f" as {quoted(first[0])}"
        message = f"{self.noun} {quoted(name)} is declared twice, first{spelled} at {first[1]}"
        errors.append(SpecError(codes.DUPLICATE_NAME, message, location=location))
        return False

    def refuse(self, name: str, noun: str, item: Item, origin: Origin) -> SpecError:
        """Take a name that the environment gave, and the error that it must not.

        A name is what the state, pages, plans and queries know a thing by, for everybody to see.
        """
        self.values.setdefault(name, None)
        return item.error(
            codes.WRONG_VALUE,
            f"the name of {noun} comes from the environment, from {origin.names}",
            "name",
            hint="write the name itself; names are shown, stored and published",
        )

    def unknown(self, name: str, item: Item, *steps: str | int) -> SpecError | None:
        """The error of a reference to `name`, or None when it is declared."""
        if name in self.values:
            return None
        declared = [spelled for spelled, _ in self.places.values()]
        known = ", ".join(sorted(declared)[:20]) or "none"
        hint = None
        if item.origin(*steps) is None:
            hint = did_you_mean(name, declared) or self._same_letters(name)
        return item.error(
            codes.UNKNOWN_REFERENCE,
            f"unknown {self.noun} {item.quoted(name, *steps)}",
            *steps,
            hint=hint or f"declared: {known}",
        )

    def _same_letters(self, name: str) -> str | None:
        declared = self.places.get(name.casefold())
        return f"did you mean '{declared[0]}'?" if declared else None
