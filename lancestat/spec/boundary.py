"""Which files are a project's own: those of its git work tree, or of its folder without one."""

from __future__ import annotations

import errno
import os
from pathlib import Path

# As many as Linux follows.
_MAX_LINKS = 40


def work_tree(folder: Path) -> Path | None:
    """The top of the git work tree around a folder, None where there is none.

    Only `.git` counts, which no commit can hold. A folder that looks like a bare repository can
    come with any commit, and its configuration with it.
    """
    for each in (folder, *folder.parents):
        git = each / ".git"
        if os.path.isfile(git) or os.path.lexists(git / "HEAD"):  # noqa: PTH113 - raises nothing
            return each
    return None


def boundary(root: Path) -> Path:
    """The folder whose files may be read for the project in `root`, a path without links."""
    return work_tree(root) or root


def resolved_inside(top: Path, path: Path) -> Path | None:
    """A path without its symbolic links, None where it leaves `top`, even if it comes back.

    Args:
        top: A folder, by a path without links.
        path: An absolute path, which need not exist.

    Raises:
        OSError: The links lead in a circle.
    """
    here, steps, links = top, _steps_from(top, path), 0
    while steps is not None and steps:
        step = steps.pop()
        if step == "..":
            if here == top:
                return None
            here = here.parent
            continue
        here /= step
        if here.is_symlink():
            links += 1
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            target = here.readlink()
            here = top if target.is_absolute() else here.parent
            further = _steps_from(top, target) if target.is_absolute() else _reversed(target)
            steps = None if further is None else [*steps, *further]
    return None if steps is None else here


def _steps_from(top: Path, path: Path) -> list[str] | None:
    return _reversed(path.relative_to(top)) if path.is_relative_to(top) else None


def _reversed(path: Path) -> list[str]:
    return [*reversed(path.parts)]
