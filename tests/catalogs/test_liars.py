"""Catalogs that lie end nothing: a bad answer blocks its table, or its source, and nothing else.

Each case asks a real server, by the client of Lance that projects use.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pytest
from click.testing import CliRunner, Result

from lancestat.cli.main import cli
from lancestat.errors import CatalogAnswerInvalid, CatalogLimitExceeded
from lancestat.lake import catalog_tables, catalogs
from lancestat.lake.catalog_tables import LocatedTable, locate, tables_at
from lancestat.lake.catalogs import AnswerError, check_description, client_of, names_in, token_in
from lancestat.project import Project
from lancestat.query.read.session_catalogs import NamedTables
from lancestat.query.table import DeclaredTables
from lancestat.spec.catalog import Catalog, TableName
from tests.catalogs.liar import Answer, Lie, Question, liar
from tests.catalogs.shops import Shop, rows

SOURCE = {"catalog": "lake"}


@pytest.fixture
def bounded(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make the bounds of catalogs smaller."""

    def set_bounds(**bounds: Any) -> None:
        smaller = replace(catalogs.BOUNDS, **bounds)
        for module in (catalogs, catalog_tables):
            monkeypatch.setattr(module, "BOUNDS", smaller)

    return set_bounds


@pytest.fixture
def sound(tmp_path: Path) -> str:
    uri = str(tmp_path / "sound.lance")
    lance.write_dataset(rows(), uri)
    return uri


def truthful(question: Question, places: dict[str, Answer]) -> Answer:
    """Answer as a catalog of these tables, without namespaces."""
    if question.kind == "describe":
        return places[question.identifier[-1]]
    return {question.kind: list(places) if question.kind == "tables" else []}


def lists(**pages: Callable[[Question], Answer]) -> Lie:
    """A catalog whose lists of a kind are these, and empty else."""
    return lambda question: pages.get(question.kind, lambda _: {question.kind: []})(question)


def shop(folder: Path, uri: str, sound: str) -> Shop:
    """A project with a table of its own, and the catalog as a source."""
    made = Shop(folder, "rest", {"uri": uri})
    made.declare()
    own = {"name": "own", "uri": sound, "publish": "none"}
    specs = {"tables": [own], "sources": [SOURCE]}
    (folder / "specs" / "shop.yml").write_text(json.dumps(specs))
    return made


def check_others_go_on(result: Result, code: str) -> str:
    """The command failed for one error with its place, and planned the project's own table."""
    text = " ".join(result.output.split())
    assert result.exit_code == 1, result.output
    assert code in text, result.output
    assert "specs/shop.yml:1" in text, result.output
    assert "LS001" not in text, result.output
    assert "+ analyze own" in text, result.output
    assert "1 blocked" in text, result.output
    return text


# What is said of a table, and what of that is told.
BAD_PLACES = {
    "nul": ({"location": "/tmp/x\0y"}, "the location holds the control character"),
    "line break": ({"location": "/tmp/x\ny"}, "the location holds the control character"),
    "long": ({"location": "/tmp/" + "x" * 5000}, "the location has more than 4,096 characters"),
    "a number": ({"location": 5}, "invalid type: integer `5`"),
    "half a letter": (b'{"location": "/tmp/\\ud800"}', "unexpected end of hex escape"),
    "a list": ([], "LS217"),
    "nothing": (None, "LS217"),
    "no JSON": (b"<html>", "expected value"),
    "deep JSON": (b"[" * 100_000, "LS217"),
    "option of NUL": ({"storage_options": {"a": "b\0"}}, "storage option 'a' holds"),
    "no time": ({"storage_options": {"expires_at_millis": "soon"}}, "'expires_at_millis' is no"),
    "late": ({"storage_options": {"expires_at_millis": "9" * 400}}, "'expires_at_millis' is no"),
    "superscript": ({"storage_options": {"expires_at_millis": "²"}}, "'expires_at_millis' is no"),
    "no pause": ({"storage_options": {"refresh_offset_millis": "²"}}, "'refresh_offset_millis' is"),
}


