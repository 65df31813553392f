"""The place of a join's result, as its mark names it."""

from __future__ import annotations

from hashlib import blake2b

from lancestat.state.identity import canonical_uri


def place_digest(uri: str) -> str:
    """32 hex digits that stand for a place, however its URI is written, and show nothing of it."""
    text = canonical_uri(uri).encode(errors="surrogatepass")
    return blake2b(text, digest_size=16).hexdigest()
