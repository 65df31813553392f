from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from markupsafe import escape

from lancestat.errors import DatasetMissing, Location
from lancestat.presentation.site.text import PageSanitizer
from lancestat.redact import Origin, Redactor, Variable
from lancestat.report.values import Health, ProjectReport
from lancestat.runs.actions import SourceFindings
from lancestat.runs.result import Status
from lancestat.spec.model import Freshness, KnnSide, Policy, Publish, Refresh, Target
from lancestat.spec.redaction import hidden_locations
from lancestat.tables.wire import PublishedColumn
from tests.conftest import Golden
from tests.examples import sample
from tests.presentation.site.conftest import YAML, Build, SiteOf
from tests.presentation.site.markup import page_of, pages
from tests.presentation.site.poison import PAYLOADS, poisoned, yaml_comment
from tests.presentation.site.reports import (
    COLUMNS,
    NOW,
    join,
    join_report,
    project,
    table,
    table_report,
    table_run,
    table_status,
    unreadable,
)

ORDERS = "tables/orders.html"


@pytest.mark.parametrize(
    "page",
    ["index", "runs", "graph", "errors", "tables/orders", "tables/part", "joins/similar_parts"],
)
def test_every_kind_of_page_is_built(page: str, site_of: SiteOf, golden: Golden) -> None:
    golden(f"report/{page}.html", (site_of("") / f"{page}.html").read_text(encoding="utf-8"))


@pytest.mark.parametrize("payload", sample(list(PAYLOADS.values()), 4))
def test_texts_of_a_report_do_not_change_the_elements_of_a_page(
    payload: str, site_of: SiteOf
) -> None:
    """Tags and attributes do not depend on the report's texts."""
    harmless = pages(site_of("h" * len(payload)))
    harmful = pages(site_of(payload))
    assert [page.shape for page in harmful.values()] == [page.shape for page in harmless.values()]


@pytest.mark.parametrize("payload", sample(list(PAYLOADS.values()), 4))
def test_texts_of_the_yaml_do_not_change_the_elements_of_a_page(
    payload: str, build: Build, site_of: SiteOf, root: Path
) -> None:
    harmless = page_of(site_of(""), "tables/orders.html")
    written = YAML.replace("# Kept for ten years.", yaml_comment(payload))
    (root / "specs" / "shop.yml").write_text(written, encoding="utf-8")
    harmful = page_of(build(), "tables/orders.html")
    assert harmful.shape == harmless.shape
    shown_lines = " ".join(str(PageSanitizer().verbatim(yaml_comment(payload))).split())
    assert shown_lines in escape(harmful.text)


@pytest.mark.parametrize("name", PAYLOADS)
def test_every_link_leads_to_a_file_of_the_site(name: str, site_of: SiteOf) -> None:
    site = site_of(PAYLOADS[name])
    read = pages(site)
    ids = {(site / path).resolve(): set(page.values("id")) for path, page in read.items()}
    for path, page in read.items():
        for link in (*page.values("href"), *page.values("src")):
            parts = urlsplit(link)
            assert not parts.scheme
            assert not parts.netloc
            target = (site / path).parent / parts.path if parts.path else site / path
            assert target.resolve().is_relative_to(site)
            assert target.is_file(), f"{path} links to {link}"
            if parts.fragment:
                assert parts.fragment in ids[target.resolve()]


@pytest.mark.parametrize("name", PAYLOADS)
def test_the_search_index_is_one_assignment_of_json(name: str, site_of: SiteOf) -> None:
    script = (site_of(PAYLOADS[name]) / "search-index.js").read_text("utf-8")
    head, _, body = script.partition(" = ")
    assert head == "window.lancestatNodes"
    assert body.endswith(";\n")
    assert script.isascii()
    assert len(json.loads(body[:-2])) == 4


