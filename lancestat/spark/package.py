"""Packs what Spark's workers need, and gives it to them through `spark.archives`."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import sys
import sysconfig
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any

from lancestat.errors import (
    Location,
    PackageNotWritten,
    PackageOfOtherVersions,
    PackageUnreadable,
    UsageError,
)
from lancestat.lake.files import new_draft, remove_drafts

FORMAT_VERSION = 1
# Spark unpacks the archive into a folder of this name, in the working directory of each executor.
FOLDER = "lancestat"
_DISTRIBUTION = "lancestat"
# Executors have the PySpark of their cluster.
_OF_THE_CLUSTER = frozenset({"pyspark", "py4j"})
_CONTENTS = "lancestat-package.json"
# What installers note down, some of it with paths of this machine.
_NOTES = frozenset({"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"})
_BYTECODE = frozenset({".pyc", ".pyo"})
# Higher levels take three times as long for a tenth of the size.
_COMPRESSION = 1


@dataclass(frozen=True, slots=True)
class Package:
    """An archive that was written, with the versions of the packages in it by name."""

    path: Path
    size_bytes: int
    python: str
    packages: Mapping[str, str]


def write_package(path: Path, *, is_replaced: bool = False) -> Package:
    """Write the installed lancestat and its dependencies into an archive ending with `.tar.gz`.

    The same packages give the same bytes. Nothing is downloaded. PackageNotWritten if it cannot be
    written, something is in the way, or the files of a package are not known.
    """
    require_free_place(path, is_replaced=is_replaced)
    distributions = _distributions()
    files = dict(sorted(_files(distributions).items()))
    draft = new_draft(path)
    try:
        remove_drafts(path)
        try:
            with draft.open("xb") as file:
                _write(file, files, _contents(distributions))
            size_bytes = draft.stat().st_size
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        source = None if error.filename in (None, str(draft)) else error.filename
        failed = f"cannot pack {source}" if source else f"cannot write {path}"
        raise PackageNotWritten(f"{failed}: {reason}") from None
    return Package(path, size_bytes, _python(), _versions(distributions))


def require_free_place(
    path: Path,
    *,
    is_replaced: bool,
    ending: str = ".tar.gz",
    verb: str = "unpack",
    refusal: type[UsageError] = PackageNotWritten,
) -> None:
    """Raise `refusal` for a path at which an archive or a jar would not be written."""
    if not path.name.endswith(ending):
        raise refusal(f"Spark would not {verb} {path}: its name must end with {ending}")
    if not path.parent.is_dir():
        raise refusal(f"cannot write {path}: there is no folder {path.parent}")
    in_the_way = path.exists() or path.is_symlink()
    if in_the_way and (not is_replaced or not path.is_file()):
        hint = "give --force to replace it" if path.is_file() else "name a file with --out"
        raise refusal(f"{path} is there already, and was left as it is", hint=hint)


def package_settings(path: str, conf: Mapping[str, str]) -> dict[str, str]:
    """Return Spark settings with which executors import from a package at a path or URI."""
    archives = [conf.get("spark.archives"), f"{path}#{FOLDER}"]
    modules = [conf.get("spark.executorEnv.PYTHONPATH"), FOLDER]
    return {
        "spark.archives": ",".join(filter(None, archives)),
        "spark.executorEnv.PYTHONPATH": ":".join(filter(None, modules)),
    }


def require_package(path: str, location: Location | None = None) -> None:
    """Raise PackageUnreadable for a local path without a package, declared at `location`."""
    if "://" not in path:
        _read_contents(Path(path), location)


def require_same_versions(path: str, location: Location | None = None) -> None:
    """Raise PackageOfOtherVersions for a local package of other versions than those here."""
    if "://" in path:
        return
    packed, here = _read_contents(Path(path), location), _contents(_distributions())
    if packed == here:
        return
    changes = [
        f"{what} {packed.get(what) or 'missing'} instead of {here[what]}"
        for what in ("python", "platform")
        if packed.get(what) != here[what]
    ]
    versions = packed.get("packages", {})
    changes += [
        f"{name} {versions.get(name, 'missing')} instead of {version}"
        for name, version in here["packages"].items()
        if versions.get(name) != version
    ]
    raise PackageOfOtherVersions(
        f"{path} is not of the versions that run here: it has {', '.join(changes) or 'others'}",
        location=location,
        hint=f"write it again: lancestat package --force --out {path}",
    )


def _read_contents(path: Path, location: Location | None) -> dict[str, Any]:
    try:
        with tarfile.open(path, "r|gz") as archive:
            first = archive.next()
            file = archive.extractfile(first) if first and first.name == _CONTENTS else None
            contents = json.loads(file.read()) if file else None
    except (OSError, tarfile.TarError, EOFError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise PackageUnreadable(
            f"the package {path} cannot be read: {reason}",
            location=location,
            hint=f"write it: lancestat package --force --out {path}",
        ) from None
    if not isinstance(contents, dict):
        message = f"{path} was not written by `lancestat package`"
        raise PackageUnreadable(message, location=location)
    return contents


def _contents(distributions: Mapping[str, metadata.Distribution]) -> dict[str, Any]:
    return {
        "format_version": FORMAT_VERSION,
        "python": _python(),
        "platform": sysconfig.get_platform(),
        "packages": _versions(distributions),
    }


def _python() -> str:
    return ".".join(map(str, sys.version_info[:2]))


def _versions(distributions: Mapping[str, metadata.Distribution]) -> dict[str, str]:
    return {name: found.version for name, found in sorted(distributions.items())}


def _distributions() -> dict[str, metadata.Distribution]:
    found: dict[str, metadata.Distribution] = {}
    waiting = [(_DISTRIBUTION, "")]
    while waiting:
        name, marker = waiting.pop()
        if name in found or name in _OF_THE_CLUSTER:
            continue
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            # With a marker it may be for another Python or system.
            if marker:
                continue
            raise PackageNotWritten(f"{name}, which lancestat needs, is not installed") from None
        for required in found[name].requires or ():
            requirement, _, marker = required.partition(";")
            word = re.match(r"[\w.-]+", requirement)
            if word is not None and "extra" not in marker:
                waiting.append((re.sub(r"[-_.]+", "-", word[0]).lower(), marker))
    return found


def _files(distributions: Mapping[str, metadata.Distribution]) -> dict[str, Path]:
    files = dict(_own_files())
    for name, distribution in distributions.items():
        listed = distribution.files
        if not listed:
            raise PackageNotWritten(
                f"the files of {name} are not known: it was not installed from a wheel",
                hint=f"reinstall it with pip: pip install --force-reinstall {name}",
            )
        for path in listed:
            if path.suffix == ".pth" and len(path.parts) == 1 and name != _DISTRIBUTION:
                raise PackageNotWritten(f"{name} is installed by reference, as by `pip install -e`")
            # Scripts are in folders beside that of the modules.
            if ".." not in path.parts and not path.is_absolute() and _is_packed(path):
                files.setdefault(str(PurePosixPath(path)), Path(str(path.locate())))
    return files


def _own_files() -> Iterator[tuple[str, Path]]:
    # Where lancestat is imported from its repository, no list of its files exists.
    folder = Path(__file__).parents[1]
    for path in folder.rglob("*"):
        name = PurePosixPath(_DISTRIBUTION, *path.relative_to(folder).parts)
        if path.is_file() and _is_packed(name):
            yield str(name), path


def _is_packed(path: PurePosixPath) -> bool:
    is_note = path.name in _NOTES and path.parent.suffix == ".dist-info"
    return not is_note and path.suffix not in {*_BYTECODE, ".pth"}


def _write(file: io.BufferedWriter, files: Mapping[str, Path], contents: object) -> None:
    with (
        gzip.GzipFile("", "wb", _COMPRESSION, file, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        text = json.dumps(contents, indent=1).encode()
        archive.addfile(_member(_CONTENTS, len(text)), io.BytesIO(text))
        for name, path in files.items():
            with path.open("rb") as source:
                size_bytes = os.fstat(source.fileno()).st_size
                archive.addfile(_member(name, size_bytes), source)


def _member(name: str, size_bytes: int) -> tarfile.TarInfo:
    """A member without anything of this machine: owner, time and mode are the defaults."""
    member = tarfile.TarInfo(name)
    member.size = size_bytes
    return member
