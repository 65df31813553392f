"""Catalogs with tables: directory catalogs, and one that pages its lists and fails on demand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import lance_namespace
import pyarrow as pa
from lance_namespace import (
    CreateNamespaceRequest,
    DeclareTableRequest,
    LanceNamespace,
    ListNamespacesRequest,
    ListTablesRequest,
    PermissionDeniedError,
)

PAGING = f"{__name__}.PagingCatalog"
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", "b", None]})


def write_catalog(root: Path, *tables: str) -> None:
    """Make a directory catalog, or add to one: tables such as `sales.orders`."""
    root.mkdir(exist_ok=True)
    client = lance_namespace.connect("dir", {"root": str(root)})
    known = set(client.list_namespaces(ListNamespacesRequest(id=[])).namespaces)
    for table in tables:
        *namespace, name = table.split(".")
        if namespace and namespace[0] not in known:
            known.add(namespace[0])
            client.create_namespace(CreateNamespaceRequest(id=namespace))
        place = client.declare_table(DeclareTableRequest(id=[*namespace, name])).location
        lance.write_dataset(ROWS, place)


def write_folder(root: Path, *tables: str) -> None:
    """Make a flat folder of datasets."""
    for table in tables:
        lance.write_dataset(ROWS, str(root / f"{table}.lance"))


class PagingCatalog(LanceNamespace):
    """A directory catalog that lists one name a page.

    `root/denied` makes it refuse to list, `root/endless` makes its pages go in a circle.
    """

    def __init__(self, **properties: str) -> None:
        self.root = Path(properties["root"])
        self.inner = lance_namespace.connect("dir", properties)
        self.pages: list[str | None] = []

    def namespace_id(self) -> str:
        return f"paging {self.root}"

    def _page(self, answer: Any, kind: str, request: Any) -> Any:
        if (self.root / "denied").exists():
            raise PermissionDeniedError("no listing for you")
        names = sorted(getattr(answer, kind))
        first = int(request.page_token or 0)
        page = names[first : first + 1]
        token = str(first + 1) if first + 1 < len(names) else None
        if (self.root / "endless").exists():
            token = "0"
        return type(answer)(**{kind: page, "page_token": token})

    def list_tables(self, request: ListTablesRequest) -> Any:
        whole = self.inner.list_tables(ListTablesRequest(id=request.id))
        return self._page(whole, "tables", request)

    def list_namespaces(self, request: ListNamespacesRequest) -> Any:
        whole = self.inner.list_namespaces(ListNamespacesRequest(id=request.id))
        return self._page(whole, "namespaces", request)

    def describe_table(self, request: Any) -> Any:
        return self.inner.describe_table(request)
