"""The pages in a real browser: read, clicked, searched, on a desktop and on a phone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from lancestat.presentation.site.pages import build_site
from lancestat.report.tables import TableReport
from lancestat.state.history import HistoryPoint
from lancestat.tables.statistics.column_statistics import Histogram, HistogramBin
from lancestat.tables.wire import PublishedColumn
from tests.examples import sample
from tests.presentation.site.browser import Scheme, Visitor, launched, visit
from tests.presentation.site.conftest import YAML
from tests.presentation.site.poison import PAYLOADS, poisoned
from tests.presentation.site.reports import (
    NOW,
    join_report,
    project,
    spec_of,
    stale,
    table_report,
    table_status,
    unreadable,
)

pytestmark = pytest.mark.whole

PHONE, DESKTOP = 390, 1280
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
LONG = "a_name_that_somebody_made_" + "very_" * 30 + "long"


def brief(name: str) -> TableReport:
    """A table with a short page."""
    return table_report(name, histograms={}, fragments=(), runs=())


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as opened:
        yield opened


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of every sort of node, one with a long name, one with many columns, and forty more."""
    root = tmp_path_factory.mktemp("project")
    (root / "specs").mkdir()
    (root / "specs" / "shop.yml").write_text(YAML, encoding="utf-8")
    columns = {
        f"{'wide_' * (at % 9)}column_{at}": PublishedColumn(at, at, "a" * at, "9", 8, 8)
        for at in range(200)
    }
    report = project(
        table_report(),
        unreadable(),
        stale(),
        join_report(),
        table_report(LONG, problems=(f"about {LONG}",)),
        table_report("wide", status=table_status(columns=columns)),
        *(brief(f"t{at}") for at in range(40)),
        reads={"similar_parts": ("orders", "part"), LONG: ("similar_parts",)},
    )
    return build_site(report, spec_of(report, root), root / "site").page.parent


@pytest.fixture
def visitor(browser: Browser, site: Path) -> Iterator[Visitor]:
    with visit(browser, site) as visiting:
        yield visiting


def test_every_kind_of_page_is_reached_by_clicking(visitor: Visitor) -> None:
    page = visitor.open("index.html")
    expect(page.get_by_role("heading", level=1)).to_have_text("2 nodes need attention")
    page.get_by_role("link", name="orders", exact=True).first.click()
    assert visitor.path == "tables/orders.html"
    expect(page.get_by_role("heading", level=1)).to_have_text("orders")
    page.get_by_role("link", name="similar_parts").click()
    assert visitor.path == "joins/similar_parts.html"
    page.get_by_role("link", name="part", exact=True).click()
    assert visitor.path == "tables/part.html"
    expect(page.get_by_text("LS201").first).to_be_visible()
    page.get_by_role("link", name="Graph").click()
    assert visitor.path == "graph.html"
    page.locator("svg a", has_text="similar_parts").click()
    assert visitor.path == "joins/similar_parts.html"
    page.get_by_role("link", name="Runs").click()
    assert visitor.path == "runs.html"
    page.get_by_role("link", name="shop").click()
    assert visitor.path == "index.html"
    page.get_by_role("link", name="2026-03-12").click()
    assert page.url.endswith("runs.html#run-3")
    expect(page.locator("#run-3 table")).to_be_visible()
    expect(page.locator("#run-2 table")).to_be_hidden()


@pytest.mark.parametrize("width", sample([PHONE, DESKTOP], 1))
def test_no_page_is_wider_than_its_window(width: int, browser: Browser, site: Path) -> None:
    with visit(browser, site, width=width) as visitor:
        for path in sorted(site.rglob("*.html")):
            name = path.relative_to(site).as_posix()
            if name.startswith("tables/t"):
                continue
            page = visitor.open(name)
            for scheme in SCHEMES:
                page.emulate_media(color_scheme=scheme)
                assert visitor.overflow <= 0, (name, scheme)


def test_charts_are_drawn_by_the_library_when_they_come_into_view(visitor: Visitor) -> None:
    page = visitor.open("tables/orders.html")
    page.get_by_role("link", name="Distribution of o_totalprice").click()
    figure = page.locator("figure", has_text="o_totalprice")
    expect(figure.locator(".uplot canvas")).to_be_visible()
    canvas = figure.locator(".u-over")
    canvas.hover()
    expect(figure.locator(".u-legend")).to_contain_text(" to ")
    figure.get_by_text("As a table").click()
    expect(figure.get_by_role("cell", name="857.71")).to_be_visible()
    page.get_by_role("heading", name="History").scroll_into_view_if_needed()
    expect(page.locator("[data-history] canvas")).to_be_visible()
    expect(page.locator(".plot:has(canvas)")).to_have_count(4)


