from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import importlib, pkgutil, sys
import lancestat.lake
for module in pkgutil.iter_modules(lancestat.lake.__path__):
    importlib.import_module(f"lancestat.lake.{module.name}")
heavy = {"lance", "pyarrow", "numpy", "polars", "pyspark"} & set(sys.modules)
print(sorted(heavy))
"""


def test_the_layer_loads_large_libraries_lazily() -> None:
    completed = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert completed.stdout.strip() == "[]"
