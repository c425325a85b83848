"""``regroup verify``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import click

from coordinator_core.cli.options import Format, ReplayOptions, format_option, log_options, write_result
from coordinator_core.cli.snapshot import warn_about_snapshot
from coordinator_core.durations import numbered
from coordinator_core.errors import ExitCode, UsageError
from coordinator_core.log.verify import VerifyReport, verify
from coordinator_core.runs.finding import find_snapshot
from coordinator_core.runs.place import is_one_run
from coordinator_core.runs.read import Run, open_run
from coordinator_core.runs.verify import RunReport, verify_run
from coordinator_core.untrusted import visible


@click.command("verify")
@click.argument("paths", nargs=-1, required=True, metavar="SNAPSHOT…|RUN|DIR")
@click.option(
    "--public-key",
    metavar="FILE",
    help="A run, or a directory of findings or of a report, must be signed by this key's owner (PEM).",
)
@log_options
@format_option(Format.TEXT, Format.JSON)
def verify_command(
    paths: tuple[str, ...], public_key: str | None, output_format: Format, options: ReplayOptions
) -> int:
    """Check every segment: framing, checksums, offsets, records. Exit code 3 when anything is damaged.

    Of a run: every file of its tables, against the digests in its manifest, and the state hash of their rows.

    With --public-key also a directory that reconcile or report has signed.

    Takes the options of every command; none of them changes the checks.
    """
    report: VerifyReport | RunReport
    if is_one_run(paths):
        report = _verified(open_run(paths[0]), public_key)
    elif public_key is not None:
        report = _signed_files(paths, public_key)
    else:
        snapshot = find_snapshot(paths)
        warn_about_snapshot(snapshot)
        report = verify(snapshot)
    write_result(output_format, report.as_dict(), _text(report))
    return ExitCode.DAMAGED_INPUT if report.damage else ExitCode.CLEAN


def _text(report: VerifyReport | RunReport) -> Iterator[str]:
    for segment in report.segments:
        counts = f"{numbered(segment.batches, 'batch')}, {numbered(segment.records, 'record')}, {segment.bytes} bytes"
        yield f"{visible(segment.path)}: {counts}"
    files = report.files if isinstance(report, RunReport) else ()
    yield from map(visible, files)
    yield from (visible(str(damage)) for damage in report.damage)
    is_run = isinstance(report, RunReport)
    counted = numbered(len(files), "file") if is_run else numbered(len(report.segments), "segment")
    damaged = f", {numbered(len(report.damage), 'place')} damaged" if report.damage else ""
    yield f"{report.status}: {counted}{damaged}"


def _verified(run: Run, public_key: str | None) -> RunReport:
    if public_key is None:
        return verify_run(run)
    # Loaded here: it takes longer than most checks.
    from coordinator_core.runs.signature import check_signature, read_public_key

    wrong = check_signature(run, read_public_key(public_key))
    report = verify_run(run)
    return replace(report, damage=(*wrong, *report.damage))


def _signed_files(paths: Sequence[str], public_key: str) -> RunReport:
    from coordinator_core.runs.signature import check_files, has_signed_files, read_public_key

    if len(paths) != 1 or not has_signed_files(paths[0]):
        raise UsageError("--public-key: only runs, findings and reports are signed")
    return check_files(paths[0], read_public_key(public_key))
