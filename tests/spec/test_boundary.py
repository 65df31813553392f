from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from lancestat.errors import InvalidProject
from lancestat.presentation.site.text import Sources
from lancestat.spec.files import boundary, work_tree
from lancestat.spec.load import load_project
from lancestat.spec.model import ProjectSpec

PROJECT = "name: shop\ntargets: {dev: {}}\n"
ORDERS = "tables: [{name: orders, uri: orders.lance}]\n"
SECRET = "hunter2hunter2"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project in the folder `shop` of a repository, beside which lies a file with a secret."""
    root = tmp_path.resolve() / "repository" / "shop"
    (root / "specs").mkdir(parents=True)
    (root / "lancestat_project.yml").write_text(PROJECT)
    (root / "specs" / "shop.yml").write_text(ORDERS)
    subprocess.run(["git", "init", "--quiet", str(root.parent)], check=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    # Each of these would be quoted in an error.
    (outside / "keys.yml").write_text(f"{SECRET}: 1\n")
    (outside / "lancestat_project.yml").write_text(f"name: 'a {SECRET}'\ntargets: {{dev: {{}}}}\n")
    return root


def refused(root: Path) -> str:
    with pytest.raises(InvalidProject) as caught:
        load_project(root)
    text = str(caught.value)
    assert SECRET not in text
    return text


def names(spec: ProjectSpec) -> list[str]:
    return [node.name for node in spec.nodes]


OUT = "leads out of the repository, and only files inside it are read"


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("specs/more.yml", "../../../outside/keys.yml"),
        ("specs/more.yml", "/proc/self/environ"),
        ("specs/more.yml", "/etc/passwd"),
        ("specs/more.yml", "/dev/zero"),
        ("lancestat_project.yml", "../../outside/lancestat_project.yml"),
        # A chain that leaves, and comes back.
        ("specs/more.yml", "../../../outside/back.yml"),
    ],
)
def test_a_link_out_of_the_repository_is_not_read(project: Path, name: str, target: str) -> None:
    (project.parent.parent / "outside" / "back.yml").symlink_to(project / "specs" / "shop.yml")
    (project / name).unlink(missing_ok=True)
    (project / name).symlink_to(target)
    [line, _] = refused(project).splitlines()
    assert line == f"LS101 {name}:1:1  '{name}' {OUT}"


def test_a_folder_of_specs_may_not_be_a_link_out_of_the_repository(project: Path) -> None:
    (project / "specs").rename(project / "old")
    (project / "specs").symlink_to("../../outside")
    assert "LS101 lancestat_project.yml" in refused(project)
    (project / "specs").unlink()
    (project / "specs").symlink_to("old")
    assert names(load_project(project)) == ["orders"]


@pytest.mark.parametrize(
    "path",
    ["../../outside", "{tmp}/outside", "/etc", "/proc/self", "../..", "specs/../../../outside"],
)
def test_spec_paths_that_leave_the_repository_are_not_read(
    project: Path, path: str, tmp_path: Path
) -> None:
    path = path.format(tmp=tmp_path)
    header = f"{PROJECT}spec_paths: [{path}]\n"
    (project / "lancestat_project.yml").write_text(header)
    message = refused(project)
    assert message.startswith("LS101 lancestat_project.yml:3:14  ")
    assert "leads out of the repository" in message


def test_specs_elsewhere_in_the_repository_are_read(project: Path) -> None:
    (project / "specs").rename(project.parent / "shared")
    for path in ("../shared", f"{project.parent}/shared"):
        (project / "lancestat_project.yml").write_text(f"{PROJECT}spec_paths: ['{path}']\n")
        assert names(load_project(project)) == ["orders"]


def test_without_a_repository_the_project_is_its_folder(tmp_path: Path) -> None:
    root = tmp_path.resolve() / "shop"
    (root / "specs").mkdir(parents=True)
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "a.yml").write_text(f"{SECRET}: 1")
    (root / "lancestat_project.yml").write_text(f"{PROJECT}spec_paths: [../shared]\n")
    assert "leads out of the project's folder" in refused(root)


def test_links_inside_the_repository_are_followed(project: Path) -> None:
    (project.parent / "shared").mkdir()
    (project / "specs" / "shop.yml").rename(project.parent / "shared" / "real.yaml")
    (project.parent / "shared" / "hop.yml").symlink_to(project.parent / "shared" / "real.yaml")
    (project / "specs" / "shop.yml").symlink_to("../../shared/hop.yml")
    assert names(load_project(project)) == ["orders"]


@pytest.mark.parametrize("target", [".env", ".git/HEAD", ".git/notes.yml", "notes.txt"])
def test_links_to_other_files_than_specs_are_refused_and_not_quoted(
    project: Path, target: str
) -> None:
    """An earlier step of a pipeline may have left secrets in files that git ignores."""
    (project.parent / ".git").mkdir(exist_ok=True)
    (project.parent / target).write_text("PROD_TOKEN=hunter2")
    (project / "specs" / "more.yml").symlink_to(project.parent / target)
    message = refused(project)
    assert "'specs/more.yml' links to something other than a spec file" in message
    assert "hunter2" not in message


def test_circular_and_dangling_links_are_errors(project: Path) -> None:
    (project / "specs" / "a.yml").symlink_to("b.yml")
    (project / "specs" / "b.yml").symlink_to("a.yml")
    (project / "specs" / "c.yml").symlink_to("nothing.yml")
    message = refused(project)
    for name, why in (("a", "Too many levels"), ("b", "Too many levels"), ("c", "No such file")):
        assert f"LS101 specs/{name}.yml:1:1  cannot read the file: {why}" in message


@pytest.mark.parametrize("path", ["specs", "x" * 5000])
def test_an_unreadable_spec_path_is_an_error(project: Path, path: str) -> None:
    (project / "specs").rename(project / "old")
    (project / "specs").symlink_to("specs")
    (project / "lancestat_project.yml").write_text(f"{PROJECT}spec_paths: [{path}]\n")
    assert refused(project).startswith("LS101 lancestat_project.yml:3:14  cannot read spec path '")


def test_a_pipe_is_refused_without_waiting(project: Path) -> None:
    os.mkfifo(project / "specs" / "pipe.yml")
    assert "'specs/pipe.yml' is not a regular file" in refused(project)
    (project / "specs" / "pipe.yml").unlink()
    (project / "lancestat_project.yml").unlink()
    os.mkfifo(project / "lancestat_project.yml")
    assert "'lancestat_project.yml' is not a regular file" in refused(project)


def test_pages_do_not_show_a_file_that_was_exchanged_for_a_link(project: Path) -> None:
    spec = load_project(project)
    assert Sources(project).of(spec.nodes[0].location) is not None
    (project / "specs" / "shop.yml").unlink()
    (project / "specs" / "shop.yml").symlink_to("../../../outside/keys.yml")
    (project.parent.parent / "outside" / "keys.yml").write_text(ORDERS)
    assert Sources(project).of(spec.nodes[0].location) is None


def test_a_folder_that_looks_like_a_bare_repository_bounds_nothing(project: Path) -> None:
    (project / "HEAD").write_text("ref: refs/heads/main\n")
    (project / "objects").mkdir()
    (project / "refs").mkdir()
    assert work_tree(project) == boundary(project) == project.parent