@pytest.mark.parametrize("case", BAD_PLACES)
def test_a_bad_answer_about_a_table_blocks_it_alone(case: str, tmp_path: Path, sound: str) -> None:
    answer, reason = BAD_PLACES[case]
    if isinstance(answer, dict):
        answer = {"location": sound, **answer}
    places: dict[str, Answer] = {"bad": answer, "good": {"location": sound}}
    other = str(tmp_path / "other.lance")
    lance.write_dataset(rows(), other)
    places["other"] = {"location": other}
    with liar(lambda question: truthful(question, places)) as (uri, asked):
        result = shop(tmp_path, uri, sound).lancestat("plan")
    text = " ".join(result.output.split())
    assert result.exit_code == 1, result.output
    assert "LS217 specs/shop.yml:1" in text, result.output
    assert reason in text, result.output
    assert "+ analyze other" in text, result.output
    # Asking again would bring the same answer.
    described = [question for question in asked if question.identifier == ("bad",)]
    assert len(described) <= 2


def endless_pages() -> Lie:
    numbers = itertools.count()
    return lists(
        tables=lambda _: {"tables": ["good"], "page_token": f"page-{next(numbers)}"},
        describe=lambda _: {"location": "/nowhere"},
    )


def endless_empty_pages() -> Lie:
    numbers = itertools.count()
    return lists(namespaces=lambda _: {"namespaces": [], "page_token": f"{next(numbers)}"})


def endless_names() -> Lie:
    numbers = itertools.count()

    def page(_: Question) -> Answer:
        number = next(numbers)
        names = [f"t{number}_{n}" for n in range(1000)]
        return {"tables": names, "page_token": str(number)}

    return lists(tables=page)


def circle() -> Lie:
    return lists(tables=lambda _: {"tables": ["good"], "page_token": "again"})


def endless_namespaces() -> Lie:
    return lists(namespaces=lambda _: {"namespaces": ["inner"]})


def endless_breadth() -> Lie:
    return lists(namespaces=lambda asked: {"namespaces": ["a", "b", "c", "d", "e"]})


ENDLESS = {
    "pages": (endless_pages, {"pages": 20}, "its list of tables has more than 20 pages"),
    "empty pages": (endless_empty_pages, {"pages": 20}, "its list of namespaces has more than 20"),
    "names": (endless_names, {"names": 5_000}, "it lists more than 5,000 names"),
    "a circle": (circle, {}, "its list of tables never ends"),
    "depth": (endless_namespaces, {}, "its namespaces are nested more than 32 deep"),
    "breadth": (endless_breadth, {"depth": 1000, "names": 200}, "it lists more than 200 names"),
}


@pytest.mark.parametrize("case", ENDLESS)
def test_a_catalog_without_end_blocks_its_source_alone(
    case: str, tmp_path: Path, sound: str, bounded: Callable[..., None]
) -> None:
    lie, bounds, reason = ENDLESS[case]
    bounded(**bounds)
    with liar(lie()) as (uri, asked):
        result = shop(tmp_path, uri, sound).lancestat("plan")
        text = check_others_go_on(result, "LS218")
        assert f"the catalog 'lake' exceeds a limit: {reason}" in text
        assert len(asked) < 500


BAD_LISTS = {
    "an empty name": ({"tables": ["good", ""]}, "a name that is empty or no text"),
    "a long name": ({"tables": ["x" * 5000]}, "a name of more than 1,024 characters"),
    "a number": ({"tables": ["good", 5]}, "invalid type: integer `5`"),
    "nothing": ({"tables": None}, "LS217"),
    "a text": ({"tables": "good"}, "LS217"),
    "a token that is a number": ({"tables": ["good"], "page_token": 5}, "invalid type: integer"),
    "no JSON": (b"\xff\xfe", "LS217"),
}


@pytest.mark.parametrize("case", BAD_LISTS)
def test_a_bad_list_blocks_its_source_alone(case: str, tmp_path: Path, sound: str) -> None:
    answer, reason = BAD_LISTS[case]
    with liar(lists(tables=lambda _: answer)) as (uri, asked):
        result = shop(tmp_path, uri, sound).lancestat("plan")
        assert reason in check_others_go_on(result, "LS217")
        assert len(asked) == 1


