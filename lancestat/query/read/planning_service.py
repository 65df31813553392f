"""The service that answers the JVM's questions about tables while it plans scans."""

from __future__ import annotations

import json
import logging
import math
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from lancestat.errors.base import InternalError, LancestatError
from lancestat.lake.error_mapping import is_error_or_panic
from lancestat.lake.snapshot import split_fragments
from lancestat.query.estimates import (
    Aggregate,
    ColumnEstimate,
    Explanation,
    Function,
    PushDown,
    PushDownReason,
    estimate,
    explained,
    pruning_of,
    push_down,
    remaining_fragments,
)
from lancestat.query.plans.answers import PlanAnswers
from lancestat.query.predicates.filter import Filter, Unread, filter_text, read_filters
from lancestat.query.predicates.filter_sql import exact_conjuncts
from lancestat.query.read.arrow_columns import QueryScan, encode_part, encode_sample
from lancestat.query.table import ReadSettings, ReadTable
from lancestat.redact import KnownValue, redact_line, secret_options, secret_values
from lancestat.spark.failure import WorkerError
from lancestat.tables.judgement import Verdict
from lancestat.tables.statistics.bounds import Bound
from lancestat.tables.statistics.column_type import decoded_size

# A question of the JVM, or an answer to it: a JSON object.
Message = dict[str, Any]

EXPLANATIONS_KEPT = 1000

_log = logging.getLogger("lancestat.read")


