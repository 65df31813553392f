"""Which of a table's fragments the state knows, column by column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from lancestat.lake.fingerprint import field_key
from lancestat.lake.snapshot import Fragment
from lancestat.plan.coverage import cover
from lancestat.plan.observation import Appraisal
from lancestat.plan.observe import stored_groups
from lancestat.report.values import FragmentReport
from lancestat.state.keys import plain_key
from lancestat.state.values import PartialIndex


@dataclass(frozen=True, slots=True)
class FragmentCoverage:
    """Fragments, each with how many wanted columns are known of it; columns, each in how many."""

    fragments: tuple[FragmentReport, ...]
    columns: Mapping[str, int]


def fragment_coverage(appraisal: Appraisal, index: PartialIndex) -> FragmentCoverage:
    """What of a table's content is stored; what a compaction moved since does not count."""
    by_fragment: Counter[int] = Counter()
    by_key: Counter[str] = Counter()
    for group, keys in cover(stored_groups(appraisal), index, ()).missing:
        by_fragment[group.fragment_id] += len(keys)
        by_key.update(map(plain_key, keys))
    wanted, fragments = appraisal.wanted, appraisal.snapshot.fragments
    return FragmentCoverage(
        tuple(_report(each, len(wanted) - by_fragment[each.id]) for each in fragments),
        {field.name: len(fragments) - by_key[field_key(field)] for field in wanted},
    )


def _report(fragment: Fragment, covered: int) -> FragmentReport:
    sizes = [file.size_bytes for file in fragment.files]
    known = [size for size in sizes if size is not None]
    return FragmentReport(
        id=fragment.id,
        rows=fragment.rows,
        deleted_rows=fragment.deleted_rows,
        files=len(fragment.files),
        size_bytes=sum(known) if len(known) == len(sizes) else None,
        covered=covered,
    )
