"""The report and Data Docs in a headless Chromium: what it says of them, and what axe-core does."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from coordinator_core.cli.app import run as regroup
from coordinator_core.errors import ExitCode
from expectations.gate import evaluate
from tests.drill.test_compare import group, journal, partition, prediction
from tests.expectations.faults import FaultyRun, published
from tests.history.incidents import INCIDENTS
from tests.live.scenario import ROOT
from tests.reports.test_run_report import EMPTY, LOG
from tests.restore.test_plan_page import csv_of, stands_at_50
from tests.rules.logs import Log

AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js").read_text(encoding="utf-8")
SIZES = {"desktop": (1280, 800), "phone": (390, 844)}
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_MS = 300_000
"""Ten times that of Playwright, for a loaded machine."""

BOTH = DESKTOP, PHONE = ("desktop", "light"), ("phone", "dark")
WITH_VERDICT = ("critical", "clean", "drill", "group", "cluster", "plan")
PAGES = (*WITH_VERDICT, "docs", "docs_suite", "docs_validation", "docs_passed")
ONE_OF_EACH = {
    name: (DESKTOP, PHONE) if name in ("critical", "group", "docs") else (DESKTOP, PHONE)[number % 2 :][:1]
    for number, name in enumerate(PAGES)
}
"""Ways in which a page is looked at below the full tier: of each kind one page in both."""
VERDICT = {
    **dict.fromkeys(WITH_VERDICT, ".verdict .word"),
    **dict.fromkeys(("docs", "docs_passed"), "h1"),
}
"""Words that must be seen first."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Files of the pages, by name."""
    place = tmp_path_factory.mktemp("pages")
    good = published("k431-mixed", place / "runs")
    bad = FaultyRun(good, place / "bad")
    bad.change("offsets", lambda rows: rows[0].update(committed_offset=-1, record_offset=10**9))
    evaluate(good, data_docs=str(place / "good-docs"))
    evaluate(bad.opened(), data_docs=str(place / "docs"))
    docs = place / "docs"
    return {
        "critical": report_of(LOG, place / "critical"),
        "clean": report_of(EMPTY, place / "clean"),
        "docs": docs / "index.html",
        "docs_suite": docs / "expectations" / "offsets.html",
        "docs_validation": next((docs / "validations" / "offsets").rglob("*.html")),
        "docs_passed": place / "good-docs" / "index.html",
        "drill": drill_page(place / "drill"),
        "group": investigation_of("librdkafka-2782", place / "group", "--group", "billing"),
        "cluster": investigation_of("KAFKA-13636", place / "cluster"),
        "plan": plan_page(place / "plan"),
    }


def investigation_of(incident_id: str, directory: Path, *arguments: str) -> Path:
    """The page that ``regroup investigate`` writes of an incident."""
    (incident,) = (one for one in INCIDENTS if one.id == incident_id)
    command = ["investigate", str(incident.build(directory, True)), "--kafka-version", incident.release, *arguments]
    assert regroup([*command, "--output", str(directory / "page")]) == ExitCode.FINDINGS
    return directory / "page/investigation.html"


def drill_page(directory: Path) -> Path:
    """The page that ``regroup drill compare`` writes of a drill that had a miss."""
    directory.mkdir()
    files = directory / "prediction.json", directory / "journal.jsonl"
    said = prediction(partition(leader_after=3), group("g" * 200))
    files[0].write_text(json.dumps(said.to_json()))
    files[1].write_text("".join(json.dumps(event) + "\n" for event in journal()))
    command = ["drill", "compare", *map(str, files), "--output", str(directory)]
    assert regroup(command) == ExitCode.FINDINGS
    return directory / "drill.html"


def plan_page(directory: Path) -> Path:
    """The page of a plan with a blocked offset, warnings, and groups that skip and read again."""
    path = stands_at_50(directory, "ahead", "behind", "g" * 200)
    wanted = csv_of(directory, ("ahead", 0, 20), ("behind", 0, 90), ("behind", 1, 500), ("g" * 200, 0, 51), ("n", 0, 7))
    command = [sys.executable, "-m", "coordinator_core", "restore", "plan", "--against", str(path), "--format", "html"]
    done = subprocess.run(
        [*command, "--kafka-version", "3.9.2", "--from-file", wanted], capture_output=True, check=False, cwd=ROOT
    )
    assert done.returncode == ExitCode.FINDINGS, done.stderr
    (directory / "plan.html").write_bytes(done.stdout)
    return directory / "plan.html"


