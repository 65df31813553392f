"""`ANALYZE TABLE`, as Spark's own parser reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lancestat.errors import UsageError, did_you_mean

REFUSED = "LS421"
UNKNOWN_TABLE = "LS422"

_FORMS = (
    "ANALYZE TABLE t COMPUTE STATISTICS, with FOR COLUMNS a, b or FOR ALL COLUMNS where the "
    "declared columns are not meant"
)


@dataclass(frozen=True, slots=True)
class AnalyzeStatement:
    """Compute statistics of one table.

    `columns` are those that are named, empty where none are; `all_columns` means FOR ALL COLUMNS.
    With neither, what is declared is meant. `objection` is why lancestat cannot do it, if it
    cannot: a table of Spark's own catalog may still want it.
    """

    name_parts: tuple[str, ...]
    columns: tuple[str, ...] = ()
    all_columns: bool = False
    objection: UsageError | None = None

    @property
    def name(self) -> str:
        """The table's name as it was written, for people."""
        return ".".join(self.name_parts)

    @property
    def quoted_name(self) -> str:
        """The table's name for Spark."""
        return ".".join(f"`{part.replace('`', '``')}`" for part in self.name_parts)


def read_analyze(plan: Any) -> AnalyzeStatement | None:
    """The statement that a parsed plan of the JVM is, None when it is another kind.

    `ANALYZE TABLES` is another kind: it is about a namespace of Spark's catalog.
    """
    match plan.nodeName():
        case "AnalyzeTable":
            parts = strings(plan.child().multipartIdentifier())
            objection = _no_partition(parts) if not plan.partitionSpec().isEmpty() else None
            if objection is None and plan.noScan():
                objection = _no_noscan(parts)
            return AnalyzeStatement(parts, objection=objection)
        case "AnalyzeColumn":
            named = plan.columnNames()
            return AnalyzeStatement(
                name_parts=strings(plan.child().multipartIdentifier()),
                columns=strings(named.get()) if named.isDefined() else (),
                all_columns=plan.allColumns(),
            )
    return None


def find_declared(
    statement: AnalyzeStatement, declared: Sequence[str], *, is_case_sensitive: bool
) -> str | None:
    """The declared name that the statement means, None when it means none.

    Declared names differ by more than case, so that at most one is meant.
    """
    if len(statement.name_parts) != 1:
        return None
    [written] = statement.name_parts
    if is_case_sensitive:
        return written if written in declared else None
    return next((name for name in declared if name.lower() == written.lower()), None)


def not_declared(statement: AnalyzeStatement, declared: Sequence[str]) -> UsageError:
    """The error (LS422) for a table that neither the project nor Spark's catalog has."""
    listed = ", ".join(declared[:20]) + (", ..." if len(declared) > 20 else "")
    near = did_you_mean(statement.name, declared)
    return UsageError(
        UNKNOWN_TABLE,
        f"no table '{statement.name}' is declared, nor is it in Spark's catalog",
        hint=near or f"declared tables: {listed or 'none'}",
    )


def strings(sequence: Any) -> tuple[str, ...]:
    """A Scala sequence of strings."""
    return tuple(str(sequence.apply(index)) for index in range(sequence.size()))


def _no_noscan(parts: tuple[str, ...]) -> UsageError:
    return UsageError(
        REFUSED,
        f"ANALYZE TABLE {'.'.join(parts)} ... NOSCAN: there is nothing to do without a scan, "
        "because row count and size of a Lance table are always read from its manifest",
        hint=f"leave NOSCAN out; what is known already is not read again. There is {_FORMS}",
    )


def _no_partition(parts: tuple[str, ...]) -> UsageError:
    return UsageError(
        REFUSED,
        f"ANALYZE TABLE {'.'.join(parts)} PARTITION (...): Lance tables have no partitions",
        hint="leave PARTITION out; only fragments that are new are read. There is " + _FORMS,
    )
