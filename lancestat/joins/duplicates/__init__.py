"""Near-duplicates: groups of rows of a table, from pairs that a join with itself finds."""
