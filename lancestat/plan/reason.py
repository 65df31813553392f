"""Why an action is in a plan."""

from __future__ import annotations

from enum import Enum


class Reason(str, Enum):
    """The machine-readable words of a plan; their spelling is a contract."""

    NEW = "new"
    COLUMNS_ADDED = "columns_added"
    COLUMNS_REMOVED = "columns_removed"
    SCHEMA_CHANGED = "schema_changed"
    ROWS_APPENDED = "rows_appended"
    ROWS_DELETED = "rows_deleted"
    ROWS_CHANGED = "rows_changed"
    FRAGMENTS_REWRITTEN = "fragments_rewritten"
    VERSION_MOVED = "version_moved"
    PUBLISH_MISSING = "publish_missing"
    PUBLISH_ALTERED = "publish_altered"
    POLICY_ACCEPTS = "policy_accepts"
    FULL_REFRESH = "full_refresh"
    SPEC_CHANGED = "spec_changed"
    INPUT_CHANGED = "input_changed"
    OUTPUT_MISSING = "output_missing"
    UNCHANGED = "unchanged"
