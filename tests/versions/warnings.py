"""A pytest plugin: what older PySparks themselves warn of is no error of the test that calls them.

`environments.environment` loads it; with the newest version every warning is an error.
"""

from __future__ import annotations

import pytest

_OF_PYSPARK = (
    # `collect` leaves the socket to the JVM to the garbage collector.
    r"ignore:unclosed .socket\.socket.*(127\.0\.0\.1|\.sock):ResourceWarning",
    # PySpark 3.5 compares the versions of libraries with distutils.
    r"ignore:distutils Version classes are deprecated:DeprecationWarning",
)


def pytest_configure(config: pytest.Config) -> None:
    for line in _OF_PYSPARK:
        config.addinivalue_line("filterwarnings", line)
