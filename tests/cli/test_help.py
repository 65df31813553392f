from __future__ import annotations

import pytest

from lancestat import __version__
from lancestat.cli.main import COMMANDS
from tests.cli.conftest import Lancestat
from tests.conftest import Golden


def test_help_shows_all_commands_in_the_order_of_their_use(
    lancestat: Lancestat, golden: Golden
) -> None:
    golden("cli/help.txt", lancestat("--help", COLUMNS="80").stdout)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_every_command(name: str, lancestat: Lancestat, golden: Golden) -> None:
    result = lancestat(name, "--help", COLUMNS="80")
    assert result.exit_code == 0
    golden(f"cli/help_{name}.txt", result.stdout)


def test_the_version(lancestat: Lancestat) -> None:
    assert lancestat("--version").stdout == f"lancestat {__version__}\n"
