from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.state.values import canonical_uri, table_identity


def test_spellings_of_a_local_path_are_one_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "some where" / "orders.lance"
    table.mkdir(parents=True)
    (tmp_path / "link").symlink_to(table.parent)
    monkeypatch.chdir(tmp_path)
    spellings = [
        str(table),
        f"{table}/",
        f"{tmp_path}/some where/../some where//./orders.lance",
        "some where/orders.lance",
        f"{tmp_path}/link/orders.lance",
        f"file://{tmp_path}/some%20where/orders.lance",
    ]
    assert len({table_identity(spelling) for spelling in spellings}) == 1
    assert table_identity(f"{table}2") != table_identity(str(table))


@pytest.mark.parametrize(
    "spelling",
    [
        "s3://bucket/a/t.lance/",
        "S3://bucket//a/t.lance",
        "s3a://bucket/a/t.lance",
        "s3://KEY:secret@bucket/a/t.lance",
        "s3://bucket/a/t.lance?X-Amz-Signature=secret#part",
    ],
)
def test_spellings_of_a_remote_uri_are_one_table(spelling: str) -> None:
    assert table_identity(spelling) == table_identity("s3://bucket/a/t.lance")
    assert "secret" not in canonical_uri(spelling)
    assert "KEY" not in canonical_uri(spelling)


@pytest.mark.parametrize(
    "other",
    [
        "gs://bucket/a/t.lance",
        "s3://bucket2/a/t.lance",
        "s3://bucket/A/t.lance",
        "s3://bucket/a/t%2Elance",
        "/bucket/a/t.lance",
    ],
)
def test_other_uris_are_other_tables(other: str) -> None:
    assert table_identity(other) != table_identity("s3://bucket/a/t.lance")


def test_azure_containers_are_distinguished() -> None:
    one = "abfss://one@account.dfs.core.windows.net/t.lance"
    assert table_identity(one) != table_identity(one.replace("one", "two"))
    assert canonical_uri(one.replace("one@", "one:secret@")) == canonical_uri(one)


@given(st.text(st.characters(exclude_characters="\0", codec="utf-8")))
def test_every_identity_is_short_and_alphanumeric(text: str) -> None:
    identity = table_identity(f"s3://bucket/{text.replace('[', '')}")
    assert len(identity) == 24
    assert set(identity) <= set("0123456789abcdef")