def test_a_namespace_without_a_name_does_not_nest_in_itself(tmp_path: Path, sound: str) -> None:
    with liar(lists(namespaces=lambda _: {"namespaces": [""]})) as (uri, asked):
        check_others_go_on(shop(tmp_path, uri, sound).lancestat("plan"), "LS217")
        assert len(asked) == 2


def test_names_that_no_node_can_have_leave_the_others_alone(tmp_path: Path, sound: str) -> None:
    names = ["a\0b", "a\nb", "\x1b[31m", "..", "good"]
    places: dict[str, Answer] = {name: {"location": sound} for name in names}
    with liar(lambda question: truthful(question, places)) as (uri, _):
        result = shop(tmp_path, uri, sound).lancestat("plan")
    text = check_others_go_on(result, "LS214")
    assert "4 tables" in text or "tables have no node" in text
    assert "\x1b" not in result.output


def test_slow_lists_end_in_time(tmp_path: Path, sound: str, bounded: Callable[..., None]) -> None:
    """Each answer is in time, and there is another page behind it."""
    bounded(listing_seconds=0.5)
    numbers = itertools.count()

    def slow(_: Question) -> Answer:
        time.sleep(0.1)
        return {"tables": ["good"], "page_token": str(next(numbers))}

    with liar(lists(tables=slow)) as (uri, asked):
        text = check_others_go_on(shop(tmp_path, uri, sound).lancestat("plan"), "LS218")
        assert "not listed within 0.5 s" in text
        assert len(asked) < 20


def test_an_answer_that_does_not_come_ends_with_the_time_of_the_listing(
    bounded: Callable[..., None],
) -> None:
    bounded(listing_seconds=0.3)
    held = threading.Event()

    def never(_: Question) -> Answer:
        held.wait()
        return {}

    with liar(lists(tables=never)) as (uri, _):
        with pytest.raises(CatalogLimitExceeded, match=r"within 0\.3 s"):
            list(client_of(Catalog("rest", {"uri": uri}), "lake").tables())
        held.set()


def test_slow_descriptions_end_in_time(bounded: Callable[..., None], sound: str) -> None:
    """No table is asked for any more once the time of all is over; each has its error."""
    bounded(locating_seconds=0.4)

    def slow(_: Question) -> Answer:
        time.sleep(0.1)
        return {"location": sound}

    catalog_tables = [TableName("lake", (f"t{number}",)) for number in range(200)]
    with liar(lists(describe=slow)) as (uri, asked):
        catalogs = {"lake": Catalog("rest", {"uri": uri})}
        found = locate(catalog_tables, catalogs, lambda _: {}, threads=2)
        assert len(asked) < 50
        with pytest.raises(CatalogLimitExceeded, match=r"within 0\.4 s"):
            list(tables_at("/x/t1", {"lake": _with_names(catalogs["lake"], catalog_tables)}))
    assert isinstance(found[catalog_tables[0]], LocatedTable)
    late = [place for place in found.values() if isinstance(place, CatalogLimitExceeded)]
    assert len(late) > 100
    assert len(late) + sum(isinstance(place, LocatedTable) for place in found.values()) == 200


def _with_names(catalog: Catalog, tables: list[TableName]) -> Catalog:
    """Let the client of a catalog know its tables, so that it does not list them."""
    client = client_of(catalog, "lake")
    client._listed, client._listed_until = tuple(tables), time.monotonic() + 60
    return catalog


def test_a_place_that_makes_no_sense_is_not_that_of_a_dataset(sound: str) -> None:
    """A run that would write to a dataset asks whether a catalog has it."""
    places: dict[str, Answer] = {"sound": {"location": "\0"}, "b": {"location": sound}}
    with liar(lambda question: truthful(question, places)) as (uri, _):
        [(table, is_managed)] = tables_at(sound, {"lake": Catalog("rest", {"uri": uri})})
    assert (str(table), is_managed) == ("lake.b", False)


