"""Messages of the layers below, made fit for people: no source paths of a compiler, no secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote

from lancestat.redact import MASK, is_commonplace

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


def secret_values(storage_options: Mapping[str, str] | None) -> frozenset[str]:
    """The values of storage options, of which none may be shown; switches and limits are none."""
    values = map(str, (storage_options or {}).values())
    return frozenset(value for value in values if not is_commonplace(value))


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


def _spellings(secrets: Iterable[str]) -> set[str]:
    plain = {secret for secret in secrets if secret}
    return (
        plain | {quote(secret, safe="") for secret in plain} | {quote(secret) for secret in plain}
    )


def _xml_summary(found: re.Match[str]) -> str:
    return ": ".join(text for _, text in _XML_PART.findall(found.group()))
