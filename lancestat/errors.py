"""The one root of every error that reaches a user: code, message, place, hint."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Location:
    """A place in a file; line and column count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class LancestatError(Exception):
    """An error with a stable code, what was found, where, and what to do about it.

    Codes are grouped by area: LS1xx specification, LS2xx datasets, LS3xx state, LS4xx selection and
    usage, LS5xx running on Spark, LS6xx publishing, reviews, plan files and reports. Instances
    survive pickling, because they cross from Spark's Python workers to the driver.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        location: Location | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(code, message, location, hint)
        self.code = code
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
        return type(self)(self.code, self.message, location=location, hint=self.hint)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.code, self.message, self.location, self.hint)


def _rebuild(
    cls: type[LancestatError],
    code: str,
    message: str,
    location: Location | None,
    hint: str | None,
) -> LancestatError:
    return cls(code, message, location=location, hint=hint)


class SpecError(LancestatError):
    """LS1xx: the YAML does not say what it should."""


class LakeError(LancestatError):
    """LS2xx: a dataset cannot be opened or read."""


class StateError(LancestatError):
    """LS3xx: the state store cannot be reached."""


class UsageError(LancestatError):
    """LS4xx: a command, a selector or an argument is wrong."""


class RunError(LancestatError):
    """LS5xx: work on Spark failed."""


class PublishError(LancestatError):
    """LS6xx: statistics could not be committed to a table."""


class InvalidProject(LancestatError):  # noqa: N818 - a state of the project, not one error
    """All that is wrong with a project at once; `errors` is in file order and never empty."""

    def __init__(self, errors: Sequence[LancestatError]) -> None:
        self.errors = tuple(errors)
        count = len(self.errors)
        noun = "error" if count == 1 else "errors"
        super().__init__("LS100", f"the project has {count} {noun}")

    def __str__(self) -> str:
        return "\n".join(str(error) for error in self.errors)

    def __reduce__(self) -> tuple[object, ...]:
        return InvalidProject, (self.errors,)


def did_you_mean(found: str, known: Iterable[str]) -> str | None:
    """A hint that names the nearest of `known`, or None when nothing is near."""
    spelled = {name.lower(): name for name in known}
    nearest = difflib.get_close_matches(found.lower(), list(spelled), n=1, cutoff=0.6)
    return f"did you mean '{spelled[nearest[0]]}'?" if nearest else None
