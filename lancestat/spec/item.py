"""One declared thing of a spec file, after its schema has accepted it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lancestat.errors import Location, SpecError
from lancestat.redact import Origin
from lancestat.spec.document import Document, KeyPath
from lancestat.spec.quoting import quoted


@dataclass(frozen=True, slots=True)
class Item:
    """A mapping at `path` of a document. Its shape is proven by the schema, hence `Any`."""

    document: Document
    path: KeyPath
    value: Mapping[str, Any]
    refs: Mapping[KeyPath, tuple[str, ...]]
    origins: Mapping[KeyPath, Origin]

    @property
    def location(self) -> Location:
        """Where the item's name is written."""
        return self.at("name")

    def at(self, *steps: str | int) -> Location:
        """Where a value inside the item is written."""
        return self.document.at((*self.path, *steps))

    def key_at(self, *steps: str | int) -> Location:
        """Where a key inside the item is written."""
        return self.document.key_at((*self.path, *steps))

    def origin(self, *steps: str | int) -> Origin | None:
        """Where a value inside the item comes from, None when the file holds it as it is."""
        return self.origins.get((*self.path, *steps))

    def origins_below(self, *steps: str | int) -> dict[str, Origin]:
        """The origins of the values below a key of the item, by dotted key."""
        at = (*self.path, *steps)
        return {
            ".".join(map(str, path[len(at) :])): origin
            for path, origin in self.origins.items()
            if path[: len(at)] == at
        }

    def quoted(self, text: str, *steps: str | int) -> str:
        """A value inside the item for a message: what the environment gave is told by its name."""
        origin = self.origin(*steps)
        return quoted(text if origin is None else origin.brief)

    def error(
        self, code: str, message: str, *steps: str | int, hint: str | None = None
    ) -> SpecError:
        """An error about a value inside the item."""
        return SpecError(code, message, location=self.at(*steps), hint=hint)

    def settings(self, *steps: str) -> dict[str, str]:
        """A mapping of settings as text: numbers as written, booleans as Spark spells them."""
        values: Any = self.value
        for step in steps:
            values = values.get(step, {})
        return {
            key: setting_text(self.document, (*self.path, *steps, key), value)
            for key, value in values.items()
        }


def setting_text(document: Document, path: KeyPath, value: object) -> str:
    """A setting's text: `1.10` stays `1.10`, true becomes `true`."""
    if isinstance(value, bool):
        return str(value).lower()
    return document.numbers.get(path, str(value))
