"""Help, and the options that every command has."""

from __future__ import annotations

from pathlib import Path

import pytest

from lancestat import __version__
from lancestat.cli.main import COMMANDS
from tests.cli.conftest import FakeProject, Lancestat
from tests.conftest import Golden

P: dict[str, object] = {"project_dir": Path("p"), "target": "prod", "vars": {"a": 1}}
HERE: dict[str, object] = {"project_dir": Path(), "target": None, "vars": {}}
LATER: dict[str, object] = {"project_dir": Path(), "vars": {"a": 1, "b": 2}}
# As project files are read.
READ = {"on": "yes", "share": 0.5, "n": 10}


@pytest.mark.parametrize(
    ("line", "environment", "loaded"),
    [
        ("plan", {}, HERE),
        ("--target prod --project-dir p --vars a:1 plan", {}, P),
        ("plan --target prod --project-dir p --vars a:1", {}, P),
        ("plan -t prod --project-dir=p --vars {a:1}", {}, P),
        ("--project-dir p plan -t prod --vars a:1", {}, P),
        (
            "-t dev --vars {a:1,b:1} plan -t prod --vars b:2",
            {},
            {**P, **LATER},
        ),
        ("plan", {"TARGET": "prod", "PROJECT_DIR": "p", "VARS": "a: 1"}, P),
        ("-t dev plan", {"TARGET": "prod"}, {**HERE, "target": "dev"}),
        ("plan -t dev", {"TARGET": "prod"}, {**HERE, "target": "dev"}),
        ("plan --vars day:2024-01-01", {}, {**HERE, "vars": {"day": "2024-01-01"}}),
        ("plan --vars {on:yes,share:5e-1,n:010}", {}, {**HERE, "vars": READ}),
        ("plan --vars=", {}, HERE),
    ],
)
def test_global_options(
    line: str,
    environment: dict[str, str],
    loaded: dict[str, object],
    lancestat: Lancestat,
    project: FakeProject,
) -> None:
    """They stand before or after the command, the last wins, and they win over the environment."""
    words = [word.replace(":", ": ").replace(",", ", ") for word in line.split()]
    variables = {f"LANCESTAT_{name}": value for name, value in environment.items()}
    assert lancestat(*words, **variables).exit_code == 0
    assert project.loaded == loaded


def test_the_output_is_that_of_the_environment(lancestat: Lancestat, project: FakeProject) -> None:
    assert lancestat("plan", LANCESTAT_OUTPUT="json").stdout.startswith("{")


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
        LANCESTAT_MAX_BYTES="2 GB",
        LANCESTAT_MAX_MINUTES="1.5",
    )
    assert result.exit_code == 0, result.output
    assert project.asked == {
        "select": ["orders", "tag:nightly"],
        "exclude": ["part"],
        "full_refresh": True,
        "fail_fast": True,
        "threads": 3,
        "max_bytes": 2_000_000_000,
        "max_minutes": 1.5,
    }


@pytest.mark.parametrize(
    "words", [("--max-bytes", "much"), ("--max-bytes", "-1"), ("--max-minutes", "0")]
)
def test_a_budget_that_makes_no_sense_is_wrong_usage(
    lancestat: Lancestat, project: FakeProject, words: tuple[str, str]
) -> None:
    result = lancestat("run", *words)
    assert result.exit_code == 2
    assert words[0] in result.stderr


def test_a_saved_plan_has_its_budget_already(lancestat: Lancestat, project: FakeProject) -> None:
    result = lancestat("run", "--plan-file", "p.json", "--max-minutes", "3")
    assert result.exit_code == 2
    assert "--max-minutes" in result.stderr


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


def test_help_shows_all_commands_in_the_order_of_their_use(
    lancestat: Lancestat, golden: Golden
) -> None:
    golden("cli/help.txt", lancestat("--help", COLUMNS="80").stdout)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_every_command(name: str, lancestat: Lancestat, golden: Golden) -> None:
    result = lancestat(name, "--help", COLUMNS="80")
    assert result.exit_code == 0
    golden(f"cli/help_{name}.txt", result.stdout)


def test_the_version(lancestat: Lancestat) -> None:
    assert lancestat("--version").stdout == f"lancestat {__version__}\n"
