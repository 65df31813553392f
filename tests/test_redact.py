from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.errors import InvalidProject, Location, UnknownKey
from lancestat.redact import (
    Audience,
    KnownValue,
    Redactor,
    RenewedOptions,
    Variable,
    is_secret_name,
    redact_line,
    secret_options,
    secret_values,
)

PUBLIC, PERSON = Audience.PUBLIC, Audience.PERSON


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("AWS_SECRET_ACCESS_KEY", True),
        ("github_token", True),
        ("DB_PASSWORD", True),
        ("DB_PASSWD", True),
        ("MYSQL_PWD", True),
        ("ApiKey", True),
        ("GOOGLE_APPLICATION_CREDENTIALS", True),
        ("AZURE_STORAGE_CONNECTION_STRING", True),
        ("SMTP_PASS", True),
        ("AUTHORIZATION", True),
        ("DB_CREDS", True),
        ("GITHUB_PAT", True),
        ("DB_PW", True),
        ("WIFI_PSK", True),
        ("LOGIN_OTP", True),
        ("DB_CONNSTR", True),
        ("SLACK_WEBHOOK_URL", True),
        ("BASIC_AUTH", True),
        ("PWD", False),
        ("AUTHOR", False),
        ("LAKE_URI", False),
        ("PATH", False),
        ("SASL_MODE", False),
        ("SPEC_PATH", False),
        ("CREDIT_TABLE", False),
        ("PATTERN", False),
    ],
)
def test_names_decide_whether_variables_are_secret(name: str, secret: bool) -> None:
    assert is_secret_name(name) is secret


def redactor(*known: KnownValue) -> Redactor:
    return Redactor(known, {"orders"})


LAKE = KnownValue("s3://lake-of-mine/x", "{{ env_var('LAKE') }}", is_whole=True)
TOKEN = KnownValue("to/ken+9 'a\"b", "{{ env_var('TOKEN') }}", is_secret=True, is_whole=True)


@pytest.mark.parametrize(
    "text",
    [
        "to/ken+9 'a\"b",
        "TO/KEN+9 'A\"B",
        "to%2Fken%2B9%20%27a%22b",
        "to/ken%2B9%20%27a%22b",
        json.dumps("to/ken+9 'a\"b"),
        "to/ken+9\n   'a\"b",
        "dG8va2VuKzkgJ2EiYg==",
    ],
)
def test_a_secret_is_found_in_every_encoding(text: str) -> None:
    for audience in Audience:
        redacted = redactor(TOKEN).text(f"x{text}y", audience)
        assert "{{ env_var('TOKEN') }}" in redacted
        assert "ken" not in redacted.replace("TOKEN", "").lower()


def test_ordinary_values_are_shown_to_persons() -> None:
    text = "no dataset at s3://lake-of-mine/x/t, looked at lake-of-mine/x/"
    assert redactor(LAKE).text(text, PERSON) == text
    redacted = redactor(LAKE).text(text, PUBLIC)
    assert redacted == "no dataset at {{ env_var('LAKE') }}/t, looked at {{ env_var('LAKE') }}/"


def test_short_and_common_values_do_not_corrupt_texts() -> None:
    values = ["a", "1", "true", "12345", "main", "orders", "warehouse"]
    known = [KnownValue(value, "X") for value in values]
    text = "a table of orders: 1 true 12345 main, warehouses and a warehouse_2"
    assert Redactor(known, {"orders"}).text(text, PUBLIC) == text.replace("warehouse_", "X_")
    secrets = [KnownValue(value, "X", is_secret=True) for value in ("a", "ab", "true", "key")]
    assert Redactor(secrets).text("a monkey has a key, ab, true", PERSON) == (
        "a monkey has a X, ab, true"
    )


