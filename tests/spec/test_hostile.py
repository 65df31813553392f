"""What people and editors get wrong in YAML, with the message that each of them gets."""

from __future__ import annotations

from pathlib import Path

from lancestat.errors import InvalidProject
from lancestat.spec.load import load_project
from tests.conftest import Golden

PROJECT = "name: shop\ntargets: {dev: {state: s}}\n"
ITEM = "tables:\n  - name: orders\n"

FAULTS: dict[str, str | bytes] = {
    # The syntax of block mappings and lists.
    "no_colon": f"{ITEM}    uri orders.lance\n    tags: []\n",
    "no_colon_at_the_end": f"{ITEM}    uri orders.lance\n",
    "no_space_after_colon": "tables:\n  - name:orders\n    uri: x\n",
    "no_space_after_dash": "tables:\n  -name: x\n    uri: y\n",
    "second_colon": f"{ITEM}    description: one: per order\n",
    "indented_deeper": f"{ITEM}      uri: x\n",
    "indented_less": f"{ITEM}   uri: x\n",
    "dash_indented_less": f"{ITEM}    uri: x\n - name: b\n",
    "dash_missing": f"{ITEM}    uri: x\n  name: b\n",
    "key_among_items": "- a\nb: c\n",
    "item_among_keys": "a: b\n- c\n",
    "key_missing": ": a\n",
    "list_behind_key": "tables: - name: x\n",
    "text_after_the_end": "tables: []\nmore\n",
    "list_as_key": "? [a]\n: b\n",
    "long_key": f"{'k' * 1100}: x\n",
    "tab": "tables:\n\t- name: x\n",
    "tab_within": f"{ITEM}\turi: y\n",
    "tab_before_key": f"{ITEM}    \turi: y\n",
    # Quotes and brackets.
    "open_quote": f'{ITEM}    uri: "x\n    tags: []\n',
    "open_single_quote": f"{ITEM}    uri: 'x\n",
    "open_quote_before_another": f'{ITEM}    uri: "x\n    owner: "me"\n',
    "apostrophe": f"{ITEM}    description: 'it's one'\n",
    "text_after_quote": f"{ITEM}    uri: 'x'y\n",
    "escape": f'{ITEM}    uri: "C:\\data"\n',
    "hexadecimal": f'{ITEM}    uri: "\\xZZ"\n',
    "open_list": "tables: [{name: a, uri: b}\npolicies: []\n",
    "open_mapping": "tables:\n  - {name: a, uri: b\n  - {name: c, uri: d}\n",
    "open_to_the_end": "tables: [",
    "comma_missing": "tables: [{name: a uri: b}]\n",
    "comma_missing_in_a_later_line": "tables: [\n  {name: a, uri: b}\n  {name: c, uri: d}]\n",
    "bracket_too_many": "tables: [{name: a, uri: b}]]\n",
    "brace_for_a_value": "tables: }\n",
    # Signs with a meaning.
    "at_sign": f"{ITEM}    owner: @me\n",
    "backtick": f"{ITEM}    uri: `x`\n",
    "percent": f"{ITEM}    uri: %x\n",
    "asterisk": f"{ITEM}    uri: x\n    columns: [*]\n",
    "asterisk_with_a_name": f"{ITEM}    uri: x\n    columns: [*_key]\n",
    "ampersand": f"{ITEM}    owner: & me\n",
    "exclamation_mark": f"{ITEM}    uri: !x!y\n",
    "template": f"{ITEM}    uri: {{{{ var('w') }}}}/x\n",
    "block_text": f"{ITEM}    description: |one\n",
    "directive": "%FOO\ntables: []\n",
    "version": "%YAML 3.0\n---\ntables: []\n",
    # Documents and encodings.
    "empty": "",
    "white_space": " \n\n",
    "comment": "# nothing yet\n",
    "null": "null\n",
    "text": "tables\n",
    "number": "5\n",
    "list": "- name: a\n  uri: b\n",
    "two_documents": "tables: []\n---\ntables: []\n",
    "after_the_end": "tables: []\n...\npolicies: []\n",
    "utf_16": "tables: []\n".encode("utf-16"),
    "latin_1": "# Gr\xfc\xdfe\ntables: []\n".encode("latin-1"),
    "nul": "tables: []\0\n",
    "escape_sequence": f"{ITEM}    uri: \x1b[31mx\n",
    "byte_order_mark_within": "tables: []\n\ufeffpolicies: []\n",
    "carriage_returns": "tables:\r\n  - name: a\r\n    uri b\r\n    tags: []\r\n",
    "only_carriage_returns": "tables:\r  - name: a\r    uri b\r    tags: []\r",
    "json_that_is_cut": '{"tables": [{"name": "a", "uri": "b"},',
    "conflict_of_git": "tables:\n<<<<<<< HEAD\n  - name: a\n=======\n  - name: b\n>>>>>>> x\n",
    # What can be read, and is wrong.
    "key_twice": f"{ITEM}    uri: x\n    name: y\n    zzz: 1\n",
    "merge_of_a_text": f"{ITEM}    <<: x\n",
    "merge_of_nothing": f"{ITEM}    <<: *base\n",
    "merge_with_a_typo": "x-base: &b {uri: u}\ntables:\n  - {<<: *b, name: a}\n",
    "alias_of_itself": "tables: &a [*a]\n",
    "nested": "tables: " + "[" * 100 + "]" * 100 + "\n",
    "many_aliases": "a: &a [1,1,1,1,1,1,1,1,1]\n"
    + "".join(
        f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdef", "bcdefg", strict=True)
    ),
    "python": "tables: !!python/object/apply:os.system [ls]\n",
    "set": f"{ITEM}    uri: x\n    tags: !!set {{a, b}}\n",
    "not_a_number": f"{ITEM}    uri: x\n    groups: .nan\n",
    "empty_items": "tables:\n  -\n  - name: a\n    uri:\n",
    "types": "tables: {name: a, uri: b}\nknn_joins: 5\npolicies: [x, 1, null]\n",
    "yes": f"{ITEM}    uri: x\n    policy: {{allow.stale: yes}}\n",
    "date_and_number": "tables:\n  - {name: 2024-01-01, uri: 12, tags: [1, true]}\n",
}


def message(folder: Path, content: str | bytes) -> str:
    (folder / "specs").mkdir(parents=True)
    (folder / "lancestat_project.yml").write_text(PROJECT)
    data = content if isinstance(content, bytes) else content.encode()
    (folder / "specs/shop.yml").write_bytes(data)
    try:
        load_project(folder, environment={})
    except InvalidProject as invalid:
        return str(invalid)
    return "accepted"


def test_each_fault_has_its_message(tmp_path: Path, golden: Golden) -> None:
    messages = {name: message(tmp_path / name, text) for name, text in FAULTS.items()}
    golden("spec/hostile.txt", "".join(f"{name}\n{text}\n\n" for name, text in messages.items()))
