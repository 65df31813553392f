"""The commands for reviews of changes: `diff` and `comment`."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lancestat.cli.command import ExitCode, Invocation, Selectors, command, selection_options
from lancestat.errors import CommentTextUnreadable, ReadOnlyToken, UnknownRisk, did_you_mean
from lancestat.formats import escape_commands, visible
from lancestat.presentation.terminal import CONSOLE, paint
from lancestat.presentation.views import Answer, DiffView

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from lancestat.review.comment import CommentResult
    from lancestat.review.values import Risk


ANY = "any"


def _complete_risks(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the last of several words."""
    from click.shell_completion import CompletionItem

    from lancestat.review.values import Risk

    before, comma, begun = incomplete.rpartition(",")
    words = (*(risk.value for risk in Risk), ANY)
    return [CompletionItem(f"{before}{comma}{word}") for word in words if word.startswith(begun)]


@command(DiffView, is_published=True)
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
def diff(
    invocation: Invocation,
    base: str,
    head: str | None,
    select: Selectors,
    exclude: Selectors,
    fail_on: tuple[str, ...],
    no_datasets: bool,
) -> ExitCode | None:
    """Show what a change of the project means: which nodes change, what risks that takes
    and how much the first run will read.

    BASE and HEAD are each a git revision, a folder, or '.' for the working tree (the default HEAD).
    'main...' compares with the merge base of main and HEAD, as pull requests do. Revisions are read
    from git's objects; the working tree and the index are not touched.

    Formatting, comments, the files that nodes are in, and whether a policy or column set is named
    or inline make no difference.
    """
    from lancestat.nodes import NODE_TYPES
    from lancestat.project import checks_in_words
    from lancestat.review.diff import review

    failing = _risks(fail_on)
    result = review(
        invocation.project_folder,
        base,
        head,
        types=NODE_TYPES,
        check=checks_in_words,
        target=invocation.target,
        vars=dict(invocation.vars),
        select=select,
        exclude=exclude,
        with_datasets=not no_datasets,
        environment=os.environ,
        loaded=lambda spec: CONSOLE.redact_with(spec.redactor),
    )
    invocation.show(DiffView(result))
    return ExitCode.CHANGES_PENDING if failing & result.risks else None


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


@command(Answer, is_published=True)
@click.option(
    "--body-file",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    required=True,
    metavar="FILE",
    help="File with the comment's Markdown; '-' is standard input.",
)
@click.option(
    "--number",
    type=click.IntRange(min=1),
    metavar="N",
    help="The pull request's number (default: that of the job's event).",
)
@click.option("--strict", is_flag=True, help="Fail if the token is read-only.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print the text of the comment and write none; needs no token and no pull request.",
)
def comment(
    invocation: Invocation, body_file: Path, number: int | None, strict: bool, dry_run: bool
) -> None:
    """Keep a pull request's comment up to date, in a job of GitHub Actions.

    There is one comment per project, identified by a hidden first line. Its text comes from a
    file or from standard input: what 'lancestat diff --output markdown' printed. If nothing
    changes, no comment is created, and an existing one says so.

    The token is read from GITHUB_TOKEN; GITHUB_REPOSITORY, GITHUB_API_URL and GITHUB_EVENT_PATH are
    set by the job. With a read-only token, as in a pull request from a fork, the command
    warns and writes the text to the job's summary instead.
    """
    from lancestat.review.comment import (
        CommentResult,
        GitHub,
        Outcome,
        comment_body,
        pull_request,
        upsert_comment,
    )

    # Templates of the project can read the environment, and its name is part of the comment.
    token = os.environ.pop("GITHUB_TOKEN", "")
    markdown = _read(body_file)
    name = invocation.project().spec.name
    markdown = CONSOLE.redacted(markdown)
    if dry_run:
        body = comment_body(name, markdown)
        invocation.show(_answer(CommentResult(Outcome.DRY_RUN, body=body)))
        return
    pull = pull_request(os.environ, number)
    root = os.environ.get("GITHUB_API_URL") or "https://api.github.com"
    github = GitHub(root, token)
    try:
        result = upsert_comment(github, pull, name, markdown)
    except ReadOnlyToken as error:
        if strict:
            raise
        _warn(f"no comment was written, because the token is read-only: {error.message}")
        _write_job_summary(markdown)
        if not invocation.is_for_people:
            invocation.show(_answer(CommentResult(Outcome.NOT_ALLOWED)))
        return
    invocation.show(_answer(result))


def _answer(result: CommentResult) -> Answer:
    members: dict[str, object] = {"outcome": result.outcome.value, "url": result.url}
    if result.body is not None:
        body = result.body.rstrip("\n").split("\n")
        return Answer("comment", {**members, "body": result.body}, lambda page: body)
    outcome = paint(result.outcome.value.replace("_", " "), "success")
    line = f"{outcome}  {result.url}" if result.url else outcome
    return Answer("comment", members, lambda page: [line])


def _read(path: Path) -> str:
    try:
        content = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise CommentTextUnreadable(f"cannot read {path}: {reason}") from None
    return content.decode("utf-8", "replace")


def _warn(text: str) -> None:
    if os.environ.get("GITHUB_ACTIONS") != "true":
        logging.getLogger("lancestat.review").warning(text)
        return
    # GitHub shows such a line on the job's page. See its "Workflow commands".
    escaped = visible(escape_commands(CONSOLE.redacted(text))).replace("%", "%25")
    click.echo(f"::warning title=lancestat::{escaped}", err=True)


def _write_job_summary(markdown: str) -> None:
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if path:
        with Path(path).open("a", encoding="utf-8") as summary:
            summary.write(f"{markdown.strip()}\n")
