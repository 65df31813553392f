from __future__ import annotations

from pathlib import Path

import pytest

from lancestat.errors import Location
from lancestat.presentation.site.source import Source, Sources
from lancestat.spec.load import load_project


def test_lines_are_those_of_the_item_alone(root: Path) -> None:
    sources = Sources(root)
    assert sources.of(Location("specs/shop.yml", 2, 11)) == Source(
        "specs/shop.yml",
        2,
        (
            "- name: orders",
            "  uri: \"{{ var('warehouse') }}/orders.lance\"",
            "  # Kept for ten years.",
            "  policy: tolerant",
        ),
    )
    join = sources.of(Location("specs/shop.yml", 8, 11))
    assert join is not None
    assert join.lines[-1] == "  k: 10"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            "tables: [{name: a, uri: x}, {name: b, uri: y}]",
            ["tables: [{name: a, uri: x}, {name: b, uri: y}]"],
        ),
        ("tables:\n- uri: x\n  name: a\n\n\n- name: b\n  uri: y\n", ["- uri: x", "  name: a"]),
        ("tables:\n  - {name: a,\n     uri: x\n    }\n", ["- {name: a,", "   uri: x", "  }"]),
        (
            "tables:\n  - name: a\n    uri: x\n    description: |\n      One.\n\n      Two.\n",
            ["- name: a", "  uri: x", "  description: |", "    One.", "", "    Two."],
        ),
    ],
)
def test_items_are_found_in_every_spelling(text: str, lines: list[str], tmp_path: Path) -> None:
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "t.yml").write_text(text, encoding="utf-8")
    (tmp_path / "lancestat_project.yml").write_text(
        "name: p\ndefault_target: d\ntargets: {d: {state: s}}\n", encoding="utf-8"
    )
    node = load_project(tmp_path).nodes[0]
    source_lines = Sources(tmp_path).of(node.location)
    assert source_lines is not None
    assert list(source_lines.lines) == lines


@pytest.mark.parametrize(
    "content", [None, b"\xff\xfe", b"tables: [", b"", b"- a", b"tables: {a: b}"]
)
def test_a_file_that_changed_since_it_was_loaded_has_no_lines(
    content: bytes | None, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "t.yml").write_bytes(content)
    assert Sources(tmp_path).of(Location("t.yml", 1, 1)) is None
