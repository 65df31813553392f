"""Links from the comment to the lines of files, as the server of the repository shows them."""

from __future__ import annotations

import re

import pytest

from lancestat.review.values import SEVERITY, Diff, Risk
from tests.presentation.rendering import as_json, as_markdown
from tests.review.conftest import NOW, Repository
from tests.review.pairs import review

GITHUB = {"GITHUB_SERVER_URL": "https://github.example", "GITHUB_REPOSITORY": "o/r"}
GITLAB = {"CI_SERVER_URL": "https://gitlab.example:8443", "CI_PROJECT_PATH": "a/b/c"}
HEADER = "name: shop\ntargets: {dev: {state: state}}\n"


@pytest.fixture
def made(repository: Repository) -> Repository:
    return repository


def change(made: Repository, folder: str = "", name: str = "specs/shop.yml") -> tuple[str, str]:
    """Commit two sides of a project in a folder; return their commits."""
    place = f"{folder}/" if folder else ""
    table = "tables:\n  - name: {}\n    uri: x.lance\n"
    base = made.commit(
        {f"{place}lancestat_project.yml": HEADER, f"{place}{name}": table.format("a")}
    )
    lines = f"{table.format('b').replace('x.lance', 'y.lance')}  - {{name: c, uri: z.lance}}\n"
    return base, made.commit({f"{place}{name}": lines})


def diff(made: Repository, environment: dict[str, str], head: str | None, folder: str = "") -> Diff:
    return review(
        made.top / folder,
        "HEAD~1",
        head,
        with_datasets=False,
        environment=environment,
        clock=lambda: NOW,
    )


@pytest.mark.parametrize("head", ["HEAD", None])
@pytest.mark.parametrize("folder", ["", "stats/größe (1)"])
def test_each_node_links_to_its_line_on_the_side_that_has_it(
    made: Repository, head: str | None, folder: str
) -> None:
    base, commit = change(made, folder)
    page = as_markdown(diff(made, GITHUB, head, folder))
    prefix = "stats/gr%C3%B6%C3%9Fe%20%281%29/" if folder else ""
    root = "https://github.example/o/r/blob"
    for side, line, name in ((commit, 2, "b"), (commit, 4, "c"), (base, 2, "a")):
        link = f"[`specs/shop.yml:{line}`]({root}/{side}/{prefix}specs/shop.yml#L{line})"
        [row] = [row for row in page.splitlines() if row.startswith("| ") and f"`{name}`" in row]
        assert link in row
        # The row of the table, and the node's details.
        assert page.count(link) == 2


def test_gitlab_has_pages_of_its_own(made: Repository) -> None:
    _, commit = change(made)
    page = as_markdown(diff(made, GITLAB, "HEAD"))
    assert f"(https://gitlab.example:8443/a/b/c/-/blob/{commit}/specs/shop.yml#L4)" in page


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {**GITHUB, "GITHUB_REPOSITORY": "o/r)[x](http://evil"},
        {**GITHUB, "GITHUB_REPOSITORY": ""},
        {**GITHUB, "GITHUB_SERVER_URL": "javascript:alert(1)//"},
        {**GITHUB, "GITHUB_SERVER_URL": "https://user:pw@github.example"},
        {**GITHUB, "GITHUB_SERVER_URL": "https://github.example/) [x](https://evil"},
        {**GITLAB, "CI_PROJECT_PATH": "a/b\nc"},
    ],
)
def test_without_a_server_there_are_no_links(made: Repository, environment: dict[str, str]) -> None:
    change(made)
    page = as_markdown(diff(made, environment, "HEAD"))
    assert "](" not in page
    assert "`specs/shop.yml:4`" in page


def test_no_name_of_a_file_breaks_out_of_its_link(made: Repository) -> None:
    name = "specs/a)[x](http:evil)`|<b>#?%41 .yml"
    _, commit = change(made, name=name)
    page = as_markdown(diff(made, GITHUB, "HEAD"))
    urls = re.findall(r"\]\((https://github\.example/[^)\s]*)\)", page)
    assert len(urls) == 6
    assert all(re.fullmatch(r"[\w:/.%#~\-]+", url) for url in urls), urls
    assert (
        f"blob/{commit}/specs/a%29%5Bx%5D%28http%3Aevil%29%60%7C%3Cb%3E%23%3F%2541%20.yml#L4"
        in page
    )


def test_folders_have_no_links(made: Repository) -> None:
    """What is compared is no commit."""
    change(made)
    table = "tables: [{name: a, uri: x.lance}]\n"
    made.commit({"old/lancestat_project.yml": HEADER, "old/specs/shop.yml": table})
    compared = review(
        made.top,
        f"{made.top}/old",
        "HEAD",
        with_datasets=False,
        environment=GITHUB,
        clock=lambda: NOW,
    )
    assert compared.links[0] is None
    page = as_markdown(compared)
    assert page.count("/blob/") == 2 * sum(node.change != "removed" for node in compared.nodes)


def test_risks_are_told_once_and_the_severest_first(made: Repository) -> None:
    tables = "tables:\n" + "".join(
        f"  - {{name: t{n}, uri: t{n}.lance, columns: [a, b], policy: {{allow.stale: false}}}}\n"
        for n in range(3)
    )
    made.commit({"lancestat_project.yml": HEADER, "specs/shop.yml": tables})
    changed = (
        tables.replace("false", "true").replace("[a, b]", "[a]", 1).replace("[a, b]", "[b]", 1)
    )
    made.commit({"specs/shop.yml": changed})
    compared = diff(made, {}, "HEAD")
    page = as_markdown(compared)
    risks = page[page.index("**Risks**") : page.index("| node |")]
    assert risks.count("`coverage_lost`") == 1
    assert risks.count("`staleness_loosened`") == 1
    assert page.count("`coverage_lost`") == 1
    assert risks.index("coverage_lost") < risks.index("staleness_loosened")
    assert "\n- `coverage_lost`:\n  - `t0`: " in risks
    assert "`t0`, `t1`, `t2`" in risks
    assert set(as_json(compared)["risks"]) == {"coverage_lost", "staleness_loosened"}


def test_every_risk_has_a_severity() -> None:
    assert sorted(SEVERITY) == sorted(Risk)
