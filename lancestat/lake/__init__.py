"""What a Lance dataset is now: snapshot, fingerprints, history, schema hash."""
