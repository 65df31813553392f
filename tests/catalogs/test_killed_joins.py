"""Results of joins in catalogs that own versions, whose runs are killed around the commit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from lancestat.errors import UnannouncedVersion
from lancestat.joins.output.result import output_at, output_of
from lancestat.joins.record import OutputFormat, OutputState
from lancestat.lake.catalog_tables import LocatedTable, declare
from lancestat.spec.catalog import Catalog, TableName
from tests.catalogs.serving import served
from tests.catalogs.shops import SERVING, Shop
from tests.catalogs.test_managed import Kill as KillRun
from tests.catalogs.test_managed import kill as kill_run
from tests.catalogs.test_managed import shop
from tests.examples import each
from tests.forks import forks
from tests.interpreted import short_lived
from tests.joins.search.results import NO_LINES, SCHEMA, rows, table

__all__ = ["kill_run", "shop"]

LANCE = OutputFormat.LANCE
NEAREST = TableName("lake", ("sales", "nearest"))
BEFORE = rows(0, 4)
NEW = rows(4, 9)

# The steps of a run after which nothing is left but the commit, and the clean-up behind it.
KILLED = """
import os, signal
import lance
from tests.catalogs.test_killed_joins import join
from tests.catalogs.shops import Shop
from pathlib import Path

commit = lance.LanceDataset.commit

def main(folder, impl, properties, change, when):
    def killed(*args, **options):
        if when == "before the commit":
            os.kill(os.getpid(), signal.SIGKILL)
        committed = commit(*args, **options)
        if when == "after the commit":
            os.kill(os.getpid(), signal.SIGKILL)
        return committed

    lance.LanceDataset.commit = staticmethod(killed)
    join(Shop(Path(folder), impl, properties), change)
