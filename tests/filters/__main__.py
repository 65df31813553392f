"""Random conditions over Lance by every way that pushes them, against Spark over Parquet.

    python -m tests.filters --conditions 10000 --seed 1

Prints what was tried and exits with 1 if anything was found.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

from lancestat.spark.session import start_session
from lancestat.spec.model import Target
from tests.filters.trial import WAYS, ZONES, Rows, drawn, trial
from tests.integration.conftest import PROLEPTIC

_ROUND = 120


def main() -> int:
    """Try the requested number of conditions, in one zone after the other."""
    parser = argparse.ArgumentParser(prog="python -m tests.filters", description=__doc__)
    parser.add_argument("--conditions", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        target = Target(
            name="filters",
            state=f"{folder}/state",
            spark_master="local[2]",
            spark_conf={"spark.sql.warehouse.dir": f"{folder}/warehouse", **PROLEPTIC},
        )
        spark = start_session(target, "lancestat filters", is_short_lived=True)
        rows, started = Rows(spark, Path(folder)), time.monotonic()
        tried = count = 0
        while tried < arguments.conditions:
            seed = arguments.seed + tried
            zone = ZONES[tried // _ROUND % len(ZONES)]
            conditions = list(islice(drawn(seed), _ROUND))
            findings = trial(spark, rows, zone, conditions, WAYS)
            tried += len(conditions)
            count += len(findings)
            for finding in findings:
                print(finding, flush=True)  # noqa: T201
        spark.stop()
    minutes = (time.monotonic() - started) / 60
    print(  # noqa: T201
        f"{tried} conditions by {len(WAYS)} ways, in {len(ZONES)} zones and {minutes:.1f} minutes: "
        f"{count} findings"
    )
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
