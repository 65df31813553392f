"""Put a table's statistics together from what was scanned, carried over and stored."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from lancestat.lake.fingerprint import Fingerprint
from lancestat.plan.actions import TableWork
from lancestat.plan.coverage import Carry
from lancestat.state.values import StoredPartials
from lancestat.stats.partial import ColumnPartial, merge

Fingerprints = tuple[Fingerprint, ...]


class PartialsGoneError(Exception):
    """The state no longer has, or cannot decode, partials that the plan counted on."""


@dataclass(slots=True)
class _Sum:
    """A running merge per field key; `parts` counts what went in."""

    partials: dict[str, ColumnPartial] = field(default_factory=dict)
    parts: Counter[str] = field(default_factory=Counter)

    def add(self, key: str, partial: ColumnPartial, times: int = 1) -> None:
        before = self.partials.get(key)
        self.partials[key] = merge([*([before] if before else []), *[partial] * times])
        self.parts[key] += times


class Assembly:
    """Merges what covers a table, each (fragment, column) once, holding one partial per column.

    `known` is what was merged beforehand of fragments that the work leaves out. Feed it every
    scanned and every fetched partial, in any order, then `finish`.
    """

    def __init__(self, work: TableWork, known: Mapping[str, ColumnPartial]) -> None:
        self._work = work
        self._total = _Sum(dict(known))
        self._carried: list[tuple[Carry, _Sum]] = []
        self._takers: dict[Fingerprints, list[tuple[frozenset[str], int, _Sum]]] = defaultdict(list)
        for item in work.coverage.reuse:
            self._takers[item.fingerprints].append((item.fields, item.times, self._total))
        for carry in work.coverage.carries:
            sums = _Sum()
            self._carried.append((carry, sums))
            for source in carry.sources:
                self._takers[source].append((carry.fields, 1, sums))

    def add_scanned(self, partials: Mapping[str, ColumnPartial]) -> None:
        """Take in the partials of one scan."""
        for key, partial in partials.items():
            self._total.add(key, partial)

    def add_fetched(self, stored: StoredPartials) -> None:
        """Take in a stored row that the coverage reuses or carries over."""
        for fields, times, taker in self._takers.get(stored.fingerprints, ()):
            for key in fields & stored.partials.keys():
                taker.add(key, stored.partials[key], times)

    def finish(self) -> tuple[dict[str, ColumnPartial], list[StoredPartials]]:
        """The merged partial per field key, and the carried ones to remember.

        Raises:
            PartialsGoneError: not everything that the coverage names was fed.
        """
        to_store = []
        for carry, sums in self._carried:
            if any(sums.parts[key] != len(carry.sources) for key in carry.fields):
                raise PartialsGoneError
            for key in carry.fields:
                self._total.add(key, sums.partials[key])
            to_store.append(StoredPartials(tuple(sorted(carry.new)), dict(sums.partials)))
        if self._total.parts != self._expected():
            raise PartialsGoneError
        return self._total.partials, to_store

    def _expected(self) -> Counter[str]:
        expected: Counter[str] = Counter()
        for scan in self._work.scans:
            expected.update(scan.fields)
        for item in self._work.coverage.reuse:
            expected.update(dict.fromkeys(item.fields, item.times))
        for carry in self._work.coverage.carries:
            expected.update(carry.fields)
        return expected
