"""New projects: what `lancestat init` writes, and the writer that never overwrites."""
