"""Golden files and the profiles of property tests, shared by every area."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest
from hypothesis import settings

from tests.examples import THOROUGH, is_thorough
from tests.hidden_spark import hide_spark

if TYPE_CHECKING:
    from tests.integration.object_store import ObjectStore

# `--hypothesis-profile` names another one.
settings.load_profile(THOROUGH)
# The layout of text does not depend on the terminal or test runner.
os.environ["COLUMNS"] = "100"
# As in Spark's workers. Threads that wait for each other take most of the time of small products.
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

GOLDEN = Path(__file__).parent / "golden"
# Files that take minutes: no process is to begin with one when the others have nothing left.
LONG = (
    "test_short.py",
    "test_connector_jars.py",
    "test_cluster.py",
    "test_smoke.py",
    "test_knn_cluster.py",
    "test_demo.py",
    "test_tutorials.py",
    "test_commands.py",
    "test_notebook.py",
)


def _has_room(folder: str) -> bool:
    try:
        system = os.statvfs(folder)
    except OSError:
        return False
    is_large = system.f_bavail * system.f_frsize > 4 << 30
    return is_large and not system.f_flag & os.ST_NOEXEC


# Tests write thousands of small datasets, which are made in memory in two thirds of the time that
# they take on ext4. The variable is pytest's; what takes gigabytes goes to `disk`.
if _has_room("/dev/shm"):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")


class Golden(Protocol):
    def __call__(self, name: str, text: str) -> None: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in LONG)
    if not is_thorough():
        left_out = [item for item in items if item.get_closest_marker("thorough")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(autouse=True)
def _no_spark_of_other_tests(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hide the Spark that earlier tests have left in this process from those that need none.

    Nor do they find a Java to start one with, as under `make check`.
    """
    markers = {marker.name for marker in request.node.iter_markers()}
    if "spark" not in markers:
        hide_spark(monkeypatch)
    if not markers & {"spark", "fault", "s3", "wheel"}:
        monkeypatch.setenv("JAVA_HOME", "/nonexistent")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare a text with tests/golden/<name>, or write it there under --update-golden."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"no golden file {name}: run pytest --update-golden"
        assert text == path.read_text(encoding="utf-8")

    return compare


@pytest.fixture(scope="module")
def disk() -> Iterator[Path]:
    """A folder that is not in memory, for gigabytes."""
    with tempfile.TemporaryDirectory(prefix="lancestat-tests-") as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """One store for all tests of a process; tests keep apart by `fresh_uri`."""
    from tests.integration.object_store import running_object_store

    with running_object_store(tmp_path_factory.mktemp("object-store")) as store:
        yield store
