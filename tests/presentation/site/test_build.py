from __future__ import annotations

from pathlib import Path

import pytest

from lancestat.errors import UsageError
from lancestat.presentation.site.build import build_site
from lancestat.presentation.site.pages import Pages
from lancestat.report.site_folder import MARKER
from lancestat.report.values import ProjectReport
from tests.presentation.site.conftest import Build
from tests.presentation.site.reports import project, spec_of, table_report


def test_a_build_returns_its_pages(root: Path, tmp_path: Path) -> None:
    report = project()
    site = build_site(report, spec_of(report, root), tmp_path / "deep" / "er")
    assert site.page == tmp_path / "deep" / "er" / "index.html"
    assert site.pages == len(list((tmp_path / "deep" / "er").rglob("*.html"))) == 8
    assert site.report is report


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

    monkeypatch.setattr(Pages, "_join", fail)
    with pytest.raises(RuntimeError):
        build(ProjectReport("other", "prod", project().made_at, project().nodes, {}))
    assert (site / "index.html").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["project", "site"]


def test_third_party_assets_have_their_licences(build: Build) -> None:
    assets = build() / "assets"
    assert "uPlot" in (assets / "NOTICE").read_text(encoding="utf-8")
    assert "Permission is hereby granted" in (assets / "uPlot.LICENSE").read_text(encoding="utf-8")
