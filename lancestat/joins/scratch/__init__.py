"""Scratch folders of joins: leases and cleanup."""
