from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.redact import redact_line, secret_values


def test_locations_of_rust_sources_are_removed() -> None:
    message = (
        "Not found: t.lance/_versions, /home/build/lance/rust/lance-table/src/io/commit.rs:653:26, "
        "/home/build/lance/rust/lance/src/dataset/builder.rs:921:29"
    )
    assert redact_line(message) == "Not found: t.lance/_versions"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("GET https://me:pa55@host/b failed", "GET https://***@host/b failed"),
        ("GET https://token@host/b failed", "GET https://***@host/b failed"),
        ("a https://host/path@2 b", "a https://host/path@2 b"),
        ("https://h/b?list-type=2&X-Amz-Signature=ab12&p=q", "https://h/b?list-type=2&X-Amz-Signature=***&p=q"),
        ("https://h/b?sv=2020&sig=a%2Fb%3D failed", "https://h/b?sv=2020&sig=*** failed"),
        ("s3://b/t?aws_secret_access_key=zzz", "s3://b/t?aws_secret_access_key=***"),
        ("Authorization: Bearer abcdefgh.ij", "Authorization: Bearer ***"),
        ("key AKIAIOSFODNN7EXAMPLE is unknown", "key *** is unknown"),
    ],
)  # fmt: skip
def test_tokens_are_masked(message: str, expected: str) -> None:
    assert redact_line(message) == expected


def test_an_xml_error_is_reduced_to_code_and_message() -> None:
    body = (
        '403 Forbidden: <?xml version="1.0" encoding="UTF-8"?>\n<Error>'
        "<Code>SignatureDoesNotMatch</Code><Message>The signature does not match.</Message>"
        "<AWSAccessKeyId>me</AWSAccessKeyId>"
        "<StringToSign>AWS4 abc</StringToSign></Error>, /x/y.rs:1:2"
    )
    assert (
        redact_line(body) == "403 Forbidden: SignatureDoesNotMatch: The signature does not match."
    )


def test_all_storage_options_are_secret_but_switches_and_limits() -> None:
    options = {
        "aws_region": "eu-central-1",
        "AWS_ENDPOINT": "http://127.0.0.1:8333",
        "allow_http": "true",
        "client_max_retries": "3",
        "connect_timeout": "5s",
        "aws_access_key_id": "the-id",
        "aws_secret_access_key": "the-key",
        "base_1.account_key": "of one base",
        "base_1.region": "eu",
        "some_new_option": "who knows",
        "empty": "",
    }
    assert secret_values(options) == {
        "eu-central-1",
        "http://127.0.0.1:8333",
        "the-id",
        "the-key",
        "of one base",
        "who knows",
    }
    assert secret_values(None) == frozenset()


@given(st.lists(st.sampled_from([",", " ", "\n", "/a", ".rs:", "x.rs:1", "1", ":", "("])))
def test_locations_are_found_wherever_they_stand(parts: list[str]) -> None:
    """As with the plain pattern, which takes minutes for the text of the next test."""
    text = "".join(parts)
    plain = re.sub(r",?\s*\S+\.rs:\d+(?::\d+)?", "", text)
    assert redact_line(text) == " ".join(plain.split())


@pytest.mark.parametrize("run", ["<", " ", ", ", "a.rs:"])
def test_long_runs_of_any_kind_are_cleaned_in_one_pass(run: str) -> None:
    assert len(redact_line(run * 200_000)) <= 600


def test_one_line_of_bounded_length() -> None:
    assert redact_line("a\n\tb   c\r\n") == "a b c"
    assert len(redact_line("x" * 10_000)) == 600


@given(
    secret=st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF), min_size=8, max_size=40),
    before=st.text(max_size=50),
    after=st.text(max_size=50),
)
def test_a_secret_is_never_shown(secret: str, before: str, after: str) -> None:
    from urllib.parse import quote

    for spelling in (secret, quote(secret, safe=""), quote(secret)):
        assert spelling not in redact_line(before + spelling + after, [secret])


@given(st.text())
def test_cleaning_is_idempotent(text: str) -> None:
    assert redact_line(redact_line(text)) == redact_line(text)
