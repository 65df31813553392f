"""Parse pages into elements like a browser."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

Attributes = list[tuple[str, str | None]]


@dataclass
class Markup(HTMLParser):
    """Tags with their attributes in order, and the text between them."""

    tags: list[tuple[str, Attributes]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: Attributes) -> None:
        self.tags.append((tag, attrs))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        """All text, its spaces collapsed."""
        return " ".join(" ".join(self.texts).split())

    @property
    def shape(self) -> list[tuple[str, list[str]]]:
        """Tags and the names of their attributes."""
        return [(tag, [name for name, _ in attributes]) for tag, attributes in self.tags]

    def values(self, attribute: str) -> list[str]:
        """The values that an attribute has anywhere."""
        return [
            value
            for _, attributes in self.tags
            for name, value in attributes
            if name == attribute and value is not None
        ]


def parse(text: str) -> Markup:
    """A page as tags and texts."""
    markup = Markup()
    markup.feed(text)
    markup.close()
    return markup


def page_of(site: Path, path: str) -> Markup:
    """One page of a site."""
    return parse((site / path).read_text(encoding="utf-8"))


def pages(site: Path) -> dict[str, Markup]:
    """All pages of a site by their path in it."""
    return {
        path.relative_to(site).as_posix(): parse(path.read_text(encoding="utf-8"))
        for path in sorted(site.rglob("*.html"))
    }
