"""The columns that a statement names, as a declaration would."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lancestat.errors import InvalidColumnChoice, SpecError, did_you_mean
from lancestat.spec.model import ColumnPattern, ColumnRule, ColumnSelection
from lancestat.tables.assessment import TableAssessment, resolve


def named_columns(
    assessment: TableAssessment, names: Sequence[str], *, is_case_sensitive: bool = False
) -> ColumnSelection:
    """The named columns and those that have statistics already, which stay as Spark's do.

    Args:
        assessment: The table, with any columns declared.
        names: As they were written; case counts only if `is_case_sensitive`.

    Raises:
        InvalidColumnChoice: a column is not there, may be one of several, or cannot have
            statistics.
    """
    named = [_resolved(assessment, name, is_case_sensitive) for name in names]
    selection = _only(named)
    try:
        resolve(
            replace(assessment.spec, columns=selection), assessment.snapshot, dict(assessment.types)
        )
    except SpecError as error:
        raise InvalidColumnChoice(error.message, hint=error.hint) from None
    retained = [
        name for name in _known(assessment) if name in assessment.types and name not in named
    ]
    return _only([*named, *retained])


def _resolved(assessment: TableAssessment, name: str, is_case_sensitive: bool) -> str:
    columns = [field.name for field in assessment.snapshot.fields]
    table = assessment.spec.name
    if is_case_sensitive:
        matches = [column for column in columns if column == name]
    else:
        matches = [column for column in columns if column.lower() == name.lower()]
    if len(matches) > 1:
        listed = " and ".join(f"'{column}'" for column in matches)
        raise InvalidColumnChoice(
            f"column '{name}' of table '{table}' may be {listed}",
            hint="set spark.sql.caseSensitive to true",
        )
    if not matches:
        listed = ", ".join(columns[:20]) + (", ..." if len(columns) > 20 else "")
        raise InvalidColumnChoice(
            f"table '{table}' has no column '{name}'",
            hint=did_you_mean(name, columns) or f"its columns: {listed or 'none'}",
        )
    return matches[0]


def _known(assessment: TableAssessment) -> Sequence[str]:
    """The columns with statistics, where the table keeps them."""
    if not assessment.carrier.is_public:
        return assessment.record.columns if assessment.record is not None else ()
    return tuple(assessment.published.columns) if assessment.published is not None else ()


def _only(names: Sequence[str]) -> ColumnSelection:
    rule = ColumnRule(tuple(ColumnPattern(name) for name in names))
    return ColumnSelection(all=False, rules=(rule,))
