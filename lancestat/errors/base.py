"""The root of all errors, the registry of their codes, and the areas that codes belong to."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, overload

from lancestat.formats import message_lines, visible


@dataclass(frozen=True, slots=True, order=True)
class Location:
    """A position in a file. Lines and columns count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{visible(self.file)}:{self.line}:{self.column}"


# So many names are listed in a hint.
_LISTED = 20

_CLASSES: dict[str, type[LancestatError]] = {}


class LancestatError(Exception):
    """The base of all errors: a stable code, what was found, where, and what to do about it.

    Each code belongs to one class, whose docstring says what is wrong. A mistake has the same code
    wherever it is found. Classes without a code group others. Instances can be pickled, because
    they cross from Spark's workers to the driver.

    Args:
        message: What was found in this case, and what was expected.
        location: Where in a file.
        hint: What to do about it in this case.
    """

    code: ClassVar[str]

    def __init_subclass__(cls, code: str | None = None) -> None:
        if code is None:
            return
        if code in _CLASSES:
            raise TypeError(f"{cls.__name__} declares {code}, which is taken")
        cls.code = code
        _CLASSES[code] = cls

    @classmethod
    def remedy(cls) -> str:
        """Return what to do about errors of this code in general."""
        return _remedies()[cls.code]

    def __init__(
        self, message: str, *, location: Location | None = None, hint: str | None = None
    ) -> None:
        super().__init__(self.code, message, location, hint)
        self.message = message
        self.location = location
        self.hint = hint

    def __str__(self) -> str:
        return self.shown()

    def shown(self, excerpt: str | None = None) -> str:
        """Return `text` with all that could control a terminal spelled out."""
        return "\n".join(message_lines(self.text(excerpt)))

    def text(self, excerpt: str | None = None) -> str:
        """Return the error as people read it, with lines of its file before the hint.

        Names of tables, columns and files in it are as they are: `shown` spells them out.
        """
        lines = f"{self.message}\n{excerpt}" if excerpt else self.message
        return error_text(self.code, lines, self.location, self.hint)

    def placed(self, location: Location | None) -> LancestatError:
        """Return the error with a location, unless it already has one."""
        if self.location is not None or location is None:
            return self
        return type(self)(self.message, location=location, hint=self.hint)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.location, self.hint)


@lru_cache(maxsize=1)
def _remedies() -> dict[str, str]:
    import yaml

    stored = Path(__file__).with_name("remedies.yml").read_text("utf-8")
    return dict(yaml.safe_load(stored))


def error_text(code: str, message: str, location: Location | None, hint: str | None) -> str:
    """Return what an error consists of as people read it."""
    where = f" {location}" if location else ""
    advice = f"\n      hint: {hint}" if hint else ""
    return f"{code}{where}  {message}{advice}"


def _rebuild(
    cls: type[LancestatError], message: str, location: Location | None, hint: str | None
) -> LancestatError:
    return cls(message, location=location, hint=hint)


def error_class(code: str) -> type[LancestatError] | None:
    """Return the class that declares a code, None for a code that this release does not have."""
    return _CLASSES.get(code)


def error_classes() -> list[type[LancestatError]]:
    """Return the classes of all codes, in the order of the codes."""
    return [_CLASSES[code] for code in sorted(_CLASSES)]


class SpecError(LancestatError):
    """LS1xx: the YAML is wrong."""


class LakeError(LancestatError):
    """LS2xx: a dataset cannot be opened or read."""


class StateError(LancestatError):
    """LS3xx: the state cannot be read or written."""


class UsageError(LancestatError):
    """LS4xx, and some of LS6xx: a command, a selector, a statement or an argument is wrong."""


class RunError(LancestatError):
    """LS5xx: work on Spark failed."""


class PublishError(LancestatError):
    """LS60x: statistics could not be committed to a table."""


class CommentError(LancestatError):
    """LS61x: the comment of a pull request cannot be kept up to date."""


class PlanFileError(LancestatError):
    """LS62x: a plan file cannot be read or run."""


class InternalError(LancestatError, code="LS001"):
    """An unexpected error, most likely a defect of lancestat.

    In a run, only the node that hit it fails.
    """


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the most similar of `known`, or None when nothing is similar."""
    spelled = {name.lower(): name for name in known}
    similar = difflib.get_close_matches(name.lower(), list(spelled), n=1, cutoff=0.6)
    return spelled[similar[0]] if similar else None


@overload
def did_you_mean(name: str, known: Iterable[str]) -> str | None: ...


@overload
def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str: ...


def did_you_mean(name: str, known: Iterable[str], otherwise: str | None = None) -> str | None:
    """Return a hint that names the most similar of `known`.

    When nothing is similar, the hint lists the first of them after the words `otherwise`, such as
    "known keys"; without such words it is None.
    """
    names = list(known)
    similar = nearest(name, names)
    if similar:
        return f"did you mean '{similar}'?"
    if otherwise is None:
        return None
    return listed(otherwise, names)


def listed(what: str, names: Sequence[str]) -> str:
    """Return a hint that lists the first of some names."""
    text = ", ".join(names[:_LISTED]) + (", ..." if len(names) > _LISTED else "")
    return f"{what}: {text or 'none'}"


class InvalidProject(LancestatError, code="LS100"):
    """The project has errors. Each has its own code, and `errors` lists them in file order.

    `excerpts` has the lines that they point at, None where those may not be shown.
    """

    def __init__(
        self, errors: Sequence[LancestatError], excerpts: Sequence[str | None] = ()
    ) -> None:
        self.errors = tuple(errors)
        self.excerpts = tuple(excerpts) or (None,) * len(self.errors)
        count = len(self.errors)
        noun = "error" if count == 1 else "errors"
        super().__init__(f"the project has {count} {noun}")

    def __str__(self) -> str:
        return "\n".join(map(LancestatError.shown, self.errors, self.excerpts))

    def __reduce__(self) -> tuple[object, ...]:
        return InvalidProject, (self.errors, self.excerpts)
