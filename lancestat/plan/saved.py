"""A plan together with all that it rests on, so that it can be held to later.

Nothing of what was saved is ever executed. To hold to a saved plan is to plan again, under the same
options, and to compare: only when the new plan and what it rests on equal the saved ones is the new
plan run, which then is the same plan. What is compared, node by node, and why that is enough:

- `work`, a digest of the whole action (`plan.digest`): versions, fragments to scan, partials to
  reuse or to carry over, entries to publish, sides and scope of a join. Equal digests are equal
  work, so whatever changed without changing this digest does not change what a run does. Of files
  and queries that a join reads it holds the digest of their content; a join that is skipped is
  skipped because that digest is the one in its record. Where nobody can tell whether a side has
  changed (the plan says so in a note), neither can this. A node that awaits a join is planned in
  detail once that has ended: of such a node the saved plan fixes what it awaits, and no more.
- `meaning`, the digest of the declaration (`spec.digest`), variables and templates filled in. It
  tells of changes that the present work does not show, and of options of a side's reader.
- `inputs`: each Lance dataset that the node reads, by identity, version, time of the commit and
  content (`snapshot_digest`). A version number alone proves little: a dataset that was dropped and
  written anew counts from 1 again; its files have other names.
- `record`: what the state remembers of the node. It tells of runs in between also where they left
  the work as it was, and of a state that was deleted. Partials that the work does not use are not
  compared: they change nothing.
- `output`: the result of a join that a run would go on from, or replace.
- The target's state and scratch, as the same nodes could be planned from a copy of a state. They
  are compared by digests, and shown with the names of variables in place of what the environment
  gave, as everything in the file is. Storage
  options are neither saved nor compared, as they are secret: should they lead elsewhere, the
  datasets found there differ.

What happens after the comparison is for the run to deal with, as for any run: publishing is a
commit with preconditions, and a table that moves while it is read is looked at again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

from lancestat.errors import LakeError, LancestatError
from lancestat.knn import output
from lancestat.knn.work import OutputFormat
from lancestat.lake.clean import clean
from lancestat.lake.snapshot import Snapshot
from lancestat.plan.actions import Action, Blocked
from lancestat.plan.digest import action_digest, snapshot_digest, value_digest
from lancestat.plan.join_planner import remembered_result
from lancestat.plan.join_reads import lance_uris
from lancestat.plan.observe import Survey
from lancestat.plan.render_json import node_json
from lancestat.redact import Audience, Redactor
from lancestat.spec.digest import node_digest
from lancestat.spec.model import KnnJoin, Node, ProjectSpec, Table, Target
from lancestat.state.identity import canonical_uri, table_identity

_THREADS = 8


@dataclass(frozen=True, slots=True)
class Options:
    """What `plan` was asked for."""

    select: tuple[str, ...] | None = None
    exclude: tuple[str, ...] | None = None
    full_refresh: bool = False

    @classmethod
    def of(
        cls,
        select: str | Sequence[str] | None,
        exclude: str | Sequence[str] | None,
        full_refresh: bool,
    ) -> Options:
        """Options as `Project.plan` takes them."""
        return cls(_selectors(select), _selectors(exclude), full_refresh)

    def redacted(self, redactor: Redactor) -> Options:
        """The same with the names of variables in place of what the environment gave."""
        return self._each(lambda word: redactor.text(word, Audience.PUBLIC))

    def restored(self, redactor: Redactor) -> Options:
        """The inverse of `redacted`."""
        return self._each(redactor.restored)

    def _each(self, change: Callable[[str], str]) -> Options:
        return Options(
            None if self.select is None else tuple(map(change, self.select)),
            None if self.exclude is None else tuple(map(change, self.exclude)),
            self.full_refresh,
        )


@dataclass(frozen=True, slots=True)
class SeenDataset:
    """A Lance dataset as the plan saw it; one that could not be opened has a code of an error only.

    `identity` is the state's name for it (`state.identity`), `uri` is fit to be shown.
    """

    identity: str
    uri: str
    version: int | None = None
    committed_at: datetime | None = None
    content: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class SavedNode:
    """A node of a saved plan; `shown` is its object in the JSON of `lancestat plan`."""

    shown: Mapping[str, object]
    meaning: str
    work: str
    record: str | None
    output: str | None
    inputs: tuple[SeenDataset, ...]

    @property
    def name(self) -> str:
        """The node's name."""
        return str(self.shown["name"])


