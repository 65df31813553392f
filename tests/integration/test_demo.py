"""The demos and the project of `lancestat init` do and print what they promise."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pytest
from numpy.typing import NDArray

from lancestat import Project
from lancestat.scaffold import orders, products, starter_project
from tests.interpreted import short_lived

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLE = Path(__file__).parents[2] / "examples" / "project"

pytestmark = pytest.mark.spark


@dataclass(frozen=True)
class Walk:
    """The output of the demo by step: the text below each heading."""

    folder: Path
    stderr: str
    steps: list[str]

    def line(self, step: int, table: str) -> str:
        """The one line of lancestat's about a table, its spaces made single."""
        pattern = rf"^  [+~=.!] \w+ +{table}\b.*"
        [text] = re.findall(pattern, self.steps[step], flags=re.MULTILINE)
        return " ".join(text.split())


def copied(folder: Path, *names: str) -> Path:
    """Copy examples, since the demos write into their folders; return the folder of all."""
    made = shutil.ignore_patterns("warehouse", ".lancestat", "__pycache__")
    for name in names:
        shutil.copytree(EXAMPLE.parent / name, folder / name, ignore=made)
    return folder


def script(
    folder: Path, name: str, *options: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(folder / name), *options],
        cwd=folder,
        env={
            **os.environ,
            **short_lived(),
            "PYTHONIOENCODING": "utf-8",
            "COLUMNS": "120",
            **environment,
        },
        capture_output=True,
        encoding="utf-8",
    )


def vectors(warehouse: Path, table: str, key: str, vector: str) -> tuple[list[int], NDArray[Any]]:
    """Keys and vectors of the rows that have one."""
    rows = lance.dataset(warehouse / f"{table}.lance").to_table(filter=f"{vector} is not null")
    values = rows[vector].combine_chunks()
    return rows[key].to_pylist(), values.flatten().to_numpy().reshape(len(rows), -1).astype(float)


def norms(rows: NDArray[Any]) -> NDArray[Any]:
    return np.linalg.norm(rows, axis=1)


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copied(tmp_path_factory.mktemp("demo"), "project") / "project"


@pytest.fixture(scope="module")
def loads(example: Path) -> list[str]:
    """The output of a load, and of another after two tables were removed."""
    first = script(example, "load.py", "--scale", "0.002")
    for name in ("nation", "part_name"):
        shutil.rmtree(example / "warehouse" / f"{name}.lance")
    second = script(example, "load.py", "--scale", "0.002")
    for load in (first, second):
        load.check_returncode()
    return [first.stdout, second.stdout]


@pytest.fixture(scope="module")
def walk(example: Path, loads: list[str]) -> Walk:
    # Files of an earlier demo and settings of the user must have no effect.
    (example / ".lancestat" / "state" / "v2" / "runs.0.lance").mkdir(parents=True)
    ended = script(
        *(example, "demo.py", "--scale", "0.01"), LANCESTAT_TARGET="prod", LANCESTAT_OUTPUT="json"
    )
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr
    return Walk(example, ended.stderr, re.split(r"^── .* ─+$", ended.stdout, flags=re.MULTILINE))


def test_the_page_is_plain_text_with_every_step(walk: Walk) -> None:
    assert len(walk.steps) == 1 + 11 + 1
    assert walk.stderr == ""
    lines = "".join(walk.steps).splitlines()
    assert "\x1b" not in "".join(lines)
    assert [line for line in lines if line != line.rstrip()] == []


def test_tables_are_loaded_in_several_fragments_and_kept(walk: Walk, loads: list[str]) -> None:
    rows = re.findall(r"^  (\w+) +([\d,]+) +(\d+) +[\d.]+ MB$", walk.steps[1], flags=re.MULTILINE)
    assert [name for name, _, _ in rows] == [
        *("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem"),
        *("part_name", "inquiry"),
    ]
    assert all(int(fragments) > 1 for _, _, fragments in rows)
    first, second = loads
    assert first.count("written") == 10
    assert re.findall(r"^(\w+) .* written$", second, flags=re.MULTILINE) == ["nation", "part_name"]
    assert second.count("was there") == 8


def test_the_first_run_reads_and_publishes_everything(walk: Walk) -> None:
    planned, ran = walk.steps[3], walk.steps[4]
    assert "$ lancestat plan" in planned and "9 analyze" in planned
    assert "exact, 200 x 2,000 rows" in walk.line(3, "suggestion")
    assert "12 of 12 fragments, 60,175 rows" in walk.line(4, "lineitem")
    assert "version 1 -> 2" in walk.line(4, "lineitem")
    assert "392 thousand pairs version 1" in walk.line(4, "suggestion")
    assert "4 left rows without neighbours" in ran
    assert "8 tables and 1 join brought up to date" in ran
    assert "used: current" in walk.steps[5]
    for step in (4, 10):
        assert "->" not in walk.line(step, "supplier"), "it is not published"


