"""The memory between runs: partials, summaries and run records."""
