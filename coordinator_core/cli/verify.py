"""``regroup verify``."""

from __future__ import annotations

import click

from coordinator_core.cli.options import Format, ReplayOptions, format_option, replay_options, write_json, write_line
from coordinator_core.errors import ExitCode
from coordinator_core.log.discovery import discover
from coordinator_core.log.verify import verify
from coordinator_core.runs.read import is_run, open_run
from coordinator_core.runs.verify import RunReport, verify_run


@click.command("verify")
@click.argument("paths", nargs=-1, required=True, metavar="SNAPSHOT|RUN")
@replay_options
@format_option(Format.TEXT, Format.JSON)
def verify_command(paths: tuple[str, ...], output_format: Format, options: ReplayOptions) -> int:
    """Check every segment: framing, checksums, offsets, records. Exit code 3 when anything is damaged.

    Of a run: every file of its tables, against the digests in its manifest, and the state hash of their rows.

    Takes the options of every command; none of them changes what is checked.
    """
    report = verify_run(open_run(paths[0])) if len(paths) == 1 and is_run(paths[0]) else verify(discover(paths))
    if output_format is Format.JSON:
        write_json(report.as_dict())
    else:
        for segment in report.segments:
            write_line(f"{segment.path}: {segment.batches} batches, {segment.records} records, {segment.bytes} bytes")
        if isinstance(report, RunReport):
            for path in report.files:
                write_line(path)
        for damage in report.damage:
            write_line(str(damage))
        counted = f"{len(report.files)} files" if isinstance(report, RunReport) else f"{len(report.segments)} segments"
        damaged = f", {len(report.damage)} places damaged" if report.damage else ""
        write_line(f"{report.status}: {counted}{damaged}")
    return ExitCode.DAMAGED_INPUT if report.damage else ExitCode.CLEAN