def test_short_values_are_replaced_where_messages_quote_them() -> None:
    known = [KnownValue("emb", "{{ env_var('V') }}"), KnownValue("a", "{{ env_var('A') }}")]
    text = "'near' names 'emb' and 'a', not member; env_var('emb') is set"
    assert Redactor(known).text(text, PUBLIC) == (
        "'near' names '{{ env_var('V') }}' and '{{ env_var('A') }}', not member; "
        "env_var('emb') is set"
    )
    assert Redactor(known).text(text, PERSON) == text
    assert Redactor(known, {"emb", "a"}).text(text, PUBLIC) == text


def test_the_longest_value_is_replaced_and_nothing_twice() -> None:
    both = redactor(
        LAKE, KnownValue("s3://lake-of-mine/x/deeper", "{{ env_var('lake-of-mine/x') }}")
    )
    assert both.text("at s3://lake-of-mine/x/deeper!", PUBLIC) == (
        "at {{ env_var('lake-of-mine/x') }}!"
    )


def test_truncated_values_are_recognised() -> None:
    value = "s3cret" * 20
    long = redactor(KnownValue(value, "X", is_secret=True, is_whole=True))
    assert long.text(f"found '{value[:57]}...' there", PERSON) == "found 'X there"


def test_of_many_values_with_a_common_prefix_only_the_prefix_is_searched() -> None:
    lake = "s3://lake-of-mine/x"
    # A scalar that is nothing but the variable is known as such and as a rendered text.
    known = [KnownValue(lake, LAKE.replacement), LAKE]
    known += [KnownValue(f"{lake}/t{n}", f"{LAKE.replacement}/t{n}") for n in range(1000)]
    redacting = Redactor(known)
    assert redacting.text(f"at {lake}/t7!", PUBLIC) == f"at {LAKE.replacement}/t7!"
    assert len(redacting._of(PUBLIC)) < 10


def test_equal_values_are_secret_where_any_is() -> None:
    ordinary, secret = (
        KnownValue("value-of-two", "A"),
        KnownValue("value-of-two", "B", is_secret=True),
    )
    assert redactor(ordinary, secret).text("value-of-two", PERSON) == "A"
    assert redactor(ordinary).merged(redactor(secret)).text("value-of-two", PERSON) == "A"


def test_errors_are_redacted_in_all_their_parts() -> None:
    error = UnknownKey(
        "s3://lake-of-mine/x", location=Location("lake-of-mine/x/a", 1, 2), hint="lake-of-mine/x"
    )
    [redacted] = redactor(LAKE).error(InvalidProject([error]), PUBLIC).errors  # type: ignore[attr-defined]
    assert isinstance(redacted, UnknownKey)
    assert "mine" not in str(redacted)
    assert redacted.location.line == 1


def test_a_redacted_text_can_be_restored() -> None:
    redacted = redactor(LAKE).text("path:s3://lake-of-mine/x/t", PUBLIC)
    assert redactor(LAKE).restored(redacted) == "path:s3://lake-of-mine/x/t"


@given(st.text(min_size=8), st.text(), st.text())
def test_no_secret_survives(secret: str, before: str, after: str) -> None:
    known = KnownValue(secret, "", is_secret=True)
    redacted = Redactor([known]).text(f"{before}{secret}{after}", PERSON)
    if len(secret.strip()) == len(secret) and secret not in before + after:
        assert len(redacted) < len(before) + len(secret) + len(after)


def test_a_variable_of_a_computed_name_is_not_named() -> None:
    assert str(Variable("VALUE", is_written=False)) == "env_var(...)"
    assert "VALUE" not in repr(Variable("VALUE", is_written=False))


class OutOfReach(RenewedOptions):
    """Options of a catalog that has gone: whoever asks for them now waits for nothing."""

    def current(self) -> dict[str, str]:
        raise ConnectionError

    @property
    def secrets(self) -> frozenset[str]:
        return frozenset({"qz-token-1", "qz-token-2"})


def test_options_of_a_catalog_that_has_gone_are_hidden_without_asking_it() -> None:
    hidden = Redactor(secret_options(OutOfReach()))
    assert hidden.text("qz-token-1 and qz-token-2", Audience.PERSON) == "*** and ***"


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
