"""Views as the output formats render them."""

from __future__ import annotations

from collections.abc import Mapping

from lancestat.presentation.json import FORMAT as JSON
from lancestat.presentation.markdown import FORMAT as MARKDOWN
from lancestat.presentation.terminal import unpainted
from lancestat.presentation.text import FORMAT as TEXT
from lancestat.presentation.views import DiffView, Page, PlanView
from lancestat.review.values import Diff
from lancestat.runs.actions import Plan
from lancestat.spec.model import Policy


def view_of(value: Plan | Diff, policies: Mapping[str, Policy] | None = None) -> object:
    return PlanView(value, policies or {}) if isinstance(value, Plan) else DiffView(value)


def as_text(value: Plan | Diff, *, verbose: bool = False, width: int = 100) -> str:
    page = Page(verbose, width)
    return "\n".join(map(unpainted, TEXT.render(view_of(value), page)))


def as_markdown(value: Plan | Diff, policies: Mapping[str, Policy] | None = None) -> str:
    return "\n".join(MARKDOWN.render(view_of(value, policies), Page()))


def as_json(value: Plan | Diff) -> dict[str, object]:
    payload = JSON.render(view_of(value), Page())
    assert isinstance(payload, dict)
    return payload
