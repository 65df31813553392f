"""A release, made in a copy of the repository as docs/release.md describes it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lancestat import __version__
from tests.documents.clean import ROOT

pytestmark = pytest.mark.wheel

NEXT = "9.8.7"
DATED = f"## {NEXT} - 2026-12-01"


class Repository:
    """A clone whose commits and tags are signed with an SSH key of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "clone"
        key = folder / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        signers = folder / "signers"
        signers.write_text(f"maintainer@example.com {key.with_suffix('.pub').read_text()}")
        config = folder / "gitconfig"
        config.write_text(
            "[user]\n name = A maintainer\n email = maintainer@example.com\n"
            f" signingkey = {key}\n[gpg]\n format = ssh\n"
            f'[gpg "ssh"]\n allowedSignersFile = {signers}\n'
        )
        self.environment = {**os.environ, "GIT_CONFIG_GLOBAL": str(config), "HOME": str(folder)}
        self.git("clone", "--quiet", "--depth", "1", f"file://{ROOT}", str(self.folder), at=folder)
        # What is not committed yet is tried too.
        for name in (".ci/release-check", "pyproject.toml", "README.md", ".gitignore"):
            (self.folder / name).write_text((ROOT / name).read_text("utf-8"), "utf-8")
        self.commit()

    def git(self, *arguments: str, at: Path | None = None) -> None:
        subprocess.run(["git", *arguments], cwd=at or self.folder, env=self.environment, check=True)

    def commit(self) -> None:
        self.git("add", ".")
        self.git("commit", "--quiet", "--allow-empty", "--message", "lancestat: a release")

    def replace(self, name: str, old: str, new: str) -> None:
        text = (self.folder / name).read_text("utf-8")
        assert old in text
        (self.folder / name).write_text(text.replace(old, new, 1), "utf-8")

    def check(self) -> tuple[int, list[str]]:
        ended = subprocess.run(
            [sys.executable, ".ci/release-check"],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
        )
        return ended.returncode, ended.stdout.splitlines()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def problems(lines: list[str]) -> list[str]:
    return [line.removeprefix("no  ") for line in lines if line.startswith("no")]


@pytest.mark.thorough
def test_a_release_is_made_step_by_step(repository: Repository) -> None:
    repository.replace("lancestat/version.py", f'"{__version__}"', f'"{NEXT}"')
    code, lines = repository.check()
    assert code == 1
    assert problems(lines) == [
        "commit or remove these files first",
        f"CHANGELOG.md has no section '## {NEXT} - YYYY-MM-DD'",
    ]

    repository.replace("CHANGELOG.md", "## Unreleased", DATED)
    repository.commit()
    code, lines = repository.check()
    assert (code, problems(lines)) == (0, [])
    assert (
        lines[-1] == f"ok  no tag v{NEXT} yet: git tag --sign v{NEXT} --message 'lancestat {NEXT}'"
    )

    repository.git("tag", "--sign", f"v{NEXT}", "--message", f"lancestat {NEXT}")
    code, lines = repository.check()
    assert (code, problems(lines)) == (0, [])
    assert lines[-1] == f"ok  the tag v{NEXT} is signed, and on this commit"
    names = {path.name for path in (repository.folder / "dist").iterdir()}
    assert names == {f"lancestat-{NEXT}-py3-none-any.whl", f"lancestat-{NEXT}.tar.gz"}


def test_every_mistake_is_found(repository: Repository) -> None:
    repository.replace("lancestat/version.py", f'"{__version__}"', f'"{NEXT}.dev1"')
    repository.replace("CHANGELOG.md", "## Unreleased", f"## Unreleased\n\n- More.\n\n{DATED}")
    repository.replace("pyproject.toml", 'license = "Apache-2.0"', 'license = "No such licence"')
    repository.commit()
    code, lines = repository.check()
    assert code == 1
    found = problems(lines)
    assert found[0] == f"{NEXT}.dev1 is not a version of a release, such as 0.2.0 or 0.2.0rc1"
    assert found[1].startswith("CHANGELOG.md has no section")
    assert "-m build" in found[2] and any("licen" in line.lower() for line in lines)

    repository.replace("lancestat/version.py", f'"{NEXT}.dev1"', f'"{NEXT}"')
    repository.replace("pyproject.toml", 'license = "No such licence"', 'license = "Apache-2.0"')
    repository.commit()
    repository.git("tag", f"v{NEXT}")
    code, lines = repository.check()
    assert code == 1
    assert problems(lines)[0] == (
        "CHANGELOG.md has changes under 'Unreleased': move them to the version"
    )
    assert problems(lines)[1].startswith(f"git tag --verify v{NEXT}")
