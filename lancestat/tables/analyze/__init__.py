"""Spark jobs that compute statistics."""
