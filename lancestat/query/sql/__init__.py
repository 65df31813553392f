"""Runs, explains and judges queries."""
