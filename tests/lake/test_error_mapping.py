from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancestat.errors import (
    AccessDenied,
    DatasetDamaged,
    DatasetMisconfigured,
    DatasetMissing,
    DatasetUnreadable,
    LakeError,
    StoreUnreachable,
    UnsupportedDataset,
)
from lancestat.lake.error_mapping import lake_error
from lancestat.lake.open import observe_dataset

S3 = "LanceError(IO): Generic S3 error: Error performing list request: Error performing GET "
URL = "http://127.0.0.1:9/b?list-type=2&prefix=t.lance%2F_versions%2F in 1ms"


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("Dataset at path t.lance was not found: Not found: t.lance/_versions", DatasetMissing),
        (f"{S3}{URL} - Server returned non-2xx status code: 404 Not Found: ", DatasetMissing),
        (f"{S3}{URL} - Server returned non-2xx status code: 403 Forbidden: ", AccessDenied),
        (f"{S3}{URL} - Server returned non-2xx status code: 401 : <Code>x</Code>", AccessDenied),
        ("LanceError(IO): The provided token has expired: ExpiredToken", AccessDenied),
        ("LanceError(IO): no providers in chain provided credentials", AccessDenied),
        ("IO error for operation on t: Permission denied (os error 13)", AccessDenied),
        (f"{S3}{URL}, after 3 retries, max_retries: 3 - HTTP error: x", StoreUnreachable),
        (f"{S3}{URL} - Server returned non-2xx status code: 503 Slow Down", StoreUnreachable),
        ("LanceError(IO): operation timed out", StoreUnreachable),
        ("Not supported: Please upgrade Lance to read this. Flags: 64", UnsupportedDataset),
        ("Invalid user input: No object store provider found for scheme", DatasetMisconfigured),
        ('Generic Config error: failed to parse "abc" as Duration', DatasetMisconfigured),
        (f"{S3}{URL} - HTTP error: builder error", DatasetMisconfigured),
        ("LanceError(IO): does not have sufficient data, len: 7", DatasetDamaged),
        ("failed to decode Protobuf message: invalid tag value: 0", DatasetDamaged),
        ("called `Option::unwrap()` on a `None` value", DatasetUnreadable),
    ],
)  # fmt: skip
def test_errors_of_lance_are_classified(message: str, kind: type[LakeError]) -> None:
    assert type(lake_error(ValueError(message), "t.lance")) is kind


def test_errors_of_python_are_classified() -> None:
    assert type(lake_error(PermissionError(13, "no"), "t")) is AccessDenied
    assert type(lake_error(TypeError("argument 'storage_options'"), "t")) is DatasetMisconfigured


@pytest.mark.parametrize(
    "name", ["credentials", "connection timed out", "unsupported", "403 forbidden", "a not found b"]
)
def test_the_name_of_a_table_does_not_affect_classification(tmp_path: Path, name: str) -> None:
    with pytest.raises(LakeError) as missing:
        observe_dataset(str(tmp_path / f"{name}.lance"))
    assert missing.value.code == "LS201"
    place = tmp_path / f"{name}2.lance"
    lance.write_dataset(pa.table({"a": [1]}), place)
    for manifest in (place / "_versions").glob("*.manifest"):
        manifest.write_bytes(b"short")
    with pytest.raises(LakeError) as damaged:
        observe_dataset(str(place))
    assert damaged.value.code == "LS204"


def test_every_error_has_its_own_message() -> None:
    messages = {
        lake_error(ValueError(text), "s3://b/t", version=version).message
        for text, version in [
            ("Dataset at path t was not found: x", None),
            ("Dataset at path t was not found: x", 3),
            ("403 Forbidden", None),
            ("Not supported", None),
            ("noise", None),
            ("operation timed out", None),
            ("No object store provider found", None),
        ]
    }
    assert len(messages) == 7


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Invalid user input: Duplicate column name: a", "LS220"),
        ("Invalid user input: Schema error: No field named x.", "LS220"),
        ("out of memory", "LS220"),
        ("Namespace error: Internal error: Failed to execute request", "LS211"),
        ("Invalid user input: the file has no magic number", "LS204"),
        ("LanceError(IO): protobuf error: failed to decode Protobuf message", "LS204"),
        # As Lance says it of files that were cut, zeroed or changed bit by bit.
        ("LanceError(Arrow): Parser error: Arrow file does not contain correct footer", "LS204"),
        ("file does not appear to be a Lance file (invalid magic: [0, 0, 0, 0])", "LS204"),
        ("LanceError(Arrow): Io error: invalid seek to a negative position", "LS204"),
        ("Generic LocalFileSystem error: failed to fill whole buffer", "LS204"),
        ("LanceError(IO): file size is too small", "LS204"),
        ("Generic memory error: Invalid range 0..9 for object of size 4 bytes", "LS204"),
        ("Encountered corrupt file a.lance Io error: Data corruption detected", "LS204"),
        ("Ipc error: Buffer count mismatched with metadata", "LS204"),
        ("something that nobody has seen yet", "LS220"),
        ("task 7 panicked with message: assertion failed", "LS220"),
    ],
)
def test_what_lance_refuses_is_no_damage(text: str, code: str) -> None:
    assert lake_error(OSError(text), "/data/t.lance").code == code
