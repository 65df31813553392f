"""How results are shown: as text, JSON, Markdown and CSV."""
