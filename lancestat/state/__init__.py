"""What is remembered between runs: partials and run records."""