def report_of(log: Log, directory: Path) -> Path:
    """The page that ``regroup report`` writes of a log, with everything it can be told."""
    log.facts(directory)
    command = ["report", str(directory / "now/runs/c/w/r"), "--output", str(directory / "report")]
    if log.topics is not None:
        command += ["--topics", str(directory / "topics.json")]
    if log.previous is not None:
        command += ["--against", str(directory / "before/now/runs/c/w/r")]
    assert regroup(command) == ExitCode.CLEAN
    return directory / "report/report.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = next(filter(None, map(shutil.which, CHROMIUM)), None)
    assert found, f"none of {', '.join(CHROMIUM)} is installed; .ci/setup.sh browser does it"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, timeout=PATIENCE_MS)
        yield started
        started.close()


class Opened:
    """A page, and what went on while it was opened."""

    def __init__(self, browser: Browser, path: Path, size: str, scheme: Any = "light") -> None:
        width, height = SIZES[size]
        self.size = {"width": width, "height": height}
        self.context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.context.set_default_timeout(PATIENCE_MS)
        self.page: Page = self.context.new_page()
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on(
            "console",
            lambda said: self.errors.append(said.text) if said.type in ("error", "warning") else None,
        )
        self.page.goto(path.as_uri())

    def axe(self) -> list[dict[str, Any]]:
        """Violations that keep people out."""
        self.page.evaluate(AXE)
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            {"id": one["id"], "impact": one["impact"], "at": [node["html"] for node in one["nodes"]]}
            for one in found["violations"]
            if one["impact"] in ("serious", "critical")
        ]


# What the size changes the scheme does not, and the other way round.
@pytest.mark.parametrize(
    ("name", "size", "scheme"),
    [
        pytest.param(name, *how, marks=() if how in ways else pytest.mark.full)
        for name, ways in ONE_OF_EACH.items()
        for how in BOTH
    ],
)
def test_a_page_opens_alone_and_keeps_nobody_out(
    name: str, size: str, scheme: str, browser: Browser, pages: dict[str, Path]
) -> None:
    opened = Opened(browser, pages[name], size, scheme)
    try:
        assert opened.errors == []
        assert opened.requests == [pages[name].as_uri()]
        widths = opened.page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
        assert widths[0] <= widths[1], "the page scrolls sideways"
        if name in VERDICT:
            box = opened.page.locator(VERDICT[name]).bounding_box()
            assert box is not None
            assert box["y"] >= 0
            assert box["y"] + box["height"] <= opened.size["height"], "the verdict is below the fold"
            assert box["x"] + box["width"] <= opened.size["width"]
        assert opened.axe() == []
    finally:
        opened.context.close()


def test_the_verdict_is_what_the_run_says(browser: Browser, pages: dict[str, Path]) -> None:
    for name, words in {
        "critical": "Critical findings",
        "clean": "No findings",
        "docs": "Quality gate: not passed",
        "docs_passed": "Quality gate: passed",
        "group": "Something went wrong",
        "plan": "Blocked: nothing of it is applied",
    }.items():
        opened = Opened(browser, pages[name], "phone")
        assert opened.page.locator(VERDICT[name]).inner_text() == words
        opened.context.close()


@pytest.mark.parametrize("size", SIZES)
def test_a_picture_fits_and_reads(browser: Browser, pages: dict[str, Path], size: str) -> None:
    """One of both pictures shows, with the text that is told, in colours of the page, and a sentence instead of it."""
    opened = Opened(browser, pages["group"], size, "dark")
    shown = opened.page.locator("svg.plot:visible")
    assert shown.count() == 1
    said = shown.get_attribute("aria-label") or ""
    assert "orders-2: 100 at 2026-05-28" in said
    assert "Generations 1 to 3" in said
    texts = shown.locator("text").all_text_contents()
    assert {"generation", "coordinator", "orders-3", "orders"} <= set(texts)
    assert any("rdkafka" in text for text in texts), "owners have names"
    smallest = shown.locator("text").evaluate_all(
        "all => Math.min(...all.map(one => one.getBoundingClientRect().height))"
    )
    assert smallest >= 11, "text can be read"
    colour = shown.locator("text").first.evaluate("one => getComputedStyle(one).fill")
    assert colour == "rgb(232, 237, 242)"
    opened.context.close()


def test_the_check_sees_what_it_looks_for(browser: Browser, tmp_path: Path) -> None:
    """A page with everything that must not be: each of it is noticed."""
    page = tmp_path / "bad.html"
    page.write_text(
        "<!DOCTYPE html><html><head><title>t</title></head><body><p style='color: #eee'>pale</p>"
        "<img src='http://127.0.0.1:9/picture.png'><script>undefined.gone</script></body></html>"
    )
    opened = Opened(browser, page, "phone")
    assert any("gone" in error for error in opened.errors)
    assert any("picture.png" in request for request in opened.requests)
    assert {"color-contrast", "html-has-lang", "image-alt"} <= {one["id"] for one in opened.axe()}
    opened.context.close()