def test_suggestions_are_the_nearest_names_of_all(walk: Walk) -> None:
    warehouse = walk.folder / "warehouse"
    keys, asked = vectors(warehouse, "inquiry", "i_inquirykey", "i_vector")
    _, named = vectors(warehouse, "part_name", "p_partkey", "p_vector")
    distances = 1 - (asked @ named.T) / np.outer(norms(asked), norms(named))
    nearest = np.sort(distances, axis=1)[:, :3]
    suggestions = lance.dataset(warehouse / "suggestion.lance").to_table()
    matched = suggestions.filter(suggestions["_rank"].is_valid())
    assert len(keys) == 198
    assert matched["i_inquirykey"].to_pylist() == np.repeat(keys, 3).tolist()
    np.testing.assert_allclose(matched["_distance"].to_numpy(), nearest.ravel(), atol=1e-6)
    # Inquiries without text are kept without a suggestion.
    unmatched = suggestions.filter(suggestions["_rank"].is_null())
    assert unmatched["i_inquirykey"].to_pylist() == [50, 100, 150, 200]
    assert unmatched["p_name"].null_count == len(unmatched)


def test_suggestions_are_printed_below_their_inquiry(walk: Walk) -> None:
    lines = walk.steps[7].splitlines()
    suggestions = [line for line in lines if re.search(r" [123] +[01]\.\d{3}  \w+( \w+){4}$", line)]
    assert "$ python suggestions.py 1 3 4 50" in lines
    assert "  (a photograph)" in lines
    assert len(suggestions) == 3 * 3


def test_statistics_change_the_estimate_of_a_join(walk: Walk) -> None:
    before, after = walk.steps[2], walk.steps[6]
    assert before.count("refused: absent") == after.count("used: current") == 2

    def joined(step: str) -> int:
        [rows] = re.findall(r"^ *([\d,]+) .* BroadcastHashJoin inner on", step, flags=re.MULTILINE)
        return int(rows.replace(",", ""))

    # Of the 15,000 orders, 1 in 40 is from the first two months.
    assert joined(before) == 1500 * 15_000
    assert 300 <= joined(after) <= 450
    assert "broadcasts its left" in before
    assert "broadcasts its right" in after


PLANNED = {
    "lineitem": "~ refresh lineitem 1 of 13 fragments, ",
    "orders": "~ refresh orders 1 of 6 fragments, ",
    "supplier": "~ refresh supplier 2 of 2 fragments (1 of 7 columns), 100 rows",
    "partsupp": "= restamp partsupp nothing to read",
    "customer": "= restamp customer nothing to read",
    "part": ". skip part policy accepts",
    "nation": ". skip nation unchanged",
    "region": ". skip region unchanged",
    "suggestion": "~ refresh suggestion exact, 2 x 2,000 rows",
}


def test_the_second_run_reads_the_planned_changes_alone(walk: Walk) -> None:
    for table, line in PLANNED.items():
        assert walk.line(9, table).startswith(line)
    planned, ran = (
        re.search(r"^Reads? (\d+) .*?([\d,]+) rows", walk.steps[step], flags=re.MULTILINE)
        for step in (9, 10)
    )
    assert planned is not None and ran is not None
    assert planned[1] == ran[1] == "4"
    assert planned[2] == ran[2]
    assert "5 tables and 1 join brought up to date, 3 unchanged" in walk.steps[10]
    assert "new left rows, 4.0 thousand pairs version 3" in walk.line(10, "suggestion")
    assert "$ lancestat plan --check" in walk.steps[11]
    assert "Nothing to do" in walk.steps[11]


def test_the_summary_sets_both_runs_side_by_side(walk: Walk) -> None:
    assert re.search(r"rows read +86,[\d,]+ of 86,[\d,]+ +3,[\d,]+ of", walk.steps[12])
    assert re.search(r"fragments read +39 of 39 +4 of 34", walk.steps[12])
    assert re.search(r"pairs compared +392,000 of 400,000 +4,000 of 404,000", walk.steps[12])
    assert re.search(r"tables committed to +7 of 8 +4 of 8", walk.steps[12])
    # The last line names the page to open.
    page = walk.folder / ".lancestat" / "docs" / "index.html"
    assert walk.steps[12].split()[-1] == page.as_uri()
    assert "Everything is within policy" in page.read_text(encoding="utf-8")
    lineitem = (page.parent / "tables" / "lineitem.html").read_text(encoding="utf-8")
    assert 'href="#distribution-' in lineitem


