"""Run programs one after the other in this process, and write the outcome of each as JSON.

    python -m tests.benchmarks.programs REPORT PROGRAM...

Each runs at its tiny size. Those that start Spark share a JVM, which takes longer to start than a
smoke run takes; so does the generator of TPC-H, and those that read lineitem alone find it at hand.
"""

from __future__ import annotations

import io
import json
import runpy
import sys
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path

from tests.interpreted import remember_names


def programs(folder: Path) -> list[Path]:
    return sorted(
        path for path in folder.glob("*.py") if "__main__" in path.read_text(encoding="utf-8")
    )


def run(program: Path, options: Sequence[str] = ()) -> dict[str, str | None]:
    """Run a program as `python PROGRAM --tiny OPTIONS` does; return its output and its error."""
    from pyspark import SparkContext

    output, error = io.StringIO(), None
    sys.argv = [str(program), "--tiny", *options]
    try:
        with redirect_stdout(output):
            runpy.run_path(str(program), run_name="__main__")
    except SystemExit as ended:
        error = str(ended.code) if ended.code else None
    except Exception:
        error = traceback.format_exc()
    if (left := SparkContext._active_spark_context) is not None:
        left.stop()
        error = error or "its session of Spark is left open"
    return {"program": program.name, "output": output.getvalue(), "error": error}


def main(report: Path, *programs: Path) -> None:
    remember_names()
    # Benchmarks import each other by name, since a program's folder is where Python looks first.
    sys.path.insert(0, str(programs[0].parent))
    lineitem = import_module("lineitem")
    with tempfile.TemporaryDirectory() as folder, report.open("w", encoding="utf-8") as file:
        lineitem.generate(lineitem.TINY, Path(folder))
        for program in programs:
            reads_lineitem = "lineitem.parquet" in program.read_text(encoding="utf-8")
            options = ["--data", folder] if reads_lineitem else []
            file.write(json.dumps(run(program, options)) + "\n")
            file.flush()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
