"""Lance tables as relations of real Spark: what they read, and how Spark plans them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pyspark
import pytest

import lancestat
from lancestat.errors import InvalidReadOption, RunError
from lancestat.query.read.relation import attach_views
from lancestat.spark import compiler, versions
from lancestat.spark.compiler import compile_jar, relation_classes
from lancestat.spark.failure import carried_error
from tests.examples import each, sample
from tests.integration.planned import executed, planned
from tests.interpreted import compiled
from tests.query.read.arrow_values import CASES, plain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ADAPTIVE = "spark.sql.adaptive.enabled"
SECRET = "a-value-that-nobody-may-see"


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """1,000 rows in four fragments, of which each tenth is deleted."""
    uri = str(tmp_path_factory.mktemp("relation") / "t.lance")
    rows = [
        {
            "id": id,
            "k": id % 5,
            "s": f"row {id}",
            "d": Decimal(id).scaleb(-2),
            "n": {"a": id, "b": {"c": f"deep {id}"}},
            "l": [id, None],
        }
        for id in range(1_000)
    ]
    table = pa.Table.from_pylist(rows)
    lance.write_dataset(table, uri, max_rows_per_file=250).delete("id % 10 = 3")
    return uri


LIVE = [id for id in range(1_000) if id % 10 != 3]


@pytest.fixture
def view(spark: SparkSession, uri: str) -> Iterator[DataFrame]:
    frame = lancestat.read_table(spark, uri)
    frame.createOrReplaceTempView("t")
    yield frame
    spark.catalog.dropTempView("t")


def expected(value: Any, spark_type: str) -> Any:
    if spark_type.startswith("map") and value is not None:
        return dict(value)
    if spark_type == "timestamp" and value is not None:
        # Python is shown instants in its own zone.
        utc: datetime = value.replace(tzinfo=timezone.utc)
        return utc.astimezone().replace(tzinfo=None)
    return value


# Before 4.1 Spark has no times of day.
READ = {
    name: case
    for name, case in CASES.items()
    if versions.has_time_type() or not case.spark_type.startswith("time(")
}


# So few columns that Spark compiles a scan of them.
AT_ONCE = 8


@pytest.mark.parametrize(
    ("first", "is_compiled"), each(range(0, len(READ), AT_ONCE), [True, False])
)
def test_every_type_is_collected_as_lance_has_it(
    spark: SparkSession, tmp_path: Path, first: int, is_compiled: bool
) -> None:
    cases = {name: READ[name] for name in list(READ)[first : first + AT_ONCE]}
    most = max(len(case.column) for case in cases.values())
    columns = {
        name: pa.concat_arrays([case.column, pa.nulls(most - len(case.column), case.column.type)])
        for name, case in cases.items()
    }
    table = pa.table({**columns, "place": range(most)})
    lance.write_dataset(table, tmp_path, data_storage_version="2.2")
    session = compiled(spark) if is_compiled else spark.newSession()
    frame = lancestat.read_table(session, str(tmp_path))

    rows = frame.collect()
    assert ("*(1)" in executed(frame)) == is_compiled
    for name, case in cases.items():
        assert frame.schema[name].dataType.simpleString() == case.spark_type
        values = [plain(row[name]) for row in rows[: len(case.values)]]
        wanted = [expected(value, case.spark_type) for value in case.values]
        assert repr(values) == repr(wanted), name


def test_columns_that_spark_cannot_read_are_left_out(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    big = pa.array([Decimal(1)], pa.decimal256(50, 0))
    lance.write_dataset(pa.table({"id": [1], "big": big, "back`tick": [2], "*": [3]}), tmp_path)
    frame = lancestat.read_table(spark, str(tmp_path))
    assert [row.asDict() for row in frame.collect()] == [{"id": 1}]
    assert "column 'big'" in caplog.text
    assert "column 'back`tick'" in caplog.text


@pytest.mark.parametrize(
    "name",
    sample(["select", "a b", "Ünï", 'quo"te', "UPPER", "1x", "a.b", "_rowid_", "new\nline"], 5),
)
def test_odd_names_are_read_and_filtered(spark: SparkSession, tmp_path: Path, name: str) -> None:
    try:
        lance.write_dataset(pa.table({name: [1, 2, None], "other": [3, 4, 5]}), tmp_path)
    except Exception:
        assert name == "a.b", "Lance takes all but dots"
        return
    frame = lancestat.read_table(spark, str(tmp_path))
    column = frame[f"`{name}`"]
    assert [row[0] for row in frame.select(column).collect()] == [1, 2, None]
    assert frame.where(column > 1).collect() == [(2, 4)]


def test_names_that_differ_only_by_case_are_read(spark: SparkSession, tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"a": [1, 2], "A": [30, 40]}), tmp_path)
    session = spark.newSession()
    session.conf.set("spark.sql.caseSensitive", "true")
    frame = lancestat.read_table(session, str(tmp_path))
    assert frame.where("A > 30").select("A", "a").collect() == [(40, 2)]


def test_rows_without_columns_are_counted(spark: SparkSession, view: DataFrame) -> None:
    assert view.count() == len(LIVE)
    assert view.where("k = 2").count() == sum(id % 5 == 2 for id in LIVE)
    assert spark.sql("select 1 from t limit 7").collect() == [(1,)] * 7
    assert spark.sql("select count(*) from (select * from t limit 300)").collect() == [(300,)]
    counted = view.groupBy().count()
    assert "[]" in executed(counted), "no column is read"


def test_only_the_columns_and_filters_of_a_query_are_passed_to_the_scan(view: DataFrame) -> None:
    query = view.where("k = 2 and s like 'row 1%' and id + 1 > 5").select("d")
    scan = next(line for line in executed(query).splitlines() if "BatchScan" in line)
    assert "[id#" in scan and "k#" in scan and "s#" in scan and "d#" in scan
    assert "n#" not in scan and "l#" not in scan
    assert "EqualTo(k,2), StringStartsWith(s,row 1)" in scan
    assert "Filter" in executed(query), "Spark applies them once more"
    assert [row.d for row in query.collect()] == [
        Decimal(id).scaleb(-2) for id in LIVE if id % 5 == 2 and str(id)[0] == "1" and id > 4
    ]


def test_members_of_structs_are_read(view: DataFrame) -> None:
    query = view.where("n.b.c = 'deep 42'").select("n.a", "n.b.c", "l")
    assert query.collect() == [(42, "deep 42", [42, None])]


def test_a_limit_reaches_the_scan(spark: SparkSession, view: DataFrame) -> None:
    assert [row.id for row in view.limit(4).collect()] == [0, 1, 2, 4]
    assert "PushedLimit: 4" in executed(view.limit(4))
    assert view.limit(0).collect() == []
    assert view.limit(10_000).count() == len(LIVE)
    few = spark.sql("select * from (select id from t limit 600) where id < 10")
    assert {row.id for row in few.collect()} <= set(LIVE)
    filtered = spark.sql("select id from t where k = 1 limit 3")
    assert [row.id for row in filtered.collect()] == [1, 6, 11]
    assert "PushedLimit" not in executed(filtered), "it counts what the filter leaves"


def test_a_cached_table_is_read_once(spark: SparkSession, uri: str) -> None:
    frame = lancestat.read_table(spark, uri)
    frame.createOrReplaceTempView("cached")
    try:
        spark.catalog.cacheTable("cached")
        query = spark.sql("select sum(id), count(d) from cached where k = 2")
        wanted = [id for id in LIVE if id % 5 == 2]
        assert query.collect() == [(sum(wanted), len(wanted))]
        assert "InMemoryRelation" in executed(query)
        assert "InMemoryRelation" in executed(frame.select("id")), "it is the same relation"
    finally:
        spark.catalog.uncacheTable("cached")
        spark.catalog.dropTempView("cached")


def test_equal_scans_are_exchanged_once(spark: SparkSession, view: DataFrame) -> None:
    spark.conf.set(ADAPTIVE, "false")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    try:
        grouped = view.where("k > 0").groupBy("id").count()
        joined = grouped.alias("a").join(grouped.alias("b"), "id")
        assert executed(joined).count("ReusedExchange") == 1
        assert joined.count() == sum(id % 5 > 0 for id in LIVE)
        other = view.where("k > 1").groupBy("id").count()
        assert "ReusedExchange" not in executed(grouped.alias("a").join(other.alias("b"), "id"))
    finally:
        spark.conf.unset(ADAPTIVE)
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")


def test_sessions_of_one_spark_share_compiled_classes(
    spark: SparkSession, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = relation_classes(spark)
    monkeypatch.setattr(compiler, "compile_jar", None)
    other = spark.newSession()
    assert relation_classes(other) is first
    assert lancestat.read_table(other, uri).count() == len(LIVE)


def test_a_compile_error_names_its_location(spark: SparkSession) -> None:
    text = "package lancestat.relation;\nclass Broken { int x = y; }"
    with pytest.raises(RunError, match=r"'Broken\.java', Line 2, Column 24: .*\"y\"") as bad:
        compile_jar(spark, {"Broken.java": text})
    assert bad.value.code == "LS530"


def test_javac_prints_no_warnings(spark: SparkSession, tmp_path: Path) -> None:
    for name, text in versions.java_sources(spark, compiler.sources()).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    jars = Path(pyspark.__file__).with_name("jars")
    home = os.environ.get("JAVA_HOME")
    javac = str(Path(home) / "bin" / "javac") if home else "javac"
    assert shutil.which(javac), "this test needs a JDK; Spark itself runs on a JRE"
    # Derby's jar names others in its manifest that nobody ships: [path]. So do annotations of
    # Arrow's classes: [classfile].
    checked = subprocess.run(
        [
            *(javac, "-Xlint:all,-path,-classfile", "-Werror", "-proc:none"),
            *("-d", tmp_path, "-classpath", f"{jars}/*"),
            *sorted(tmp_path.glob("*.java")),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def damaged(tmp_path: Path) -> str:
    dataset = lance.write_dataset(pa.table({"id": range(100)}), tmp_path, max_rows_per_file=50)
    broken = tmp_path / "data" / dataset.get_fragments()[1].metadata.files[0].path
    broken.write_bytes(b"\0" * broken.stat().st_size)
    return str(tmp_path)


def test_an_unreadable_fragment_is_one_error(spark: SparkSession, tmp_path: Path) -> None:
    frame = lancestat.read_table(
        spark, damaged(tmp_path), storage_options={"aws_secret_access_key": SECRET}
    )
    with pytest.raises(Exception, match="LS204  fragment 1 at version 1") as bad:
        frame.collect()
    error = carried_error(str(bad.value))
    assert error is not None
    assert error.code == "LS204"
    assert "Traceback" not in str(bad.value)
    assert SECRET not in str(bad.value)
    assert frame.where("id < 50").limit(1).collect() in ([(0,)], [])


def test_secrets_are_only_in_pickled_functions(spark: SparkSession, uri: str) -> None:
    frame = lancestat.read_table(spark, uri, storage_options={"aws_secret_access_key": SECRET})
    frame.createOrReplaceTempView("secretive")
    explained = spark.sql("explain extended select * from secretive where k = 1").collect()[0][0]
    spark.catalog.dropTempView("secretive")
    assert SECRET not in explained
    assert SECRET not in frame._jdf.queryExecution().toString()
    assert SECRET not in str(spark.sparkContext.getConf().getAll())


def workers() -> set[int]:
    """The Python workers of this process's Spark: children of its daemon."""
    parents, daemons = {}, set()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            parents[int(path.name)] = int(fields[1])
            if b"pyspark.worker" in (path / "cmdline").read_bytes():
                daemons.add(int(path.name))
        except OSError:
            continue

    def is_ours(pid: int) -> bool:
        while pid in parents and pid != os.getpid():
            pid = parents[pid]
        return pid == os.getpid()

    return {pid for pid in daemons if parents[pid] in daemons and is_ours(pid)}


