"""Lance tables in Spark queries."""
