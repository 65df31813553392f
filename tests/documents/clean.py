"""lancestat as users get it: its wheel, installed into a virtual environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.interpreted import short_lived

ROOT = Path(__file__).parents[2]
# Settings of whoever runs the tests, which a newcomer does not have.
_OURS = ("LANCESTAT_", "PYTHON", "PYTEST", "SPARK_", "PYSPARK_", "GIT_", "VIRTUAL_ENV")


@dataclass(frozen=True)
class Distributions:
    """The sdist, and the wheel that was built from it."""

    sdist: Path
    wheel: Path


@dataclass(frozen=True)
class CleanEnvironment:
    """A virtual environment whose lancestat is the wheel's; `python` is its interpreter."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def variables(self, home: Path) -> dict[str, str]:
        """Return the variables of a shell in which the environment is activated.

        Args:
            home: The user's home, so that no configuration of the real one counts.
        """
        kept = {k: v for k, v in os.environ.items() if not k.startswith(_OURS)}
        return {
            **kept,
            "JDK_JAVA_OPTIONS": short_lived()["JDK_JAVA_OPTIONS"],
            # Programs of the tests, such as tpchgen-cli, come last.
            "PATH": os.pathsep.join(
                (str(self.folder / "bin"), os.environ["PATH"], str(Path(sys.executable).parent))
            ),
            "HOME": str(home),
            "COLUMNS": "100",
            "PYTHONIOENCODING": "utf-8",
            "GIT_CONFIG_GLOBAL": os.devnull,
            **_GIT_USER,
        }


_GIT_USER: Mapping[str, str] = {
    f"GIT_{role}_{key}": value
    for role in ("AUTHOR", "COMMITTER")
    for key, value in (("NAME", "A reader"), ("EMAIL", "reader@example.com"))
}


def build(folder: Path) -> Distributions:
    """Build both distributions from the checkout, with the build tools that are installed."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    _run(command)
    [sdist], [wheel] = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return Distributions(sdist, wheel)


def install(wheel: Path, folder: Path) -> CleanEnvironment:
    """Install a wheel into a new virtual environment.

    Its dependencies are those of this interpreter, found through a path file, since to install
    them takes minutes. The checkout is not among the paths.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    clean = CleanEnvironment(folder)
    _run(
        [
            *(sys.executable, "-m", "pip", "--python", str(clean.python), "install", "--quiet"),
            *("--no-index", "--no-deps", "--disable-pip-version-check", str(wheel)),
        ]
    )
    [site_packages] = folder.glob("lib/python3*/site-packages")
    borrowed = [
        path for path in sys.path if path.endswith("-packages") or ".spark-versions" in path
    ]
    (site_packages / "dependencies.pth").write_text("\n".join(borrowed) + "\n", "utf-8")
    return clean


def _run(command: list[str]) -> None:
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
