"""Run every test that needs Spark with each version of it: `make matrix`.

The tests try as many cases of each kind as `make test` does, and all with --thorough.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from tests.versions.environments import REPOSITORY, VERSIONS, environment, runs_here

_NOT_PASSED = ("failures", "errors", "skipped")


def main() -> None:
    """Print a line of counts for each version, and end with 1 where any test failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--versions", nargs="+", default=VERSIONS, help="such as 4.1.4")
    parser.add_argument("--workers", type=int, default=2, help="processes side by side")
    parser.add_argument("--thorough", action="store_true", help="try all cases of every test")
    parser.add_argument("tests", nargs="*", default=with_spark(), help="files or folders of tests")
    given = parser.parse_args()
    options = ["-n", str(given.workers)]
    if not given.thorough:
        options.append("--hypothesis-profile=quick")
    failed = [
        version
        for version in given.versions
        if runs_here(version) and run(version, [*options, *given.tests])
    ]
    for version in given.versions:
        if not runs_here(version):
            major, minor = sys.version_info[:2]
            sys.stdout.write(f"{version}: it does not support Python {major}.{minor}\n")
    sys.exit(1 if failed else 0)


def with_spark() -> list[str]:
    """Return the files whose tests need Spark; others may import what a version has not."""
    files = sorted((REPOSITORY / "tests").rglob("test_*.py"))
    return [
        str(file.relative_to(REPOSITORY))
        for file in files
        if "mark.spark" in file.read_text(encoding="utf-8") and file.parent != Path(__file__).parent
    ]


def run(version: str, arguments: list[str]) -> bool:
    """Run tests on a version of Spark; return whether any failed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "spark"]
        command += ["--dist", "loadfile", "--no-loadscope-reorder", f"--junitxml={report}"]
        ended = subprocess.run(
            [*command, *arguments],
            cwd=REPOSITORY,
            env=environment(version),
            check=False,
        )
        suite = ElementTree.parse(report).getroot().find("testsuite")
        assert suite is not None
        total, *others = (int(suite.attrib[name]) for name in ("tests", *_NOT_PASSED))
    counts = [f"{count} {name}" for name, count in zip(_NOT_PASSED, others, strict=True)]
    sys.stdout.write(f"{version}: {total - sum(others)} passed, {', '.join(counts)}\n")
    sys.stdout.flush()
    return ended.returncode != 0


if __name__ == "__main__":
    main()
