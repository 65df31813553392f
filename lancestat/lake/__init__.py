"""Lance datasets: snapshots, fingerprints, history, commits, and the files around them."""
