"""`lancestat diff`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from lancestat.cli.command import Invocation, any_of, command, selection_options
from lancestat.cli.failure import ExitCode
from lancestat.errors import UnknownRisk, did_you_mean
from lancestat.presentation.terminal import CONSOLE
from lancestat.presentation.views import DiffView

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from lancestat.review.values import Risk

ANY = "any"

_HELP = """Show what a change of the project means: which nodes change, what risks that takes
and how much the first run will read.

BASE and HEAD are each a git revision, a folder, or '.' for the working tree (the default HEAD).
'main...' compares with the merge base of main and HEAD, as pull requests do. Revisions are read
from git's objects; the working tree and the index are not touched.

Formatting, comments, the files that nodes are in, and whether a policy or column set is named or
inline make no difference."""


def _complete_risks(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the last of several words."""
    from click.shell_completion import CompletionItem

    from lancestat.review.values import Risk

    before, comma, begun = incomplete.rpartition(",")
    words = (*(risk.value for risk in Risk), ANY)
    return [CompletionItem(f"{before}{comma}{word}") for word in words if word.startswith(begun)]


@command(
    "diff",
    help=_HELP,
    short_help="Show what a change of the project means.",
    views=[DiffView],
    is_published=True,
)
@click.argument("base", metavar="BASE")
@click.argument("head", metavar="[HEAD]", required=False)
@selection_options
@click.option(
    "--fail-on",
    multiple=True,
    metavar="RISK,...",
    shell_complete=_complete_risks,
    help="Exit with 3 if a change takes one of these risks: staleness_loosened, "
    "staleness_tightened, coverage_lost, publish_changed, dataset_moved, output_moved, "
    "join_meaning_changed, cost_increased, effect_unknown, values_shown; 'any' means all of them.",
)
@click.option(
    "--no-datasets",
    is_flag=True,
    help="Open neither datasets nor the state; compare columns by their patterns.",
)
@click.pass_context
def diff(
    context: click.Context,
    invocation: Invocation,
    base: str,
    head: str | None,
    select: tuple[str, ...],
    exclude: tuple[str, ...],
    fail_on: tuple[str, ...],
    no_datasets: bool,
) -> None:
    from lancestat.nodes import NODE_TYPES
    from lancestat.presentation.diff_view import diff_view
    from lancestat.review.diff import review

    failing = _risks(fail_on)
    result = review(
        invocation.project_folder,
        base,
        head,
        types=NODE_TYPES,
        target=invocation.target,
        vars=dict(invocation.vars),
        select=any_of(select),
        exclude=any_of(exclude),
        with_datasets=not no_datasets,
        environment=os.environ,
        loaded=lambda spec: CONSOLE.redact_with(spec.redactor),
    )
    invocation.show(diff_view(result))
    if failing & result.risks:
        context.exit(ExitCode.CHANGES_PENDING)


def _risks(texts: tuple[str, ...]) -> frozenset[Risk]:
    from lancestat.review.values import Risk

    known = [risk.value for risk in Risk]
    words = [word.strip() for text in texts for word in text.split(",") if word.strip()]
    for word in words:
        if word not in (*known, ANY):
            raise UnknownRisk(
                f"unknown risk '{word}' in --fail-on; there are {', '.join(known)}",
                hint=did_you_mean(word, known),
            )
    return frozenset(Risk if ANY in words else map(Risk, words))