def test_a_limit_leaves_the_workers_alive(spark: SparkSession, view: DataFrame) -> None:
    view.collect()
    before = workers()
    assert before
    for _ in range(3):
        assert len(spark.sql("select * from t where k = 1 limit 2").collect()) == 2
        assert len(view.limit(3).collect()) == 3
    # Those that earlier tests have left may end meanwhile; none takes the place of another.
    left = workers()
    assert left and left <= before


def test_planning_makes_each_request_once(view: DataFrame, asked: list[dict[str, Any]]) -> None:
    query = view.where("k = 1").select("id")
    planned(query)
    planned(query)
    query.collect()
    query.collect()
    assert [request["op"] for request in asked] == ["covers", "estimate", "parts"]
    assert asked[2]["columns"] == ["id", "k"]
    assert (asked[2]["cores"], asked[2]["limit"], asked[2]["narrow"]) == (2, None, True)


@pytest.mark.parametrize("before", ["", "x"])
def test_long_questions_arrive_whole(
    view: DataFrame, asked: list[dict[str, Any]], before: str
) -> None:
    # Each character is a pair of units in the JVM, where questions are cut.
    text = before + "\N{GRINNING FACE}" * 5_000
    rows = view.where(view.s.isin("row 7", text)).collect()
    assert [row.id for row in rows] == [7]
    values = [filter["values"] for call in asked for filter in call.get("filters", ())]
    assert ["row 7", text] in values


