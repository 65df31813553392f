"""A catalog whose credentials expire, whose lists have pages, and which owns versions.

It is a server's client as projects name it: `impl: tests.catalogs.serving.ServingCatalog`. What it
remembers is in local files, so that all processes see the same catalog.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import lance_namespace as ns
import pyarrow.fs
from lance.namespace import DirectoryNamespace
from lance_namespace.errors import (
    ConcurrentModificationError,
    PermissionDeniedError,
    ServiceUnavailableError,
    ThrottlingError,
)

BUSY = (ServiceUnavailableError, ThrottlingError)


class ServingCatalog(ns.LanceNamespace):
    """A catalog over a local folder, or one in an object store whose keys a lender lends.

    Args:
        root: Its folder.
        lease_seconds: How long credentials are said to be good for; none are given when 0. They are
            no keys of anything.
        lender: The address of a `tests.catalogs.lender.Lender`, which gives credentials instead.
        remembered: The folder of what the catalog remembers, where `root` is not local.
        page: The most names of one page.
        fails: So many of the first requests of each kind fail, as those of a busy server.
        fails_every: So does each request of a kind whose number it divides.
        forbidden: "true" if nobody may read tables whose names start with `private`.
        managed: "true" if the catalog owns the versions of its tables.
        dies: When the first process that announces a version is killed: "before" the catalog takes
            it on, "within", when the file is in its place, or "after".
    """

    def __init__(
        self,
        root: str,
        lease_seconds: str = "0",
        lender: str = "",
        remembered: str = "",
        page: str = "2",
        fails: str = "0",
        fails_every: str = "0",
        forbidden: str = "false",
        managed: str = "false",
        dies: str = "",
        token: str = "",
    ) -> None:
        self._root = root
        self._remembered = Path(remembered) if remembered else served(Path(root))
        self._lender = lender
        options = _answer(f"{lender}/owner") if lender else {}
        self._files = _Files(options)
        storage = {f"storage.{key}": text for key, text in options.items()}
        self._tables = DirectoryNamespace(root=root, **storage)
        self._lease_seconds = float(lease_seconds)
        self._page = int(page)
        self._fails = int(fails)
        self._fails_every = int(fails_every)
        self._forbidden = forbidden == "true"
        self._managed = managed == "true"
        self._dies = dies

    def namespace_id(self) -> str:
        return f"ServingCatalog({self._root})"

    def describe_table(self, request: Any) -> ns.DescribeTableResponse:
        asked = self._count("describe_table")
        if isinstance(request, dict):
            # Lance asks in this way for credentials; through lancestat it never does.
            request = ns.DescribeTableRequest(**request)
        identifier = request.id
        if self._forbidden and identifier[-1].startswith("private"):
            raise PermissionDeniedError(f"{identifier[-1]} is not for you")
        answer = self._tables.describe_table(request)
        answer.managed_versioning = self._managed
        if self._lender:
            answer.storage_options = _answer(f"{self._lender}/lend")
        elif self._lease_seconds:
            expires = int((time.time() + self._lease_seconds) * 1000)
            answer.storage_options = {
                "aws_access_key_id": f"lent-id-{asked}",
                "aws_secret_access_key": f"lent-secret-{asked}",
                "expires_at_millis": str(expires),
            }
        return answer

    def declare_table(self, request: Any) -> ns.DeclareTableResponse:
        self._count("declare_table")
        answer = self._tables.declare_table(request)
        answer.managed_versioning = self._managed
        if self._lender:
            answer.storage_options = _answer(f"{self._lender}/lend")
        return answer

    def list_tables(self, request: ns.ListTablesRequest) -> ns.ListTablesResponse:
        self._count("list_tables")
        names = self._tables.list_tables(ns.ListTablesRequest(id=request.id)).tables
        page, token = self._paged(sorted(names), request.page_token)
        return ns.ListTablesResponse(tables=page, page_token=token)

    def list_namespaces(self, request: ns.ListNamespacesRequest) -> ns.ListNamespacesResponse:
        self._count("list_namespaces")
        asked = ns.ListNamespacesRequest(id=request.id)
        names = self._tables.list_namespaces(asked).namespaces
        page, token = self._paged(sorted(names), request.page_token)
        return ns.ListNamespacesResponse(namespaces=page, page_token=token)

    def create_namespace(self, request: Any) -> ns.CreateNamespaceResponse:
        return self._tables.create_namespace(request)

    def drop_table(self, request: Any) -> ns.DropTableResponse:
        return self._tables.drop_table(request)

    def list_table_versions(self, request: Any) -> ns.ListTableVersionsResponse:
        asked = request if isinstance(request, dict) else request.model_dump()
        self._count("list_table_versions")
        with self._versions(asked["id"]) as versions:
            known = sorted(versions.values(), key=lambda version: version["version"])
        if asked.get("descending"):
            known.reverse()
        known = known[: asked.get("limit") or len(known)]
        return ns.ListTableVersionsResponse(versions=[ns.TableVersion(**one) for one in known])

    def describe_table_version(self, request: dict[str, Any]) -> dict[str, Any]:
        self._count("describe_table_version")
        with self._versions(request["id"]) as versions:
            known = versions.get(str(request["version"]))
        if known is None:
            raise ns.errors.TableVersionNotFoundError(f"no version {request['version']}")
        return {"version": known}

    def create_table_version(self, request: dict[str, Any]) -> dict[str, Any]:
        """Take a version on, unless another has its number."""
        self._count("create_table_version")
        self._die("before")
        with self._versions(request["id"]) as versions:
            number = str(request["version"])
            if number in versions:
                raise ConcurrentModificationError(f"there is a version {number}")
            staged = request["manifest_path"]
            path = staged[: staged.rindex(".manifest") + len(".manifest")]
            if self._files.has(path):
                # Somebody has committed past the catalog: its version is another.
                path = staged
            else:
                self._files.copy(staged, path)
            self._die("within")
            versions[number] = {
                "version": request["version"],
                "manifest_path": path,
                "manifest_size": request.get("manifest_size"),
                "timestamp_millis": int(time.time() * 1000),
            }
        self._die("after")
        return {"version": versions[number]}

    def _die(self, when: str) -> None:
        mark = self._remembered / "died"
        if self._dies == when and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def _paged(self, names: list[str], token: str | None) -> tuple[list[str], str | None]:
        start = int(token or 0)
        end = start + self._page
        return names[start:end], str(end) if end < len(names) else None

    def _count(self, request: str) -> int:
        with self._file("requests") as requests:
            asked = requests[request] = requests.get(request, 0) + 1
        if asked <= self._fails or (self._fails_every and asked % self._fails_every == 0):
            raise BUSY[asked % 2](f"{request} is busy")
        return int(asked)

    def _versions(self, identifier: list[str]) -> Any:
        return self._file("versions-" + quote("$".join(identifier), safe=""))

    @contextmanager
    def _file(self, name: str) -> Iterator[dict[str, Any]]:
        """A mapping in a file, kept when the block ends without an error."""
        self._remembered.mkdir(exist_ok=True)
        with (self._remembered / f"{name}.json").open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            values = json.loads(file.read() or "{}")
            yield values
            file.seek(0)
            os.ftruncate(file.fileno(), 0)
            file.write(json.dumps(values))


class _Files:
    """Files as Lance names them to catalogs: paths on this machine, or in the store's bucket."""

    def __init__(self, options: dict[str, str]) -> None:
        self._bucket, self._store = "", pyarrow.fs.LocalFileSystem()
        if options:
            self._bucket = "lake"
            self._store = pyarrow.fs.S3FileSystem(
                access_key=options["aws_access_key_id"],
                secret_key=options["aws_secret_access_key"],
                endpoint_override=options["aws_endpoint"],
                region=options["aws_region"],
            )

    def has(self, path: str) -> bool:
        found = self._store.get_file_info(f"{self._bucket}/{path}")
        return bool(found.type != pyarrow.fs.FileType.NotFound)

    def copy(self, source: str, path: str) -> None:
        self._store.copy_file(f"{self._bucket}/{source}", f"{self._bucket}/{path}")


def _answer(address: str) -> dict[str, str]:
    with urlopen(address, timeout=60) as answer:
        options: dict[str, str] = json.load(answer)
        return options


def served(root: Path) -> Path:
    """The folder of what a catalog remembers, beside that of its tables."""
    return root.with_name(root.name + ".served")


def requests(root: Path) -> Counter[str]:
    """How often a catalog has been asked, by the kind of the request."""
    path = served(root) / "requests.json"
    return Counter(json.loads(path.read_text()) if path.exists() else {})