"""


def place_of(shop: Shop) -> LocatedTable:
    return declare(Catalog(shop.impl, shop.properties), NEAREST, {})


def place_in(shop: Shop) -> tuple[str, Mapping[str, str]]:
    place = place_of(shop)
    return place.uri, place.options


def join(shop: Shop, change: str) -> OutputState:
    """Write rows as a run of a join does: all of them, or those that follow the last result."""
    place = place_of(shop)
    previous = output_at(LANCE, place.uri, place.options).current()
    writer = output_at(LANCE, place.uri, place.options).begin("run")
    try:
        if change == "append":
            assert previous is not None
            if previous.rows > BEFORE.num_rows:
                return previous
            written = [output_of(writer).write(writer, 0, SCHEMA, [NEW])]
            return output_of(writer).update(writer, SCHEMA, previous, NO_LINES, written)
        written = [
            output_of(writer).write(writer, 0, SCHEMA, [BEFORE]),
            output_of(writer).write(writer, 1, SCHEMA, [NEW]),
        ]
        return output_of(writer).replace(writer, SCHEMA, written)
    except BaseException:
        output_of(writer).discard(writer)
        raise


def first_result(shop: Shop) -> None:
    place = place_of(shop)
    writer = output_at(LANCE, place.uri, place.options).begin("first")
    output_of(writer).replace(
        writer, SCHEMA, [output_of(writer).write(writer, 0, SCHEMA, [BEFORE])]
    )


Kill = Callable[..., None]


@pytest.fixture(scope="module")
def kill() -> Iterator[Kill]:
    """Join a change in a process that is killed."""
    with forks(KILLED) as process:

        def kill(shop: Shop, change: str, when: str, **more: str) -> None:
            properties = {**shop.properties, **more}
            ended = process.call(str(shop.folder), shop.impl, properties, change, when)
            assert ended == -signal.SIGKILL

        yield kill


def seen(shop: Shop) -> pa.Table | None:
    """The rows that readers of the catalog see; None before there are any."""
    if not list(Path(place_of(shop).uri).glob("_versions/*.manifest")):
        return None
    try:
        return shop.read("sales", "nearest").to_table().replace_schema_metadata()
    except (OSError, ValueError, RuntimeError):
        return None


def check_whole(shop: Shop) -> None:
    """The catalog and the folder have the same versions, all of them, and no other files."""
    dataset = shop.read("sales", "nearest")
    assert seen(shop) == table(BEFORE, NEW)
    numbers = [version["version"] for version in dataset.versions()]
    assert numbers == list(range(1, dataset.version + 1))
    folder = Path(place_of(shop).uri)
    assert len(list(folder.glob("_versions/*.manifest"))) == len(numbers)
    named = {
        file.path
        for number in numbers
        for fragment in dataset.checkout_version(number).get_fragments()
        for file in fragment.metadata.files
    }
    assert {path.name for path in folder.glob("data/*")} == named
    assert not (folder / "_lancestat").exists()


@pytest.mark.fault
@pytest.mark.parametrize(
    ("shop", "change", "when"),
    each(
        ["dir", "serving"],
        ["create", "replace", "append"],
        ["before the commit", "after the commit"],
    ),
    indirect=["shop"],
)
def test_a_join_killed_around_its_commit_is_mended_by_the_next(
    kill: Kill, shop: Shop, change: str, when: str
) -> None:
    if change != "create":
        first_result(shop)
    before = seen(shop)
    kill(shop, change, when)
    assert seen(shop) == (before if when == "before the commit" else table(BEFORE, NEW))
    join(shop, change)
    check_whole(shop)


@pytest.mark.fault
@pytest.mark.parametrize(
    ("change", "dies"), each(["create", "replace", "append"], ["before", "after"])
)
def test_a_join_killed_before_or_after_its_announcement_is_mended_by_the_next(
    kill: Kill, tmp_path: Path, change: str, dies: str
) -> None:
    properties = {"root": str(tmp_path / "lake"), "managed": "true"}
    shop = Shop(tmp_path, SERVING, properties)
    shop.create("sales", "orders")
    if change != "create":
        first_result(shop)
    before = seen(shop)
    kill(shop, change, "", dies=dies)
    assert seen(shop) == (before if dies == "before" else table(BEFORE, NEW))
    join(shop, change)
    check_whole(shop)


@pytest.fixture
def cut_off(tmp_path: Path) -> Shop:
    """A shop with a first result, in whose catalog versions can be cut off from their names."""
    shop = Shop(tmp_path, SERVING, {"root": str(tmp_path / "lake"), "managed": "true"})
    shop.create("sales", "orders")
    return shop


def unknown_version(shop: Shop, number: int) -> Path:
    """A version that is in its place, and that the catalog does not know."""
    return Path(place_of(shop).uri, "_versions", f"{2**64 - 1 - number}.manifest")


@pytest.mark.fault
@pytest.mark.parametrize("remedy", ["removed", "taken on"])
def test_rows_whose_announcement_is_cut_off_wait_for_either_remedy(
    kill: Kill, cut_off: Shop, remedy: str
) -> None:
    """The next run commits nothing over them, nor takes away files that they need."""
    first_result(cut_off)
    kill(cut_off, "append", "", dies="within")
    assert seen(cut_off) == table(BEFORE)
    for _ in range(2):
        with pytest.raises(UnannouncedVersion, match="version 2 lies"):
            join(cut_off, "append")
        assert seen(cut_off) == table(BEFORE)
    manifest = unknown_version(cut_off, 2)
    if remedy == "removed":
        manifest.unlink()
        for staged in manifest.parent.glob(f"{manifest.name}-*"):
            staged.unlink()
    else:
        known = served(cut_off.root) / "versions-sales%24nearest.json"
        versions = json.loads(known.read_text())
        versions["2"] = {
            **versions["1"],
            "version": 2,
            "manifest_path": str(manifest).lstrip("/"),
            "manifest_size": manifest.stat().st_size,
        }
        known.write_text(json.dumps(versions))
        assert seen(cut_off) == table(BEFORE, NEW)
    join(cut_off, "append")
    output_at(LANCE, *place_in(cut_off)).collect_garbage()
    check_whole(cut_off)


@pytest.mark.fault
def test_a_whole_result_lands_over_one_whose_announcement_is_cut_off(
    kill: Kill, cut_off: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """The folder keeps its version with all its files, for those who read past the catalog."""
    first_result(cut_off)
    kill(cut_off, "replace", "", dies="within")
    assert seen(cut_off) == table(BEFORE)
    join(cut_off, "replace")
    assert seen(cut_off) == table(BEFORE, NEW)
    past = lance.dataset(place_of(cut_off).uri)
    assert past.to_table().replace_schema_metadata() == table(BEFORE, NEW)
    unknown_version(cut_off, 2).unlink()
    output_at(LANCE, *place_in(cut_off)).collect_garbage()
    assert not Path(place_of(cut_off).uri, "_lancestat").exists()
    join(cut_off, "replace")
    assert seen(cut_off) == table(BEFORE, NEW)
    assert not [entry for entry in caplog.records if entry.name == "lancestat.knn"]


@pytest.mark.fault
def test_a_first_result_whose_announcement_is_cut_off_is_left_alone(
    kill: Kill, cut_off: Shop
) -> None:
    """Lance opens it as the latest version, and does not find it by its number."""
    kill(cut_off, "create", "", dies="within")
    with pytest.raises(UnannouncedVersion, match="version 1 lies"):
        join(cut_off, "create")
    unknown_version(cut_off, 1).unlink()
    join(cut_off, "create")
    check_whole(cut_off)


@pytest.mark.thorough
@pytest.mark.fault
@pytest.mark.spark
@pytest.mark.parametrize("shop", ["dir"], indirect=True)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_run_killed_around_the_commit_of_its_join_is_mended_by_the_next(
    kill_run: KillRun, shop: Shop, when: str
) -> None:
    shop.declare_joins(nearest={"table": "lake.sales.nearest"})
    kill_run(shop, when, "nearest")
    landed = 0 if when == "before" else 1
    assert len(list(Path(place_of(shop).uri).glob("_versions/*.manifest"))) == landed
    ended = subprocess.run(
        [sys.executable, "-m", "lancestat", "--project-dir", str(shop.folder), "run"],
        env={**os.environ, **short_lived()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    dataset = shop.read("sales", "nearest")
    found = sorted(
        (row["item"], row["item_right"], row["_distance"]) for row in dataset.to_table().to_pylist()
    )
    assert found == nearest_items()
    numbers = [version["version"] for version in dataset.versions()]
    assert numbers == list(range(1, dataset.version + 1))
    # A result that has landed and that no record tells of is made once more.
    assert dataset.version == 1 + landed
    assert "Nothing to do" in shop.lancestat("plan").output
    assert not Path(place_of(shop).uri, "_lancestat").exists()


def nearest_items() -> list[tuple[int, int, float]]:
    """Both nearest items of each of the squares from 0 to 11, by comparing all pairs."""
    places = np.arange(12, dtype=np.float64) ** 2
    distances = (places[:, None] - places[None, :]) ** 2
    order = np.lexsort((np.broadcast_to(np.arange(12), (12, 12)), distances), axis=1)[:, :2]
    return sorted(
        (item, int(other), float(distances[item, other]))
        for item in range(12)
        for other in order[item]
    )
