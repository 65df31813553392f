"""`python -m lancestat`."""

from __future__ import annotations

import sys
from pathlib import Path

# `python -m` looks for modules in the current folder first, and that may hold a stranger's project.
# Only a checkout of lancestat itself is needed there.
if sys.path[0] == str(Path.cwd()) != str(Path(__file__).parent.parent):
    del sys.path[0]

from lancestat.cli.main import main

if __name__ == "__main__":
    main()
