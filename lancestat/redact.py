"""Redaction: what may be shown of a project, and to whom.

A value that comes from the environment carries its origin: the variables that had a part in it and
the text that names them. Wherever a value is shown as such, the origin decides. A value that has
travelled into a message, of lancestat or of a library, is searched for there as a last resort.

There are two audiences. Secrets are masked for both: values of variables whose names say so, and
all storage options. The public (reviews, pages, plan files, the state) is shown the name of a
variable in place of any value of the environment; a person at a terminal may see ordinary ones.
"""

from __future__ import annotations

import base64
import json
import os
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote

from lancestat.errors import InvalidProject, LancestatError, Location
from lancestat.formats import cut, visible

MASK = "***"

_SECRET_NAME = re.compile(
    r"secret|token|passw|passphrase|passcode|key|credential|signature|private|bearer|jwt|cookie"
    r"|(?<=.)pwd|auth(?!ors?(?:$|[_.\-]))|conn(?:ection)?_?str|webhook"
    r"|(?:^|[_.\-])(?:pass|pin|pw|pat|psk|otp|sas|dsn|creds?)(?:[_.\-]|$)",
    re.IGNORECASE,
)
# Such values are everywhere, so that replacing them would garble texts and hide nothing.
_COMMONPLACE = re.compile(r"true|false|null|none|yes|no|on|off|[-+0-9.,:%]{0,5}", re.IGNORECASE)
_SCHEME = re.compile(r"[a-z][a-z0-9+.\-]*://", re.IGNORECASE)

# A shorter value is searched for within quotes only, which messages put around what they are about.
_SHORTEST_SECRET, _SHORTEST_ORDINARY = 3, 6
# A shorter value has to stand on its own, so that it is not taken out of the middle of a word.
_LEAST_WITHIN_WORDS = {True: 6, False: 12}
# Messages shorten long values: the beginning alone would disclose them.
_LONG, _BEGINNING = 32, 24


class Audience(Enum):
    """The audience of a text: a person at a terminal, or the public."""

    PERSON = "person"
    PUBLIC = "public"


def is_secret_name(name: str) -> bool:
    """Whether the name of a variable or of a setting says that its value is secret."""
    return _SECRET_NAME.search(name) is not None


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of the environment, or of the project (`var`), as templates refer to it.

    `is_written` is false where its name is itself the result of an expression, and not shown.
    """

    name: str = field(repr=False)
    function: str = "env_var"
    is_written: bool = True

    def __str__(self) -> str:
        return f"{self.function}('{visible(self.name)}')" if self.is_written else "env_var(...)"

    @property
    def is_secret(self) -> bool:
        """Whether its name says that its value is secret."""
        return is_secret_name(self.name)


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a rendered value.

    `template` is what gave the value, with the variables of the environment in place of
    project variables that stand for them. `is_set` is set where at least one of the variables had
    a value, so that the result is not made of defaults alone.
    """

    variables: tuple[Variable, ...]
    template: str
    is_set: bool = True

    @property
    def is_secret(self) -> bool:
        """Whether a secret variable had a part in the value."""
        return any(variable.is_secret for variable in self.variables)

    @property
    def brief(self) -> str:
        """`template` for a message, or the variables alone where that is long."""
        return self.template if len(self.template) <= 57 else self.names

    def hides_from(self, audience: Audience) -> bool:
        """Whether an audience sees `template` in place of the value."""
        return self.is_secret or audience is Audience.PUBLIC

    @property
    def is_of_environment(self) -> bool:
        """Whether the environment gave some of the value."""
        return self.is_set and any(variable.function == "env_var" for variable in self.variables)

    @property
    def names(self) -> str:
        """The variables, for a sentence: `env_var('A') and env_var('B')`."""
        return " and ".join(map(str, self.variables))


