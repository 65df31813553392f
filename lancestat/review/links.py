"""Pages of files at a commit, on the server that has the repository of a job."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from lancestat.errors import UsageError
from lancestat.review.git import Repository
from lancestat.review.source import Side, Sides
from lancestat.spec.files import work_tree

_SERVER = re.compile(r"https?://[a-z0-9.\-]+(?::\d+)?", re.ASCII | re.IGNORECASE)
_PROJECT = re.compile(r"[\w.\-]+(?:/[\w.\-]+)+", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class FileLinks:
    """Where the files of the two sides are shown; None for a side whose commit is not known."""

    base: str | None = None
    head: str | None = None


def file_links(environment: Mapping[str, str], sides: Sides) -> FileLinks:
    """Return where a job of GitHub or GitLab shows the files of two sides.

    The work tree is shown as the commit that is checked out.

    Args:
        environment: Of the process; what the runner says of the repository is read.
        sides: The sides of a diff.
    """
    root = _root(environment)
    if root is None or work_tree(sides.root) is None:
        return FileLinks()
    try:
        repository = Repository.around(sides.root)
    except UsageError:
        return FileLinks()

    def shown(side: Side) -> str | None:
        is_checked_out = side.commit is None and _is_at(side, sides.root)
        commit = repository.find_commit("HEAD") if is_checked_out else side.commit
        if commit is None or not _COMMIT.fullmatch(commit):
            return None
        folder = f"{repository.prefix}/" if repository.prefix else ""
        return f"{root}/{commit}/{quote(folder)}"

    return FileLinks(shown(sides.base), shown(sides.head))


def line_url(root: str, file: str, line: int) -> str:
    """Return the page of a file's line below a root of `FileLinks`."""
    return f"{root}{quote(file)}#L{line}"


def _is_at(side: Side, root: Path) -> bool:
    return getattr(side.files, "root", None) == root


def _root(environment: Mapping[str, str]) -> str | None:
    server = environment.get("GITHUB_SERVER_URL", "")
    project = environment.get("GITHUB_REPOSITORY", "")
    if _SERVER.fullmatch(server) and _PROJECT.fullmatch(project):
        return f"{server}/{project}/blob"
    server = environment.get("CI_SERVER_URL", "")
    project = environment.get("CI_PROJECT_PATH", "")
    if _SERVER.fullmatch(server) and _PROJECT.fullmatch(project):
        return f"{server}/{project}/-/blob"
    return None
