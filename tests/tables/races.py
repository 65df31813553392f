"""What happens to a table in the moment between the last look at it and a commit."""

from __future__ import annotations

from collections.abc import Callable

import lance
import pytest


def during_commit(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> list[object]:
    """Act once, just before the next commit of an operation; returns what has acted."""
    commit = lance.LanceDataset.commit
    acted: list[object] = []

    def late(*args: object, **options: object) -> object:
        if not acted:
            acted.append(act)
            act()
        return commit(*args, **options)

    monkeypatch.setattr(lance.LanceDataset, "commit", staticmethod(late))
    return acted
