"""LS6xx: errors of publishing, comments, plan files, pages and reviews."""

from __future__ import annotations

from lancestat.errors.base import (
    CommentError,
    LancestatError,
    PlanFileError,
    PublishError,
    UsageError,
)


class CommitFailed(PublishError, code="LS603"):
    """Statistics could not be committed to a table, or removed from one that replaced it."""

    remedy = (
        "The table's rows are unchanged. Check that you can write to the table, and run again. If "
        "entries have to be removed by hand, the hint names them."
    )


class TableKeepsChanging(PublishError, code="LS604"):
    """The table changed during every attempt to publish its statistics."""

    remedy = (
        "Run again when fewer commits are made, or let readers accept some distance with "
        "`allow.stale`. What was read is remembered."
    )


class GitHubNotConfigured(CommentError, code="LS610"):
    """The token, the repository, the pull request or the API's address is missing or wrong."""

    remedy = (
        "Run it in a job on `pull_request` with GITHUB_TOKEN set, or pass `--number`; "
        "docs/how-to/ci.md has an example."
    )


class GitHubUnreachable(CommentError, code="LS611"):
    """GitHub does not answer, or still limits requests after all attempts."""

    remedy = "Run the job again later."


class InDoubt(GitHubUnreachable):
    """A request may have been carried out: check before sending it again."""


class GitHubRefused(CommentError, code="LS612"):
    """GitHub rejects a request."""

    remedy = (
        "See GitHub's reason in the message, such as an expired token or a locked conversation."
    )


class ReadOnlyToken(CommentError, code="LS613"):
    """The token may not write comments, as in a job for a pull request from a fork."""

    remedy = "Give the job `permissions: {pull-requests: write}`; jobs for forks never have it."


class GitHubRedirected(CommentError, code="LS614"):
    """GitHub's API redirects endlessly, or to another host, which is never sent the token."""

    remedy = "Set GITHUB_API_URL to the address of the API itself."


class GitHubAnswerInvalid(CommentError, code="LS615"):
    """A response of GitHub's API does not have the documented format."""

    remedy = "Check that GITHUB_API_URL is the address of GitHub's REST API, not of a web page."


class CommentTextUnreadable(UsageError, code="LS616"):
    """The file with the comment's text cannot be read."""

    remedy = "Name the file that `lancestat diff --output markdown` wrote, or `-`."


class UnknownSchema(UsageError, code="LS617"):
    """`lancestat schema` has no schema of this kind."""

    remedy = "Run `lancestat schema` to list the kinds."


class PlanOutOfDate(PlanFileError, code="LS620"):
    """The project, a dataset or the state has changed since a plan file was written.

    Nothing was run.
    """

    remedy = "Write a new plan with `lancestat plan --out`, and review it."


class PlanFileUnreadable(PlanFileError, code="LS622"):
    """A file cannot be read, or is not a complete plan file."""

    remedy = "Name a file that `lancestat plan --out` wrote, or write a new one."


class PlanFileOfOtherRelease(PlanFileError, code="LS623"):
    """A plan file was written by another release of lancestat."""

    remedy = "Write a new one with `lancestat plan --out`."


class PlanFileOfOtherProject(PlanFileError, code="LS624"):
    """A plan file was written for another project or target."""

    remedy = "Name its project and `--target`, or write a new one with `lancestat plan --out`."


class PlaceOccupied(UsageError, code="LS650"):
    """A command would replace something that lancestat did not write.

    For `lancestat init`, also an existing file of a project.
    """

    remedy = "Name a new file or an empty folder: `--out`, or `lancestat init DIR`."


class GitMissing(UsageError, code="LS660"):
    """Reading a git revision needs `git`, which is not on PATH."""

    remedy = "Install git, or name folders instead of revisions, as in `./old`."


class NoRepository(UsageError, code="LS661"):
    """The project is not in a git repository, or git refuses to read the repository."""

    remedy = (
        "Name folders instead of revisions, or set `--project-dir` to a folder in a repository. "
        "If git refuses, follow the hint."
    )


class UnknownRevision(UsageError, code="LS662"):
    """An argument is neither a git revision nor the folder of a project."""

    remedy = "Correct it. In a shallow clone, fetch the revision first (`fetch-depth: 0`)."


class NoMergeBase(UsageError, code="LS663"):
    """Two revisions have no common ancestor."""

    remedy = (
        "In a shallow clone, fetch more history (`fetch-depth: 0`). Otherwise compare with the "
        "revision itself, without `...`."
    )


class ProjectMissing(UsageError, code="LS664"):
    """A revision or folder for `diff` has no project, or the project's folder is a link.

    In other commands, a missing `lancestat_project.yml` is LS101.
    """

    remedy = (
        "Give `--project-dir` the project's own folder, or name revisions or folders that contain "
        "the project."
    )


class TooManySides(UsageError, code="LS665"):
    """`diff` got a third side, but `A...B` already names two."""

    remedy = "Write `lancestat diff A... B`, or leave the second argument out."


class UnknownRisk(UsageError, code="LS666"):
    """`--fail-on` names an unknown risk."""

    remedy = "Use the risks listed in the message; docs/how-to/ci.md explains them."


class GitFailed(LancestatError, code="LS667"):
    """A git command failed, for a reason without its own code."""

    remedy = "Check that the repository is complete (`git fsck`) and was cloned without a filter."


class AmbiguousSide(UsageError, code="LS668"):
    """An argument is both a git revision and the folder of a project."""

    remedy = "Write `./NAME` for the folder, `refs/heads/NAME` for the branch."


class ForeignState(UsageError, code="LS669"):
    """A `state:` selector needs a state whose location or options the base does not declare.

    `diff` reads no state that only the changed side declares.
    """

    remedy = (
        "Select without `state:`, or compare sides whose targets have the same `state` and "
        "`storage_options`."
    )


class LibraryMissing(UsageError, code="LS670"):
    """A method of the Python API needs a library that lancestat does not depend on."""

    remedy = "Install the library that the hint names, or use another method."
