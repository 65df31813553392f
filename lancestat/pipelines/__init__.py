"""What other systems get of runs: artifacts."""