@dataclass(frozen=True, slots=True)
class Place:
    """Where the target keeps something: `identity` is compared, `uri` is fit to be shown."""

    identity: str
    uri: str


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """A plan and all that it rests on. `state` and `scratch` are those of the target."""

    lancestat: str
    made_at: datetime
    project: str
    target: str
    state: Place
    scratch: Place | None
    options: Options
    nodes: tuple[SavedNode, ...]


@dataclass(frozen=True, slots=True)
class Saver:
    """Makes saved plans; `version` is lancestat's own."""

    spec: ProjectSpec
    version: str
    clock: Callable[[], datetime]

    def save(self, survey: Survey, options: Options) -> SavedPlan:
        """A plan with all that it rests on; results of joins are looked at here."""
        target, plan = self.spec.target, survey.plan
        with ThreadPoolExecutor(max_workers=_THREADS) as pool:
            nodes = tuple(pool.map(lambda action: self._node(action, survey), plan.actions))
        return SavedPlan(
            lancestat=self.version,
            made_at=self.clock(),
            project=plan.project,
            target=plan.target,
            state=self._place(target.state),
            scratch=None if target.scratch is None else self._place(target.scratch),
            options=options.redacted(self.spec.redactor),
            nodes=nodes,
        )

    def _node(self, action: Action, survey: Survey) -> SavedNode:
        node = self.spec.node(action.node)
        assert node is not None
        return SavedNode(
            shown=self._shown(action),
            meaning=node_digest(node),
            work=action_digest(action),
            record=_record(node, survey),
            output=None if isinstance(action, Blocked) else _output(node, self.spec.target, survey),
            inputs=tuple(
                self._seen(uri, survey.snapshots[uri])
                for uri in dict.fromkeys(lance_uris(self.spec, node))
            ),
        )

    def _shown(self, action: Action) -> dict[str, object]:
        found = node_json(action)
        return {**found, "message": self.spec.redactor.json(found["message"], Audience.PUBLIC)}

    def _place(self, uri: str) -> Place:
        shown = self.spec.redactor.text(canonical_uri(uri), Audience.PUBLIC)
        return Place(table_identity(uri), shown)

    def _seen(self, uri: str, found: Snapshot | LakeError) -> SeenDataset:
        identity = table_identity(uri)
        shown = clean(self.spec.redactor.text(uri, Audience.PUBLIC))
        if isinstance(found, LakeError):
            return SeenDataset(identity, shown, error=found.code)
        content = snapshot_digest(found)
        return SeenDataset(identity, shown, found.version, found.committed_at, content)


def _record(node: Node, survey: Survey) -> str | None:
    if isinstance(node, Table):
        found = survey.records.get(table_identity(node.uri))
        return None if found is None else value_digest(found)
    made = survey.joins.get(node.name)
    return None if made is None else value_digest(made)


def _output(node: Node, target: Target, survey: Survey) -> str | None:
    if not isinstance(node, KnnJoin):
        return None
    format = OutputFormat(node.output_format)
    remembered = remembered_result(survey.joins.get(node.name), node_digest(node))
    try:
        found = output.current(format, node.output_uri, target.storage_options, remembered)
    except LancestatError as error:
        return error.code
    return None if found is None else value_digest((found.rows, found.digest, found.generation))


def _selectors(given: str | Sequence[str] | None) -> tuple[str, ...] | None:
    if given is None:
        return None
    return (given,) if isinstance(given, str) else tuple(given)
