"""What a query is made of, as `QueryFacts.java` collects it from Spark's plans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

CATALYST = "org.apache.spark.sql.catalyst."


@dataclass(frozen=True, slots=True)
class Fact:
    """One kind of thing that occurs in a plan.

    `kind` says what `about` is: the class of a `plan` or an `expression`, the JSON list of the
    parts of a `relation` or `function`, the type of a `literal`, and so on. `detail` depends on it.
    """

    kind: str
    about: str
    detail: str = ""

    @property
    def short_name(self) -> str:
        """The last part of a class's name."""
        return self.about.rpartition(".")[2].rstrip("$")


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts about one plan."""

    facts: tuple[Fact, ...]

    @classmethod
    def of(cls, lines: Iterable[str]) -> Facts:
        """The facts that the JVM's lines tell."""
        return cls(tuple(Fact(*line.split("\t", 2)) for line in lines))

    def __iter__(self) -> Iterator[Fact]:
        return iter(self.facts)

    def about(self, kind: str) -> tuple[str, ...]:
        """What facts of a kind are about."""
        return tuple(fact.about for fact in self.facts if fact.kind == kind)
