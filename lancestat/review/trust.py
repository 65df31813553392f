"""Where a diff may look: at the places of BASE, which was reviewed, and nowhere else.

Opening a dataset sends credentials to wherever its URI and the storage options lead. Those of HEAD
may be a stranger's.
"""

from __future__ import annotations

from lancestat.plan.join_reads import read_uris
from lancestat.spec.model import KnnJoin, ProjectSpec

_NOWHERE_ELSE = "and credentials go only where BASE sends them"


def trusted_uris(base: ProjectSpec, head: ProjectSpec) -> frozenset[str]:
    """The URIs that may be opened with HEAD's storage options: BASE's, if BASE has these options.

    They are compared as they are spelled, since a query or a user in a URI may redirect a request.
    """
    if not _has_same_options(base, head):
        return frozenset()
    outputs = (node.output_uri for node in base.nodes if isinstance(node, KnnJoin))
    return frozenset(uri for node in base.nodes for uri in read_uris(base, node)).union(outputs)


def is_state_trusted(base: ProjectSpec, head: ProjectSpec) -> bool:
    """Whether HEAD's state is where BASE's is, and opened with the same options."""
    return _has_same_options(base, head) and base.target.state == head.target.state


def why_withheld(base: ProjectSpec, head: ProjectSpec) -> str:
    """Why a dataset that is not trusted is not opened."""
    if not _has_same_options(base, head):
        return f"the storage options are not those of BASE, {_NOWHERE_ELSE}"
    return f"BASE reads nothing at its URI, {_NOWHERE_ELSE}"


def _has_same_options(base: ProjectSpec, head: ProjectSpec) -> bool:
    return base.target.storage_options == head.target.storage_options
