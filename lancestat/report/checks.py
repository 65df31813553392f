"""What a project expects of its tables, and whether it holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from lancestat import display
from lancestat.errors import LancestatError
from lancestat.formats import count
from lancestat.redact import Redactor
from lancestat.report.tables import TableReport
from lancestat.report.values import ProjectReport
from lancestat.tables.expectations import CheckResult, CheckVerdict


@dataclass(frozen=True, slots=True)
class CheckReport(display.Rows):
    """The expectations of a project's tables, and what is known of each.

    `failed` are the errors of tables whose rows could not be read, by name. It prints as
    `lancestat check` does, and has a row per expectation.
    """

    report: ProjectReport
    failed: Mapping[str, LancestatError] = field(default_factory=dict)

    def __repr__(self) -> str:
        return display.summary(self, f"{self.report.name}: {self.summary}".rstrip("."))

    @property
    def redactor(self) -> Redactor:
        return self.report.redactor

    @property
    def _tables(self) -> tuple[TableReport, ...]:
        return tuple(node for node in self.report.nodes if isinstance(node, TableReport))

    @property
    def checks(self) -> tuple[tuple[str, CheckResult], ...]:
        """The checks in the order of the project, each with the name of its table."""
        return tuple((table.spec.name, check) for table in self._tables for check in table.checks)

    @property
    def counts(self) -> Mapping[str, int]:
        """How many checks have each verdict: `proved`, `refuted`, `unknown`."""
        numbers = Counter(check.verdict for _, check in self.checks)
        return {verdict.value: numbers[verdict] for verdict in CheckVerdict}

    @property
    def summary(self) -> str:
        """How many checks have each verdict, in words."""
        counts = (f"{count(number)} {verdict}" for verdict, number in self.counts.items() if number)
        return f"{', '.join(counts)}." if self.checks else "Nothing is expected of these tables."

    @property
    def errors(self) -> Mapping[str, LancestatError]:
        """Why tables that something is expected of cannot be looked at, by name."""
        unopened = {
            table.spec.name: table.error
            for table in self._tables
            if table.spec.expect and table.error is not None
        }
        return {**self.failed, **unopened}

    @property
    def ok(self) -> bool:
        """Whether no expectation is refuted that is an error, and all tables could be looked at."""
        return not self.errors and not any(check.is_failed for _, check in self.checks)