@pytest.mark.parametrize("kind", ["tables", "namespaces"])
def test_listing_in_sql_is_bounded(
    kind: str, tmp_path: Path, sound: str, bounded: Callable[..., None]
) -> None:
    bounded(pages=5)
    numbers = itertools.count()

    def page(_: Question) -> Answer:
        return {kind: ["a"], "page_token": f"{next(numbers)}"}

    with liar(lists(**{kind: page})) as (uri, asked):
        shop(tmp_path, uri, sound)
        project = Project.load(tmp_path)
        tables = NamedTables("lake", DeclaredTables(project.spec, (), project.state))
        with pytest.raises(CatalogLimitExceeded, match="more than 5 pages"):
            tables.names((), kind)
        assert len(asked) == 5


def test_adopting_a_catalog_without_end_writes_nothing(
    tmp_path: Path, bounded: Callable[..., None]
) -> None:
    bounded(pages=5)
    with liar(endless_pages()) as (uri, _):
        result = CliRunner().invoke(cli, ["init", str(tmp_path / "new"), "--from", f"rest:{uri}"])
    assert result.exit_code == 1
    assert "LS218" in result.output
    assert not (tmp_path / "new" / "lancestat_project.yml").exists()


def test_debug_and_gc_say_what_is_wrong(
    tmp_path: Path, sound: str, bounded: Callable[..., None]
) -> None:
    bounded(pages=5)
    places: dict[str, Answer] = {"bad": {"location": "\0"}}
    with liar(lambda question: truthful(question, places)) as (uri, _):
        made = Shop(tmp_path, "rest", {"uri": uri})
        made.declare({"name": "bad", "table": "lake.bad"}, {"name": "own", "uri": sound})
        result = made.lancestat("status")
        assert "LS217" in result.output
        assert "own" in result.output
        result = made.lancestat("show", "bad")
        assert result.exit_code == 1
        assert "LS217 specs/shop.yml:2" in result.output
        result = made.lancestat("gc", "--dry-run")
        assert "LS001" not in result.output


@pytest.mark.parametrize(
    "answer",
    [
        {"location": 5},
        {"storage_options": [1]},
        {"storage_options": "abc"},
        {"storage_options": {"a": 5}},
        {"storage_options": {5: "a"}},
    ],
)
def test_classes_of_catalogs_may_return_anything(answer: dict[str, Any]) -> None:
    class Described:
        def __init__(self) -> None:
            self.__dict__.update(answer)

    with pytest.raises(AnswerError):
        check_description(Described())


@pytest.mark.parametrize("names", ["abc", 5, {"a": 1}, [5], [None], [b"a"]])
def test_classes_of_catalogs_may_list_anything(names: Any) -> None:
    class Listed:
        tables = names
        page_token = names

    with pytest.raises(AnswerError):
        names_in(Listed(), "tables")
    if not isinstance(names, str):
        with pytest.raises(AnswerError):
            token_in(Listed())
    with pytest.raises(AnswerError):
        names_in(None, "tables")


def test_the_bounds_of_a_sound_catalog_are_far(tmp_path: Path, sound: str) -> None:
    """Thousands of tables on many pages in nested namespaces are listed whole."""

    def answer(question: Question) -> Answer:
        start = int(question.token or 0)
        if question.kind == "namespaces":
            return {"namespaces": ["inner"] if len(question.identifier) < 10 else []}
        token = {"page_token": str(start + 100)} if start < 900 else {}
        return {"tables": [f"t{number}" for number in range(start, start + 100)], **token}

    with liar(answer) as (uri, _):
        tables = list(client_of(Catalog("rest", {"uri": uri}), "lake").tables())
    assert len(tables) == 11 * 1000
    assert tables[-1].identifier == (*["inner"] * 10, "t999")
    with pytest.raises(CatalogAnswerInvalid), liar(lambda _: b"") as (uri, _):
        list(client_of(Catalog("rest", {"uri": uri}), "other").tables())
