from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import FakeProject, Lancestat


@pytest.mark.parametrize(
    "args",
    [
        ("--target", "prod", "--project-dir", "p", "--vars", "a: 1", "plan"),
        ("plan", "--target", "prod", "--project-dir", "p", "--vars", "a: 1"),
        ("plan", "-t", "prod", "--project-dir=p", "--vars", "{a: 1}"),
        ("--project-dir", "p", "plan", "-t", "prod", "--vars", "a: 1"),
    ],
)
def test_global_options_stand_before_or_after_the_command(
    args: tuple[str, ...], lancestat: Lancestat, project: FakeProject
) -> None:
    assert lancestat(*args).exit_code == 0
    assert project.loaded == {"project_dir": Path("p"), "target": "prod", "vars": {"a": 1}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("day: 2024-01-01", {"day": "2024-01-01"}),
        ("{on: yes, share: 5e-1, n: 010}", {"on": "yes", "share": 0.5, "n": 10}),
        (" ", {}),
    ],
)
def test_vars_are_read_as_project_files_are(
    text: str, expected: dict[str, object], lancestat: Lancestat, project: FakeProject
) -> None:
    assert lancestat("plan", "--vars", text).exit_code == 0
    assert project.loaded["vars"] == expected


def test_later_options_win_and_vars_accumulate(lancestat: Lancestat, project: FakeProject) -> None:
    args = ("-t", "dev", "--vars", "{a: 1, b: 1}", "plan", "-t", "prod", "--vars", "b: 2")
    assert lancestat(*args).exit_code == 0
    assert project.loaded["target"] == "prod"
    assert project.loaded["vars"] == {"a": 1, "b": 2}


def test_without_options_the_current_folder_and_the_default_target_are_used(
    lancestat: Lancestat, project: FakeProject
) -> None:
    assert lancestat("plan").exit_code == 0
    assert project.loaded == {"project_dir": Path(), "target": None, "vars": {}}


def test_every_global_option_reads_the_environment(
    lancestat: Lancestat, project: FakeProject
) -> None:
    result = lancestat(
        "plan",
        LANCESTAT_TARGET="prod",
        LANCESTAT_PROJECT_DIR="p",
        LANCESTAT_VARS="a: 1",
        LANCESTAT_OUTPUT="json",
    )
    assert result.stdout.startswith("{")
    assert project.loaded == {"project_dir": Path("p"), "target": "prod", "vars": {"a": 1}}


@pytest.mark.parametrize("args", [("-t", "dev", "plan"), ("plan", "-t", "dev")])
def test_options_win_over_the_environment(
    args: tuple[str, ...], lancestat: Lancestat, project: FakeProject
) -> None:
    assert lancestat(*args, LANCESTAT_TARGET="prod").exit_code == 0
    assert project.loaded["target"] == "dev"


def test_a_commands_own_options_read_the_environment_without_its_name(
    lancestat: Lancestat, project: FakeProject
) -> None:
    result = lancestat(
        "run",
        LANCESTAT_SELECT="orders tag:nightly",
        LANCESTAT_EXCLUDE="part",
        LANCESTAT_FULL_REFRESH="true",
        LANCESTAT_FAIL_FAST="1",
        LANCESTAT_THREADS="3",
        LANCESTAT_RUN_THREADS="5",
    )
    assert result.exit_code == 0, result.output
    assert project.asked == {
        "select": ["orders", "tag:nightly"],
        "exclude": ["part"],
        "full_refresh": True,
        "fail_fast": True,
        "threads": 3,
    }


def test_quiet_and_verbose_may_come_from_the_environment(
    lancestat: Lancestat, project: FakeProject
) -> None:
    project.failure = ZeroDivisionError("by zero")
    assert "Traceback" in lancestat("plan", LANCESTAT_VERBOSE="1").stderr
    assert "Traceback" not in lancestat("plan", LANCESTAT_VERBOSE="0").stderr


def test_several_selects_are_one_union(lancestat: Lancestat, project: FakeProject) -> None:
    assert lancestat("plan", "-s", "a b", "-s", "c").exit_code == 0
    assert project.asked["select"] == ["a b", "c"]
    assert project.asked["exclude"] is None


def test_the_limit_is_that_of_the_environment(lancestat: Lancestat, tmp_path: Path) -> None:
    (tmp_path / "specs").mkdir()
    (tmp_path / "lancestat_project.yml").write_text("name: shop\ntargets: {dev: {state: s}}\n")
    name = "orders_of_all_customers_and_all_years_in_one_table"
    (tmp_path / "specs" / "shop.yml").write_text(f"tables: [{{name: {name}, uri: a}}]\n")
    narrow = lancestat("list", COLUMNS="60").stdout.splitlines()
    assert max(map(len, narrow)) <= 60
    wide = lancestat("list").stdout.splitlines()
    assert max(map(len, wide)) > 60
    assert name in wide[1]
