"""Executes a plan."""
