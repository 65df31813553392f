"""A site replaces the one before page by page, and files of others stay where they are."""

from __future__ import annotations

import errno
import signal
from pathlib import Path

import pytest

from lancestat.errors import UsageError
from lancestat.lake.files import new_draft, remove_drafts
from lancestat.presentation.site.pages import Pages, build_site
from lancestat.report.site_folder import MARKER, put
from lancestat.report.values import ProjectReport
from tests.forks import forks
from tests.presentation.site.conftest import Build
from tests.presentation.site.reports import project, spec_of, table_report


def test_a_build_returns_its_pages(root: Path, tmp_path: Path) -> None:
    report = project()
    site = build_site(report, spec_of(report, root), tmp_path / "deep" / "er")
    assert site.page == tmp_path / "deep" / "er" / "index.html"
    assert site.pages == len(list((tmp_path / "deep" / "er").rglob("*.html"))) == 8


def test_a_site_replaces_the_previous_one(build: Build) -> None:
    site = build(project(table_report("gone")))
    assert (site / "tables" / "gone.html").is_file()
    assert build(project(table_report("there"))) == site
    assert not (site / "tables" / "gone.html").exists()
    assert (site / "tables" / "there.html").is_file()
    assert sorted(path.name for path in site.parent.iterdir()) == ["project", "site"]