def test_pages_load_only_their_own_resources(site_of: SiteOf) -> None:
    for path, page in pages(site_of("")).items():
        attributes = [name for _, attributes in page.tags for name, _ in attributes]
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
        assert not [tag for tag, _ in page.tags if tag in ("style", "iframe", "form", "base")]
        scripts = [dict(attributes) for tag, attributes in page.tags if tag == "script"]
        assert all("src" in script for script in scripts)
        [rules] = [
            dict(attributes)["content"] or ""
            for tag, attributes in page.tags
            if tag == "meta" and dict(attributes).get("http-equiv") == "Content-Security-Policy"
        ]
        assert rules.startswith("default-src 'none'; script-src 'self'; style-src 'self';"), path
        assert "unsafe" not in rules
        policy_at = [tag for tag, _ in page.tags].index("meta")
        assert policy_at < [tag for tag, _ in page.tags].index("script")


def test_pages_have_landmarks_titles_and_names(site_of: SiteOf) -> None:
    for page in pages(site_of("")).values():
        tags = [tag for tag, _ in page.tags]
        assert [tags.count(tag) for tag in ("main", "header", "footer", "h1")] == [1] * 4
        assert "#main" in page.values("href")
        ids = page.values("id")
        assert len(ids) == len(set(ids))
        unnamed = [
            attributes
            for tag, attributes in page.tags
            if tag in ("input", "nav") and "aria-label" not in dict(attributes)
        ]
        assert not unnamed


def test_no_page_shows_secrets(build: Build, root: Path) -> None:
    (root / "specs" / "shop.yml").write_text(
        YAML.replace("k: 10", "k: 10\n    options: {password: opt1on-s3cret}"), encoding="utf-8"
    )
    side = KnnSide("emb", None, format="jdbc", uri="x", options={"password": "opt1on-s3cret"})
    message = "cannot read https://user:pa55@host/x with storage-s3cret: Bearer abcdef123456"
    report = project(
        table_report(
            spec=table(uri="s3://key:pa55@bucket/orders"),
            problems=(message,),
            runs=(table_run(message=message),),
        ),
        join_report(spec=join(right=side), problems=("password is opt1on-s3cret",)),
    )
    target = Target("prod", "state", storage_options={"aws_secret_access_key": "storage-s3cret"})
    site = build(report, target=target)
    for path in (path for path in site.rglob("*") if path.is_file()):
        content = path.read_text(encoding="utf-8", errors="replace")
        for secret in ("s3cret", "pa55", "abcdef123456"):
            assert secret not in content, path


def test_values_of_the_environment_are_shown_as_their_templates(build: Build) -> None:
    report = project(
        table_report(
            spec=table(uri="s3://from-environment/orders", owner="env@example.com"),
            health=Health.ERROR,
            problems=("no dataset at s3://from-environment/orders",),
        ),
        join_report(spec=join(output_uri="s3://from-environment/parts")),
    )
    lake, owner = (Variable("LAKE"),), (Variable("OWNER"),)
    origins = {
        "orders": {
            "uri": Origin(lake, "{{ env_var('LAKE') }}/orders"),
            "owner": Origin(owner, "{{ env_var('OWNER') }}"),
        },
        "similar_parts": {"output.lance": Origin(lake, "{{ env_var('LAKE') }}/parts")},
    }
    known = [
        location
        for node in report.nodes
        for location in hidden_locations(node.spec, origins.get(node.spec.name, {}))
    ]
    site = build(report, origins=origins, redactor=Redactor(known))
    shown_pages = pages(site)
    assert "URI {{ env_var('LAKE') }}/orders" in shown_pages["tables/orders.html"].text
    assert "no dataset at {{ env_var('LAKE') }}/orders" in shown_pages["index.html"].text
    assert "lance: {{ env_var('LAKE') }}/parts" in shown_pages["joins/similar_parts.html"].text
    for path in (*site.rglob("*.html"), site / "search-index.js"):
        content = path.read_text(encoding="utf-8")
        assert "from-environment" not in content
        assert "env@example.com" not in content


