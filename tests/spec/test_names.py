from __future__ import annotations

import json
import re
import shutil
import subprocess
import unicodedata

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from lancestat.errors import InvalidProject, UsageError
from lancestat.spec.document import read_document
from lancestat.spec.graph import select
from lancestat.spec.names import PUNCTUATION, Rendering, is_name
from lancestat.spec.schema import PROJECT_SCHEMA, SPECS_SCHEMA, schema
from lancestat.spec.schema_check import check
from tests.spec.conftest import Load

# Characters between the letters of a name, or alone, that are neither letters nor digits.
_BETWEEN = ";\0\a\x1b\n\u2028\x85 \xa0\u200b\u202e\ufeff$`'\"|<>&=#!~%\\{}()[]*?+,\u2019\xb2\u20ac"
REFUSED = [
    *(f"x{char}y" for char in _BETWEEN),
    *("", "-x", "+x", "x;drop", "\u2167", "\xbd", "\U0001f600", "\ue000", "\uff0d", "\u2013"),
    # Marks before a letter, letters that are not composed, and invisible ones.
    *("\u0301x", "e\u0301", "\u212b", "x\u3164", "x\ufe0f", "x\U000e0101"),
]
ACCEPTED = [
    *("orders", "Orders_2024", "a-b", "_", "7", "\xfcbersicht", "caf\xe9", "\u6ce8\u6587"),
    *("\u0437\u0430\u043a\u0430\u0437\u044b", "\u0939\u093f\u0928\u094d\u0926\u0940"),
    *("\u0663\u0664", "\u0648\u0631\u0642", "\U00020000"),
]


def spec(kind: str, name: str) -> dict[str, object]:
    """A document whose only name of a kind is `name`."""
    about: dict[str, object] = {
        "tables": {"name": name, "uri": "x"},
        "column_sets": {"name": name, "include": ["a"]},
        "policies": {"name": name, "allow.stale": True},
        "knn_joins": {
            "name": name,
            "left": {"lance": "l", "vector": "v"},
            "right": {"lance": "r", "vector": "v"},
            "k": 1,
            "output": {"lance": "o"},
        },
    }
    if kind == "tags":
        return {"tables": [{"name": "t", "uri": "x", "tags": [name]}]}
    return {kind: [about[kind]]}


def complaints(document: dict[str, object], file: str = SPECS_SCHEMA) -> list[str]:
    text = yaml.safe_dump(document).encode()
    errors = check(file, read_document(text, "x.yml"), Rendering())
    return [error.message for _, error in errors if error]


@pytest.mark.parametrize("kind", ["tables", "column_sets", "policies", "knn_joins", "tags"])
@pytest.mark.parametrize("name", REFUSED)
def test_names_have_only_letters_digits_and_underscores(kind: str, name: str) -> None:
    [message] = complaints(spec(kind, name))
    assert "of letters, digits, '_'" in message


@pytest.mark.parametrize("kind", ["tables", "column_sets", "policies", "knn_joins", "tags"])
@pytest.mark.parametrize("name", ACCEPTED)
def test_names_may_have_letters_and_digits_of_all_scripts(kind: str, name: str) -> None:
    assert complaints(spec(kind, name)) == []


def test_tags_and_targets_may_hold_more() -> None:
    assert complaints(spec("tags", "team:sales/eu.v1@x-y")) == []
    assert complaints({"name": "shop", "targets": {"prod.eu-1": {}}}, PROJECT_SCHEMA) == []
    for name in ("a.b", "a:b", "a/b", "a@b"):
        assert complaints(spec("tables", name))


@given(st.text(max_size=6))
@example("a\u0308")
def test_names_follow_the_rule_in_the_message(text: str) -> None:
    letters = [char for char in text if unicodedata.category(char)[0] in "LM" or char.isdecimal()]
    if is_name(text, "_-"):
        assert len(letters) + text.count("_") + text.count("-") == len(text)
        assert text[0].isalnum() or text[0] == "_"
        assert text.isprintable()
        assert text == unicodedata.normalize("NFC", text)
    elif re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]*", text):
        raise AssertionError(text)


@given(st.text(max_size=6))
def test_the_patterns_refuse_no_name(text: str) -> None:
    """Editors without lancestat's formats flag no valid name."""
    for part in PATTERNS:
        if is_name(text, PUNCTUATION[part["format"]]):
            assert re.search(part["pattern"], text)


def _named(part: object) -> list[dict[str, str]]:
    if isinstance(part, list):
        return [name for item in part for name in _named(item)]
    if not isinstance(part, dict):
        return []
    own = [part] if str(part.get("format")) in PUNCTUATION else []
    return [*own, *(name for item in part.values() for name in _named(item))]


PATTERNS = [*_named(schema(SPECS_SCHEMA)), *_named(schema(PROJECT_SCHEMA))]


def test_every_kind_of_name_has_its_format() -> None:
    assert {part["format"] for part in PATTERNS} == set(PUNCTUATION)


def test_patterns_mean_the_same_to_javascript() -> None:
    """Editors take patterns as JavaScript does, with its flag `u` or, if that fails, without."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no Node.js on this machine")
    script = (
        "const [patterns, names] = JSON.parse(require('fs').readFileSync(0));"
        "console.log(JSON.stringify(['u', ''].map(flag => patterns.map(pattern =>"
        " names.map(name => new RegExp(pattern, flag).test(name))))))"
    )
    patterns, texts = [part["pattern"] for part in PATTERNS], [*ACCEPTED, *REFUSED]
    expected = [[bool(re.search(pattern, text)) for text in texts] for pattern in patterns]
    asked = json.dumps([patterns, texts])
    completed = subprocess.run(
        [node, "-e", script], input=asked, capture_output=True, text=True, check=True
    )
    assert json.loads(completed.stdout) == [expected, expected]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("orders", "ORDERS"),
        ("stra\u00dfe", "STRASSE"),
        ("a1", "\uff41\uff11"),
        ("fin", "\ufb01n"),
        ("\u0130", "i\u0307"),
    ],
)
def test_names_that_look_the_same_are_equal(one: str, other: str, load: Load) -> None:
    text = f'tables:\n  - {{name: "{one}", uri: a}}\n  - {{name: "{other}", uri: b}}\n'
    with pytest.raises(InvalidProject, match=r"LS109 specs/shop.yml:3:12 .* is declared twice"):
        load(text)
    targets = f'name: shop\ndefault_target: "{one}"\ntargets: {{"{one}": {{}}, "{other}": {{}}}}\n'
    with pytest.raises(InvalidProject, match=r"LS109 lancestat_project.yml:3:.* is declared twice"):
        load("", project=targets)


def test_a_decomposed_name_has_a_hint_with_its_composed_form(load: Load) -> None:
    with pytest.raises(InvalidProject, match="hint: write 'caf\u00e9' in the normal form NFC"):
        load('tables:\n  - {name: "cafe\\u0301", uri: a}\n')


def test_selectors_find_composed_names(load: Load) -> None:
    loaded = load("tables:\n  - {name: caf\u00e9, uri: a, tags: [\u00e9]}\n  - {name: x, uri: b}\n")
    for selector in ("cafe\u0301", "cafe\u0301*", "tag:e\u0301"):
        assert [node.name for node in select(loaded, selector)] == ["caf\u00e9"]
    with pytest.raises(UsageError):
        select(loaded, "cafe")