def test_distances_and_runs_of_a_join_are_drawn(visitor: Visitor) -> None:
    page = visitor.open("joins/similar_parts.html")
    figure = page.locator("figure", has_text="Rank 10")
    figure.scroll_into_view_if_needed()
    figure.locator(".u-over").hover()
    expect(figure.locator(".u-legend")).to_contain_text(" to ")
    figure.get_by_text("As a table").click()
    shown = figure.locator("details").get_by_role("cell", name="900", exact=True)
    expect(shown).to_be_visible()
    line = page.locator("figure", has_text="Recall")
    line.scroll_into_view_if_needed()
    line.locator(".u-over").hover()
    expect(line.locator(".u-legend")).to_contain_text("0.96")
    expect(line.locator(".u-legend")).to_contain_text("asked0.95")
    page.locator("figure", has_text="Time taken").scroll_into_view_if_needed()
    expect(page.locator(".plot:has(canvas)")).to_have_count(9)
    page.get_by_text("As a table").last.click()
    last = page.get_by_role("region", name="Last runs")
    expect(last.get_by_role("row")).to_have_count(4)
    expect(last.get_by_role("cell", name="0.960")).to_be_visible()
    table = page.get_by_role("region", name="Distances by rank")
    expect(table.get_by_role("row")).to_have_count(6)


def test_columns_of_one_large_value_are_drawn(browser: Browser, tmp_path: Path) -> None:
    histograms = {
        "o_orderkey": Histogram(5.0, (HistogramBin(1e18, 1e18 + 128, 2),)),
        "o_custkey": Histogram(5.0, (HistogramBin(1_733_000_000_123, 1_733_000_000_123, 1),)),
        "o_seen_at": Histogram(5.0, (HistogramBin(1_767_225_600e6, 1_767_225_600e6, 1),)),
    }
    report = project(table_report(histograms=histograms))
    site = build_site(report, spec_of(report, tmp_path), tmp_path / "site").page.parent
    with visit(browser, site) as visitor:
        page = visitor.open("tables/orders.html")
        for name, values in (
            ("o_orderkey", "1.000e+18"),
            ("o_custkey", "1,733,000,000,123"),
            ("o_seen_at", "2026-01-01 00:00:00"),
        ):
            figure = page.locator("figure", has_text=name)
            figure.scroll_into_view_if_needed()
            expect(figure.locator(".u-legend")).to_have_text(f"values{values}rows5")


def test_trends_of_large_numbers_are_drawn(browser: Browser, tmp_path: Path) -> None:
    figures = [{"rows": 9, "columns": {"o_id": {"max": str(10**18 + n)}}} for n in (0, 0, 128)]
    history = tuple(
        HistoryPoint.of("", "orders", "", NOW + timedelta(hours=hour), found)
        for hour, found in enumerate(figures)
    )
    report = project(table_report(history=history))
    site = build_site(report, spec_of(report, tmp_path), tmp_path / "site").page.parent
    with visit(browser, site) as visitor:
        page = visitor.open("tables/orders.html")
        page.get_by_text("o_id", exact=True).click()
        figure = page.locator("figure", has_text="greatest value")
        figure.scroll_into_view_if_needed()
        expect(figure.locator(".u-legend")).to_contain_text("1.000e+18")


def test_legends_have_values_also_where_nothing_is_pointed_at(visitor: Visitor) -> None:
    page = visitor.open("tables/orders.html")
    chart = page.locator("[data-history]")
    chart.scroll_into_view_if_needed()
    legend = chart.locator(".u-legend")
    expect(legend).to_contain_text("fragments17")
    expect(legend).to_contain_text("version18")
    chart.locator(".u-over").hover(position={"x": 2, "y": 2})
    expect(legend).to_contain_text("fragments14")
    page.mouse.move(0, 0)
    expect(legend).to_contain_text("fragments17")
    shape = page.locator("[data-distribution]").first
    shape.scroll_into_view_if_needed()
    expect(shape.locator(".u-legend")).to_have_text(re.compile(r"values.+ to .+rows\d"))