class PlanningService:
    """Answers questions about the tables of relations, which have handles; thread-safe.

    Questions and answers are JSON objects: `covers` where a scan has filters, `aggregate` where
    Spark would push aggregates down, `estimate` once per planned scan, `sample` where a filter is
    estimated, `order` and `plan` for whole plans, `parts` once per executed scan, or `verify` where
    another source reads or nothing is read, `forget` when the JVM drops a relation.

    A query fails only for what cannot be read, in `parts` and `verify`. After any other failure, a
    scan is planned as if nothing were known of its table, and the failure is logged.
    """

    def __init__(self, clock: Callable[[], datetime] = lambda: datetime.now(timezone.utc)) -> None:
        self._clock = clock
        self._tables: dict[str, ReadTable] = {}
        self._refusals: set[tuple[str, int, str]] = set()
        self._explanations: dict[str, Explanation] = {}
        self._lock = threading.Lock()

    def register(self, table: ReadTable) -> str:
        """Register a table, and return the handle that relations name it by."""
        handle = uuid.uuid4().hex
        with self._lock:
            self._tables[handle] = table
        return handle

    def answer(self, question: str) -> str:
        """Answer one question of the JVM, both as JSON text.

        A failure is an answer too, `{"error": ...}`: the JVM goes on without statistics, or fails
        the query.
        """
        message: Message = {}
        try:
            message = json.loads(question)
            return json.dumps(self._answer(message))
        except LancestatError as error:
            problem = error
        except BaseException as error:
            if not is_error_or_panic(error):
                raise
            cause = _cause(error, *list(self._tables.values()))
            problem = InternalError(f"a scan cannot be planned: {cause}")
        _log.warning("planning a scan: %s", problem.message)
        return json.dumps({"error": str(WorkerError.carrying(problem))})

    def _answer(self, message: Message) -> Message:
        if message["op"] == "forget":
            with self._lock:
                self._tables.pop(message["table"], None)
            return {}
        table = self._tables[message["table"]]
        match message["op"]:
            case "covers":
                return self._covers(table, _filters(message, table), message)
            case "aggregate":
                return self._aggregate(table, _filters(message, table), message)
            case "estimate":
                return self._estimate(table, _filters(message, table), message)
            case "parts":
                return self._parts(table, message)
            case "plan":
                return PlanAnswers(message, self._table_of, self._clock()).estimates()
            case "order":
                answers = PlanAnswers(message, self._table_of, self._clock())
                return answers.orders(message["regions"])
            case "sample":
                return self._sample(table, _filters(message, table), message)
            case "verify":
                table.verify()
                return {}
            case op:
                raise ValueError(op)

    def handles(self) -> tuple[str, ...]:
        """Return the handles of the tables that some relation may still ask about."""
        return tuple(self._tables)

    def explanations(self) -> tuple[Explanation, ...]:
        """Return the explanations of the latest scans, oldest first."""
        return tuple(self._explanations.values())

    def explanation(self, name: str) -> Explanation | None:
        """Return the explanation of one scan, None once there are too many later ones."""
        return self._explanations.get(name)

    def secrets(self) -> list[KnownValue]:
        """Return the storage options of all tables, of which nothing may be shown."""
        with self._lock:
            tables = list(self._tables.values())
        return [known for table in tables for known in secret_options(table.storage_options)]

    def _covers(self, table: ReadTable, filters: list[Filter], message: Message) -> Message:
        settings = ReadSettings.of(message["conf"], message["options"])
        if not (settings.pushdown and table.fragments.covers(filters)):
            return {"covers": None}
        remaining = remaining_fragments(table, filters)
        every = (fragment.id for fragment in table.snapshot.fragments)
        return {"covers": _runs(every if remaining is None else remaining.fragment_ids)}

    def _aggregate(self, table: ReadTable, filters: list[Filter], message: Message) -> Message:
        settings = ReadSettings.of(message["conf"], message["options"])
        aggregates = [
            Aggregate(Function(asked["function"]), asked["column"])
            for asked in message["aggregates"]
        ]
        decision = push_down(table, aggregates, filters, settings)
        reply: Message = {
            "reason": decision.reason.value,
            "detail": decision.detail,
            "functions": decision.functions,
        }
        if decision.use:
            answered = explained(table, 1, 0, table.verdict(settings, self._clock()), ())
            reply["values"] = list(map(_text, decision.values))
            reply["explanation"] = self._explain(table, message, filters, answered, decision)
        return reply

    def _estimate(self, table: ReadTable, filters: list[Filter], message: Message) -> Message:
        settings = ReadSettings.of(message["conf"], message["options"])
        is_covered = message["covered"] is not None
        made = estimate(
            table, message["columns"], filters, settings, self._clock(), is_covered=is_covered
        )
        self._log_refusal(table, made.verdict)
        left = message["aggregation"]
        decision = left and PushDown(
            PushDownReason(left["reason"]), left["detail"], tuple(left["functions"])
        )
        return {
            "rows": made.rows,
            "size": made.size_bytes,
            "columns": {name: _column(column) for name, column in made.columns.items()},
            "explanation": self._explain(table, message, filters, made, decision),
        }

    def _table_of(self, question: Message) -> tuple[ReadTable, list[Filter]]:
        table = self._tables[question["table"]]
        return table, _filters(question, table)

    def _sample(self, table: ReadTable, filters: list[Filter], message: Message) -> Message:
        """Return the name of a sample of the fragments that the filters leave, and its columns.

        They are a base64 Arrow stream, without those of it that `held` names.
        """
        settings = ReadSettings.of(message["conf"], message["options"])
        if table.sampler is None or not settings.samples:
            return {}
        left = remaining_fragments(table, filters)
        ids = None if left is None else left.fragment_ids
        sample = table.sampler.sample(ids)
        if not sample:
            return {}
        held = message["held"].get(sample.name, ())
        rows = sample.columns([name for name in message["columns"] if name not in held])
        if rows is None:
            return {}
        try:
            return {
                "sample": sample.name,
                "arrow": encode_sample(rows) if rows.num_columns else None,
            }
        except OverflowError:
            # A value that Spark's type cannot hold is an error where the query reads it.
            return {}

    def _parts(self, table: ReadTable, message: Message) -> Message:
        columns: Sequence[str] = message["columns"]
        # No task opens a table of which all fragments are ruled out.
        table.verify()
        left, sql = self._selection(table, message)
        parts = split_fragments(
            [f for f in table.snapshot.fragments if left is None or f.id in left],
            row_bytes=decoded_size(1, [table.fields[name] for name in columns], {}),
            cores=message["cores"],
            is_filtered=sql is not None,
            limit=message["limit"],
        )
        scan = QueryScan(
            table.snapshot.pin, tuple(columns), sql, message["limit"], message["narrow"]
        )
        return {"scan": scan.encode(), "parts": [encode_part(part) for part in parts]}

    def _selection(self, table: ReadTable, message: Message) -> tuple[set[int] | None, str | None]:
        """Return the fragments to read, None for all of them, and the filter that Lance applies."""
        covered = message["covered"]
        proven = None if covered is None else {id for a, b in covered for id in range(a, b + 1)}
        try:
            filters = _filters(message, table)
            remaining = remaining_fragments(table, filters)
            sql, _ = exact_conjuncts(filters, table.fields)
        except BaseException as error:
            if not is_error_or_panic(error):
                raise
            # Spark applies the filters, unless they are proven.
            cause = _cause(error, table)
            _log.warning("nothing is ruled out of a scan of '%s': %s", table.name, cause)
            return proven, None
        if proven is not None or remaining is None:
            return proven, sql
        return set(remaining.fragment_ids), sql

    def _explain(
        self,
        table: ReadTable,
        message: Message,
        filters: Sequence[Filter],
        made: Explanation,
        decision: PushDown | None,
    ) -> str:
        ids = made.fragment_ids
        known = [filter for filter in filters if not isinstance(filter, Unread)]
        others = tuple(message["others"])
        # The planner and this process disagree about what a filter is.
        others += (_UNREAD_TEXT,) * (len(filters) - len(known) - len(others))
        explanation = replace(
            made,
            filters=tuple(map(filter_text, known)),
            other_filters=others,
            is_covered=message["covered"] is not None,
            pruning=None if decision and decision.use else pruning_of(table, known, others, ids),
            aggregates=decision,
        )
        name = uuid.uuid4().hex
        with self._lock:
            while len(self._explanations) >= EXPLANATIONS_KEPT:
                del self._explanations[next(iter(self._explanations))]
            self._explanations[name] = explanation
        return name

    def _log_refusal(self, table: ReadTable, verdict: Verdict) -> None:
        key = (table.snapshot.uri, table.snapshot.version, verdict.reason.value)
        with self._lock:
            if verdict.use or key in self._refusals:
                return
            self._refusals.add(key)
        reason, detail = verdict.reason.value, verdict.detail
        _log.info("statistics of '%s' are not used: %s (%s)", table.name, reason, detail)


_UNREAD_TEXT = filter_text(Unread())


def _filters(message: Message, table: ReadTable) -> list[Filter]:
    filters = read_filters(message["filters"], table.fields)
    return [*filters, *(Unread() for _ in message["others"])]


def _runs(ids: Iterable[int]) -> list[list[int]]:
    """Return numbers as the first and the last of each run of them, ascending."""
    runs: list[list[int]] = []
    for id in sorted(ids):
        if runs and runs[-1][1] == id - 1:
            runs[-1][1] = id
        else:
            runs.append([id, id])
    return runs


def _cause(error: BaseException, *tables: ReadTable) -> str:
    secrets = {secret for table in tables for secret in secret_values(table.storage_options)}
    return redact_line(f"{type(error).__name__}: {error}", secrets)


def _column(column: ColumnEstimate) -> Message:
    message: Message = column.to_json()
    if column.histogram is not None:
        bins = [[bin.low, bin.high, bin.distinct] for bin in column.histogram.bins]
        message["histogram"] = {"height": column.histogram.height, "bins": bins}
    return {key: value for key, value in message.items() if value is not None}


def _text(value: Bound | None) -> str | None:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
    return None if value is None else repr(value)
