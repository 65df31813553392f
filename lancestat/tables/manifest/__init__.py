"""Statistics in a table's manifest: wire format, publication."""
