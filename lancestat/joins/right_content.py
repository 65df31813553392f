"""Which right sides have indexes that are kept, and what these are made of."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from lancestat.joins.scratch.kept_indexes import index_key
from lancestat.joins.search.request import Mode
from lancestat.joins.search.work import RightContent, RightFragment
from lancestat.lake.fingerprint import stored_contents
from lancestat.lake.snapshot import Field, Snapshot
from lancestat.spec.knn_join import ALL
from lancestat.spec.model import KnnJoin, ProjectSpec
from lancestat.state.identity import canonical_uri


def keeps_index(join: KnnJoin) -> bool:
    """Whether a join may search an index of its right side that is kept from run to run.

    Only the right side's rows of a Lance table keep their places.
    """
    is_exact = join.mode == Mode.EXACT.value or join.recall == 1.0
    compares_all = bool(join.on) or join.k == ALL or join.self_location is not None
    return not is_exact and not compares_all


def side_index_key(spec: ProjectSpec, join: KnnJoin, uri: str) -> str:
    """Return the key of the indexes of a join's right side, the dataset at a URI."""
    state, table = canonical_uri(spec.target.state), canonical_uri(uri)
    return index_key(state, table, join.right.vector, join.metric, join.right.where)


def right_content(
    snapshot: Snapshot, columns: Sequence[Field], key: str, filter: str | None = None
) -> RightContent:
    """Return the content of a right side that is a Lance table.

    Args:
        snapshot: The table.
        columns: The leaves of the vectors, and of what the filter reads.
        key: Names its indexes.
        filter: In Lance's SQL; rows that it does not pass are no rows of the side.
    """
    rows = {fragment.id: fragment.rows for fragment in snapshot.fragments}
    means = (filter or "").encode()
    return RightContent(
        key,
        tuple(
            RightFragment(
                stored.id,
                hashlib.blake2b(stored.digest + means, digest_size=16).hexdigest(),
                stored.rows,
                rows[stored.id],
            )
            for stored in stored_contents(snapshot, columns)
        ),
    )
