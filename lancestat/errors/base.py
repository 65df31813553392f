"""The root of all errors, the registry of their codes, and the areas that codes belong to."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, order=True)
class Location:
    """A place in a file; line and column count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        # A file's name may hold line breaks, and no text of a project ever starts a line.
        file = "".join(char if char.isprintable() else repr(char)[1:-1] for char in self.file)
        return f"{file}:{self.line}:{self.column}"


_CLASSES: dict[str, type[LancestatError]] = {}
_MERGED: dict[str, str] = {}


class LancestatError(Exception):
    """An error with a stable code, what was found, where, and what to do about it.

    Each code is declared by one class: its docstring says what is wrong, `remedy` what to do about
    it in general. Classes without a code group others. Instances survive pickling, because they
    cross from Spark's Python workers to the driver.

    Args:
        message: What was found in this case, and what was expected.
        location: Where in a file.
        hint: What to do about it in this case.
    """

    code: ClassVar[str]
    remedy: ClassVar[str]
    merged: ClassVar[tuple[str, ...]] = ()
    """Codes that earlier releases had for the same mistake."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "code" not in vars(cls):
            return
        for code in (cls.code, *cls.merged):
            if code in _CLASSES or code in _MERGED:
                raise TypeError(f"{cls.__name__} declares {code}, which is taken")
        _CLASSES[cls.code] = cls
        _MERGED.update(dict.fromkeys(cls.merged, cls.code))

    def __init__(
        self, message: str, *, location: Location | None = None, hint: str | None = None
    ) -> None:
        super().__init__(self.code, message, location, hint)
        self.message = message
        self.location = location
        self.hint = hint

    def __str__(self) -> str:
        place = f" {self.location}" if self.location else ""
        hint = f"\n      hint: {self.hint}" if self.hint else ""
        return f"{self.code}{place}  {self.message}{hint}"

    def placed(self, location: Location | None) -> LancestatError:
        """The same error at a place, unless it has one."""
        if self.location is not None or location is None:
            return self
        return type(self)(self.message, location=location, hint=self.hint)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.location, self.hint)


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
    """LS4xx, and some of LS6xx: a command, a selector or an argument is wrong."""


class RunError(LancestatError):
    """LS5xx: work on Spark failed."""


class PublishError(LancestatError):
    """LS60x: statistics could not be committed to a table."""


class CommentError(LancestatError):
    """LS61x: the comment of a pull request cannot be kept up to date."""


class PlanFileError(LancestatError):
    """LS62x: a plan file cannot be written, read or run."""


class InternalError(LancestatError):
    """lancestat has a defect: something failed that no other error describes."""

    code = "LS001"
    remedy = (
        "Run the command again with `--verbose` and report the traceback, without values that are "
        "secret."
    )


def did_you_mean(found: str, known: Iterable[str]) -> str | None:
    """A hint that names the nearest of `known`, or None when nothing is near."""
    spelled = {name.lower(): name for name in known}
    nearest = difflib.get_close_matches(found.lower(), list(spelled), n=1, cutoff=0.6)
    return f"did you mean '{spelled[nearest[0]]}'?" if nearest else None
