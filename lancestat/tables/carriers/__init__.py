"""Carriers of statistics: where the statistics of a table are kept for its readers."""
