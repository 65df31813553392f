"""What a reader is told at planning: which fragments, and which statistics may be trusted."""
