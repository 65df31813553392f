from __future__ import annotations

import os
from pathlib import Path

import pytest

from lancestat.errors import LancestatError
from lancestat.review.sides import Repository as Reader
from lancestat.review.sides import find_sides
from lancestat.review.values import Diff
from tests.review.conftest import Repository, write
from tests.review.pairs import review

ORDERS = {"specs/shop.yml": "tables:\n  - {name: orders, uri: orders.lance}\n"}
BOTH = {"specs/shop.yml": f"{ORDERS['specs/shop.yml']}  - {{name: parts, uri: parts.lance}}\n"}
MISSING = "a" * 40


class Trap:
    """A program that leaves a trace where it has been run."""

    def __init__(self, folder: Path) -> None:
        self.program = folder / "trap"
        self._trace = folder / "sprung"
        self.program.write_text(f"#!/bin/sh\ntouch {self._trace}\n")
        self.program.chmod(0o755)

    @property
    def is_sprung(self) -> bool:
        return self._trace.exists()

    def promisor(self, folder: Path, protocol: str) -> str:
        """Return the configuration of a repository that runs this program for missing objects."""
        url = {"file": str(folder), "ext": f"ext::{self.program} %S", "ssh": "ssh://localhost/x"}
        return (
            "[core]\n\trepositoryformatversion = 1\n\tbare = true\n"
            f"\tsshCommand = {self.program}\n"
            '[extensions]\n\tpartialClone = evil\n[remote "evil"]\n\tpromisor = true\n'
            f"\turl = {url[protocol]}\n\tuploadpack = {self.program}\n"
            f'[protocol "{protocol}"]\n\tallow = always\n'
        )


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    return Trap(tmp_path)


def compare(project: Path, base: str, head: str | None = None) -> Diff:
    return review(project, base, head, with_datasets=False)


def names(diff: Diff) -> list[str]:
    return [node.name for node in diff.nodes]


@pytest.mark.parametrize("protocol", ["file", "ext", "ssh"])
def test_the_configuration_of_a_committed_bare_repository_is_ignored(
    repository: Repository, trap: Trap, tmp_path: Path, protocol: str
) -> None:
    shop = repository.top / "shop"
    write(shop, {"objects/keep": "", "refs/keep": "", "HEAD": "ref: refs/heads/main\n"})
    write(shop, {"config": trap.promisor(tmp_path, protocol)})
    repository.commit(ORDERS, project="shop")
    write(shop, BOTH)
    for word in (MISSING, f"{MISSING}...", f"{MISSING}~1", f"{MISSING}:x"):
        with pytest.raises(LancestatError, match="neither a git revision nor the folder"):
            compare(shop, word)
    assert names(compare(shop, "main...")) == ["parts"]
    assert not trap.is_sprung


def test_a_bare_repository_is_not_the_repository_of_a_project(tmp_path: Path, trap: Trap) -> None:
    write(tmp_path / "shop", ORDERS)
    repository = Repository(tmp_path / "shop")
    repository.git("init", "--quiet", "--bare")
    (repository.top / "config").write_text(trap.promisor(tmp_path, "file"))
    with pytest.raises(LancestatError, match="is in no git repository"):
        compare(repository.top, MISSING)
    assert not trap.is_sprung


