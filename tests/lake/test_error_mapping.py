from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancestat.errors import LakeError
from lancestat.lake.error_mapping import Refusal, refuse
from lancestat.lake.open import observe_dataset

S3 = "LanceError(IO): Generic S3 error: Error performing list request: Error performing GET "
URL = "http://127.0.0.1:9/b?list-type=2&prefix=t.lance%2F_versions%2F in 1ms"


@pytest.mark.parametrize(
    ("said", "refusal"),
    [
        ("Dataset at path t.lance was not found: Not found: t.lance/_versions", Refusal.MISSING),
        (f"{S3}{URL} - Server returned non-2xx status code: 404 Not Found: ", Refusal.MISSING),
        (f"{S3}{URL} - Server returned non-2xx status code: 403 Forbidden: ", Refusal.DENIED),
        (f"{S3}{URL} - Server returned non-2xx status code: 401 : <Code>x</Code>", Refusal.DENIED),
        ("LanceError(IO): The provided token has expired: ExpiredToken", Refusal.DENIED),
        ("LanceError(IO): no providers in chain provided credentials", Refusal.DENIED),
        ("IO error for operation on t: Permission denied (os error 13)", Refusal.DENIED),
        (f"{S3}{URL}, after 3 retries, max_retries: 3 - HTTP error: x", Refusal.UNREACHABLE),
        (f"{S3}{URL} - Server returned non-2xx status code: 503 Slow Down", Refusal.UNREACHABLE),
        ("LanceError(IO): operation timed out", Refusal.UNREACHABLE),
        ("Not supported: Please upgrade Lance to read this. Flags: 64", Refusal.UNSUPPORTED),
        ("Invalid user input: No object store provider found for scheme", Refusal.MISCONFIGURED),
        ('Generic Config error: failed to parse "abc" as Duration', Refusal.MISCONFIGURED),
        (f"{S3}{URL} - HTTP error: builder error", Refusal.MISCONFIGURED),
        ("LanceError(IO): does not have sufficient data, len: 7", Refusal.CORRUPT),
        ("failed to decode Protobuf message: invalid tag value: 0", Refusal.CORRUPT),
        ("called `Option::unwrap()` on a `None` value", Refusal.CORRUPT),
    ],
)  # fmt: skip
def test_what_lance_says(said: str, refusal: Refusal) -> None:
    assert refuse(ValueError(said), "t.lance").code == refusal.value


def test_what_python_says() -> None:
    assert refuse(PermissionError(13, "no"), "t").code == Refusal.DENIED.value
    assert refuse(TypeError("argument 'storage_options'"), "t").code == Refusal.MISCONFIGURED.value


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
        refuse(ValueError(text), "s3://b/t", version=version).message
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
    assert len(said) == len(set(Refusal) - {Refusal.REPLACED})
