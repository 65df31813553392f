"""LS6xx: errors of publishing, comments, plan files, pages and reviews."""

from __future__ import annotations

from lancestat.errors.base import (
    CommentError,
    LancestatError,
    PlanFileError,
    PublishError,
    UsageError,
)


class CommitFailed(PublishError):
    """Statistics could not be committed to a table, or removed from one that replaced it."""

    code = "LS603"
    remedy = (
        "The table's rows are unchanged. Check that you can write to the table, and run again. If "
        "entries have to be removed by hand, the hint names them."
    )


class TableKeepsChanging(PublishError):
    """The table changed during every attempt to publish its statistics."""

    code = "LS604"
    remedy = (
        "Run again when fewer commits are made, or let readers accept some distance with "
        "`allow.stale`. What was read is remembered."
    )


class GitHubNotConfigured(CommentError):
    """The token, the repository, the pull request or the API's address is missing or wrong."""

    code = "LS610"
    remedy = (
        "Run it in a job on `pull_request` with GITHUB_TOKEN set, or pass `--number`; "
        "docs/how-to/ci.md has an example."
    )


class GitHubUnreachable(CommentError):
    """GitHub does not answer, or still limits requests after all attempts."""

    code = "LS611"
    remedy = "Run the job again later."


class InDoubt(GitHubUnreachable):
    """A request may have been carried out: check before sending it again."""


class GitHubRefused(CommentError):
    """GitHub rejects a request."""

    code = "LS612"
    remedy = (
        "See GitHub's reason in the message, such as an expired token or a locked conversation."
    )


class ReadOnlyToken(CommentError):
    """The token may not write comments, as in a job for a pull request from a fork."""

    code = "LS613"
    remedy = "Give the job `permissions: {pull-requests: write}`; jobs for forks never have it."


class GitHubRedirected(CommentError):
    """GitHub's API redirects endlessly, or to another host, which is never sent the token."""

    code = "LS614"
    remedy = "Set GITHUB_API_URL to the address of the API itself."


class GitHubAnswerInvalid(CommentError):
    """A response of GitHub's API does not have the documented format."""

    code = "LS615"
    remedy = "Check that GITHUB_API_URL is the address of GitHub's REST API, not of a web page."


class CommentTextUnreadable(UsageError):
    """The file with the comment's text cannot be read."""

    code = "LS616"
    remedy = "Name the file that `lancestat diff --output markdown` wrote, or `-`."


class UnknownSchema(UsageError):
    """`lancestat schema` has no schema of this kind."""

    code = "LS617"
    remedy = "Run `lancestat schema` to list the kinds."


class PlanOutOfDate(PlanFileError):
    """The project, a dataset or the state has changed since a plan file was written.

    Nothing was run.
    """

    code = "LS620"
    remedy = "Write a new plan with `lancestat plan --out`, and review it."


class PlanFileUnreadable(PlanFileError):
    """A file cannot be read, or is not a complete plan file."""

    code = "LS622"
    remedy = "Name a file that `lancestat plan --out` wrote, or write a new one."


class PlanFileOfOtherRelease(PlanFileError):
    """A plan file was written by another release of lancestat."""

    code = "LS623"
    remedy = "Write a new one with `lancestat plan --out`."


class PlanFileOfOtherProject(PlanFileError):
    """A plan file was written for another project or target."""

    code = "LS624"
    remedy = "Name its project and `--target`, or write a new one with `lancestat plan --out`."


class PlaceOccupied(UsageError):
    """A command would replace something that lancestat did not write.

    For `lancestat init`, also an existing file of a project.
    """

    code = "LS650"
    remedy = "Name a new file or an empty folder: `--out`, or `lancestat init DIR`."


class GitMissing(UsageError):
    """Reading a git revision needs `git`, which is not on PATH."""

    code = "LS660"
    remedy = "Install git, or name folders instead of revisions, as in `./old`."


class NoRepository(UsageError):
    """The project is not in a git repository, or git refuses to read the repository."""

    code = "LS661"
    remedy = (
        "Name folders instead of revisions, or set `--project-dir` to a folder in a repository. "
        "If git refuses, follow the hint."
    )


class UnknownRevision(UsageError):
    """An argument is neither a git revision nor the folder of a project."""

    code = "LS662"
    remedy = "Correct it. In a shallow clone, fetch the revision first (`fetch-depth: 0`)."


class NoMergeBase(UsageError):
    """Two revisions have no common ancestor."""

    code = "LS663"
    remedy = (
        "In a shallow clone, fetch more history (`fetch-depth: 0`). Otherwise compare with the "
        "revision itself, without `...`."
    )


class ProjectMissing(UsageError):
    """A revision or folder for `diff` has no project, or the project's folder is a link.

    In other commands, a missing `lancestat_project.yml` is LS101.
    """

    code = "LS664"
    remedy = (
        "Give `--project-dir` the project's own folder, or name revisions or folders that contain "
        "the project."
    )


class TooManySides(UsageError):
    """`diff` got a third side, but `A...B` already names two."""

    code = "LS665"
    remedy = "Write `lancestat diff A... B`, or leave the second argument out."


class UnknownRisk(UsageError):
    """`--fail-on` names an unknown risk."""

    code = "LS666"
    remedy = "Use the risks listed in the message; docs/how-to/ci.md explains them."


class GitFailed(LancestatError):
    """A git command failed, for a reason without its own code."""

    code = "LS667"
    remedy = "Check that the repository is complete (`git fsck`) and was cloned without a filter."


class AmbiguousSide(UsageError):
    """An argument is both a git revision and the folder of a project."""

    code = "LS668"
    remedy = "Write `./NAME` for the folder, `refs/heads/NAME` for the branch."


class ForeignState(UsageError):
    """A `state:` selector needs a state whose location or options the base does not declare.

    `diff` reads no state that only the changed side declares.
    """

    code = "LS669"
    remedy = (
        "Select without `state:`, or compare sides whose targets have the same `state` and "
        "`storage_options`."
    )


class LibraryMissing(UsageError):
    """A method of the Python API needs a library that lancestat does not depend on."""

    code = "LS670"
    remedy = "Install the library that the hint names, or use another method."