@dataclass(frozen=True, slots=True)
class KnownValue:
    """A value that is searched for in texts, and what is shown in its place.

    `is_whole` is set where all of it comes from the environment, so that its beginning does, too.
    """

    value: str = field(repr=False)
    replacement: str
    is_secret: bool = False
    is_whole: bool = False

    def patterns(self) -> Iterator[_Pattern]:
        """Yield one for each spelling; messages also name the folder, or shorten the value."""
        shortest = _SHORTEST_SECRET if self.is_secret else _SHORTEST_ORDINARY
        for spelling in dict.fromkeys(self._spellings()):
            if spelling.strip() and len(spelling) < shortest:
                # Not the name of a variable that is shown in place of another value.
                quoted, shown = f"'{spelling}'", f"'{self.replacement}'"
                yield _Pattern(quoted.lower(), f"((?<!var\\(){re.escape(quoted)})", shown)
            elif spelling.strip():
                stands_alone = len(spelling) < _LEAST_WITHIN_WORDS[self.is_secret]
                before = r"(?<![^\W_])" if stands_alone and spelling[0].isalnum() else ""
                after = r"(?![^\W_])" if stands_alone and spelling[-1].isalnum() else ""
                yield _pattern(spelling, self.replacement, before, after)
        if not self.is_whole:
            return
        parent = self.value.rstrip("/").rpartition("/")[0]
        if parent.count("/") >= 2 and len(parent) >= _LEAST_WITHIN_WORDS[False]:
            yield _pattern(parent, f"{self.replacement}/..")
        start = self.value[:_BEGINNING]
        if len(self.value) >= _LONG and start.strip() and len(start.split()[0]) >= shortest:
            yield _pattern(start, self.replacement, after=r"\S*")

    def _spellings(self) -> Iterator[str]:
        """Yield the spellings of a value: of URIs, JSON, Rust, object stores and lancestat."""
        values = [self.value]
        if "\n" in self.value and self.is_whole:
            lines = self.value.splitlines()
            values += [line for line in lines if len(line) >= _LEAST_WITHIN_WORDS[True]]
        for value in values:
            yield from (value, visible(value), json.dumps(value)[1:-1])
            yield json.dumps(value, ensure_ascii=False)[1:-1]
            yield from (quote(value, safe=safe, errors="replace") for safe in ("/", ""))
            # Object stores report paths without a scheme and slashes at the start or the end.
            bare = _SCHEME.sub("", value)
            inner = bare.strip("/")
            yield from (inner, bare.rstrip("/")) if "/" in inner else (bare,)
        if self.value.startswith("/") and len(self.value) < 4096 and "\0" not in self.value:
            yield os.path.realpath(self.value)
        if self.is_secret:
            encoded = self.value.encode("utf-8", "surrogatepass")
            for encode in (base64.b64encode, base64.urlsafe_b64encode):
                yield encode(encoded).decode().rstrip("=")


def _pattern(text: str, replacement: str, before: str = "", after: str = "") -> _Pattern:
    """Return the pattern of a text, with white space of any kind between its words."""
    words = text.split()
    spaced = r"\s+".join(map(re.escape, words))
    return _Pattern(words[0].lower(), f"({before}{spaced}{after})", replacement)


class _Pattern(NamedTuple):
    """One spelling of a known value: `probe` is part of every text that the pattern matches."""

    probe: str
    pattern: str
    replacement: str


class Redactor:
    """Replaces known values in texts.

    Args:
        known: What to look for; of equal values the first counts, and is secret where any is.
        public: Words that the project's files hold as they are, such as names: an ordinary value
            that is one of them is not searched for.
    """

    def __init__(self, known: Iterable[KnownValue] = (), public: Iterable[str] = ()) -> None:
        self.known = _merged(known)
        self.public = frozenset(public)
        self._patterns: dict[Audience, tuple[_Pattern, ...]] = {}

    def __repr__(self) -> str:
        return f"Redactor({len(self.known)} values)"

    def __reduce__(self) -> tuple[type[Redactor], tuple[()]]:
        # Results are pickled and kept; what they must not show does not go with them.
        return Redactor, ()

    def __deepcopy__(self, memo: object) -> Redactor:
        return self

    def with_known(self, known: Iterable[KnownValue]) -> Redactor:
        """Return a redactor that looks for more values."""
        more = [*known]
        return Redactor((*self.known, *more), self.public) if more else self

    def merged(self, other: Redactor) -> Redactor:
        """Return a redactor that looks for the values of both."""
        return Redactor((*self.known, *other.known), self.public & other.public)

    def text(self, text: str, audience: Audience) -> str:
        """A text as an audience may see it."""
        return _replaced(text, self._of(audience))

    def restored(self, text: str) -> str:
        """The inverse of `text` for the public: what is shown in place of values, as the values."""
        for known in sorted(self.known, key=lambda known: -len(known.replacement)):
            if known.replacement != MASK and self._is_sought(known, Audience.PUBLIC):
                text = text.replace(known.replacement, known.value)
        return text

    def error(self, error: LancestatError, audience: Audience) -> LancestatError:
        """An error as an audience may see it."""
        if isinstance(error, InvalidProject):
            parts = [self.error(part, audience) for part in error.errors]
            excerpts = [
                line if line is not None and self.text(line, audience) == line else None
                for line in error.excerpts
            ]
            return InvalidProject(parts, excerpts)
        location, hint = error.location, error.hint
        if location is not None:
            file = self.text(location.file, audience)
            location = Location(file, location.line, location.column)
        return type(error)(
            self.text(error.message, audience),
            location=location,
            hint=None if hint is None else self.text(hint, audience),
        )

    def json(self, value: object, audience: Audience) -> object:
        """A value of JSON with all its texts as an audience may see them; keys stay."""
        if isinstance(value, str):
            return self.text(value, audience)
        if isinstance(value, Mapping):
            return {key: self.json(item, audience) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.json(item, audience) for item in value]
        return value

    def _of(self, audience: Audience) -> tuple[_Pattern, ...]:
        if audience not in self._patterns:
            known = [candidate for candidate in self.known if self._is_sought(candidate, audience)]
            parts = _sorted(candidate for candidate in known if candidate.is_whole)
            # A thousand tables below one variable are found by that.
            self._patterns[audience] = _sorted(
                candidate
                for candidate in known
                if candidate.is_whole or _replaced(candidate.value, parts) != candidate.replacement
            )
        return self._patterns[audience]

    def _is_sought(self, known: KnownValue, audience: Audience) -> bool:
        if _COMMONPLACE.fullmatch(known.value):
            return False
        if known.is_secret:
            return len(known.value) >= _SHORTEST_SECRET
        return audience is Audience.PUBLIC and known.value not in self.public


