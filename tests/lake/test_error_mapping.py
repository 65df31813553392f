from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancestat.errors import LakeError
from lancestat.lake.error_mapping import LakeErrorCode as Code
from lancestat.lake.error_mapping import lake_error
from lancestat.lake.open import observe_dataset

S3 = "LanceError(IO): Generic S3 error: Error performing list request: Error performing GET "
URL = "http://127.0.0.1:9/b?list-type=2&prefix=t.lance%2F_versions%2F in 1ms"


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("Dataset at path t.lance was not found: Not found: t.lance/_versions", Code.MISSING),
        (f"{S3}{URL} - Server returned non-2xx status code: 404 Not Found: ", Code.MISSING),
        (f"{S3}{URL} - Server returned non-2xx status code: 403 Forbidden: ", Code.DENIED),
        (f"{S3}{URL} - Server returned non-2xx status code: 401 : <Code>x</Code>", Code.DENIED),
        ("LanceError(IO): The provided token has expired: ExpiredToken", Code.DENIED),
        ("LanceError(IO): no providers in chain provided credentials", Code.DENIED),
        ("IO error for operation on t: Permission denied (os error 13)", Code.DENIED),
        (f"{S3}{URL}, after 3 retries, max_retries: 3 - HTTP error: x", Code.UNREACHABLE),
        (f"{S3}{URL} - Server returned non-2xx status code: 503 Slow Down", Code.UNREACHABLE),
        ("LanceError(IO): operation timed out", Code.UNREACHABLE),
        ("Not supported: Please upgrade Lance to read this. Flags: 64", Code.UNSUPPORTED),
        ("Invalid user input: No object store provider found for scheme", Code.MISCONFIGURED),
        ('Generic Config error: failed to parse "abc" as Duration', Code.MISCONFIGURED),
        (f"{S3}{URL} - HTTP error: builder error", Code.MISCONFIGURED),
        ("LanceError(IO): does not have sufficient data, len: 7", Code.CORRUPT),
        ("failed to decode Protobuf message: invalid tag value: 0", Code.CORRUPT),
        ("called `Option::unwrap()` on a `None` value", Code.CORRUPT),
    ],
)  # fmt: skip
def test_what_lance_says(said: str, code: Code) -> None:
    assert lake_error(ValueError(said), "t.lance").code == code.value


def test_what_python_says() -> None:
    assert lake_error(PermissionError(13, "no"), "t").code == Code.DENIED.value
    assert lake_error(TypeError("argument 'storage_options'"), "t").code == Code.MISCONFIGURED.value


@pytest.mark.parametrize(
    "name", ["credentials", "connection timed out", "unsupported", "403 forbidden", "a not found b"]
)
def test_the_name_of_a_table_decides_nothing(tmp_path: Path, name: str) -> None:
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


def test_every_refusal_has_words_of_its_own() -> None:
    said = {
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
    assert len(said) == len(set(Code) - {Code.REPLACED})
