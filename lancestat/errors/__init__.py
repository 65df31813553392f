"""Every error that reaches a user, one class for each code (`docs/reference/errors.md`)."""

# ruff: noqa: F403
from lancestat.errors.base import *
from lancestat.errors.codes import *
