"""The definitions of the shop, which Dagster finds by their place."""
