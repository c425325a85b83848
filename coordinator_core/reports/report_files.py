"""The report of a run as files, one for each form."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from coordinator_core import storage
from coordinator_core.reports.run_metrics import MAX_SERIES, run_metrics
from coordinator_core.reports.run_page import run_page
from coordinator_core.reports.run_report import Document
from coordinator_core.reports.run_summary import run_summary
from coordinator_core.rules.facts import Facts
from coordinator_core.rules.lag import Lag

FILES: Mapping[str, str] = {
    "html": "report.html",
    "json": "report.json",
    "prometheus": "report.prom",
    "markdown": "report.md",
}


def report_forms(
    report: Document, facts: Facts, lag: Lag | None, *, page: str | None = None, max_series: int = MAX_SERIES
) -> dict[str, Callable[[], str]]:
    """Functions that make the text of each form, by its name; ``page`` is the path of the HTML page."""
    return {
        "html": lambda: run_page(report),
        "json": lambda: json.dumps(report, ensure_ascii=False, indent=2) + "\n",
        "prometheus": lambda: run_metrics(report, facts, lag, max_series=max_series),
        "markdown": lambda: run_summary(report, page=page),
    }


def write_report(
    directory: str, report: Document, facts: Facts, lag: Lag | None, *, max_series: int = MAX_SERIES
) -> str:
    """Write every form into ``directory``, which is made when it is missing; returns the path of the page."""
    page = storage.join(directory, FILES["html"])
    forms = report_forms(report, facts, lag, page=page, max_series=max_series)
    for name, file in FILES.items():
        storage.write_text(storage.join(directory, file), forms[name]())
    return page
