"""`python -m lancestat`."""

from __future__ import annotations

from lancestat.cli.main import main

if __name__ == "__main__":
    main()
