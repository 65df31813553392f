"""What is known of a table's groups, keys, references and common values, for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lancestat.query.fragments import FragmentStatistics, load_groups
from lancestat.query.references import ReferenceSide, containment
from lancestat.report.values import Health, Problem, problem
from lancestat.spec.model import Reference
from lancestat.state.store import StateReader
from lancestat.state.values import partial_key
from lancestat.tables.judgement import TableAssessment
from lancestat.tables.relations import (
    NO_RELATIONS,
    Containment,
    KeyResult,
    KeyStatus,
    Relations,
    ShownValues,
    shown_values,
)

# Returns the assessment of a declared table, None where it cannot be looked at.
OtherTable = Callable[[str], TableAssessment | None]
# Returns what the state knows of a table by groups of fragments.
Groups = Callable[[TableAssessment], FragmentStatistics]


def groups_of(state: StateReader) -> Groups:
    """Return what reads the groups of each table by itself."""
    return lambda assessment: load_groups(state, assessment.identity, assessment.snapshot)


def relations_of(assessment: TableAssessment, groups: Groups, other: OtherTable) -> Relations:
    """Return what is known of a table's groups, keys, references and common values.

    Those of references and common values are of the rows as they are, or left open; groups and keys
    are of the version that the table's statistics describe.
    """
    spec, published = assessment.spec, assessment.published
    if not (assessment.special_keys or spec.references):
        return NO_RELATIONS
    joint = published.joint if published else {}
    fragments = groups(assessment)
    return Relations(
        groups=tuple(joint[names] for names in map(frozenset, assessment.groups) if names in joint),
        keys=tuple(_keys(assessment)),
        references=tuple(
            (reference, contained(reference, assessment, groups, other))
            for reference in spec.references
        ),
        common_values=tuple(_common_values(assessment, fragments)),
    )


def _keys(assessment: TableAssessment) -> Iterator[KeyResult]:
    """Yield the results of declared keys, in the order of the declaration."""
    record = assessment.remembered
    known = {frozenset(result.columns): result for result in record.keys} if record else {}
    for columns in assessment.spec.keys:
        unknown = KeyResult(columns, KeyStatus.UNPROVEN, "no run has looked at it")
        yield known.get(frozenset(columns), unknown)


def contained(
    reference: Reference,
    assessment: TableAssessment,
    groups: Groups,
    other: OtherTable,
) -> Containment:
    """Return what is known of a reference of a table."""
    target = other(reference.table)
    if target is None:
        return Containment(None, f"'{reference.table}' was not looked at")
    return containment(
        reference,
        ReferenceSide(groups(assessment), assessment.types),
        ReferenceSide(groups(target), target.types),
    )


def _common_values(
    assessment: TableAssessment, fragments: FragmentStatistics
) -> Iterator[ShownValues]:
    wanted = assessment.spec.common_values
    if wanted is None or not wanted.show:
        return
    listed = [
        columns for key, columns in assessment.wanted.items() if partial_key(key).common_values
    ]
    fragments.load(columns[0] for columns in listed if len(columns) == 1)
    for columns in listed:
        is_one = len(columns) == 1
        partial = (
            fragments.partial(columns[0]) if is_one else fragments.group_partial(frozenset(columns))
        )
        if partial is not None and partial.common is not None:
            shown = shown_values(
                columns,
                partial.common,
                assessment.types,
                wanted.limit,
                with_texts=assessment.spec.show_values,
            )
            if shown is not None:
                yield shown


def refuted(relations: Relations) -> list[Problem]:
    """Return the declared keys and references that the rows refute."""
    keys = [
        f"{key.name} is no key: {key.reason}"
        for key in relations.keys
        if key.status is KeyStatus.REFUTED
    ]
    references = [
        f"the reference {reference} does not hold: {known.reason}"
        for reference, known in relations.references
        if known.contained is False
    ]
    return [problem(Health.WARN, sentence) for sentence in (*keys, *references)]
