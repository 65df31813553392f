"""The output formats, and which of the commands' views each of them can render.

A format is a module of this package, listed in `FORMATS`, whose `FORMAT` registers a renderer for
each type of view that it can print. All else that depends on formats is derived from here: the
choices of `--output`, its help and completion, and the error for a view that a format cannot print.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, Generic, NamedTuple, TypeVar

from lancestat.redact import EMPTY_REDACTOR, Audience, Redactor

# In the order in which help lists them; a module is imported when its format is asked for.
FORMATS = {
    "text": "lancestat.presentation.text",
    "json": "lancestat.presentation.json",
    "markdown": "lancestat.presentation.markdown",
    "csv": "lancestat.presentation.csv",
}

V = TypeVar("V")
T = TypeVar("T")


class Page(NamedTuple):
    """The page that a view is printed on: `width` in columns, for formats that are laid out.

    Rows of tables keep to `limit`, and are as wide as they are where it is None.

    Lines are redacted when they are written. A renderer that shortens or escapes a text, so that a
    secret in it would no longer be found, redacts it before.
    """

    verbose: bool = False
    width: int = 100
    audience: Audience = Audience.PERSON
    redactor: Redactor = EMPTY_REDACTOR
    limit: int | None = None

    def redacted(self, text: str) -> str:
        """Return a text without what the audience must not see."""
        return self.redactor.text(text, self.audience)


Renderer = Callable[[V, Page], T]


class Format(Generic[T]):
    """An output format, whose renderers return what `write` prints.

    Args:
        write: Prints what a renderer returns.
        is_for_people: People read it: queries print a limited number of rows, in local time.
        is_published: It is made to be published, and holds nothing that the public must not see.
    """

    def __init__(
        self,
        write: Callable[[T], None],
        *,
        is_for_people: bool = False,
        is_published: bool = False,
    ) -> None:
        self.write = write
        self.is_for_people = is_for_people
        self.is_published = is_published
        self.renderers: dict[type, Renderer[Any, T]] = {}

    def renders(self, view: type[V]) -> Callable[[Renderer[V, T]], Renderer[V, T]]:
        """Register the decorated function as the renderer of a type of view."""

        def register(render: Renderer[V, T]) -> Renderer[V, T]:
            self.renderers[view] = render
            return render

        return register

    def render(self, view: object, page: Page) -> T:
        return self.renderers[type(view)](view, page)

    def print(self, view: object, page: Page) -> None:
        self.write(self.render(view, page))


def load_format(name: str) -> Format[Any]:
    loaded = import_module(FORMATS[name]).FORMAT
    assert isinstance(loaded, Format)
    return loaded


def can_render(name: str, views: Iterable[type]) -> bool:
    """Whether a format prints at least one of some types of views, or there are none to print."""
    types = frozenset(views)
    return not types or not types.isdisjoint(load_format(name).renderers)


def formats_of(views: Iterable[type]) -> list[str]:
    types = tuple(views)
    return [name for name in FORMATS if can_render(name, types)]
