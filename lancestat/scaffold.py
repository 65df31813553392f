"""New projects: what `lancestat init` writes, each file whole, and never over what is there.

A plain one has two sample tables, made by arithmetic: every machine gets the same rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from lancestat.errors import LakeError, NotWritten, PlaceOccupied
from lancestat.lake.files import new_draft, remove, remove_drafts, write_new
from lancestat.lake.open import observe_dataset, readable
from lancestat.redact import redact_line
from lancestat.spec.schema import (
    PROJECT_FILE,
    SCHEMA_FOLDER,
    editor_schemas,
    editor_settings,
    json_text,
)

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Scaffold:
    """The contents of a new project, by path relative to its folder.

    `files` are its texts, `tables` return the rows of its Lance datasets. `editor_files` belong to
    the folder rather than to the project: one that is there stays as it is.
    """

    files: Mapping[str, str]
    editor_files: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, Callable[[], pa.Table]] = field(default_factory=dict)

    def write(self, root: Path) -> list[str]:
        """Write the project into a folder, its project file last; return editor files that stay.

        What a killed process has left of the same scaffold there is completed.

        Raises:
            PlaceOccupied: There is a project already, or something by one of the scaffold's names.
            NotWritten: The folder cannot be written to.
        """
        for name in (*self.files, *self.editor_files, *self.tables):
            # Also where nothing is written.
            remove_drafts(root / name)
        _require_free_paths(self, root)
        unchanged = [
            name
            for name, text in self.editor_files.items()
            if _exists(root / name) and not _has_text(root / name, text)
        ]
        texts = {**self.files, **self.editor_files}
        try:
            for name, rows in self.tables.items():
                _write_table(root / name, rows)
            for name in sorted(texts.keys() - unchanged, key=lambda name: name == PROJECT_FILE):
                _write_text(root / name, texts[name])
        except OSError as error:
            path = error.filename2 or error.filename or root
            reason = error.strerror or redact_line(str(error))
            raise NotWritten(f"cannot write to {path}: {reason}") from error
        return unchanged


def _require_free_paths(scaffold: Scaffold, root: Path) -> None:
    in_the_way = [PROJECT_FILE]
    if not _exists(root / PROJECT_FILE):
        is_own = {name: _has_text(root / name, text) for name, text in scaffold.files.items()}
        for name, rows in scaffold.tables.items():
            is_own[name] = not _exists(root / name) or _has_rows(root / name, rows())
        in_the_way = [name for name, own in is_own.items() if not own and _exists(root / name)]
    if in_the_way:
        raise PlaceOccupied(
            f"nothing was written, since {root} already holds {', '.join(in_the_way)}",
            hint="name an empty folder: lancestat init DIR",
        )


def _exists(path: Path) -> bool:
    # A broken link would be written through.
    return path.exists() or path.is_symlink()


def _has_text(path: Path, text: str) -> bool:
    try:
        return not path.is_symlink() and path.read_bytes() == text.encode("utf-8")
    except OSError:
        return False


def _has_rows(path: Path, rows: pa.Table) -> bool:
    uri = str(path.absolute())
    try:
        with readable(uri):
            return not path.is_symlink() and observe_dataset(uri).to_table().equals(rows)
    except LakeError:
        return False


def _write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not _has_text(path, text):
        # Even a file that appeared since is not overwritten.
        write_new(path, text.encode("utf-8"))


def _write_table(path: Path, rows: Callable[[], pa.Table]) -> None:
    import lance

    if _exists(path):
        # It holds these rows already.
        return
    table = rows()
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = new_draft(path)
    try:
        # In two fragments, so that plans show what they count.
        lance.write_dataset(table, draft.absolute(), max_rows_per_file=-(-table.num_rows // 2))
        # This fails where a folder with files appeared since.
        draft.rename(path)
    finally:
        remove(draft)


_PACKAGE = Path(__file__).parent
# A wheel holds the templates inside the package; a checkout has them beside it.
_TEMPLATES = (_PACKAGE / "templates", _PACKAGE.parent / "specs" / "starter")

# In folders of our own, so that a repository's .gitignore stays as it is.
_STATE = {".lancestat/.gitignore": "*\n!.gitignore\n"}
_SAMPLE = {"sample/.gitignore": "# The sample tables of `lancestat init`.\n*.lance/\n"}


def starter_project() -> Scaffold:
    tables = {"sample/orders.lance": orders, "sample/products.lance": products}
    return project_of({**starter_templates(), **_SAMPLE}, tables)


def project_of(
    files: Mapping[str, str], tables: Mapping[str, Callable[[], pa.Table]] = MappingProxyType({})
) -> Scaffold:
    """Return a project of some YAML files and sample tables, with what every project has."""
    schemas = {f"{SCHEMA_FOLDER}/{name}": json_text(s) for name, s in editor_schemas().items()}
    editor_files = {f".vscode/{name}": json_text(s) for name, s in editor_settings().items()}
    return Scaffold({**files, **schemas, **_STATE}, editor_files, tables)


def starter_templates() -> dict[str, str]:
    """Return the YAML of the starter project, the project file first."""
    folder = next(folder for folder in _TEMPLATES if folder.is_dir())
    files = [folder / PROJECT_FILE, *sorted(folder.glob("specs/*"))]
    return {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in files}


_ORDERS = 1000
_CUSTOMERS = 150
_ORDERS_PER_DAY = 8
_FIRST_DAY = date(2025, 1, 1)
_COLOURS = ("red", "orange", "yellow", "green", "teal", "blue", "violet", "pink")
# With the price in cents, and ordered so that neighbours are alike: the last is near the first.
_THINGS = {
    "mug": ("kitchen", 850),
    "bowl": ("kitchen", 1290),
    "pan": ("kitchen", 3400),
    "lamp": ("living room", 4900),
    "cushion": ("living room", 1990),
    "blanket": ("bedroom", 3950),
    "pillow": ("bedroom", 2450),
    "towel": ("bathroom", 1150),
}


def orders() -> pa.Table:
    """Return one row per order; few customers and products have most of them."""
    import pyarrow as pa

    keys = range(1, _ORDERS + 1)
    products = [1 + _skewed(key, len(_COLOURS) * len(_THINGS)) for key in keys]
    quantities = [1 + key % 3 for key in keys]
    prices = [cents for _, _, cents in _products()]
    amounts = [
        quantity * prices[product - 1]
        for quantity, product in zip(quantities, products, strict=True)
    ]
    days = [_FIRST_DAY + timedelta(days=key // _ORDERS_PER_DAY) for key in keys]
    shipped = [
        None if key > _ORDERS - 3 * _ORDERS_PER_DAY else day + timedelta(days=1 + key % 4)
        for key, day in zip(keys, days, strict=True)
    ]
    return pa.table(
        {
            "order_id": pa.array(keys, pa.int64()),
            "customer_id": pa.array([1 + _skewed(7 * key, _CUSTOMERS) for key in keys], pa.int64()),
            "product_id": pa.array(products, pa.int64()),
            "quantity": pa.array(quantities, pa.int32()),
            "amount": _money(amounts),
            "ordered_on": pa.array(days, pa.date32()),
            "shipped_on": pa.array(shipped, pa.date32()),
        }
    )


def products() -> pa.Table:
    """Return one row per product; embeddings tell kinds of things apart first, then colours."""
    import pyarrow as pa

    names, categories, prices = zip(*_products(), strict=True)
    vectors = [
        [*_on_circle(thing, len(_THINGS), 2.0), *_on_circle(colour, len(_COLOURS), 1.0)]
        for thing in range(len(_THINGS))
        for colour in range(len(_COLOURS))
    ]
    return pa.table(
        {
            "product_id": pa.array(range(1, len(names) + 1), pa.int64()),
            "name": pa.array(names, pa.string()),
            "category": pa.array(categories, pa.string()),
            "price": _money(prices),
            "embedding": pa.array(vectors, pa.list_(pa.float32(), 4)),
        }
    )


def _products() -> list[tuple[str, str, int]]:
    """Return the name, the category and the price in cents of every product."""
    return [
        (f"{colour} {thing}", category, cents)
        for thing, (category, cents) in _THINGS.items()
        for colour in _COLOURS
    ]


def _skewed(key: int, count: int) -> int:
    """Return a number below `count`, small ones more often than others."""
    share = key * 0.6180339887498949 % 1
    return int(share**3 * count)


def _on_circle(step: int, steps: int, radius: float) -> tuple[float, float]:
    angle = 2 * math.pi * step / steps
    return radius * math.cos(angle), radius * math.sin(angle)


def _money(cents: list[int] | tuple[int, ...]) -> pa.Array:
    import pyarrow as pa

    return pa.array([Decimal(value).scaleb(-2) for value in cents], pa.decimal128(9, 2))
