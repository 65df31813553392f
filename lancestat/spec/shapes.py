"""The shapes of values that several resources share."""

from __future__ import annotations

from dataclasses import replace

from lancestat.spec.declaration import (
    Duration,
    Either,
    Listed,
    Number,
    PathOrUri,
    Pattern,
    Scalar,
    Settings,
    Text,
    Words,
)

START = r"^[^\u0000-/:-@\[-^`{-\u00a9]"
_NAME_LETTERS = r"[^\u0000-,./:-@\[-^`{-\u00a9]*$(?!\n)"

TEXT = Text(title="text", definition="text")
FILLED = Text(title="text that is not empty", definition="filled", limits={"minLength": 1})
FILLED_PATH = PathOrUri(title=FILLED.title, definition="filled", limits=FILLED.limits)
PUBLIC = replace(FILLED, is_public=True)
NAME = Text(
    title="a name of letters, digits, '_' and '-', starting with a letter, a digit or '_'",
    definition="name",
    limits={
        "minLength": 1,
        "maxLength": 128,
        "pattern": START + _NAME_LETTERS,
        "format": "lancestat-name",
    },
)
TAGS = Listed(
    title="a list of tags",
    description="Tags to select it by, with `--select tag:x`.",
    definition="tags",
    items=Text(
        title="a tag of letters, digits, '_', '-', '.', ':', '/' and '@', starting with a letter, "
        "a digit or '_'",
        limits={
            "pattern": START + r"[^\u0000-,;-?\[-^`{-\u00a9]*$(?!\n)",
            "format": "lancestat-tag",
        },
    ),
    is_unique=True,
)
PATTERNS = Listed(
    title="a list of column names and patterns",
    description="Names, or patterns with * and ?. They are case-sensitive.",
    definition="patterns",
    items=Pattern(title="a column name or a pattern with * and ?", definition="pattern"),
)
FILLED_PATTERNS = replace(PATTERNS, definition="filled_patterns", is_filled=True)
TYPES = Listed(
    title="a list of column types",
    description="Only columns of these types.",
    definition="types",
    items=Words(
        title="a column type",
        choices=(
            "integer",
            "float",
            "decimal",
            "string",
            "binary",
            "boolean",
            "date",
            "timestamp",
            "timestamp_ntz",
            "time",
        ),
    ),
    is_filled=True,
    is_unique=True,
    is_ordered=False,
)
DURATION = Duration(definition="duration")
AT_LEAST_0 = Number(title="a whole number, 0 or more", limits={"minimum": 0}, is_whole=True)
TO_100000 = Number(
    title="a whole number from 1 to 100000",
    limits={"minimum": 1, "maximum": 100_000},
    is_whole=True,
)
# Of a few neighbours, or all within a distance.
NEIGHBOURS = Either(
    title="a whole number from 1 to 100000, or 'all'",
    shapes=(TO_100000, Text(title="'all'", limits={"pattern": r"^all$(?!\n)"}, is_public=True)),
)
# Of results: so many of the newest, or those of the last days.
KEPT = Either(
    title="a whole number from 1 to 100000, or a duration such as 24h or 7d",
    shapes=(TO_100000, DURATION),
)
SETTINGS = Settings(
    title="a mapping of options",
    values=Scalar(title="text, a number, true or false", definition="setting"),
)
