"""MkDocs hook: pages for the files of the repository that the documentation links to.

Links are relative to the page, as every forge follows them: `../../specs/tables.yml`. On the site,
such a file outside `docs/` becomes a page of its own, in the folder that it has in the repository:
Markdown as it is, folders as lists, anything else as a listing.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
_LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
_FENCE = re.compile(r"^ *(```+)[^\n`]*\n.*?^ *\1$", re.MULTILINE | re.DOTALL)
_LANGUAGES = {".yml": "yaml", ".py": "python", ".json": "json", ".java": "java", ".patch": "diff"}
_NOT_SEARCHED = "---\nsearch: {exclude: true}\n---\n"
_IMAGES = {".svg", ".png"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Expand `folder/*` in the navigation."""
    named = set(re.findall(r"'([^']+\.md)'", repr(config.nav)))
    config.nav = [_expand(item, named) for item in config.nav or []]
    return config


def _expand(item: Any, named: set[str]) -> Any:
    [(title, children)] = item.items()
    if isinstance(children, str):
        return item
    pages: list[Any] = []
    for child in children:
        if not child.endswith("/*"):
            pages.append(child)
            continue
        found = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.glob(child + ".md"))
        pages += [page for page in found if page not in named]
    return {title: pages}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each file outside `docs/` that a page links to, directly or by others."""
    waiting = [DOCS / file.src_uri for file in files.documentation_pages()]
    waiting += [ROOT / page for page in ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    waiting += [ROOT / "benchmarks" / "README.md"]
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        if not path.is_relative_to(DOCS):
            files.append(_generated(path, config))
        for target in _targets(path):
            if target not in seen and not target.is_relative_to(DOCS):
                seen.add(target)
                waiting.append(target)
    return files


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Let links to files of the repository lead to their pages."""
    path = _path_of(page.file.src_uri)
    if path.suffix != ".md":
        return markdown
    here = Path(page.file.src_uri).parent

    def rewritten(match: re.Match[str]) -> str:
        target = _target(path, match[2])
        if target is None or (path.is_relative_to(DOCS) and target.is_relative_to(DOCS)):
            return match[0]
        return f"{match[1]}{os.path.relpath(_src_uri(target), here)}{match[3]}"

    return _outside_fences(markdown, lambda text: _LINK.sub(rewritten, text))


def _outside_fences(markdown: str, change: Any) -> str:
    parts, end = [], 0
    for fence in _FENCE.finditer(markdown):
        parts += [change(markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, change(markdown[end:])])


def _targets(path: Path) -> list[Path]:
    if path.is_dir():
        return [child for child in sorted(path.iterdir()) if _is_shown(child)]
    if path.suffix != ".md":
        return []
    links = _LINK.findall(_FENCE.sub("", path.read_text("utf-8")))
    targets = (_target(path, link) for _, link, _ in links)
    return [target for target in targets if target is not None]


def _target(page: Path, link: str) -> Path | None:
    """Return the file or folder that a link of a page leads to, None for other hosts."""
    if re.match(r"[a-z]+:", link):
        return None
    target = Path(os.path.normpath(page.parent / link))
    return target if target.exists() and target.is_relative_to(ROOT) else None


def _is_shown(path: Path) -> bool:
    return path.is_file() and not path.name.startswith(".") and path.suffix not in {".pyc", ".jsa"}


def _src_uri(path: Path) -> str:
    """Return where a file of the repository is among the sources of the site."""
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    relative = path.relative_to(ROOT).as_posix()
    if path.is_dir():
        return f"{relative}/folder.md"
    return relative if path.suffix in {".md", *_IMAGES} else f"{relative}.md"


def _path_of(src_uri: str) -> Path:
    for path in (DOCS / src_uri, ROOT / src_uri):
        if path.exists():
            return path
    return ROOT / src_uri.removesuffix("/folder.md").removesuffix(".md")


def _generated(path: Path, config: MkDocsConfig) -> File:
    title = f"{_NOT_SEARCHED}# {path.relative_to(ROOT).as_posix()}\n\n"
    if path.suffix == ".md":
        content = path.read_text("utf-8")
    elif path.is_dir():
        names = [
            os.path.relpath(_src_uri(child), _src_uri(path).rpartition("/")[0])
            for child in _targets(path)
        ]
        content = title + "".join(f"- [{name.removesuffix('.md')}]({name})\n" for name in names)
    else:
        language = _LANGUAGES.get(path.suffix, "text")
        content = f"{title}````{language}\n{path.read_text('utf-8').rstrip()}\n````\n"
    file = File.generated(config, _src_uri(path), content=content)
    file.inclusion = InclusionLevel.NOT_IN_NAV
    return file
