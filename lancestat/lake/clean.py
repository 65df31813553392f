"""Messages of the layers below, made fit for people: no source paths of a compiler, no secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote

MASK = "***"

_LONGEST = 600
_RUST_PLACE = re.compile(r",?\s*\S+\.rs:\d+(?::\d+)?")
_XML_ERROR = re.compile(r"<\?xml.*?</Error>|<Error>.*?</Error>", re.DOTALL)
_XML_PART = re.compile(r"<(Code|Message)>(.*?)</\1>", re.DOTALL)
_USER_INFO = re.compile(r"(?<=://)[^/\s@]*:[^\s@]*@|(?<=://)[^/\s@:]+@")
_SECRET_WORD = (
    r"(?:sig|signature|token|secret|password|passwd|credential"
    r"|api_?key|account_?key|access_?key(?:_?id)?)"
)
_QUERY = re.compile(rf"([?&;][\w.\-]*{_SECRET_WORD}[\w.\-]*=)[^&;\s'\"]+", re.IGNORECASE)
_HEADER = re.compile(r"\b(Bearer|Basic|Credential=|Signature=)\s*[\w.~+/=\-]{6,}", re.IGNORECASE)
_AWS_KEY_ID = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b")

# Options whose values name places and limits. Every other value is taken for a secret.
_HARMLESS = re.compile(
    r"(?:aws_|azure_|google_|s3_)?"
    r"(?:region|default_region|endpoint(?:_url)?|bucket(?:_name)?|container_name|virtual_hosted_style_request"
    r"|allow_http|allow_invalid_certificates|skip_signature|unsigned_payload|proxy_excludes|user_agent"
    r"|(?:\w+_)?(?:timeout|retries|retry_count|max_idle_per_host|interval)|s3_express|conditional_put|copy_if_not_exists)",
    re.IGNORECASE,
)


def secret_values(storage_options: Mapping[str, str] | None) -> frozenset[str]:
    """The values of storage options that must not be shown: all but places, switches, limits."""
    options = (storage_options or {}).items()
    return frozenset(str(value) for key, value in options if value and not _is_harmless(key))


def clean(message: str, secrets: Iterable[str] = ()) -> str:
    """One line of at most 600 characters, without places in Rust sources and without secrets.

    Args:
        message: What a library said.
        secrets: Values to mask wherever they stand, plain or percent-encoded.

    Masked besides: user names and passwords in URIs, query parameters and headers that carry
    tokens, and AWS access key ids. An XML error of an object store shrinks to its code and message.
    """
    text = _RUST_PLACE.sub("", message)
    text = _XML_ERROR.sub(_xml_summary, text)
    for secret in sorted(_spellings(secrets), key=len, reverse=True):
        text = text.replace(secret, MASK)
    text = _USER_INFO.sub(f"{MASK}@", text)
    text = _QUERY.sub(rf"\g<1>{MASK}", text)
    text = _HEADER.sub(rf"\g<1> {MASK}", text)
    text = _AWS_KEY_ID.sub(MASK, text)
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."


def _is_harmless(key: str) -> bool:
    # `base_<id>.<key>` holds an option of one base path.
    return _HARMLESS.fullmatch(key.rpartition(".")[2]) is not None


def _spellings(secrets: Iterable[str]) -> set[str]:
    plain = {secret for secret in secrets if secret}
    return (
        plain | {quote(secret, safe="") for secret in plain} | {quote(secret) for secret in plain}
    )


def _xml_summary(found: re.Match[str]) -> str:
    return ": ".join(text for _, text in _XML_PART.findall(found.group()))
