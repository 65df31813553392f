"""Durable results of joins and their commits."""
