from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from lancestat.lake import catalogs


@pytest.fixture(autouse=True)
def _own_clients() -> Iterator[None]:
    """Let no test use the clients of another, nor its handlers of logs."""
    logger = logging.getLogger("lancestat")
    handlers, level = logger.handlers, logger.level
    catalogs._client.cache_clear()
    yield
    catalogs._client.cache_clear()
    logger.handlers = handlers
    logger.setLevel(level)
