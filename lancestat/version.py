"""The version of lancestat."""

__version__ = "0.1.0"
