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
    """Statistics could not be committed to a table, or not removed from one that replaced it."""

    code = "LS603"
    remedy = (
        "The table's rows are untouched. Check that the table may be written to, and run again. "
        "Where entries have to be removed by hand, the hint names them."
    )


class TableKeepsChanging(PublishError):
    """The table changed during each attempt to publish its statistics."""

    code = "LS604"
    remedy = (
        "Run again when the table is quieter, or allow readers some distance with `allow.stale`; "
        "what was read is remembered."
    )


class GitHubNotConfigured(CommentError):
    """The token, the repository, the pull request or the API's address is missing or wrong."""

    code = "LS610"
    remedy = (
        "Run it in a job on `pull_request` with GITHUB_TOKEN set, or give `--number`; "
        "docs/how-to/ci.md has an example."
    )


class GitHubUnreachable(CommentError):
    """GitHub does not answer, or limits requests, after all attempts."""

    code = "LS611"
    remedy = "Run the job again later."


class InDoubt(GitHubUnreachable):
    """A request may have been carried out: check before sending it again."""


class GitHubRefused(CommentError):
    """GitHub refuses a request."""

    code = "LS612"
    remedy = (
        "See GitHub's reason in the message, such as an expired token or a closed conversation."
    )


class ReadOnlyToken(CommentError):
    """The token may not write comments, as in a job of a pull request from a fork."""

    code = "LS613"
    remedy = "Give the job `permissions: {pull-requests: write}`; jobs of forks never have it."


class GitHubRedirected(CommentError):
    """GitHub's API redirects without end, or to another host, to which no token is sent."""

    code = "LS614"
    remedy = "Set GITHUB_API_URL to the address of the API itself."


class GitHubAnswerInvalid(CommentError):
    """An answer of GitHub's API is not of the form that GitHub documents."""

    code = "LS615"
    remedy = "Check that GITHUB_API_URL is the address of GitHub's REST API, not that of a page."


class CommentTextUnreadable(UsageError):
    """The file with the comment's text cannot be read."""

    code = "LS616"
    remedy = "Name the file that `lancestat diff --output markdown` wrote, or `-`."


class UnknownSchema(UsageError):
    """`lancestat schema` has no schema of that kind."""

    code = "LS617"
    remedy = "Run `lancestat schema` to list the kinds."


class PlanOutOfDate(PlanFileError):
    """The project, a dataset or the state has moved on since a plan file was made.

    Nothing was run.
    """

    code = "LS620"
    remedy = "Make a new plan with `lancestat plan --out`, and look at it."


class PlanFileUnreadable(PlanFileError):
    """A file cannot be read, or is not a whole plan file."""

    code = "LS622"
    remedy = "Name a file that `lancestat plan --out` wrote, or make a new one."


class PlanFileOfOtherRelease(PlanFileError):
    """A plan file was made by another release of lancestat."""

    code = "LS623"
    remedy = "Make a new one with `lancestat plan --out`."


class PlanFileOfOtherProject(PlanFileError):
    """A plan file was made for another project or target."""

    code = "LS624"
    remedy = "Name its project and `--target`, or make a new one with `lancestat plan --out`."


class PlaceOccupied(UsageError):
    """A command would replace what lancestat did not write.

    Or, for `lancestat init`, a file of a project that is there.
    """

    code = "LS650"
    remedy = "Name a new file or an empty folder: `--out`, or `lancestat init DIR`."


class GitMissing(UsageError):
    """A git revision is to be read, and there is no `git` on PATH."""

    code = "LS660"
    remedy = "Install git, or name folders instead of revisions, as in `./old`."


class NoRepository(UsageError):
    """The project is in no git repository, or git refuses to read the repository."""

    code = "LS661"
    remedy = (
        "Name folders instead of revisions, or give `--project-dir` a folder in a repository. If "
        "git refuses, follow the hint."
    )


class UnknownRevision(UsageError):
    """A word is neither a git revision nor the folder of a project."""

    code = "LS662"
    remedy = "Correct it; in a shallow clone fetch the revision first (`fetch-depth: 0`)."


class NoMergeBase(UsageError):
    """Two revisions have no commit in common."""

    code = "LS663"
    remedy = (
        "In a shallow clone fetch more history (`fetch-depth: 0`); else compare with the revision "
        "itself, without `...`."
    )


class ProjectMissing(UsageError):
    """A revision or folder for `diff` has no project, or the project's folder is a link.

    In other commands a missing `lancestat_project.yml` is LS101.
    """

    code = "LS664"
    remedy = (
        "Give `--project-dir` the project's own folder, or name revisions or folders that have the "
        "project."
    )


class TooManySides(UsageError):
    """`diff` got a third side: `A...B` already names two."""

    code = "LS665"
    remedy = "Write `lancestat diff A... B`, or leave the second argument out."


class UnknownRisk(UsageError):
    """`--fail-on` names a risk that does not exist."""

    code = "LS666"
    remedy = "Use the risks that the message lists; docs/how-to/ci.md explains them."


class GitFailed(LancestatError):
    """A git command failed, for a reason without a code of its own."""

    code = "LS667"
    remedy = "See whether the repository is whole (`git fsck`) and was cloned without a filter."


class AmbiguousSide(UsageError):
    """A word is both a git revision and the folder of a project."""

    code = "LS668"
    remedy = "Write `./WORD` for the folder, `refs/heads/WORD` for a branch."


class ForeignState(UsageError):
    """A `state:` selector needs a state at a place, or with options, that the base does not name.

    `diff` reads no state that only the changed side names.
    """

    code = "LS669"
    remedy = (
        "Select without `state:`, or compare sides whose targets have the same `state` and "
        "`storage-options`."
    )
