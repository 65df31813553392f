from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Lancestat
from tests.review.conftest import Repository, repository, write
from tests.test_startup import COMMAND, loaded

__all__ = ["repository"]

STRICT = "tables:\n  - {name: orders, uri: orders.lance, columns: [a, b]}\n"
LOOSE = (
    "tables:\n  - {name: orders, uri: orders.lance, columns: [a, b], policy: {allow.stale: true}}\n"
)


@pytest.fixture
def project(repository: Repository, lancestat: Lancestat, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose work tree loosened a policy, as the current folder."""
    repository.commit({"specs/shop.yml": STRICT})
    write(repository.top, {"specs/shop.yml": LOOSE})
    monkeypatch.chdir(repository.top)
    return repository.top


def test_the_page_is_printed_in_three_forms(lancestat: Lancestat, project: Path) -> None:
    text = lancestat("diff", "main")
    assert text.exit_code == 0
    assert "Diff of shop, target dev: main -> the work tree" in text.stdout
    assert "allow.stale  never stale -> any staleness" in text.stdout
    assert text.stderr == ""
    markdown = lancestat("diff", "main", "--output", "markdown")
    assert markdown.stdout.startswith("### lancestat: shop, target dev\n")
    payload = json.loads(lancestat("diff", "main", "--output", "json").stdout)
    assert (payload["format_version"], payload["command"]) == (1, "diff")
    assert payload["risks"] == ["staleness_loosened"]


@pytest.mark.parametrize(
    ("feared", "code"),
    [
        ("staleness_loosened", 3),
        ("coverage_lost, staleness_loosened", 3),
        ("any", 3),
        ("coverage_lost", 0),
        ("", 0),
    ],
)
def test_risks_named_in_fail_on_fail_the_diff(
    lancestat: Lancestat, project: Path, feared: str, code: int
) -> None:
    result = lancestat("diff", "main", "--fail-on", feared)
    assert result.exit_code == code
    assert "staleness_loosened" in result.stdout
    assert lancestat("diff", "main", LANCESTAT_FAIL_ON=feared.replace(" ", "")).exit_code == code


def test_an_unknown_risk_is_wrong_usage(lancestat: Lancestat, project: Path) -> None:
    result = lancestat("diff", "main", "--fail-on", "staleness_losened")
    assert result.exit_code == 2
    assert "LS666  unknown risk 'staleness_losened'" in result.stderr
    assert "did you mean 'staleness_loosened'?" in result.stderr
    assert result.stdout == ""


def test_exit_codes_of_missing_sides(lancestat: Lancestat, project: Path) -> None:
    assert lancestat("diff", "mian").exit_code == 2
    write(project, {"specs/shop.yml": "tables: 3"})
    result = lancestat("diff", "main")
    assert result.exit_code == 1
    assert "specs/shop.yml:1:9" in result.stderr


def test_no_secret_is_shown(lancestat: Lancestat, project: Path) -> None:
    header = (
        "name: shop\nvars: {}\ndefault_target: dev\ntargets:\n  dev:\n"
        "    storage_options: {aws_secret_access_key: hunter2hunter2}\n"
        "    spark: {conf: {spark.hadoop.token: hunter3hunter3}}\n"
    )
    specs = (
        "tables:\n  - name: orders\n    uri: \"{{ env_var('LAKE') }}/orders.lance\"\n"
        "    columns: [a]\n    owner: \"{{ env_var('LAKE') }}\"\n"
        "    description: key hunter2hunter2 of s3://me:hunter4hunter4@lake\n"
        "knn_joins:\n  - name: like\n    k: 3\n    output: {lance: like.lance}\n"
        "    left: {format: jdbc, path: x, options: {password: hunter5hunter5}, vector: v}\n"
        "    right: {vector: v, "
        "sql: \"select '{{ env_var('LAKE') }}' v from {{ ref('orders') }}\"}\n"
    )
    write(project, {"lancestat_project.yml": header, "specs/shop.yml": specs})
    lake = str(project / "hunter6hunter6")
    for form in ("text", "json", "markdown"):
        result = lancestat("diff", "main", "--output", form, LAKE=lake)
        assert result.exit_code == 0, result.stderr
        assert "hunter" not in result.stdout + result.stderr
        assert "env_var('LAKE') }}/orders.lance" in result.stdout
        assert "is not opened" in result.stdout


@pytest.mark.whole
def test_lance_is_loaded_only_to_open_datasets_and_spark_is_never_started(project: Path) -> None:
    engines = {"pyspark", "py4j", "faiss", "polars"}
    readers = {"lance", "pyarrow", "numpy"}
    repository = project.parent / "wider"
    shutil.copytree(project, repository)
    write(repository, {"specs/shop.yml": LOOSE.replace("[a, b]", "[a, b, c]")})
    compare = f"--project-dir {repository} diff main"
    loosened = loaded(COMMAND, ["diff main"], project)
    unopened = loaded(COMMAND, [f"{compare} --no-datasets"], project)
    opened = loaded(COMMAND, [compare], project)
    assert loosened.isdisjoint(engines | readers)
    assert unopened.isdisjoint(engines | readers)
    assert "lance" in opened
    assert opened.isdisjoint(engines)