def secret_environment(environment: Mapping[str, str]) -> Iterator[KnownValue]:
    """The values of an environment's secret variables, whether or not a project reads them.

    Libraries read some of them. Short ones, and mere words, are left out, since many variables are
    only named like secrets.
    """
    for name, value in environment.items():
        is_long = len(value) >= 12 and not value.isalpha() and "/" not in value[:2]
        if is_long and is_secret_name(name):
            yield KnownValue(value, f"{{{{ {Variable(name)} }}}}", is_secret=True, is_whole=True)


def secret_options(options: Mapping[str, str]) -> Iterator[KnownValue]:
    """All values of storage options, of which none may be shown; nothing is renewed for them."""
    values = options.secrets if isinstance(options, RenewedOptions) else options.values()
    for value in map(str, values):
        yield KnownValue(value, MASK, is_secret=True, is_whole=True)


def is_commonplace(value: str) -> bool:
    """Whether a value, such as a switch, is no secret whatever it belongs to."""
    return len(value) < _SHORTEST_SECRET or _COMMONPLACE.fullmatch(value) is not None


def _merged(known: Iterable[KnownValue]) -> tuple[KnownValue, ...]:
    merged: dict[str, KnownValue] = {}
    for candidate in known:
        first = merged.setdefault(candidate.value, candidate)
        flags = (first.is_secret or candidate.is_secret, first.is_whole or candidate.is_whole)
        if flags != (first.is_secret, first.is_whole):
            merged[first.value] = KnownValue(first.value, first.replacement, *flags)
    return tuple(merged.values())


def _replaced(text: str, patterns: Iterable[_Pattern]) -> str:
    lowered = text.lower()
    hits = [candidate for candidate in patterns if candidate.probe in lowered]
    if not hits:
        return text
    replacements = [candidate.replacement for candidate in hits]
    pattern = _compiled(tuple(candidate.pattern for candidate in hits))
    return pattern.sub(lambda match: replacements[(match.lastindex or 1) - 1], text)


def _sorted(known: Iterable[KnownValue]) -> tuple[_Pattern, ...]:
    """Return patterns for values: of those that contain each other, the longest first."""
    patterns = [pattern for candidate in known for pattern in candidate.patterns()]
    return tuple(sorted(patterns, key=lambda pattern: -len(pattern.pattern)))


@lru_cache(maxsize=256)
def _compiled(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


EMPTY_REDACTOR = Redactor()
_LONGEST = 600
# It is looked for once in a word and once in the spaces before it, however long they are.
_RUST_PLACE = re.compile(r"(?:,?(?<!\s)\s+)?(?<!\S)\S+\.rs:\d+(?::\d+)?")
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


class RenewedOptions(Mapping[str, str]):
    """Storage options that change while they are used."""

    @abstractmethod
    def current(self) -> dict[str, str]:
        """Return the options as they are now, all of one moment."""

    @property
    @abstractmethod
    def secrets(self) -> frozenset[str]:
        """All values that the options have had."""

    def __getitem__(self, key: str) -> str:
        return self.current()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.current())

    def __len__(self) -> int:
        return len(self.current())


def secret_values(storage_options: Mapping[str, str] | None) -> frozenset[str]:
    """The values of storage options, of which none may be shown; switches and limits are none."""
    known = secret_options(storage_options or {})
    return frozenset(secret.value for secret in known if not is_commonplace(secret.value))


def redact_line(message: str, secrets: Iterable[str] = ()) -> str:
    """Return one line of at most 600 characters, without Rust source locations, without secrets.

    Masked are `secrets`, plain or percent-encoded, user names and passwords in URIs, parameters and
    headers that carry tokens, and AWS access key ids. An XML error shrinks to its code and message.
    """
    text = _RUST_PLACE.sub("", message)
    text = _XML_ERROR.sub(_xml_error_text, text)
    known = [secret for secret in secrets if secret]
    spelled = {quote(secret, safe=safe) for secret in known for safe in ("", "/")}
    for secret in sorted(spelled.union(known), key=len, reverse=True):
        text = text.replace(secret, MASK)
    text = _USER_INFO.sub(f"{MASK}@", text)
    text = _QUERY.sub(rf"\g<1>{MASK}", text)
    text = _HEADER.sub(rf"\g<1> {MASK}", text)
    text = _AWS_KEY_ID.sub(MASK, text)
    return cut(" ".join(text.split()), _LONGEST)


def _xml_error_text(match: re.Match[str]) -> str:
    return ": ".join(text for _, text in _XML_PART.findall(match.group()))
