"""Tests that behave as if no Spark ran in their process."""

from __future__ import annotations

import sys

import pytest

_MODULES = ("pyspark.sql.session", "pyspark.sql.connect.session")


def hide_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the sessions of this process from all code until the patch ends.

    It is PySpark that is patched: a module that is first imported meanwhile would keep a patched
    function of ours that it imports by name.
    """
    if "pyspark.core.context" in sys.modules:
        for attribute in ("_active_spark_context", "_gateway", "_jvm"):
            monkeypatch.setattr(f"pyspark.SparkContext.{attribute}", None)
    for name in _MODULES:
        if name in sys.modules:
            sessions = sys.modules[name].SparkSession
            monkeypatch.setattr(sessions, "getActiveSession", lambda: None)
            for attribute in ("_instantiatedSession", "_default_session"):
                if hasattr(sessions, attribute):
                    monkeypatch.setattr(sessions, attribute, None)
