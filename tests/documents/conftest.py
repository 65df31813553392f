"""The wheel and the environment that the tests of documents share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.documents.clean import CleanEnvironment, Distributions, build, install


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="session")
def clean(
    distributions: Distributions, tmp_path_factory: pytest.TempPathFactory
) -> CleanEnvironment:
    return install(distributions.wheel, tmp_path_factory.mktemp("clean") / "venv")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = f"{Path(__file__).parent}{os.sep}"
    for item in (item for item in items if str(item.path).startswith(here)):
        if {"distributions", "clean"}.intersection(getattr(item, "fixturenames", ())):
            item.add_marker("wheel")