def test_long_texts_are_shortened_on_pages(build: Build) -> None:
    site = build(poisoned(project(), "<" * 100_000))
    for page in site.rglob("*.html"):
        assert page.stat().st_size < 400_000


def test_a_page_of_a_wide_table_has_all_columns(build: Build) -> None:
    columns = {f"c{at}": PublishedColumn(0, at, str(at), "9", 8, 8) for at in range(200)}
    page = pages(build(project(table_report(status=table_status(columns=columns)))))[
        "tables/orders.html"
    ]
    assert all(f" c{at} " in page.text for at in range(200))


def test_the_overview_begins_with_the_worst_problems(build: Build) -> None:
    page = page_of(build(), "index.html").text
    assert "2 nodes need attention" in page
    places = [page.index(text) for text in ("cannot be opened", "warn_after", "Tables Table")]
    assert places == sorted(places)
    assert "Columns with statistics in use 8 of 17" in page
    assert "2 unchanged" in page
    assert "1.2 s, read 1 of 17 fragments, 88,000 rows" in page


def test_pages_show_what_past_runs_did_to_nodes_that_are_no_longer_declared(build: Build) -> None:
    former = table_run("dropped", status=Status.ERROR, message="it broke", code="LS511")
    report = project(table_report(runs=(table_run(),)))
    [only] = [run for node in report.nodes for run in node.runs]
    former = replace(former, run_id=only.run_id)
    site = pages(build(replace(report, former_runs=(former,))))
    assert "1 done, 1 failed, 0 skipped" in site["runs.html"].text
    assert "dropped failed" in site["runs.html"].text
    assert "dropped" not in site["index.html"].text


def test_the_overview_names_tables_that_sources_no_longer_have(build: Build) -> None:
    report = replace(project(), sources=SourceFindings(1, gone=("lost",)))
    said = "Gone since the last run: lost; 'lancestat gc' drops their state."
    assert said in page_of(build(report), "index.html").text
    unknown = replace(project(), sources=SourceFindings(1, gone=None))
    assert "Gone" not in page_of(build(unknown), "index.html").text


SPELLED = table(
    policy=Policy(None, None, True, Refresh.WHEN_STALE),
    publish=Publish.NONE,
    freshness=Freshness(timedelta(hours=12), timedelta(hours=24)),
)
IDLE = table_run(action="skip", reasons=("policy_accepts",), fragments_scanned=0)
NEVER = join_report(health=Health.ERROR, verdict="absent", reasons=("new",), record=None, runs=())
EMPTY = ProjectReport("shop", "prod", NOW, (), {})
NO_CODE = "LS999 is no code of ours, and LS2013 is none."


@pytest.mark.parametrize(
    ("report", "page", "texts"),
    [
        (EMPTY, "index", ("No tables are declared.",)),
        (EMPTY, "runs", ("Nothing has been run yet",)),
        (EMPTY, "graph", ("No node reads another.",)),
        (
            project(table_report(runs=(IDLE,))),
            "index",
            ("Left alone by their last run 1 node: policy accepts",),
        ),
        (
            project(table_report(spec=SPELLED)),
            "tables/orders",
            (
                "Policy any staleness; refreshed when readers would refuse",
                "Published to the state only",
                "rows changed 2026-03-14 07:30 UTC ; warning after 12 h, error after 1 d",
            ),
        ),
        (
            project(NEVER),
            "joins/similar_parts",
            ("Result absent: new", "No run has looked at it yet."),
        ),
        (project(table_report(problems=(NO_CODE,))), "tables/orders", (NO_CODE,)),
    ],
    ids=["tables", "runs", "graph", "idle", "spelled", "never", "codes"],
)
def test_what_pages_say(
    report: ProjectReport, page: str, texts: tuple[str, ...], build: Build
) -> None:
    site = build(report)
    shown = page_of(site, f"{page}.html").text
    assert [text for text in texts if text not in shown] == []
    assert not (site / "errors.html").exists()


