"""``regroup verify``."""

from __future__ import annotations

import json
from typing import Any

import click

from coordinator_core.cli.options import (
    Format,
    format_option,
    replay_options,
    replay_options_from,
    write_line,
)
from coordinator_core.errors import ExitCode
from coordinator_core.log.discovery import discover
from coordinator_core.log.verify import verify


@click.command("verify")
@click.argument("paths", nargs=-1, required=True, metavar="SNAPSHOT")
@replay_options
@format_option(Format.TEXT, Format.JSON)
def verify_command(paths: tuple[str, ...], output_format: Format, **replay: Any) -> int:
    """Check every segment: framing, checksums, offsets, records. Exit code 3 when anything is damaged.

    Takes the options of every command; none of them changes what is checked.
    """
    replay_options_from(**replay)
    report = verify(discover(paths))
    if output_format is Format.JSON:
        write_line(json.dumps(report.as_dict(), ensure_ascii=False))
    else:
        for segment in report.segments:
            write_line(f"{segment.path}: {segment.batches} batches, {segment.records} records, {segment.bytes} bytes")
        for damage in report.damage:
            write_line(str(damage))
        write_line(
            f"{report.status}: {len(report.segments)} segments, {len(report.damage)} places damaged"
            if report.damage
            else f"{report.status}: {len(report.segments)} segments"
        )
    return ExitCode.DAMAGED_INPUT if report.damage else ExitCode.CLEAN
