"""Commands one after the other in one process, since each alone would start Java."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.interpreted import short_lived

_ENDED = "\x1e"
_PROGRAM = f"""
import json, sys
from lancestat.cli.main import main

for words in json.loads(sys.argv[1]):
    sys.argv = ["lancestat", *words]
    code = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code or 0
    print(end={_ENDED!r}, file=sys.stderr, flush=True)
    print({_ENDED!r}, code, sep="", end={_ENDED!r}, flush=True)
"""


@dataclass(frozen=True)
class Ended:
    """A command's exit code and output."""

    returncode: int
    stdout: str
    stderr: str


def lancestat(
    folder: Path, environment: Mapping[str, str], *commands: tuple[str, ...]
) -> list[Ended]:
    """Run commands in a folder, with variables added to the environment."""
    process = subprocess.run(
        [sys.executable, "-c", _PROGRAM, json.dumps(commands)],
        cwd=folder,
        env={**os.environ, **short_lived(), **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    stdouts = process.stdout.split(_ENDED)
    return [
        Ended(int(code), stdout, stderr)
        for stdout, code, stderr in zip(
            stdouts[:-1:2], stdouts[1::2], process.stderr.split(_ENDED)[:-1], strict=True
        )
    ]
