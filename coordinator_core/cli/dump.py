"""``regroup dump``."""

from __future__ import annotations

import sys

import click

from coordinator_core.cli.options import Format, ReplayOptions, format_option, log_options, write, write_json
from coordinator_core.cli.source import open_snapshot, warn_about_damage
from coordinator_core.errors import Damage
from coordinator_core.ingest.unknown import is_unknown
from coordinator_core.process.streams import has_reader
from coordinator_core.reports.dump import dump_objects, dump_text
from coordinator_core.runs.finding import find_snapshot
from coordinator_core.untrusted import visible_lines


@click.command("dump")
@click.argument("paths", nargs=-1, required=True, metavar="SNAPSHOT…")
@log_options
@format_option(Format.TEXT, Format.JSONL)
def dump_command(paths: tuple[str, ...], output_format: Format, options: ReplayOptions) -> None:
    """Every record, in log order: the text of kafka-dump-log with the offsets decoder, or JSON lines.

    The text equals the output of the dump tool of the profile's release. Ends when the reader of standard output
    leaves: damage behind that is not looked for.
    """
    damage: list[Damage] = []
    if output_format is Format.JSONL:
        snapshot = find_snapshot(paths)
        for log in snapshot.partitions:
            for row in dump_objects(log, on_damage=options.on_damage, damage=damage):
                write_json(row)
                if not has_reader():
                    return
    else:
        snapshot, profile = open_snapshot(paths, options)
        to_terminal = sys.stdout.isatty()
        for log in snapshot.partitions:
            pieces = dump_text(log, release=str(profile.release), on_damage=options.on_damage, damage=damage)
            for piece in pieces:
                # Files and pipes get what Kafka's tool writes; a terminal obeys control characters.
                write(visible_lines(bytes(piece).decode("utf-8", "replace")).encode() if to_terminal else piece)
                if not has_reader():
                    return
    damage += (entry for entry in snapshot.damage if is_unknown(entry))
    warn_about_damage(damage, options.on_damage)
