"""Estimates of whole plans: operators, conditions, joins, and the order to join in."""