def test_settings_are_those_of_the_session_and_the_scan(
    spark: SparkSession, uri: str, asked: list[dict[str, Any]]
) -> None:
    key = "spark.lance.cbo.column.stats.enabled"
    options = {"CBO.column.stats.allow.stale": "true"}
    session = spark.newSession()
    session.conf.set(key, "false")
    planned(lancestat.read_table(session, uri, options=options).select("id"))
    assert asked[-1]["conf"] == {key: "false"}
    assert asked[-1]["options"] == {"cbo.column.stats.allow.stale": "true"}
    planned(lancestat.read_table(spark.newSession(), uri).select("id"))
    assert asked[-1]["conf"] == {}
    assert asked[-1]["options"] == {}


def test_a_misspelt_option_of_scans_is_refused(spark: SparkSession, uri: str) -> None:
    for name, hint in (
        ("aggregate.pushdown.enable", "did you mean 'aggregate.pushdown.enabled'?"),
        ("bogus", "options: cbo.column.stats.enabled, cbo.column.stats.allow.stale, "),
    ):
        with pytest.raises(InvalidReadOption, match=f"scans have no option '{name}'") as refused:
            lancestat.read_table(spark, uri, options={name: "false"})
        assert str(refused.value.hint).startswith(hint)
        with pytest.raises(InvalidReadOption):
            attach_views(spark, {}, options={name: "false"})


