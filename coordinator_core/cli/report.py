"""``regroup report``."""

from __future__ import annotations

import json
from typing import Any

import click

from coordinator_core import storage
from coordinator_core.cli.options import note, write_line
from coordinator_core.cli.reconcile import NEVER, exit_code, reconcile_options, reconciled
from coordinator_core.reports.run_metrics import MAX_SERIES, run_metrics
from coordinator_core.reports.run_page import run_page
from coordinator_core.reports.run_report import run_report
from coordinator_core.reports.run_summary import run_summary

FILES = {"html": "report.html", "json": "report.json", "prometheus": "report.prom", "markdown": "report.md"}


@click.command("report")
@click.argument("run", metavar="RUN")
@reconcile_options(fail_on=NEVER)
@click.option(
    "--format",
    "output_format",
    type=click.Choice(list(FILES)),
    default="html",
    show_default=True,
    help="Form of the report on standard output.",
)
@click.option(
    "--output", metavar="DIR", help=f"Write {', '.join(FILES.values())} into this directory instead."
)
@click.option(
    "--load-bytes-per-second",
    type=click.FloatRange(min=1),
    metavar="N",
    help="How fast the brokers load offsets partitions: bytes by their metric partition-load-time.",
)
@click.option(
    "--max-series",
    type=click.IntRange(min=1),
    default=MAX_SERIES,
    show_default=True,
    help="Most Prometheus series of one metric; sums are always there.",
)
def report_command(
    run: str,
    fail_on: str,
    output_format: str,
    output: str | None,
    load_bytes_per_second: float | None,
    max_series: int,
    **inputs: Any,
) -> int:
    """One page about a published RUN: verdict, changes, findings, lag, expiry, what weighs and what hangs."""
    facts, found = reconciled(run, **inputs)
    report, lag = run_report(facts, found, load_bytes_per_second=load_bytes_per_second)
    page = None if output is None else storage.join(output, FILES["html"])
    forms = {
        "html": lambda: run_page(report),
        "json": lambda: json.dumps(report, ensure_ascii=False, indent=2) + "\n",
        "prometheus": lambda: run_metrics(report, facts, lag, max_series=max_series),
        "markdown": lambda: run_summary(report, page=page),
    }
    if output is None:
        write_line(forms[output_format]().rstrip("\n"))
    else:
        storage.make_directory(output)
        for name, file in FILES.items():
            storage.write_atomic(storage.join(output, file), forms[name]().encode())
        note(f"regroup: the report is {page}")
    return exit_code(found, fail_on)