@pytest.mark.parametrize("name", ["empty", "not there"])
def test_an_empty_folder_is_used(name: str, build: Build, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert (build(name=name) / MARKER).is_file()


def test_a_folder_of_other_files_is_not_changed(build: Build, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "thesis.txt").write_text("all of it")
    with pytest.raises(UsageError, match="would be replaced") as refused:
        build()
    assert refused.value.code == "LS650"
    assert [path.name for path in (tmp_path / "site").iterdir()] == ["thesis.txt"]


def test_a_file_is_not_replaced(build: Build, tmp_path: Path) -> None:
    (tmp_path / "site").write_text("all of it")
    with pytest.raises(UsageError, match="is a file"):
        build()
    assert (tmp_path / "site").read_text() == "all of it"


def test_an_output_that_cannot_be_written_is_an_error(build: Build, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write the pages") as refused:
        build(name="file/site")
    assert refused.value.code == "LS403"
    with pytest.raises(UsageError, match="cannot write the pages"):
        build(name="nul\0byte")
    with pytest.raises(UsageError, match="cannot write the pages"):
        build(name="n" * 300)


def test_the_target_of_a_link_is_replaced_and_the_link_is_kept(
    build: Build, tmp_path: Path
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "site").symlink_to("real")
    assert build() == tmp_path / "real"
    assert (tmp_path / "site").is_symlink()


def test_a_failure_does_not_change_the_site(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = build()
    before = (site / "index.html").read_bytes()

    def fail(*_: object) -> object:
        raise RuntimeError("in the middle")

    def fill(*_: object) -> object:
        raise OSError(errno.ENOSPC, "No space left on device")

    other = ProjectReport("other", "prod", project().made_at, project().nodes, {})
    monkeypatch.setattr(Pages, "_join", fail)
    with pytest.raises(RuntimeError):
        build(other)
    monkeypatch.setattr(Pages, "_join", fill)
    with pytest.raises(UsageError, match="hint: make room there, or choose another --out"):
        build(other)
    assert (site / "index.html").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["project", "site"]


def test_third_party_assets_have_their_licences(build: Build) -> None:
    assets = build() / "assets"
    assert "uPlot" in (assets / "NOTICE").read_text(encoding="utf-8")
    assert "Permission is hereby granted" in (assets / "uPlot.LICENSE").read_text(encoding="utf-8")


def contents(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text("utf-8", "replace")
        for path in folder.rglob("*")
        if path.is_file() and path.name != MARKER
    }


def site(folder: Path, edition: str, *tables: str) -> Path:
    """Return a complete draft for a folder, with pages that name their edition."""
    folder.mkdir(exist_ok=True)
    draft = new_draft(folder / MARKER)
    for path in ("index.html", "assets/site.css", *(f"tables/{name}.html" for name in tables)):
        (draft / path).parent.mkdir(parents=True, exist_ok=True)
        (draft / path).write_text(edition)
    return draft


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a site of the first edition."""
    path = tmp_path / "site"
    put(site(path, "old", "a", "b"), path)
    return path


KILLED = """
import os, signal, sys
from pathlib import Path
from lancestat.report.site_folder import put
from tests.presentation.site.test_build import site

def main(folder, point):
    draft = site(Path(folder), "new", "b", "c")
    count = 0

    def hook(event, arguments):
        nonlocal count
        if event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "open"):
            count += 1
            if count == point:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    put(draft, Path(folder))
"""


@pytest.mark.fault
def test_pages_open_after_a_kill_at_any_step(tmp_path: Path) -> None:
    """Each is the old page or the new one."""
    folder = tmp_path / "site"
    with forks(KILLED) as process:
        for point in range(1, 200):
            put(site(folder, "old", "a", "b"), folder)
            exit_code = process.call(str(folder), point)
            files = contents(folder)
            pages = {path: text for path, text in files.items() if not path.startswith(".")}
            assert set(pages.values()) <= {"old", "new"}, "each is whole"
            index = pages["index.html"]
            assert index == "old" or "tables/c.html" in pages, "what it names is there"
            assert index == "new" or "tables/a.html" in pages, "what it names is there"
            remove_drafts(folder / MARKER)
            put(site(folder, "newer", "c"), folder)
            assert set(contents(folder).values()) == {"newer"}
            assert sorted(path.name for path in folder.glob(".*")) == [MARKER]
            if exit_code == 0:
                assert point > 5
                return
            assert exit_code == -signal.SIGKILL
    raise AssertionError("it never ends")


def test_files_of_others_are_kept(folder: Path) -> None:
    for path in (".git/config", "CNAME", "tables/notes.html", "deep/er/x"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("mine")
    (folder / "link").symlink_to("CNAME")
    put(site(folder, "new", "b"), folder)
    files = contents(folder)
    assert files == {
        ".git/config": "mine",
        "CNAME": "mine",
        "link": "mine",
        "tables/notes.html": "mine",
        "deep/er/x": "mine",
        "index.html": "new",
        "assets/site.css": "new",
        "tables/b.html": "new",
    }


def test_pages_of_every_kind_are_replaced_and_removed(folder: Path) -> None:
    """Those of near-duplicates once stayed as the first site had them."""
    for edition in ("new", "newer"):
        draft = site(folder, edition)
        (draft / "duplicates").mkdir()
        (draft / "duplicates" / "d.html").write_text(edition)
        put(draft, folder)
        assert contents(folder)["duplicates/d.html"] == edition
    put(site(folder, "newest"), folder)
    assert set(contents(folder)) == {"index.html", "assets/site.css"}


def test_paths_of_the_marker_outside_the_site_are_ignored(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.html").write_text("all of it")
    marker = folder / MARKER
    (folder / "joins").symlink_to(tmp_path)
    mine = "CNAME", "src/main.py"
    for path in mine:
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text("mine")
    listed = "../thesis.html", "/etc/passwd", "index.html/../../x", "joins/thesis.html", *mine
    edited = marker.read_text() + "".join(f"{path}\n" for path in listed)
    marker.write_bytes(edited.encode() + b"\xff\n")
    put(site(folder, "new"), folder)
    assert (tmp_path / "thesis.html").read_text() == "all of it"
    assert [(folder / path).read_text() for path in mine] == ["mine", "mine"]


def test_pages_are_not_written_through_a_link(build: Build, tmp_path: Path) -> None:
    folder = build()
    (tmp_path / "elsewhere").mkdir()
    for path in (folder / "tables").iterdir():
        path.unlink()
    (folder / "tables").rmdir()
    (folder / "tables").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="is a link") as refused:
        build()
    assert refused.value.code == "LS403"
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_folder_of_a_killed_first_run_is_still_accepted(build: Build, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    new_draft(tmp_path / "site" / MARKER).write_text("")
    assert (build() / "index.html").is_file()


def test_no_temporary_files_are_left(build: Build) -> None:
    folder = build()
    build()
    assert sorted(path.name for path in folder.parent.iterdir()) == ["project", "site"]
    assert [path.name for path in folder.glob(".*")] == [MARKER]