@pytest.mark.parametrize("protocol", ["file", "ext", "ssh"])
@pytest.mark.parametrize("variable", [None, "file:ext:ssh"])
def test_missing_objects_of_a_partial_clone_are_not_fetched(
    repository: Repository,
    trap: Trap,
    tmp_path: Path,
    protocol: str,
    variable: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    repository.commit(ORDERS)
    blob = repository.git("rev-parse", "main:specs/shop.yml")
    (repository.top / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    configuration = trap.promisor(tmp_path, protocol).replace("bare = true", "bare = false")
    (repository.top / ".git" / "config").write_text(configuration)
    if variable is not None:
        monkeypatch.setenv("GIT_ALLOW_PROTOCOL", variable)
    with pytest.raises(LancestatError) as caught:
        compare(repository.top, "main")
    assert caught.value.code == "LS667"
    assert "the clone is partial" in str(caught.value.hint)
    assert not trap.is_sprung


@pytest.mark.parametrize("path", ["", ".", "{git}:", "bin:.", "::"])
def test_git_is_not_searched_in_the_current_folder(
    repository: Repository, trap: Trap, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit(ORDERS)
    for folder in (repository.top, repository.top / "bin"):
        folder.mkdir(exist_ok=True)
        (folder / "git").symlink_to(trap.program)
    monkeypatch.chdir(repository.top)
    monkeypatch.setenv("PATH", path.format(git="/nowhere"))
    with pytest.raises(LancestatError, match="there is no 'git' on PATH"):
        compare(Path(), "main")
    assert not trap.is_sprung


def test_no_program_of_the_repositorys_configuration_is_run(
    repository: Repository, trap: Trap, tmp_path: Path
) -> None:
    repository.commit({**ORDERS, ".gitattributes": "* filter=evil diff=evil merge=evil\n"})
    write(repository.top, BOTH)
    programs = (
        "core.fsmonitor", "core.pager", "core.sshCommand", "core.editor", "core.askPass",
        "core.gitProxy", "core.alternateRefsCommand", "diff.external", "diff.evil.command",
        "diff.evil.textconv", "filter.evil.clean", "filter.evil.smudge", "filter.evil.process",
        "merge.evil.driver", "credential.helper", "gpg.program", "pager.ls-tree", "pager.log",
        "uploadpack.packObjectsHook", "sequence.editor", "trace2.normalTarget",
    )  # fmt: skip
    for key in programs:
        repository.git("config", key, str(trap.program))
    (tmp_path / "more").write_text(
        f"[core]\n\tfsmonitor = {trap.program}\n\tpager = {trap.program}\n"
    )
    repository.git("config", "include.path", str(tmp_path / "more"))
    for word in ("rev-parse", "ls-tree", "cat-file", "merge-base", "for-each-ref"):
        repository.git("config", f"alias.{word}", f"!{trap.program}")
    hooks = repository.top / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-checkout", "post-index-change", "reference-transaction", "pre-auto-gc"):
        (hooks / name).symlink_to(trap.program)
    for word in ("main", "main...", "HEAD", "main^0", "main^{/change}", "@{0}"):
        assert names(compare(repository.top, word)) == ["parts"]
    for word in (":specs/shop.yml", ":/change~9", ":0:specs/shop.yml", "main:specs", "--output=x"):
        with pytest.raises(LancestatError, match="neither a git revision"):
            compare(repository.top, word)
    assert not trap.is_sprung


def test_git_variables_of_the_environment_have_no_effect(
    repository: Repository, trap: Trap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit(ORDERS)
    write(repository.top, BOTH)
    written = tmp_path / "written"
    monkeypatch.setenv("GIT_TRACE", str(written))
    monkeypatch.setenv("GIT_TRACE2_EVENT", str(written))
    monkeypatch.setenv("GIT_TRACE_SETUP", str(written))
    monkeypatch.setenv("GIT_EXEC_PATH", str(tmp_path))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", str(trap.program))
    monkeypatch.setenv("GIT_SSH", str(trap.program))
    monkeypatch.setenv("GIT_DEFAULT_HASH", "sha256")
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(repository.top))
    monkeypatch.setenv("GIT_REPLACE_REF_BASE", "refs/heads/")
    monkeypatch.setenv("GIT_GLOB_PATHSPECS", "1")
    assert names(compare(repository.top, "main...")) == ["parts"]
    assert not written.exists()
    assert not trap.is_sprung


def test_the_configuration_of_the_user_still_declares_safe_directories(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit(ORDERS)
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "safe.directory")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(repository.top))
    assert compare(repository.top, "main").is_empty


def test_replacement_objects_are_ignored(repository: Repository) -> None:
    old = repository.commit(ORDERS)
    new = repository.commit(BOTH)
    repository.git("replace", old, new)
    assert names(compare(repository.top, old)) == ["parts"]


def test_grafts_are_ignored(repository: Repository) -> None:
    first = repository.commit(ORDERS)
    repository.git("branch", "left")
    repository.commit(BOTH)
    info = repository.top / ".git" / "info"
    info.mkdir(exist_ok=True)
    (info / "grafts").write_text(f"{repository.git('rev-parse', 'HEAD')}\n")
    assert names(compare(repository.top, "left...")) == ["parts"]
    assert find_sides(repository.top, "left...").base.commit == first


@pytest.mark.parametrize("elsewhere", ["/nonexistent", "..", "{tmp}"])
def test_the_work_tree_is_the_folder_of_the_git_directory(
    repository: Repository, tmp_path: Path, elsewhere: str
) -> None:
    repository.commit(ORDERS, project="shop")
    write(repository.top / "shop", BOTH)
    repository.git("config", "core.worktree", elsewhere.format(tmp=tmp_path))
    assert names(compare(repository.top / "shop", "main...")) == ["parts"]


def test_linked_work_trees_submodules_and_alternates_are_read(
    repository: Repository, tmp_path: Path
) -> None:
    repository.commit(ORDERS, project="shop")
    repository.git("worktree", "add", "--quiet", "--detach", str(tmp_path / "linked"))
    repository.git("clone", "--quiet", "--shared", ".", str(tmp_path / "shared"))
    outer = Repository(tmp_path / "outer")
    outer.top.mkdir()
    outer.git("init", "--quiet")
    add = ("-c", "protocol.file.allow=always", "submodule", "--quiet", "add")
    outer.git(*add, str(repository.top), "inner")
    for top in (tmp_path / "linked", tmp_path / "shared", outer.top / "inner"):
        write(top / "shop", BOTH)
        assert names(compare(top / "shop", "HEAD")) == ["parts"]
        assert Reader.around(top / "shop").top == top


def test_a_broken_repository_is_an_error(repository: Repository) -> None:
    repository.commit(ORDERS, project="shop")
    inner = repository.top / "shop" / ".git"
    inner.mkdir()
    (inner / "HEAD").write_text("ref: refs/heads/main\n")
    with pytest.raises(LancestatError) as caught:
        compare(repository.top / "shop", "main")
    assert caught.value.code == "LS661"
