"""Makes the libraries of Spark Connect's client importable in this process.

They are in a folder of their own: where pandas is installed, pyarrow imports it with the first
array of each process, which takes longer than most tests.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

FOLDER = Path(sys.prefix) / "connect"
# For processes that are clients too.
ENVIRONMENT = {
    "PYTHONPATH": os.pathsep.join(filter(None, [str(FOLDER), os.environ.get("PYTHONPATH")]))
}

if str(FOLDER) not in sys.path:
    sys.path.append(str(FOLDER))
