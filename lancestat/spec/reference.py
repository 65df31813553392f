"""docs/reference/yaml.md and the files of schemas/, from the declarations of the resources.

`python -m lancestat.spec.reference` writes them again, in a checkout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from lancestat.spec.declaration import (
    Declared,
    Either,
    KeyField,
    Listed,
    Nested,
    Resource,
    Shape,
    key_fields,
)
from lancestat.spec.model import RESOURCES, KnnSide, ProjectFile, SpecFile, Target
from lancestat.spec.schema import PROJECT_SCHEMA, SPECS_SCHEMA, json_text, schema, schema_default

_HEAD = """\
# YAML keys

Every key of `lancestat_project.yml` and of spec files. [specs/](../../specs) has an annotated
example of each file. This page is generated from `lancestat/spec` by `make generate`; do not
edit it.
"""
_TABLE = "| key | value | default | meaning |\n|---|---|---|---|"


def generated_files() -> Mapping[str, str]:
    """Return the text of each generated file, by its path in a checkout."""
    schemas = {
        f"schemas/{name}": json_text(schema(name)) for name in (PROJECT_SCHEMA, SPECS_SCHEMA)
    }
    return {**schemas, "docs/reference/yaml.md": reference()}


def reference() -> str:
    sections: dict[str, type[Declared]] = {
        "`lancestat_project.yml`": ProjectFile,
        "A target: one of `targets`": Target,
        "A spec file": SpecFile,
        **{f"A {_noun(resource)}: one of `{key}`": resource for key, resource in RESOURCES.items()},
        "A side of a KNN join: `left` or `right`": KnnSide,
    }
    return "\n".join([_HEAD, *(_section(title, resource) for title, resource in sections.items())])


def _section(title: str, resource: type[Declared]) -> str:
    declares = resource.declares
    lines = [f"## {title}", "", declares.about or "", "", _TABLE, *_rows(resource, "")]
    choice = _choice(declares)
    return "\n".join([*lines, "", *([f"A {_noun(resource)} has {choice}.", ""] if choice else [])])


def _noun(resource: type[Declared]) -> str:
    return resource.declares.noun.replace("knn", "KNN")


def _choice(declares: Resource) -> str:
    names = [f"`{name}`" for name in declares.one_of]
    return f"exactly one of {', '.join(names[:-1])} and {names[-1]}" if names else ""


def _rows(resource: type[Declared], prefix: str) -> Iterator[str]:
    groups = dict(resource.declares.groups)
    for declared in key_fields(resource):
        for key in declared.spelled:
            if (group := groups.pop(key.path[0], None)) is not None:
                default = "required" if group.is_required else ""
                about = " ".join(filter(None, (group.about, _sentence(_choice(group)))))
                yield _row(prefix + key.path[0], group.title, default, about)
            about = key.about or key.shape.description or ""
            value = key.title or _value(key.shape)
            yield _row(prefix + key.name, value, _default(declared), about)
            inside = _inside(key.shape)
            if inside is not None:
                yield from _rows(inside, f"{prefix}{key.name}.")


def _sentence(choice: str) -> str:
    return f"It has {choice}." if choice else ""


def _row(key: str, value: str, default: str, about: str) -> str:
    cells = (f"`{key}`", value, default, about)
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |".replace("  ", " ")


def _value(shape: Shape) -> str:
    if "enum" in shape.keywords:
        *words, last = (f"`{word}`" for word in shape.keywords["enum"])
        return f"{', '.join(words)} or {last}"
    if isinstance(shape, Listed) and "enum" in shape.items.keywords:
        return f"{shape.title}: {_value(shape.items)}"
    if not shape.title and isinstance(shape, Nested):
        return shape.resource.declares.title
    return shape.title


def _default(declared: KeyField) -> str:
    if declared.is_required and len(declared.keys) == 1:
        return "required"
    default = schema_default(declared)
    if isinstance(declared.first.shape, Either) and default is None:
        default = declared.first.shape.shapes[0].keywords.get("default")
    if isinstance(default, list):
        return f"`[{', '.join(default)}]`"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return "" if default is None else f"`{default}`"


def _inside(shape: Shape) -> type[Declared] | None:
    """Return the resource whose keys are listed with those of the one that it is in."""
    shapes = shape.shapes if isinstance(shape, Either) else (shape,)
    parts = [part for part in shapes if isinstance(part, Nested) and not part.is_inline]
    return parts[0].resource if parts and parts[0].resource.declares.definition is None else None


if __name__ == "__main__":
    for path, text in generated_files().items():
        Path(__file__).parents[2].joinpath(path).write_text(text, encoding="utf-8")