@pytest.mark.parametrize(
    "texts", [["", "tan"], ["rosy red", "red rosy", "Rosy  RED"], ["a", "é b"]]
)
def test_a_vector_depends_only_on_the_words_of_its_text(texts: list[str]) -> None:
    embed = runpy.run_path(str(EXAMPLE / "trigrams.py"))["embed"]
    together = embed(texts)
    words = [sum(embed([word])[0] for word in text.split()) for text in texts]
    np.testing.assert_array_equal(together, np.array([np.zeros(64) + number for number in words]))
    assert np.abs(together[1:]).sum(axis=1).all()


def test_without_java_the_demo_stops_with_one_line_before_any_work(tmp_path: Path) -> None:
    folder = copied(tmp_path, "project") / "project"
    ended = script(folder, "demo.py", "--scale", "0.01", JAVA_HOME=str(tmp_path / "nowhere"))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "JAVA_HOME" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (folder / "warehouse").exists()


@pytest.mark.thorough
def test_the_demo_of_duplicates_finds_what_was_planted(tmp_path: Path) -> None:
    examples = copied(tmp_path, "project", "duplicates")
    demo = examples / "duplicates" / "demo.py"
    demo.write_text(
        demo.read_text("utf-8").replace("COPIES = 20_000, 600", "COPIES = 3_000, 200"), "utf-8"
    )
    ended = script(examples / "duplicates", "demo.py")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "3,000 products and 200 copies" in ended.stdout
    assert "every pair of rows of the table is to be compared, once, and the result has all" in (
        " ".join(ended.stdout.split())
    )
    assert "Nothing to do" in ended.stdout
    made = examples / "duplicates" / ".lancestat"
    pairs = lance.dataset(str(made / "same_product_pairs.lance"))
    pairs = pairs.to_table(columns=["id", "id_right"])
    found = set(zip(pairs["id"].to_pylist(), pairs["id_right"].to_pylist(), strict=True))
    products = lance.dataset(str(made / "product.lance")).to_table()
    vectors = products["vector"].combine_chunks().flatten().to_numpy().reshape(len(products), -1)
    unit = vectors.astype(float) / np.linalg.norm(vectors.astype(float), axis=1, keepdims=True)
    distances = 1 - unit @ unit.T
    # A pair that is so near to the limit may be on either side of it in float32.
    sure = set(zip(*np.nonzero(np.triu(distances < 0.15 - 1e-6, 1)), strict=True))
    likely = set(zip(*np.nonzero(np.triu(distances < 0.15 + 1e-6, 1)), strict=True))
    assert len(sure) > 200
    assert sure <= found <= likely
    assert "are found whole" in ended.stdout
    groups = lance.dataset(str(made / "same_product.lance")).to_table()
    assert set(groups["id"].to_pylist()) == {id for pair in found for id in pair}


def test_a_new_project_runs_its_join_and_answers_queries(
    spark: SparkSession, tmp_path: Path
) -> None:
    starter_project().write(tmp_path)
    joins = tmp_path / "specs" / "knn_joins.yml"
    joins.with_suffix(".yml.example").rename(joins)
    project = Project.load(tmp_path)
    assert project.run(session=spark).status.value == "success"

    rows = lance.dataset(tmp_path / "sample" / "similar_products.lance").to_table()
    found: dict[str, set[str]] = {}
    for row in rows.to_pylist():
        found.setdefault(row["name"], set()).add(row["name_right"])
    names = products()["name"].to_pylist()
    vectors = np.array(products()["embedding"].to_pylist())
    distances = np.linalg.norm(vectors[:, None] - vectors[None], axis=2)
    nearest = np.argsort(distances, axis=1)[:, :3]
    assert found == {
        name: {names[other] for other in row} for name, row in zip(names, nearest, strict=True)
    }

    assert project.attach(spark).views == ("orders", "products")
    try:
        answer = spark.sql(
            "select category, count(*) as orders from orders join products using (product_id)"
            " group by category"
        ).collect()
    finally:
        for view in ("orders", "products"):
            spark.catalog.dropTempView(view)
    categories = products().select(["product_id", "category"])
    joined = orders().join(categories, "product_id")
    expected = joined.group_by("category").aggregate([([], "count_all")])
    assert {row["category"]: row["orders"] for row in answer} == {
        row["category"]: row["count_all"] for row in expected.to_pylist()
    }