def test_ages_are_those_of_the_moment_at_which_a_page_is_looked_at(
    browser: Browser, site: Path
) -> None:
    with visit(browser, site) as visitor:
        page = visitor.open("tables/orders.html")
        days = (datetime.now(timezone.utc) - NOW).days
        computed = page.locator("time[data-age=since]").first
        text = re.compile(rf"^2026-03-14 02:30 UTC, ({days}|{days + 1}) d ago$")
        expect(computed).to_have_text(text)
        changed = page.locator("time[data-age=ago]").first
        expect(changed).to_have_text(re.compile(r"^\d+ d ago$"))
        expect(changed).to_have_attribute("title", "2026-03-14 07:30 UTC")
    with visit(browser, site, scripts=False) as visitor:
        page = visitor.open("tables/orders.html")
        expect(page.locator("time[data-age=since]").first).to_have_text("2026-03-14 02:30 UTC")


def test_the_code_of_a_failure_leads_to_what_it_means(visitor: Visitor) -> None:
    page = visitor.open("tables/part.html")
    page.get_by_role("link", name="LS201").first.click()
    assert visitor.path == "errors.html"
    expect(page.get_by_role("heading", name="LS201")).to_be_in_viewport()


def test_the_line_of_the_asked_recall_has_a_name_without_scripts(
    browser: Browser, site: Path
) -> None:
    with visit(browser, site, scripts=False) as visitor:
        page = visitor.open("joins/similar_parts.html")
        expect(page.locator("figure", has_text="Recall")).to_contain_text("0.950 is asked")
        for name in ("Rank 1", "Recall"):
            figure = page.locator("figure", has_text=name).first
            expect(figure.locator(".plot svg path")).to_be_visible()


def test_a_chart_follows_the_width_of_the_window(visitor: Visitor) -> None:
    page = visitor.open("tables/orders.html")
    chart = page.locator("[data-history]")
    chart.scroll_into_view_if_needed()
    expect(chart.locator("canvas")).to_be_visible()
    page.set_viewport_size({"width": PHONE, "height": 844})
    expect(chart.locator(".uplot")).to_have_css("width", f"{PHONE - 2 * (16 + 12 + 1)}px")
    assert visitor.overflow <= 0


