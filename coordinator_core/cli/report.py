"""``regroup report``."""

from __future__ import annotations

from typing import Any

import click

from coordinator_core.cli.options import Finite, ReplayOptions, Whole, note, snapshot_options, write_line
from coordinator_core.cli.reconcile import (
    NEVER,
    exit_code,
    given_and_found,
    reconcile_options,
    reconciled,
)
from coordinator_core.cli.signing import Signing, sign_key_option
from coordinator_core.cli.source import as_of_capture, as_run
from coordinator_core.errors import UsageError
from coordinator_core.reports.lineage import write_lineage
from coordinator_core.reports.metrics_out import check_gateway, push_metrics, write_textfile
from coordinator_core.reports.report_files import FILES, report_forms, write_report
from coordinator_core.reports.run_metrics import MAX_SERIES
from coordinator_core.reports.run_report import LOAD_BYTES_PER_SECOND, run_report
from coordinator_core.runs.place import is_one_run


@click.command("report")
@click.argument("paths", nargs=-1, required=True, metavar="SNAPSHOT…|RUN")
@reconcile_options(fail_on=NEVER)
@snapshot_options
@click.option(
    "--format",
    "output_format",
    type=click.Choice(list(FILES)),
    help="Form of the report on standard output. [default: html, unless it goes elsewhere]",
)
@click.option("--output", metavar="DIR", help=f"Write {', '.join(FILES.values())} into this directory.")
@sign_key_option("the files in --output")
@click.option(
    "--textfile", metavar="DIR", help="Replace regroup_<cluster>.prom in this directory (textfile collector)."
)
@click.option("--openlineage", metavar="FILE", help="Write the inputs of a RUN as OpenLineage events, JSON lines.")
@click.option("--pushgateway", metavar="URL", help="Replace the metrics of the cluster at this Prometheus Pushgateway.")
@click.option(
    "--load-bytes-per-second",
    type=Finite(min=1),
    metavar="N",
    help="How fast the brokers load offsets partitions: bytes by their metric partition-load-time. "
    f"[default: {LOAD_BYTES_PER_SECOND}, a 4.3.1 broker on two cores]",
)
@click.option(
    "--max-series",
    type=Whole(min=1),
    default=MAX_SERIES,
    show_default=True,
    help="Most Prometheus series of one metric; sums are always there.",
)
def report_command(
    paths: tuple[str, ...],
    fail_on: str,
    output_format: str | None,
    output: str | None,
    sign_key: str | None,
    textfile: str | None,
    openlineage: str | None,
    pushgateway: str | None,
    load_bytes_per_second: float | None,
    max_series: int,
    options: ReplayOptions,
    **inputs: Any,
) -> int:
    """One page about a RUN, or a SNAPSHOT: verdict, changes, findings, lag, expiry, heavy groups, open transactions.

    Topics, transaction log, log and the run before are found where they lie beside it; options win.
    """
    if sign_key is not None and output is None:
        raise UsageError("--sign-key signs files: name --output")
    signing = Signing(sign_key)
    if pushgateway is not None:
        check_gateway(pushgateway)
    if openlineage is not None and not is_one_run(paths):
        raise UsageError("--openlineage tells the inputs of a published run; this is a snapshot")
    with as_run(paths, as_of_capture(paths, options)) as run:
        facts, found = reconciled(run, given_and_found(run, **inputs))
        report, lag = run_report(facts, found, load_bytes_per_second=load_bytes_per_second)
        forms = report_forms(report, facts, lag, max_series=max_series)
        if output is not None:
            page = write_report(output, report, facts, lag, max_series=max_series)
            signing.files(output, FILES.values())
            note(f"regroup: the report is {page}")
        if output_format is not None or output is textfile is pushgateway is openlineage is None:
            write_line(forms[output_format or "html"]().rstrip("\n"))
        cluster = report["scope"]["cluster"]
        if textfile is not None:
            note(f"regroup: the metrics are {write_textfile(textfile, cluster, forms['prometheus']())}")
        if pushgateway is not None:
            push_metrics(pushgateway, cluster, forms["prometheus"]())
            note(f"regroup: the metrics are at {pushgateway}")
        if openlineage is not None:
            write_lineage(openlineage, facts.run, report)
            note(f"regroup: the lineage is {openlineage}")
    return exit_code(found, fail_on)
