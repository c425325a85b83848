"""``regroup explain``."""

from __future__ import annotations

from dataclasses import asdict

import click

from coordinator_core.cli.not_here import elsewhere_of_log, why_not_here
from coordinator_core.cli.options import Format, ReplayOptions, format_option, log_options, write_json, write_lines
from coordinator_core.cli.source import open_to_read, warn_about_damage
from coordinator_core.errors import UsageError
from coordinator_core.replay.explain import Event, Subject, explain_partition
from coordinator_core.untrusted import INT32_END, visible, whole_number


@click.command("explain")
@click.argument("paths", nargs=-1, required=True, metavar="SNAPSHOT…|RUN")
@click.option("--group", "group_id", required=True, metavar="GROUP", help="The group to explain.")
@click.option(
    "--topic",
    metavar="TOPIC[:PARTITION]",
    help="Of its committed offsets only those of this topic; records of the group itself are there, too.",
)
@log_options
@format_option(Format.TEXT, Format.JSON, Format.JSONL)
def explain_command(
    paths: tuple[str, ...], group_id: str, topic: str | None, output_format: Format, options: ReplayOptions
) -> None:
    """Print the records and transactions that made the state of GROUP, in log order, with their effect."""
    subject = _subject(group_id, topic)
    snapshot, options, damage, profile = open_to_read(paths, options, of_any_broker=True)
    events = [
        event
        for log in snapshot.partitions
        for event in explain_partition(log, profile, subject, on_damage=options.on_damage, damage=damage)
    ]
    warn_about_damage(damage, options.on_damage)
    if not events:
        if topic is None:
            raise UsageError(why_not_here(group_id, paths, snapshot, profile, options))
        absent = f"no record in this log concerns group {group_id!r}, topic {topic}"
        raise UsageError("; ".join((absent, *elsewhere_of_log(group_id, paths, snapshot, options))))
    match output_format:
        case Format.JSON:
            write_json([asdict(event) for event in events])
        case Format.JSONL:
            for event in events:
                write_json(asdict(event))
        case _:
            write_lines(map(_text, events))


def _subject(group_id: str, topic: str | None) -> Subject:
    """``TOPIC`` or ``TOPIC:PARTITION``; topic names cannot hold a colon."""
    if topic is None:
        return Subject(group_id)
    name, colon, partition = topic.partition(":")
    if not colon:
        return Subject(group_id, name)
    number = whole_number(partition, INT32_END)
    if number is None:
        raise click.UsageError(f"--topic {topic}: expected TOPIC or TOPIC:PARTITION")
    return Subject(group_id, name, number)


def _text(event: Event) -> str:
    where = f"[{event.offsets_partition}] {event.record_offset:>8}  {event.timestamp_ms}"
    offset_key = "" if event.topic is None else f" {event.topic}-{event.partition}"
    return visible(f"{where}  {event.record}{offset_key}: {event.effect}")
