"""The sides of a diff: folders and revisions of git, of which no program is run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from lancestat.errors import InvalidProject, LancestatError, UsageError
from lancestat.review.sides import Repository as Reader
from lancestat.review.sides import find_sides
from lancestat.review.values import Diff
from tests.review.conftest import Repository, write
from tests.review.pairs import review

ORDERS = "tables:\n  - {name: orders, uri: orders.lance}\n"
BOTH = ORDERS + "  - {name: parts, uri: parts.lance}\n"


def specs(text: str) -> dict[str, str]:
    return {"specs/shop.yml": text}


def names(diff: Diff) -> dict[str, str]:
    return {node.name: node.change.value for node in diff.nodes}


def compare(project: Path, base: str, head: str | None = None) -> Diff:
    return review(project, base, head, with_datasets=False)


def refusal(project: Path, base: str, head: str | None = None) -> LancestatError:
    with pytest.raises(LancestatError) as caught:
        compare(project, base, head)
    return caught.value


def test_a_revision_is_compared_with_the_work_tree(repository: Repository) -> None:
    repository.commit(specs(ORDERS))
    write(repository.top, specs(BOTH))
    assert names(compare(repository.top, "main")) == {"parts": "added"}
    assert compare(repository.top, "main", "HEAD").is_empty


def test_two_revisions_are_compared(repository: Repository) -> None:
    first = repository.commit(specs(BOTH))
    second = repository.commit(specs(ORDERS))
    write(repository.top, {"specs/shop.yml": "not: valid"})
    diff = compare(repository.top, first, second[:10])
    assert names(diff) == {"parts": "removed"}
    assert (diff.base_commit, diff.head_commit) == (first, second)


def test_tags_branches_and_relative_revisions_are_known(repository: Repository) -> None:
    repository.commit(specs(ORDERS))
    repository.git("tag", "--annotate", "v1", "--message", "one")
    repository.git("branch", "deep/branch")
    repository.commit(specs(BOTH))
    for revision in ("v1", "deep/branch", "HEAD~1", "main^", "refs/tags/v1"):
        assert names(compare(repository.top, revision)) == {"parts": "added"}


def test_uris_lead_from_the_folder_on_both_sides(repository: Repository, tmp_path: Path) -> None:
    repository.commit(specs(ORDERS), project="deep/shop")
    project = repository.top / "deep" / "shop"
    write(tmp_path / "elsewhere", specs(ORDERS))
    assert compare(project, "main").is_empty
    assert compare(project, str(tmp_path / "elsewhere")).is_empty
    assert compare(project, str(tmp_path / "elsewhere"), "main").is_empty


def test_a_comparison_may_start_at_the_merge_base(repository: Repository) -> None:
    repository.commit(specs(ORDERS))
    repository.git("switch", "--quiet", "--create", "feature")
    repository.commit({**specs(ORDERS), "specs/more.yml": ORDERS.replace("orders", "more")})
    repository.git("switch", "--quiet", "main")
    repository.commit({"specs/shop.yml": BOTH})
    repository.git("switch", "--quiet", "feature")
    assert names(compare(repository.top, "main...")) == {"more": "added"}
    assert names(compare(repository.top, "main...feature")) == {"more": "added"}
    assert names(compare(repository.top, "main...", "feature")) == {"more": "added"}
    assert names(compare(repository.top, "...main")) == {"parts": "added"}
    assert names(compare(repository.top, "main")) == {"more": "added", "parts": "removed"}
    assert refusal(repository.top, "main...feature", "main").code == "LS665"


def test_unrelated_histories_have_no_merge_base(repository: Repository) -> None:
    repository.commit(specs(ORDERS))
    repository.git("switch", "--quiet", "--orphan", "other")
    repository.commit(specs(BOTH))
    error = refusal(repository.top, "main...")
    assert (error.code, error.message) == ("LS663", "'main' and 'HEAD' have no commit in common")


def test_an_error_of_a_shallow_clone_has_a_hint_to_deepen_it(
    repository: Repository, tmp_path: Path
) -> None:
    repository.commit(specs(ORDERS))
    repository.commit(specs(BOTH))
    clone = tmp_path / "clone"
    repository.git("clone", "--quiet", "--depth=1", f"file://{repository.top}", str(clone))
    error = refusal(clone, "origin/main~1")
    assert error.code == "LS662"
    assert "fetch-depth: 0" in str(error.hint)


def test_a_name_that_is_a_revision_and_a_folder_with_a_project_is_refused(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit(specs(ORDERS))
    for branch in ("release", "deep/branch"):
        repository.git("branch", branch)
    commit = repository.git("rev-parse", "HEAD")
    write(repository.top, specs(BOTH))
    monkeypatch.chdir(repository.top)
    (repository.top / "release").mkdir()
    (repository.top / "deep" / "branch").mkdir(parents=True)
    # A folder without a project is never meant.
    assert names(compare(Path(), "release")) == {"parts": "added"}
    assert names(compare(Path(), "deep/branch")) == {"parts": "added"}
    assert refusal(Path(), "./release").code == "LS664"
    for word in ("release", "deep/branch", commit, "HEAD"):
        write(repository.top / word, specs(BOTH))
        error = refusal(Path(), word)
        assert error.code == "LS668"
        assert error.message == f"'{word}' is both a git revision and the folder of a project"
        assert f"'./{word}' for the folder; 'refs/heads/{word}' for a branch" in str(error.hint)
        assert (
            refusal(Path(), "main", word).code == refusal(Path(), "main...", word).code == "LS668"
        )
        assert compare(Path(), f"./{word}").is_empty
        assert compare(Path(), f"{word}/").is_empty
        assert compare(Path(), str(repository.top / word)).is_empty
        assert names(compare(Path(), f"{word}^0")) == {"parts": "added"}
    assert names(compare(Path(), "refs/heads/release")) == {"parts": "added"}


@pytest.mark.parametrize(
    "word", ["origin/main...", "main...", "...main", "main...HEAD", "...", "main...feature"]
)
def test_a_range_is_never_a_folder(
    word: str, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit(specs(ORDERS))
    repository.git("update-ref", "refs/remotes/origin/main", "HEAD")
    repository.git("switch", "--quiet", "--create", "feature")
    repository.git("switch", "--quiet", "main")
    # What a pull request brings: the change, and a folder that holds it too.
    write(repository.top, specs(BOTH))
    write(repository.top / word, specs(BOTH))
    for part in word.split("..."):
        write(repository.top / (part or "HEAD"), specs(BOTH))
    if word.startswith("origin"):
        repository.commit_all()
    else:
        repository.git("add", "--all")
    monkeypatch.chdir(repository.top)
    diff = compare(Path(), word)
    assert "(merge base of " in diff.base
    changed = {} if word.partition("...")[2] else {"parts": "added"}
    assert names(diff) == changed
    assert compare(Path(), f"./{word}").is_empty


def test_the_folder_of_the_project_may_not_be_a_link_in_its_repository(
    repository: Repository, tmp_path: Path
) -> None:
    repository.commit(specs(ORDERS), project="shop")
    repository.commit(specs(ORDERS), project="example")
    (repository.top / "shop").rename(tmp_path / "old")
    (repository.top / "shop").symlink_to("example")
    error = refusal(repository.top / "shop", "main")
    assert error.code == "LS664"
    assert error.message.endswith("repository/shop is a symbolic link in its repository")
    (tmp_path / "link").symlink_to(repository.top / "example")
    assert compare(tmp_path / "link", "main").is_empty


def test_folders_need_no_repository(tmp_path: Path) -> None:
    write(tmp_path / "old", specs(ORDERS))
    write(tmp_path / "new", specs(BOTH))
    (tmp_path / "empty").mkdir()
    assert names(compare(tmp_path / "new", f"{tmp_path}/old")) == {"parts": "added"}
    diff = compare(tmp_path / "empty", f"{tmp_path}/old", f"{tmp_path}/new")
    assert names(diff) == {"parts": "added"}
    assert refusal(tmp_path / "new", "main").code == "LS661"


def test_unknown_names_are_an_error(repository: Repository) -> None:
    repository.commit(specs(ORDERS))
    repository.git("branch", "feature")
    error = refusal(repository.top, "featur")
    assert error.code == "LS662"
    assert error.message == "'featur' is neither a git revision nor the folder of a project"
    assert error.hint == "did you mean 'feature'?"
    assert "'BASE...HEAD'" in str(refusal(repository.top, "main..feature").hint)
    for word in ("", "-", "--help", "main:specs", "a b", "\u00e9"):
        assert refusal(repository.top, word).code == "LS662"


def test_every_node_is_new_since_a_revision_before_the_project(repository: Repository) -> None:
    repository.commit_all()
    repository.git("tag", "before")
    repository.commit(specs(BOTH), project="deep/shop")
    diff = compare(repository.top / "deep" / "shop", "before")
    assert names(diff) == {"orders": "added", "parts": "added"}
    assert diff.settings == ()
    assert diff.notes[0] == "there is no project in deep/shop/ at before: every node is new"


def test_a_removed_project_is_an_error(repository: Repository) -> None:
    repository.commit_all()
    repository.git("tag", "before")
    repository.commit(specs(ORDERS), project="deep/shop")
    error = refusal(repository.top / "deep" / "shop", "main", "before")
    assert error.code == "LS664"
    assert error.message == "there is no lancestat_project.yml in deep/shop/ at before"


def test_errors_of_a_revision_have_locations_in_it(repository: Repository) -> None:
    repository.commit(specs("tables:\n  - {name: orders, ury: orders.lance}\n"))
    write(repository.top, specs(ORDERS))
    with pytest.raises(InvalidProject) as caught:
        compare(repository.top, "main")
    assert [str(error.location) for error in caught.value.errors] == ["main:specs/shop.yml:2:20"]


def test_a_target_missing_on_one_side_is_an_error_of_that_side(repository: Repository) -> None:
    repository.commit(specs(ORDERS))
    project = "name: shop\ndefault_target: dev\ntargets: {dev: {}, prod: {}}\n"
    write(repository.top, {"lancestat_project.yml": project})
    with pytest.raises(UsageError, match=r"unknown target 'prod'.*\(at main\)"):
        review(repository.top, "main", target="prod", with_datasets=False)


def test_an_environment_variable_required_only_by_base_is_an_error_of_base(
    repository: Repository,
) -> None:
    repository.commit(specs(ORDERS.replace("orders.lance", "\"{{ env_var('NOT_SET_HERE') }}\"")))
    write(repository.top, specs(ORDERS))
    with pytest.raises(InvalidProject) as caught:
        compare(repository.top, "main")
    [error] = caught.value.errors
    assert str(error.location) == "main:specs/shop.yml:2:25"
    assert "'NOT_SET_HERE' is not set" in error.message


def test_links_and_submodules_are_refused(repository: Repository, tmp_path: Path) -> None:
    repository.commit(specs(ORDERS))
    (repository.top / "specs" / "more.yml").symlink_to("shop.yml")
    repository.commit_all()
    with pytest.raises(InvalidProject, match=r"'specs/more.yml' is a symbolic link in main"):
        compare(repository.top, "main")

    (repository.top / "specs" / "more.yml").unlink()
    (repository.top / "specs").rename(repository.top / "real")
    (repository.top / "specs").symlink_to("real")
    repository.commit_all()
    with pytest.raises(InvalidProject, match="'specs' is a symbolic link in main"):
        compare(repository.top, "main")

    (repository.top / "lancestat_project.yml").rename(repository.top / "real.yml")
    (repository.top / "lancestat_project.yml").symlink_to("real.yml")
    repository.commit_all()
    with pytest.raises(InvalidProject, match=r"'lancestat_project.yml' is a symbolic link in main"):
        compare(repository.top, "main")


def test_a_submodule_is_refused(repository: Repository, tmp_path: Path) -> None:
    other = Repository(tmp_path / "other")
    other.top.mkdir()
    other.git("init", "--quiet")
    commit = other.commit_all()
    repository.commit(specs(ORDERS))
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{commit},specs/sub")
    repository.git("commit", "--quiet", "--message", "sub")
    with pytest.raises(InvalidProject, match="'specs/sub' is a submodule in main"):
        compare(repository.top, "main", "HEAD~1")


def test_spec_paths_may_lead_out_of_the_project_but_not_out_of_the_repository(
    repository: Repository,
) -> None:
    header = "name: shop\ntargets: {dev: {}}\nspec_paths: [../shared]\n"
    shared = {"shared/a.yml": ORDERS, "shared/.hidden.yml": "x", "shared/b/.c/d.yml": "x"}
    write(repository.top, shared)
    repository.commit({"lancestat_project.yml": header}, project="shop")
    write(repository.top, {"shared/a.yml": BOTH})
    assert names(compare(repository.top / "shop", "main")) == {"parts": "added"}

    write(repository.top / "shop", {"lancestat_project.yml": header.replace("..", "../../outside")})
    repository.commit_all()
    with pytest.raises(InvalidProject, match=r"outside/shared' is outside the repository"):
        compare(repository.top / "shop", "main")


def test_names_of_files_may_be_anything(repository: Repository) -> None:
    files = ("specs/sp ace.yml", "specs/tab\tand\nline.yml", "specs/ü.yaml", "specs/*.yml")
    for number, name in enumerate(files):
        write(repository.top, {name: ORDERS.replace("orders", f"t{number}")})
    repository.commit_all()
    assert compare(repository.top, "main").unchanged == len(files)


def test_the_work_tree_and_the_index_are_not_touched(repository: Repository) -> None:
    repository.commit(specs(ORDERS))
    write(repository.top, specs(BOTH))
    write(repository.top, {"staged.yml": "x", "untracked.yml": "x"})
    repository.git("add", "staged.yml")
    # Git would rewrite an index whose timestamps are old.
    os.utime(repository.top / "lancestat_project.yml", (1, 1))

    def seen() -> dict[str, tuple[int, bytes]]:
        files = [path for path in repository.top.rglob("*") if path.is_file()]
        return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}

    before = seen()
    compare(repository.top, "main")
    compare(repository.top, "main...")
    assert seen() == before


def test_git_variables_of_a_hook_are_ignored(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit(specs(ORDERS))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path))
    assert compare(repository.top, "main").is_empty


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    for base in ("main", f"{tmp_path}/"):
        error = refusal(tmp_path / "nowhere", base)
        assert error.code == "LS664"
        assert error.message == f"there is no folder {tmp_path.resolve()}/nowhere"


def test_a_repository_of_another_user_is_an_error(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit(specs(ORDERS))
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    asked = subprocess.run(["git", "rev-parse"], cwd=repository.top, capture_output=True)
    if asked.returncode == 0:
        pytest.skip("before 2.35.2, git works in repositories of other users")
    error = refusal(repository.top, "main")
    assert error.code == "LS661"
    assert "safe.directory" in str(error.hint)


def test_a_missing_git_is_an_error(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    repository.commit(specs(ORDERS))
    monkeypatch.setenv("PATH", "")
    assert refusal(repository.top, "main").code == "LS660"


def test_a_lost_object_is_an_error(repository: Repository) -> None:
    repository.commit(specs(ORDERS))
    blob = repository.git("rev-parse", "main:specs/shop.yml")
    (repository.top / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    error = refusal(repository.top, "main")
    assert error.code == "LS667"
    assert blob in error.message


def test_a_file_too_large_is_not_read(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit(specs(ORDERS + "#" * 1000))
    write(repository.top, specs(ORDERS))
    monkeypatch.setattr("lancestat.review.sides.MAX_BYTES", 500)
    with pytest.raises(InvalidProject, match=r"the file has 1,\d\d\d bytes; at most 500 are read"):
        compare(repository.top, "main")


def test_labels_of_sides(repository: Repository) -> None:
    commit = repository.commit(specs(ORDERS))
    sides = find_sides(repository.top, "main...")
    short = sides.base.label.split()[0]
    assert commit.startswith(short)
    assert sides.base.label == f"{short} (merge base of main and HEAD)"
    assert sides.head.label == "."


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


@pytest.mark.parametrize("protocol", ["file", "ext", "ssh"])
def test_the_configuration_of_a_committed_bare_repository_is_ignored(
    repository: Repository, trap: Trap, tmp_path: Path, protocol: str
) -> None:
    shop = repository.top / "shop"
    write(shop, {"objects/keep": "", "refs/keep": "", "HEAD": "ref: refs/heads/main\n"})
    write(shop, {"config": trap.promisor(tmp_path, protocol)})
    repository.commit(specs(ORDERS), project="shop")
    write(shop, specs(BOTH))
    for word in (MISSING, f"{MISSING}...", f"{MISSING}~1", f"{MISSING}:x"):
        with pytest.raises(LancestatError, match="neither a git revision nor the folder"):
            compare(shop, word)
    assert names(compare(shop, "main...")) == {"parts": "added"}
    assert not trap.is_sprung


def test_a_bare_repository_is_not_the_repository_of_a_project(tmp_path: Path, trap: Trap) -> None:
    write(tmp_path / "shop", specs(ORDERS))
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
    repository.commit(specs(ORDERS))
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
    repository.commit(specs(ORDERS))
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
    repository.commit({**specs(ORDERS), ".gitattributes": "* filter=evil diff=evil merge=evil\n"})
    write(repository.top, specs(BOTH))
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
        assert names(compare(repository.top, word)) == {"parts": "added"}
    for word in (":specs/shop.yml", ":/change~9", ":0:specs/shop.yml", "main:specs", "--output=x"):
        with pytest.raises(LancestatError, match="neither a git revision"):
            compare(repository.top, word)
    assert not trap.is_sprung


def test_git_variables_of_the_environment_have_no_effect(
    repository: Repository, trap: Trap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit(specs(ORDERS))
    write(repository.top, specs(BOTH))
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
    assert names(compare(repository.top, "main...")) == {"parts": "added"}
    assert not written.exists()
    assert not trap.is_sprung


def test_the_configuration_of_the_user_still_declares_safe_directories(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit(specs(ORDERS))
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "safe.directory")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(repository.top))
    assert compare(repository.top, "main").is_empty


def test_replacement_objects_are_ignored(repository: Repository) -> None:
    old = repository.commit(specs(ORDERS))
    new = repository.commit(specs(BOTH))
    repository.git("replace", old, new)
    assert names(compare(repository.top, old)) == {"parts": "added"}


def test_grafts_are_ignored(repository: Repository) -> None:
    first = repository.commit(specs(ORDERS))
    repository.git("branch", "left")
    repository.commit(specs(BOTH))
    info = repository.top / ".git" / "info"
    info.mkdir(exist_ok=True)
    (info / "grafts").write_text(f"{repository.git('rev-parse', 'HEAD')}\n")
    assert names(compare(repository.top, "left...")) == {"parts": "added"}
    assert find_sides(repository.top, "left...").base.commit == first


@pytest.mark.parametrize("elsewhere", ["/nonexistent", "..", "{tmp}"])
def test_the_work_tree_is_the_folder_of_the_git_directory(
    repository: Repository, tmp_path: Path, elsewhere: str
) -> None:
    repository.commit(specs(ORDERS), project="shop")
    write(repository.top / "shop", specs(BOTH))
    repository.git("config", "core.worktree", elsewhere.format(tmp=tmp_path))
    assert names(compare(repository.top / "shop", "main...")) == {"parts": "added"}


def test_linked_work_trees_submodules_and_alternates_are_read(
    repository: Repository, tmp_path: Path
) -> None:
    repository.commit(specs(ORDERS), project="shop")
    repository.git("worktree", "add", "--quiet", "--detach", str(tmp_path / "linked"))
    repository.git("clone", "--quiet", "--shared", ".", str(tmp_path / "shared"))
    outer = Repository(tmp_path / "outer")
    outer.top.mkdir()
    outer.git("init", "--quiet")
    add = ("-c", "protocol.file.allow=always", "submodule", "--quiet", "add")
    outer.git(*add, str(repository.top), "inner")
    for top in (tmp_path / "linked", tmp_path / "shared", outer.top / "inner"):
        write(top / "shop", specs(BOTH))
        assert names(compare(top / "shop", "HEAD")) == {"parts": "added"}
        assert Reader.around(top / "shop").top == top


def test_a_broken_repository_is_an_error(repository: Repository) -> None:
    repository.commit(specs(ORDERS), project="shop")
    inner = repository.top / "shop" / ".git"
    inner.mkdir()
    (inner / "HEAD").write_text("ref: refs/heads/main\n")
    with pytest.raises(LancestatError) as caught:
        compare(repository.top / "shop", "main")
    assert caught.value.code == "LS661"
