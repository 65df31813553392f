"""Statistics of a scan for Spark's optimizer: pruning, estimates, sampling."""
