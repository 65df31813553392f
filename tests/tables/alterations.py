"""Changes of published entries as accidents and half-finished edits make them."""

from __future__ import annotations

from random import Random

import lance

from lancestat.tables.wire import (
    COMPUTED_AT,
    COMPUTED_AT_VERSION,
    NEWEST_FRAGMENT,
    PREFIX,
    WRITER,
    is_altered,
    published_entries,
)

Entries = dict[str, str | None]

_MARKS = (WRITER, COMPUTED_AT_VERSION, NEWEST_FRAGMENT)
KINDS = (
    *("one", "one", "several", "all", "remove one", "remove all"),
    *("add", "tag", "tag and one", "mark and one"),
)


def alter_entries(dataset: lance.LanceDataset, random: Random) -> bool:
    """Change what lancestat published in one commit, in one of several ways; whether it did.

    Nothing happens to entries that lancestat did not write or that were altered before: one after
    the other, alterations may come to look like the work of another writer.
    """
    config = published_entries(dataset.config())
    if ":" not in config.get(WRITER, "") or is_altered(config):
        return False
    if f"@{config.get(COMPUTED_AT_VERSION)}:" not in config[WRITER]:
        return False
    dataset.update_config(_alteration(config, dataset.version + 1, random))
    return True


def _alteration(config: dict[str, str], version: int, random: Random) -> Entries:
    keys = sorted(config)
    values = [key for key in keys if key not in _MARKS]
    match random.choice(KINDS):
        case "one":
            key = random.choice(keys)
            return {key: _changed(key, config[key], random)}
        case "several":
            chosen = random.sample(values, random.randrange(1, len(values) + 1))
            return {key: _changed(key, config[key], random) for key in chosen}
        case "all":
            return {key: _changed(key, config[key], random) for key in keys}
        case "remove one":
            return {random.choice(keys): None}
        case "remove all":
            return dict.fromkeys(keys)
        case "add":
            suffix = random.choice(("column.id.histogram", "column.new.min", "note"))
            return {f"{PREFIX}{suffix}": "7"}
        case "mark and one":
            key, mark = random.choice(values), config[WRITER]
            return {
                key: _changed(key, config[key], random),
                WRITER: random.choice((mark[: random.randrange(len(mark))], mark.upper())),
            }
        case "tag":
            return {COMPUTED_AT_VERSION: str(version)}
        case _:
            key, old = random.choice(values), f"@{config[COMPUTED_AT_VERSION]}:"
            return {
                key: _changed(key, config[key], random),
                COMPUTED_AT_VERSION: str(version),
                WRITER: config[WRITER].replace(old, f"@{version}:"),
            }


def _changed(key: str, text: str, random: Random) -> str:
    """Return another value, more often than not one that could be."""
    if key == COMPUTED_AT:
        return "2031-01-01T00:00:00Z"
    if text.isdigit() and random.random() < 0.8:
        return str(int(text) + random.choice((1, 7)))
    return random.choice(("7", "x", f"{text}0"))