# A literal of each type in SQL, as the JVM hands it over, and the type of the column.
LITERALS = {
    "boolean": ("true", "true", pa.bool_()),
    "tinyint": ("-3Y", "-3", pa.int8()),
    "bigint": ("9223372036854775807", "9223372036854775807", pa.int64()),
    "float": ("float('NaN')", "NaN", pa.float32()),
    "double": ("1e300", "1.0E300", pa.float64()),
    "decimal(5,2)": ("cast(-0.5 as decimal(5,2))", "-0.50", pa.decimal128(5, 2)),
    "decimal(38,10)": ("cast('1e-10' as decimal(38,10))", "0.0000000001", pa.decimal128(38, 10)),
    "string": ("'ü\\'\\\\x'", "ü'\\x", pa.string()),
    "binary": ("x'00ff'", "00ff", pa.binary()),
    "date": ("date '0001-01-01'", "-719162", pa.date32()),
    "timestamp": ("timestamp '1969-12-31 23:59:59.999999 UTC'", "-1", pa.timestamp("us", "UTC")),
    "timestamp_ntz": ("timestamp_ntz '1969-12-31 23:59:59.999999'", "-1", pa.timestamp("us")),
}


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> str:
    uri = str(tmp_path_factory.mktemp("typed") / "t.lance")
    columns = {f"c{n}": pa.nulls(1, type) for n, (*_, type) in enumerate(LITERALS.values())}
    nested = pa.array([{"a": 1}])
    lance.write_dataset(pa.table({**columns, "n": nested, "x y": [1]}), uri)
    return uri


@pytest.mark.parametrize(("type", "java_dates"), each(LITERALS, ["true", "false"]))
def test_literals_are_passed_exactly(
    spark: SparkSession, typed: str, asked: list[dict[str, Any]], type: str, java_dates: str
) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.datetime.java8API.enabled", java_dates)
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    column = f"c{list(LITERALS).index(type)}"
    literal, document, _ = LITERALS[type]
    frame = lancestat.read_table(session, typed)
    planned(frame.where(f"{column} < {literal}"))
    [comparison] = [filter for filter in asked[-1]["filters"] if filter["op"] == "<"]
    assert comparison == {"op": "<", "column": column, "type": type, "value": document}

    if type != "boolean":
        planned(frame.where(f"{column} in ({literal}, null, {literal})"))
        [several] = [filter for filter in asked[-1]["filters"] if filter["op"] in ("in", "=")]
        assert set(several.get("values", [several.get("value")])) <= {document, None}


CONDITIONS: dict[str, list[Any]] = {
    "c2 <=> 5": [{"op": "<=>", "column": "c2", "type": "bigint", "value": "5"}],
    "not (c2 > 5 or c2 is null)": [
        {"op": "isnotnull", "column": "c2"},
        {"op": "<=", "column": "c2", "type": "bigint", "value": "5"},
    ],
    "not c7 like 'a%'": [
        {"op": "isnotnull", "column": "c7"},
        {"op": "not", "child": {"op": "startswith", "column": "c7", "value": "a"}},
    ],
    "c2 = 1 or c7 = 'a'": [
        {
            "op": "or",
            "operands": [
                {"op": "=", "column": "c2", "type": "bigint", "value": "1"},
                {"op": "=", "column": "c7", "type": "string", "value": "a"},
            ],
        }
    ],
    "(c2 = 1 or n.a = 1) and c1 = 2Y": [
        {"op": "isnotnull", "column": "c1"},
        {"op": "=", "column": "c1", "type": "tinyint", "value": "2"},
    ],
    "`x y` > 1": [
        {"op": "isnotnull", "column": "x y"},
        {"op": ">", "column": "x y", "type": "bigint", "value": "1"},
    ],
    "c2 % 2 = 0": [{"op": "isnotnull", "column": "c2"}],
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_filters_are_passed_whole_or_not_at_all(
    spark: SparkSession, typed: str, asked: list[dict[str, Any]], condition: str
) -> None:
    planned(lancestat.read_table(spark, typed).where(condition))
    filters = sorted(asked[-1]["filters"], key=json.dumps)
    assert filters == sorted(CONDITIONS[condition], key=json.dumps)
