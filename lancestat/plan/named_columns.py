"""The columns that a statement names, as a declaration would."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lancestat.errors import InvalidColumnChoice, SpecError, did_you_mean
from lancestat.plan.assessment import Appraisal, resolve
from lancestat.spec.model import ColumnPattern, ColumnRule, ColumnSelection, Publish


def named_columns(
    appraisal: Appraisal, names: Sequence[str], *, is_case_sensitive: bool = False
) -> ColumnSelection:
    """The named columns and those that have statistics already, which stay as Spark's do.

    Args:
        appraisal: The table, with any columns declared.
        names: As they were written; case counts only if `is_case_sensitive`.

    Raises:
        InvalidColumnChoice: a column is not there, may be one of several, or cannot have
            statistics.
    """
    named = [_resolved(appraisal, name, is_case_sensitive) for name in names]
    selection = _only(named)
    try:
        resolve(
            replace(appraisal.spec, columns=selection), appraisal.snapshot, dict(appraisal.types)
        )
    except SpecError as error:
        raise InvalidColumnChoice(error.message, hint=error.hint) from None
    kept = [name for name in _known(appraisal) if name in appraisal.types and name not in named]
    return _only([*named, *kept])


def _resolved(appraisal: Appraisal, name: str, is_case_sensitive: bool) -> str:
    columns = [field.name for field in appraisal.snapshot.fields]
    table = appraisal.spec.name
    if is_case_sensitive:
        found = [column for column in columns if column == name]
    else:
        found = [column for column in columns if column.lower() == name.lower()]
    if len(found) > 1:
        listed = " and ".join(f"'{column}'" for column in found)
        raise InvalidColumnChoice(
            f"column '{name}' of table '{table}' may be {listed}",
            hint="set spark.sql.caseSensitive to true",
        )
    if not found:
        shown = ", ".join(columns[:20]) + (", ..." if len(columns) > 20 else "")
        raise InvalidColumnChoice(
            f"table '{table}' has no column '{name}'",
            hint=did_you_mean(name, columns) or f"its columns: {shown or 'none'}",
        )
    return found[0]


def _known(appraisal: Appraisal) -> Sequence[str]:
    """The columns with statistics, where the table keeps them."""
    if appraisal.spec.publish is Publish.NONE:
        return appraisal.record.columns if appraisal.record is not None else ()
    return tuple(appraisal.published.columns) if appraisal.published is not None else ()


def _only(names: Sequence[str]) -> ColumnSelection:
    rule = ColumnRule(tuple(ColumnPattern(name) for name in names))
    return ColumnSelection(all=False, rules=(rule,))
