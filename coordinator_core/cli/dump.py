"""``regroup dump``."""

from __future__ import annotations

import json

import click

from coordinator_core.cli.options import Format, damage_options, format_option, on_damage, write_line
from coordinator_core.cli.source import warn_about_damage
from coordinator_core.errors import Damage
from coordinator_core.log.discovery import discover
from coordinator_core.replay.profiles import DEFAULT_RELEASE
from coordinator_core.reports.dump import dump_objects, dump_text


@click.command("dump")
@click.argument("paths", nargs=-1, required=True, metavar="SNAPSHOT")
@click.option(
    "--kafka-version",
    default=DEFAULT_RELEASE,
    show_default=True,
    metavar="RELEASE",
    help="Print as the dump tool of this release does.",
)
@damage_options
@format_option(Format.TEXT, Format.JSONL)
def dump_command(
    paths: tuple[str, ...], kafka_version: str, partial: bool, salvage: bool, output_format: Format
) -> None:
    """Every record, in log order: the text of kafka-dump-log with the offsets decoder, or JSON lines."""
    snapshot = discover(paths)
    policy = on_damage(partial, salvage)
    damage: list[Damage] = []
    for log in snapshot.partitions:
        if output_format is Format.JSONL:
            for row in dump_objects(log, on_damage=policy, damage=damage):
                write_line(json.dumps(row, ensure_ascii=False))
        else:
            for line in dump_text(log, release=kafka_version, on_damage=policy, damage=damage):
                write_line(line)
    warn_about_damage(damage, policy)
