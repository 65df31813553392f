"""The default root of scratch."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from lancestat.errors import RunError
from lancestat.joins.scratch.folder import default_root, known_roots, root_for


@pytest.fixture(autouse=True)
def no_local_dirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*,4]", "yarn"])
def test_a_declared_root_is_used_unchanged(master: str) -> None:
    assert root_for("s3://bucket/scratch", master, {}) == "s3://bucket/scratch"


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[2,4]"])
def test_a_local_master_has_a_private_default(master: str, tmp_path: Path) -> None:
    root = Path(root_for(None, master, {"spark.local.dir": f"{tmp_path / 'new'},/elsewhere"}))
    assert root == tmp_path / "new" / f"lancestat-{os.getuid()}"
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "master",
    ["yarn", "k8s://https://h", "spark://h:7077", "local-cluster[2,1,1024]", "localhost", ""],
)
def test_a_cluster_without_shared_scratch_is_an_error(master: str, tmp_path: Path) -> None:
    with pytest.raises(RunError) as caught:
        root_for(None, master, {"spark.local.dir": str(tmp_path)})
    assert caught.value.code == "LS580"
    assert "scratch" in (caught.value.hint or "")
    assert list(tmp_path.iterdir()) == []


def test_local_folders_have_the_precedence_of_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"lancestat-{os.getuid()}"
    assert default_root({}) == Path(tempfile.gettempdir()) / name
    conf = {"spark.local.dir": "/conf"}
    assert default_root(conf) == Path("/conf") / name
    monkeypatch.setenv("SPARK_LOCAL_DIRS", " , /first,/second")
    assert default_root(conf) == Path("/first") / name
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "")
    assert default_root(conf) == Path("/conf") / name
    monkeypatch.chdir(tmp_path)
    assert default_root({"spark.local.dir": "here"}) == tmp_path / "here" / name


@pytest.mark.parametrize("plant", ["link", "file"])
def test_a_planted_default_is_refused(tmp_path: Path, plant: str) -> None:
    conf = {"spark.local.dir": str(tmp_path)}
    (tmp_path / "elsewhere").mkdir()
    if plant == "link":
        default_root(conf).symlink_to(tmp_path / "elsewhere")
    else:
        default_root(conf).write_text("mine")
    with pytest.raises(RunError) as caught:
        root_for(None, "local", conf)
    assert caught.value.code in ("LS582", "LS583")
    assert known_roots(None, conf) == []


def test_a_default_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = {"spark.local.dir": str(tmp_path)}
    monkeypatch.setattr(os, "getuid", lambda: 123_456)
    default_root(conf).mkdir()
    with pytest.raises(RunError) as caught:
        root_for(None, "local", conf)
    assert caught.value.code == "LS582"
    assert known_roots(None, conf) == []


def test_gc_looks_where_joins_may_have_been(tmp_path: Path) -> None:
    conf = {"spark.local.dir": str(tmp_path)}
    assert known_roots(None, conf) == []
    assert known_roots("s3://bucket/scratch", conf) == ["s3://bucket/scratch"]
    default = root_for(None, "local", conf)
    assert known_roots(None, conf) == [default]
    assert known_roots("s3://bucket/scratch", conf) == ["s3://bucket/scratch", default]
    assert known_roots(default, conf) == [default]
