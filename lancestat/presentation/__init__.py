"""Presents results as text, JSON, Markdown and CSV."""