def test_columns_have_their_types(build: Build) -> None:
    status = table_status()
    types = {name: f"type_of_{name}" for name in status.columns}
    page = page_of(build(project(table_report(status=replace(status, types=types)))), ORDERS).text
    assert "Column Type Min" in page
    for name in types:
        assert f"{name} type_of_{name}" in page


def test_failures_have_hints_and_codes_that_are_explained(build: Build) -> None:
    site = build(project(unreadable("part")))
    for path, link in (
        ("tables/part.html", "../errors.html#LS201"),
        ("runs.html", "errors.html#LS201"),
    ):
        page = page_of(site, path)
        assert link in page.values("href")
        assert "LS201 no dataset at s3://warehouse/part.lance Hint: write it first" in page.text
    errors = page_of(site, "errors.html")
    assert "LS201" in errors.values("id")
    assert f"What to do: {DatasetMissing.remedy().replace('`', '')}" in errors.text


def test_a_failure_in_the_past_has_its_hint_and_a_link(build: Build) -> None:
    problem = "Its last run failed 2 h ago: LS513 the query failed."
    failed = table_run(status=Status.ERROR, message="x", code="LS513", hint="look there")
    report = table_report(health=Health.ERROR, problems=(problem,), runs=(failed,))
    site = build(project(report))
    page = page_of(site, ORDERS)
    assert "Its last run failed 2026-03-14 07:30 UTC : LS513 the query failed." in page.text
    assert "Hint: look there" in page.text
    assert "errors.html#LS513" in page_of(site, "index.html").values("href")
    assert "LS513" in page_of(site, "errors.html").values("id")


def test_a_table_of_a_source_names_the_source_and_shows_its_declaration(
    build: Build, root: Path
) -> None:
    (root / "specs" / "lake.yml").write_text("sources:\n  - catalog: lake\n    include: [a.*]\n")
    spec = replace(table(), source="lake", location=Location("specs/lake.yml", 2, 14))
    page = page_of(build(project(table_report(spec=spec))), ORDERS).text
    assert "Source lake" in page
    assert "- catalog: lake include: [a.*]" in page


def test_ages_are_moments_for_the_script_to_compare_with_the_present(build: Build) -> None:
    page = page_of(build(), ORDERS)
    [computed] = [
        dict(attributes) for tag, attributes in page.tags
        if tag == "time" and dict(attributes)["data-age"] == "since"
    ][:1]  # fmt: skip
    assert computed["datetime"] == "2026-03-14T02:30:00Z"
    assert re.search(r"\d (?:d|h|min|s) ago", page.text) is None


def test_nulls_are_bars_to_scale(build: Build) -> None:
    page = page_of(build(), "tables/orders.html")
    widths = [
        dict(attributes)["width"]
        for tag, attributes in page.tags
        if tag == "rect" and dict(attributes).get("class") == "fill"
    ]
    assert widths == ["0.80", "48.75", "100.00"]
    assert COLUMNS["o_comment"].nulls == 731_204
    assert "731,204 (48.7 %)" in page.text


def test_the_data_of_charts_is_in_the_page(build: Build) -> None:
    page = page_of(build(), "tables/orders.html")
    shapes = [json.loads(text) for text in page.values("data-distribution")]
    assert [shape["kind"] for shape in shapes] == ["number", "date", "timestamp"]
    assert [(shape["from"], shape["to"]) for shape in shapes[:2]] == [
        (857.71, 555285.16),
        (694224000, 902016000),
    ]
    assert [sum(shape["rows"]) for shape in shapes] == pytest.approx([254_000] * 3, abs=50)
    [history] = [json.loads(text) for text in page.values("data-history")]
    assert history["times"] == sorted(history["times"])
    assert history["fragments"] == [14, 15, 16, 17]
    assert history["scanned"] == [14, 1, 0, 1]
    assert history["versions"] == [15, 16, 17, 18]
