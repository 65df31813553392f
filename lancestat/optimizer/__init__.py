"""What Spark's optimizer is told of a scan: pruning, estimates, sampling."""
