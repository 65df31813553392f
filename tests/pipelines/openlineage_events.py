"""Events of OpenLineage that a run has left in a file, checked against the published schemas.

They are checked against the classes of its client as well, which are generated from the versions of
the schemas that `_schemaURL` names: these allow no unknown members.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

import attr
import msgspec
from jsonschema import Draft202012Validator
from openlineage.client import generated
from referencing import Registry, Resource

from lancestat.pipelines.column_facet import FACET_SCHEMA, PRODUCER, SCHEMA_URL

TOP = Path(__file__).parents[2]
FORMATS = Draft202012Validator.FORMAT_CHECKER
# The client is generated from a version that is not published yet.
_METRICS = "DataQualityMetricsDatasetFacet"
NOT_PUBLISHED = {f"https://openlineage.io/spec/facets/1-0-1/{_METRICS}.json#/$defs/{_METRICS}"}
Json = dict[str, Any]


@contextmanager
def only(**variables: str) -> Iterator[None]:
    """Configure OpenLineage by these variables alone, with no file in the home folder."""
    with patch.dict(os.environ):
        for name in [name for name in os.environ if name.startswith("OPENLINEAGE")]:
            del os.environ[name]
        os.environ.update({"HOME": "/nonexistent", **variables})
        yield


def to_file(path: Path) -> dict[str, str]:
    """Return the variables that have events written to a file."""
    return {
        "OPENLINEAGE__TRANSPORT__TYPE": "file",
        "OPENLINEAGE__TRANSPORT__LOG_FILE_PATH": str(path),
        "OPENLINEAGE__TRANSPORT__APPEND": "true",
    }


def events_of(path: Path) -> list[Json]:
    """The events in a file, all of which are valid."""
    events = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    for event in events:
        check(event)
    return events


def ended(events: list[Json], job: str) -> Json:
    """The event with which the one run of a job ended."""
    started, end = (event for event in events if event["job"]["name"] == job)
    assert started["eventType"] == "START" and started["run"]["runId"] == end["run"]["runId"]
    assert started["eventTime"] <= end["eventTime"]
    return end


def check(event: Json) -> None:
    """Check an event and all its facets, of which none may have unknown members."""
    classes = _classes()
    msgspec.convert(event, classes[event["schemaURL"]])
    _validate(event, event["schemaURL"])
    assert (event["producer"], UUID(event["run"]["runId"]).version) == (PRODUCER, 7)
    for facet in _facets(event):
        if facet["_schemaURL"] == SCHEMA_URL:
            schema = json.loads((TOP / "schemas" / FACET_SCHEMA).read_text("utf-8"))
        else:
            if facet["_schemaURL"] not in NOT_PUBLISHED:
                _validate(facet, facet["_schemaURL"])
            schema = msgspec.json.schema(classes[facet["_schemaURL"]])
            for definition in schema["$defs"].values():
                definition["additionalProperties"] = definition.get("additionalProperties", False)
        Draft202012Validator(schema).validate(facet)


def _validate(value: Json, url: str) -> None:
    Draft202012Validator({"$ref": url}, registry=_published(), format_checker=FORMATS).validate(
        value
    )


@cache
def _published() -> Registry[Any]:
    """The published schemas by their URLs."""
    folder = Path(__file__).with_name("openlineage")
    schemas = [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))]
    resources = [(schema["$id"], Resource.from_contents(schema)) for schema in schemas]
    registry: Registry[Any] = Registry().with_resources(resources)
    return registry


@cache
def _classes() -> dict[str, type]:
    names = [module.name for module in pkgutil.iter_modules(generated.__path__)]
    modules = [importlib.import_module(f"{generated.__name__}.{name}") for name in names]
    found = (value for module in modules for value in vars(module).values())
    classes = [value for value in found if isinstance(value, type) and attr.has(value)]
    return {each._get_schema(): each for each in classes if "_get_schema" in vars(each)}


def _facets(value: object) -> Iterator[Json]:
    if isinstance(value, dict):
        if "_schemaURL" in value:
            yield value
        for item in value.values():
            yield from _facets(item)
    elif isinstance(value, list):
        for item in value:
            yield from _facets(item)