def test_search_finds_names_columns_and_owners_with_the_keyboard(visitor: Visitor) -> None:
    page = visitor.open("tables/orders.html")
    page.keyboard.press("/")
    box = page.get_by_role("combobox")
    expect(box).to_be_focused()
    page.keyboard.type("similar")
    options = page.get_by_role("option")
    expect(options).to_have_count(1)
    expect(options.first).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    page.wait_for_url("**/joins/similar_parts.html")
    page.keyboard.press("/")
    page.keyboard.type("o_clerk")
    expect(options.first).to_contain_text("column o_clerk")
    page.keyboard.press("ArrowDown")
    expect(options.nth(1)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Escape")
    expect(page.get_by_role("listbox")).to_be_hidden()
    expect(box).not_to_be_focused()
    box.fill("no such thing")
    expect(page.get_by_role("listbox")).to_have_text("Nothing found")
    box.fill("t1")
    options.first.click()
    page.wait_for_url("**/tables/t1.html")


def test_the_theme_follows_the_system_until_it_is_switched(browser: Browser, site: Path) -> None:
    with visit(browser, site, scheme="dark") as visitor:
        page = visitor.open("index.html")
        background = "getComputedStyle(document.body).backgroundColor"
        dark = page.evaluate(background)
        page.get_by_role("button", name="Switch to the light theme").click()
        light = page.evaluate(background)
        assert light != dark
        visitor.open("tables/orders.html")
        assert page.evaluate(background) == light
        page.locator("[data-history]").scroll_into_view_if_needed()
        expect(page.locator("[data-history] canvas")).to_be_visible()
        page.get_by_role("button", name="Switch to the dark theme").click()
        assert page.evaluate(background) == dark
        expect(page.locator("[data-history] canvas")).to_have_count(1)


def test_pages_can_be_used_with_the_keyboard_alone(visitor: Visitor) -> None:
    page = visitor.open("index.html")
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
    page.keyboard.press("Tab")
    focused = page.locator(":focus")
    expect(focused).to_have_text("part")
    assert focused.evaluate("each => getComputedStyle(each).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    page.wait_for_url("**/tables/part.html")


def test_long_tables_are_filtered(visitor: Visitor) -> None:
    page = visitor.open("index.html")
    page.get_by_label("Filter 45 tables").fill("customer")
    rows = page.locator("table[data-filter=tables] tbody tr:visible")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("customer")


def test_a_long_list_is_folded_and_searchable(browser: Browser, tmp_path: Path) -> None:
    report = project(*(brief(f"t{at}") for at in range(125)))
    site = build_site(report, spec_of(report, tmp_path), tmp_path / "site").page.parent
    with visit(browser, site) as visitor:
        page = visitor.open("index.html")
        last = page.get_by_role("link", name="t124", exact=True)
        expect(last).to_be_hidden()
        page.get_by_label("Filter 125 tables").fill("t124")
        expect(last).to_be_visible()
        page.get_by_label("Filter 125 tables").fill("")
        expect(last).to_be_hidden()
        page.get_by_text("25 more tables").click()
        expect(last).to_be_visible()


def test_pages_are_readable_without_scripts(browser: Browser, site: Path) -> None:
    with visit(browser, site, scripts=False) as visitor:
        page = visitor.open("tables/orders.html")
        expect(page.get_by_role("cell", name="555285.16")).to_be_visible()
        expect(page.locator("#distribution-4 .plot svg")).to_be_visible()
        expect(page.locator("#search")).to_be_hidden()
        page.get_by_role("link", name="Overview").click()
        expect(page.get_by_text("the dataset cannot be opened")).to_be_visible()


CONTRAST = """() => {
  const channel = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const color = (text) => text.match(/[\\d.]+/g).map(Number);
  const back = (each) => {
    for (; each; each = each.parentElement) {
      const found = color(getComputedStyle(each).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  const poor = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const each = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !each.checkVisibility() || each.closest("svg")) continue;
    const a = light(color(getComputedStyle(each).color));
    const b = light(back(each));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push([walker.currentNode.data.trim().slice(0, 40), ratio]);
  }
  return poor;
}"""


@pytest.mark.parametrize(
    "name",
    sample(["index", "runs", "graph", "tables/orders", "tables/part", "joins/similar_parts"], 3),
)
def test_text_stands_out_from_its_background(name: str, browser: Browser, site: Path) -> None:
    """By 4.5 to 1 at least, WCAG 2.2's level AA (success criterion 1.4.3)."""
    backgrounds = set()
    with visit(browser, site) as visitor:
        page = visitor.open(f"{name}.html")
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            backgrounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
            assert page.evaluate(CONTRAST) == []
    assert len(backgrounds) == len(SCHEMES)


@pytest.mark.parametrize("name", sample(list(PAYLOADS), 2))
def test_a_malicious_report_runs_no_code(name: str, browser: Browser, tmp_path: Path) -> None:
    report = poisoned(project(), PAYLOADS[name])
    site = build_site(report, spec_of(report, tmp_path), tmp_path / "site").page.parent
    with visit(browser, site) as visitor:
        for path in sorted(site.rglob("*.html")):
            page = visitor.open(path.relative_to(site).as_posix())
            assert page.evaluate("window.pwned") is None
            assert page.evaluate("window.lancestatNodes.length") == 4
            assert visitor.overflow <= 0
        # The search is the same script on every page.
        page.keyboard.press("/")
        page.keyboard.type("orders")
        expect(page.get_by_role("option").first).to_be_visible()
        assert page.evaluate("window.pwned") is None
        assert visitor.overflow <= 0


def test_the_content_security_policy_blocks_foreign_content(
    browser: Browser, tmp_path: Path
) -> None:
    """Were a text ever not escaped, the page would still run nothing of it."""
    report = project()
    site = build_site(report, spec_of(report, tmp_path), tmp_path / "site").page.parent
    page_file = site / "index.html"
    smuggled = (
        "<script>window.pwned = 1</script><img src=x onerror='window.pwned = 2'>"
        "<script src='data:text/javascript,window.pwned=3'></script>"
        "<style>h1 { color: rgb(1, 2, 3) }</style><p style='color: rgb(1, 2, 3)' id=smuggled>x"
        "<img src='https://evil.example/x'><iframe src='https://evil.example/'></iframe>"
    )
    text = page_file.read_text(encoding="utf-8").replace("<h1>", f"{smuggled}<h1>")
    page_file.write_text(text, encoding="utf-8")
    context = browser.new_context()
    page = context.new_page()
    requests: list[str] = []
    blocked: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("requestfailed", lambda request: blocked.append(f"{request.url} {request.failure}"))
    page.goto(page_file.as_uri())
    assert page.evaluate("window.pwned") is None
    for selector in ("h1", "#smuggled"):
        color = f"getComputedStyle(document.querySelector('{selector}')).color"
        assert page.evaluate(color) != "rgb(1, 2, 3)"
    # The browser reports requests before its rules block them.
    outside = [url for url in requests if not url.startswith("file:")]
    assert outside == ["https://evil.example/x"]
    assert f"{outside[0]} csp" in blocked
    context.close()
