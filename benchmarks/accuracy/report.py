"""Tables of q-errors, and the operators that are most wrong."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from accuracy.measures import Broadcasts, Compared, over, p_error, percentile, under
from accuracy.plans import AGGREGATE, FILTER, JOIN, NOT_NULL
from accuracy.sides import SPARKS, Expected
from accuracy.truths import Truths

KINDS = (FILTER, NOT_NULL, JOIN, AGGREGATE)
SHARES = (0.5, 0.9, 0.95, 0.99)
FACTORS = (2, 10)
ERRORS = ("median", *(f"{100 * share:.0f} %" for share in SHARES[1:]), "worst")
WRONG = tuple(f"{name} {factor}x" for name in ("under", "over") for factor in FACTORS)
# Beyond this, figures have an exponent.
LARGE = 1_000_000


@dataclass
class Outcome:
    """What is known of the estimates of one side."""

    plans: dict[str, list[Expected]] = field(default_factory=dict)
    compared: list[Compared] = field(default_factory=list)
    # Queries that Spark does not plan, with the class of the error.
    failed: dict[str, str] = field(default_factory=dict)


def show_errors(sides: Mapping[str, Sequence[Compared]]) -> None:
    """Print the q-errors of each side by the kind of operator."""
    show_row("", ("n", *ERRORS, *WRONG))
    for kind in KINDS:
        for side, compared in sides.items():
            chosen = [each for each in compared if each.kind == kind]
            if chosen:
                show_row(f"{kind:<10}{side}", cells(chosen))


def show_row(head: str, figures: Iterable[str]) -> None:
    """Print a row of a table."""
    print(f"{head:<24}", " ".join(f"{figure:>9}" for figure in figures), flush=True)


def cells(compared: Sequence[Compared]) -> Iterator[str]:
    """Yield how many operators there are, percentiles of q-errors, and shares that are wrong."""
    yield str(len(compared))
    yield from spread([each.q_error for each in compared])
    for measured in (under, over):
        for factor in FACTORS:
            yield f"{100 * measured(compared, factor):.1f} %"


def spread(values: Sequence[float]) -> Iterator[str]:
    """Yield percentiles of values, and the largest."""
    for value in (*(percentile(values, share) for share in SHARES), max(values)):
        yield f"{value:.1e}" if value > LARGE else f"{value:,.2f}"


def show_left_out(outcomes: Mapping[str, Outcome]) -> None:
    """Print what of each side is compared with nothing: queries and operators."""
    for side, outcome in outcomes.items():
        if outcome.failed:
            print(f"{side} does not plan {len(outcome.failed)} queries: {outcome.failed}")
        reasons = Counter(
            expected.operator.reason
            for plan in outcome.plans.values()
            for expected in plan
            if expected.operator.reason
        )
        is_own = not all(map(is_sparks, outcome.plans.values()))
        if is_own and (silent := [name for name, plan in outcome.plans.items() if is_sparks(plan)]):
            print(f"{side} has Spark's estimates alone in {len(silent)} queries: {silent}")
        if reasons:
            listed = ", ".join(f"{reason} {number}" for reason, number in reasons.most_common(6))
            print(f"{side} has {reasons.total()} operators without SQL: {listed}")


def is_sparks(plan: Iterable[Expected]) -> bool:
    """Return whether all estimates of a plan are Spark's, as where those of others fail."""
    return all(expected.evidence == SPARKS for expected in plan)


def show_plans(outcomes: Mapping[str, Outcome], threshold: int, truths: Truths) -> None:
    """Print P-errors, and how many broadcasts are wrong or missed."""
    show_row("P-error", ("n", *ERRORS, "joins", "wrong", "missed"))
    for side, outcome in outcomes.items():
        errors, broadcasts = [], Broadcasts()
        for plan in outcome.plans.values():
            error = p_error([expected.operator for expected in plan], truths)
            errors += [] if error is None else [error]
            for expected in plan:
                broadcasts.add(expected, threshold, truths)
        counts = (broadcasts.joins, broadcasts.wrong, broadcasts.missed)
        if errors:
            show_row(side, (str(len(errors)), *spread(errors), *map(str, counts)))


def show_worst(outcomes: Mapping[str, Outcome], count: int) -> None:
    """Print the operators that each side is most wrong on, once for all queries."""
    for side, outcome in outcomes.items():
        print(f"\n## {side}: the worst by what they add to the errors below them\n")
        causes: dict[str, list[Compared]] = {}
        for each in sorted(outcome.compared, key=lambda each: -each.own):
            causes.setdefault(each.expected.operator.sql or "", []).append(each)
        for same in list(causes.values())[:count]:
            print(f"- {described(same)}")
        print(f"\n## {side}: by what estimates rest on\n")
        for evidence, listed in by_evidence(outcome.compared):
            print(f"{evidence:<56}", " ".join(f"{cell:>9}" for cell in cells(listed)))


def described(same: Sequence[Compared]) -> str:
    """Return an operator that one or more queries have, with its estimate."""
    first, queries = same[0], ", ".join(sorted({each.query for each in same}))
    expected = first.expected
    return (
        f"{queries}: {first.kind}, {first.rows:,.0f} expected, {first.true:,.0f} true"
        f" (q-error {first.q_error:,.1f}, below {first.inherited:,.1f}; {expected.evidence})\n"
        f"  {expected.text}\n  {expected.operator.sql}"
    )


def by_evidence(compared: Iterable[Compared]) -> list[tuple[str, list[Compared]]]:
    """Return operators by kind and evidence whatever the numbers in it, the most first."""
    made: dict[str, list[Compared]] = {}
    for each in compared:
        evidence = re.sub(r"\d[\d,]*", "n", each.expected.evidence)
        made.setdefault(f"{each.kind}: {evidence}", []).append(each)
    return sorted(made.items(), key=lambda item: -len(item[1]))
