"""What is known of what tables are expected to be, without reading their rows."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from lancestat.errors import LancestatError
from lancestat.lake.fingerprint import column_groups, table_digest
from lancestat.query.fragments import FragmentStatistics
from lancestat.report.relations import Groups, OtherTable, contained
from lancestat.report.values import Health, Problem, problem
from lancestat.runs.node import Observed
from lancestat.spec.expectations import Expectation, References, Severity
from lancestat.spec.model import Reference, Table
from lancestat.state.proofs import Proof, read_proofs
from lancestat.state.store import StateReader
from lancestat.tables.expectations import CheckResult, CheckVerdict, Known, judge
from lancestat.tables.judgement import TableAssessment
from lancestat.tables.node import TableObserver
from lancestat.tables.relations import Containment
from lancestat.tables.statistics.column_type import ColumnType


@dataclass(frozen=True)
class StateFacts:
    """What the state knows of a table's rows as they are (`tables.expectations.Facts`)."""

    assessment: TableAssessment
    groups: Groups
    other: OtherTable

    @property
    def rows(self) -> int:
        return self.assessment.snapshot.rows

    @property
    def types(self) -> Mapping[str, ColumnType]:
        return self.assessment.types

    @property
    def column_names(self) -> Collection[str]:
        return [field.name for field in self.assessment.snapshot.fields]

    @property
    def shows_values(self) -> bool:
        return self.assessment.spec.show_values

    @property
    def shows_common(self) -> bool:
        return _shows_common(self.assessment)

    @cached_property
    def proven_keys(self) -> Collection[frozenset[str]]:
        return self.assessment.proven_keys

    @cached_property
    def _fragments(self) -> FragmentStatistics:
        return self.groups(self.assessment)

    def known(self, columns: Sequence[str]) -> Known | None:
        if len(columns) > 1:
            partial = self._fragments.group_partial(frozenset(columns))
            return None if partial is None else Known(partial, is_whole=True)
        return self._fragments.known(columns[0])

    def contained(self, reference: Reference) -> Containment:
        return contained(reference, self.assessment, self.groups, self.other)


def checks_of(
    assessment: TableAssessment, state: StateReader, groups: Groups, other: OtherTable
) -> tuple[CheckResult, ...]:
    """Return what is known of what a table is expected to be, in the order of its YAML.

    What nothing that is kept decides may have been proved before, by reading the same rows.
    """
    facts, expected = StateFacts(assessment, groups, other), assessment.spec.expect
    results = [judge(expectation, facts) for expectation in expected]
    if all(result.verdict is not CheckVerdict.UNKNOWN for result in results):
        return tuple(results)
    proofs = read_proofs(state.folder, assessment.identity)
    for place, (expectation, result) in enumerate(zip(expected, results, strict=True)):
        if result.verdict is CheckVerdict.UNKNOWN:
            proof = known_proof(expectation, proofs, assessment, other)
            if proof is not None:
                verdict = CheckVerdict.PROVED if proof.holds else CheckVerdict.REFUTED
                results[place] = replace(result, verdict=verdict, detail=proof.detail)
    return tuple(results)


def known_proof(
    expectation: Expectation,
    proofs: Mapping[str, Proof],
    assessment: TableAssessment,
    other: OtherTable,
) -> Proof | None:
    """Return what was found by reading the rows as they are, None where they were not read."""
    proof = proofs.get(expectation_digest(expectation, assessment))
    is_same = proof is not None and proof.content == content_of(expectation, assessment, other)
    return proof if is_same else None


def expectation_digest(expectation: Expectation, assessment: TableAssessment) -> str:
    """Return the same text for expectations that mean the same, whatever their severity.

    What was found may hold values, so that it differs where these are not to be shown.
    """
    check = replace(expectation.check, severity=Severity.ERROR)
    meaning = f"{check!r} {assessment.spec.show_values} {_shows_common(assessment)}"
    return hashlib.blake2b(meaning.encode(), digest_size=12).hexdigest()


def _shows_common(assessment: TableAssessment) -> bool:
    common = assessment.spec.common_values
    return common is None or common.show


def content_of(expectation: Expectation, assessment: TableAssessment, other: OtherTable) -> str:
    """Return a digest of the rows that an expectation is about, in its columns."""
    check = expectation.check
    digest = _content(assessment, check.columns)
    if not isinstance(check, References):
        return digest
    referred = other(check.table)
    return f"{digest} {_content(referred, check.to) if referred else ''}"


def _content(assessment: TableAssessment, columns: Sequence[str]) -> str:
    snapshot = assessment.snapshot
    fields = [field for field in snapshot.fields if field.name in columns]
    return table_digest(tuple(column_groups(snapshot, fields)), fields)


def other_tables(observed: Observed) -> OtherTable:
    """Return what assesses the tables that were observed, also those that others refer to."""

    def assessed(name: str) -> TableAssessment | None:
        node = observed.spec.node(name)
        if not isinstance(node, Table) or node.uri not in observed.snapshots:
            return None
        try:
            return TableObserver(observed).assess(node)
        except LancestatError:
            return None

    return assessed


def failed_checks(checks: Sequence[CheckResult]) -> list[Problem]:
    """Return the expectations that are refuted, and what monitors have found."""
    return [
        problem(_HEALTH[check.severity], f"check {check.check}: {check.detail}")
        for check in checks
        if check.verdict is CheckVerdict.REFUTED
    ]


_HEALTH = {Severity.WARN: Health.WARN, Severity.ERROR: Health.ERROR}
