"""A shop whose Lance tables Dagster writes, and whose statistics lancestat keeps."""
