"""Every error that reaches a user, one class for each code: `docs/reference/errors.md` lists them.

`base` has the root and the areas; the other modules declare the codes of one area each.
"""

# ruff: noqa: F403
from lancestat.errors.base import *
from lancestat.errors.lake import *
from lancestat.errors.publish import *
from lancestat.errors.run import *
from lancestat.errors.spec import *
from lancestat.errors.state import *
from lancestat.errors.usage import *
