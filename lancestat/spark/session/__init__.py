"""Starts Spark and names its jobs."""
