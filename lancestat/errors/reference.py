"""docs/reference/errors.md, from the classes of the errors.

`python -m lancestat.errors.reference` writes it again, in a checkout.
"""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

from lancestat.errors import LancestatError, error_classes

PAGE = "docs/reference/errors.md"

_HEAD = """\
# Errors

This page is generated from the classes in `lancestat/errors` by `make generate`; do not edit it.
An error is printed with its code, the location in a file if there is one, what was found, and often
a hint for the case at hand. In Python each code is a class of `lancestat.errors`.
"""
_AREAS = {
    "LS0": "Defects of lancestat",
    "LS1": "The YAML",
    "LS2": "Datasets",
    "LS3": "The state",
    "LS4": "Commands, selectors, queries and arguments",
    "LS5": "Work on Spark",
    "LS6": "Publishing, comments, plan files, pages and reviews",
}
_TABLE = "| code | class | meaning | remedy |\n|---|---|---|---|"


def reference() -> str:
    """Return a page that lists all codes, in Markdown."""
    sections = [
        "\n".join([f"## {area}xx: {_AREAS[area]}", "", _TABLE, *map(_row, classes), ""])
        for area, classes in groupby(error_classes(), key=lambda kind: kind.code[:3])
    ]
    return "\n".join([_HEAD, *sections])


def _row(kind: type[LancestatError]) -> str:
    meaning = " ".join((kind.__doc__ or "").split())
    remedy = re.sub(r"docs/([\w-]+)/([\w-]+\.md)", r"[\2](../\1/\2)", kind.remedy())
    return f"| {kind.code} | `{kind.__name__}` | {meaning} | {remedy} |"


if __name__ == "__main__":
    Path(__file__).parents[2].joinpath(PAGE).write_text(reference(), encoding="utf-8")
