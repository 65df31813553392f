"""The declarations of users: YAML with positions, templates, validation, model, selection."""

from pathlib import Path

# The default folder of a project's pages, in a folder that git ignores.
PAGES = Path(".lancestat", "docs")
