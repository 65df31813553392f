"""Parts of `benchmarks/accuracy.py`."""
