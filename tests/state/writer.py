"""A process that writes to a state until done or killed: `writer.py FOLDER NAME ROUNDS RETENTION`.

Every round appends three fragments of table `shared` and one of table `NAME`, in a commit each, and
a run; then it tidies.
"""

from __future__ import annotations

import sys
from datetime import timedelta

from lancestat.state.store import open_state
from lancestat.tables.stored import add_partials
from tests.state.conftest import fingerprint, record, run, stored


def main(folder: str, name: str, rounds: int, retention: timedelta) -> None:
    state = open_state(folder, retention=retention)
    live: set[bytes] = set()
    for number in range(rounds):
        names = [f"{name}/{number}/{part}" for part in range(3)]
        add_partials(state, "shared", [stored(name, x=number, y=number) for name in names])
        add_partials(state, name, [stored(number, x=number)])
        live.add(fingerprint(number))
        state.add_run(run(number, record(name, number + 1)))
        state.expire({name: frozenset(live)})
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), timedelta(seconds=float(sys.argv[4])))
