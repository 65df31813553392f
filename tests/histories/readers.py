"""Every way to read a table: each reader is pinned when it is made, and read again later."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from click.testing import CliRunner

import lancestat
from lancestat.cli.main import cli
from lancestat.errors import LancestatError
from lancestat.joins.search.work import PinnedTable
from lancestat.joins.spark.reader import read_columns
from lancestat.joins.spark.sides import opened_table
from lancestat.lake.open import snapshot
from lancestat.query.read.relation import register
from lancestat.spark.versions import has_python_sources
from tests.histories.rows import (
    ALL,
    PREDICATES,
    Predicate,
    Question,
    draw_question,
    lance_rows,
    parsed,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.histories.world import HistoryWorld

_CODE = re.compile(r"\bLS\d{3}\b")
# The error of a reader whose table has been replaced.
_ATTACH = re.compile(r"attach .*again", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Finding:
    """A defect: one line on the observed object and one on the observed value."""

    what: str
    seen: str

    def __str__(self) -> str:
        return f"{self.what}\n    {self.seen}"


@dataclass
class Pin:
    """A reader of one version, and the rows of that version when the reader was made.

    `rows` is a DataFrame, or reads a table's rows in this process.
    """

    way: str
    version: int
    rows: DataFrame | Callable[[], pa.Table]
    schema: pa.Schema
    truths: Mapping[Predicate, pa.Table]
    epoch: int
    cleaned: int

    def is_orphan(self, world: HistoryWorld) -> bool:
        """Return whether its table has been replaced."""
        return self.epoch != world.epoch

    def may_refuse(self, world: HistoryWorld) -> bool:
        """Return whether its version may have been cleaned up."""
        return self.is_orphan(world) or self.cleaned != world.cleaned


class Readers:
    """Create readers and query them; count reads and comparisons."""

    def __init__(self, spark: SparkSession, world: HistoryWorld) -> None:
        self._spark = spark
        self._world = world
        self.pins: list[Pin] = []
        self.reads = 0
        self.refusals = 0

    def make(self, random: Random) -> list[Finding]:
        """One more reader, of the newest version or an older one."""
        made = random.choice((self._view, self._view, self._table, self._table, self._side))
        if random.random() < 0.1 and has_python_sources():
            made = self._format
        try:
            self.pins.append(made(random))
        except LancestatError as error:
            return [Finding(f"{made.__name__} of the newest version", f"it is refused: {error}")]
        return []

    def _view(self, random: Random) -> Pin:
        attachment = self._world.project.attach(self._spark, "t")
        for error in attachment.failed.values():
            raise error
        return self._pin("view", self._spark.table("t"))

    def _table(self, random: Random) -> Pin:
        dataset = self._world.dataset
        tags = dataset.tags.list()
        kind = random.random()
        if tags and kind < 0.3:
            name = random.choice(sorted(tags))
            rows = lancestat.read_table(self._spark, self._world.uri, tag=name)
            return self._pin("read_table of a tag", rows, tags[name]["version"])
        if kind < 0.5:
            version = random.choice([version["version"] for version in dataset.versions()])
            rows = lancestat.read_table(self._spark, self._world.uri, version=version)
            return self._pin("read_table of a version", rows, version)
        return self._pin("read_table", lancestat.read_table(self._spark, self._world.uri))

    def _format(self, random: Random) -> Pin:
        register(self._spark)
        loader = self._spark.read.format("lancestat")
        return self._pin("format", loader.load(self._world.uri))

    def _side(self, random: Random) -> Pin:
        now = snapshot(self._world.dataset, self._world.uri)
        pinned = PinnedTable.at(now)
        names = tuple(field.name for field in now.fields)
        schema = self._world.dataset.schema

        def rows() -> pa.Table:
            others = tuple(name for name in names if name != "v")
            opened = opened_table(pinned, "v", others, {}, "left")
            batches = list(read_columns(opened, opened.all_rows, names))
            return pa.Table.from_batches(batches, schema)

        return self._pin("KNN side", rows)

    def _pin(
        self, way: str, rows: DataFrame | Callable[[], pa.Table], version: int | None = None
    ) -> Pin:
        world = self._world
        version = version or world.dataset.version
        schema = lance_rows(world.uri, version).schema
        names = set(schema.names)
        truths = {
            predicate: lance_rows(world.uri, version, predicate)
            for predicate in PREDICATES
            if predicate.column is None or predicate.column in names
        }
        return Pin(way, version, rows, schema, truths, world.epoch, world.cleaned)

    def ask(self, random: Random, count: int) -> list[Finding]:
        """Ask some readers, of which the newest is one, under a condition each."""
        some = random.sample(self.pins, min(count, len(self.pins)))
        chosen = list({id(pin): pin for pin in [*self.pins[-1:], *some]}.values())
        in_process = [pin for pin in chosen if callable(pin.rows)]
        on_spark = [
            (pin, draw_question(random, random.choice(list(pin.truths)), pin.schema))
            for pin in chosen
            if not callable(pin.rows)
        ]
        findings = [finding for pin in in_process for finding in self._compared(pin, Question(ALL))]
        return findings + self._asked_on_spark(on_spark)

    def _asked_on_spark(self, asked: Sequence[tuple[Pin, Question]]) -> list[Finding]:
        if not asked:
            return []
        try:
            answers = self._answers(asked)
        except Exception:
            # One of them fails the query: they are queried one by one to find it.
            return [finding for one in asked for finding in self._compared(*one)]
        findings: list[Finding] = []
        for (pin, question), seen in zip(asked, answers, strict=True):
            findings += self._judged(pin, question, seen)
        return findings

    def _answers(self, asked: Sequence[tuple[Pin, Question]]) -> list[list[list[str | None]]]:
        """Return the answers of all readers, from one job."""
        parts = []
        for place, (pin, question) in enumerate(asked):
            texts = [
                f"cast({expression} as string)" for expression in question.expressions(pin.schema)
            ]
            rows: Any = pin.rows
            selected = rows.where(question.predicate.spark)
            parts.append(selected.selectExpr(f"{place} as place", f"array({','.join(texts)}) as a"))
        frame = reduce(lambda left, right: left.unionAll(right), parts)
        answers: list[list[list[str | None]]] = [[] for _ in asked]
        for place, values in frame.collect():
            answers[place].append(list(values))
        return answers

    def _compared(self, pin: Pin, question: Question) -> list[Finding]:
        try:
            if callable(pin.rows):
                return self._judged(pin, question, question.answer(pin.rows()))
            [seen] = self._answers([(pin, question)])
        except Exception as error:
            return self._refused(pin, str(error))
        return self._judged(pin, question, seen)

    def _judged(self, pin: Pin, question: Question, seen: list[list[Any]]) -> list[Finding]:
        self.reads += 1
        expected = question.answer(pin.truths[question.predicate])
        answer = seen if callable(pin.rows) else parsed(seen, expected)
        what = f"{pin.way} of version {pin.version}, where {question.predicate.spark}"
        return [] if answer == expected else [Finding(what, _difference(answer, expected))]

    def _refused(self, pin: Pin, error: str) -> list[Finding]:
        self.reads += 1
        self.refusals += 1
        what = f"{pin.way} of version {pin.version}"
        line = error.strip().splitlines()[0] if error.strip() else "nothing"
        if not pin.may_refuse(self._world):
            return [Finding(what, f"it fails: {line}")]
        if not _CODE.search(error):
            return [Finding(what, f"it fails without a code of lancestat's: {line}")]
        if pin.is_orphan(self._world) and not _ATTACH.search(error):
            return [Finding(what, f"it does not say to attach again: {line}")]
        return []

    def ask_sql(self, random: Random) -> list[Finding]:
        """`lancestat sql` over the newest version."""
        world = self._world
        version, schema = world.dataset.version, world.dataset.schema
        fitting = [
            predicate for predicate in PREDICATES if (predicate.column or "id") in schema.names
        ]
        question = draw_question(random, random.choice(fitting), schema)
        texts = ", ".join(
            f"cast({expression} as string) as c{place}"
            for place, expression in enumerate(question.expressions(schema))
        )
        query = f"select {texts} from t where {question.predicate.spark}"
        arguments = ["sql", "--output", "json", "--project-dir", str(world.folder), query]
        result = CliRunner().invoke(cli, arguments)
        self.reads += 1
        what = f"lancestat sql at version {version}, where {question.predicate.spark}"
        if result.exit_code != 0:
            return [Finding(what, f"exit {result.exit_code}: {result.output}")]
        expected = question.answer(lance_rows(world.uri, version, question.predicate))
        answer = parsed(json.loads(result.stdout)["rows"], expected)
        return [] if answer == expected else [Finding(what, _difference(answer, expected))]


def _difference(actual: list[list[Any]], expected: list[list[Any]]) -> str:
    many = [row for row in actual if row not in expected]
    missing = [row for row in expected if row not in actual]
    return f"{len(actual)} rows, and Lance gives {len(expected)}; wrong {many}, missing {missing}"
