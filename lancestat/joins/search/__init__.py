"""Vector joins: for each left row, the k nearest right rows."""
