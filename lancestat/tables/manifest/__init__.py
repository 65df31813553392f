"""Statistics in a table's manifest: wire format, reader guard, publication."""
