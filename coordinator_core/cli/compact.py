"""``regroup compact``."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import click

from coordinator_core.cli.options import (
    Engine,
    Format,
    ReplayOptions,
    Whole,
    choice_option,
    format_option,
    note,
    note_inferred,
    replay_options,
    write_json,
    write_line,
)
from coordinator_core.cli.retention import delete_retention_option, given_or_captured_ms, offsets_retention_option
from coordinator_core.cli.source import open_snapshot, warn_about_told
from coordinator_core.cli.spark_app import replay_words, run_spark_app
from coordinator_core.durations import noun, numbered
from coordinator_core.errors import Damage, ExitCode, UsageError
from coordinator_core.lifecycle.compact import CompactionOptions
from coordinator_core.lifecycle.compact_publish import Document, compact_logs, finish_compaction, logs_to_compact
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.segments import DEFAULT_SEGMENT_BYTES
from coordinator_core.log.types import Codec
from coordinator_core.process.allocator import keep_freed_memory
from coordinator_core.storage import new_directory
from coordinator_core.untrusted import INT32_END, visible

_MOST_TOLD = 5
_SUMS = ("input_bytes", "output_bytes", "input_records", "output_records", "protected_records")


@click.command("compact")
@click.argument("paths", nargs=-1, required=True, metavar="SNAPSHOT…")
@click.option("--output", required=True, metavar="DIR", help="Directory of the new log; must not exist yet.")
@click.option("--expire", is_flag=True, help="Tombstone expired offsets first, see `regroup expire`.")
@offsets_retention_option
@delete_retention_option
@click.option("--renumber", is_flag=True, help="Consecutive record offsets instead of the input's.")
@choice_option(
    "--message-format",
    ["keep", "2"],
    "Keep messages of formats 0 and 1 as they are, or make batches of format 2 of them.",
)
@choice_option("--codec", ["keep", *(codec.name.lower() for codec in Codec)], "How batches of format 2 are compressed.")
@click.option(
    "--offsets-partitions",
    type=Whole(min=1, max=INT32_END - 1),
    metavar="N",
    help="Move groups to the partitions of a topic that has N of them.",
)
@click.option(
    "--segment-bytes",
    type=click.IntRange(min=1024, max=(1 << 31) - 1),
    default=DEFAULT_SEGMENT_BYTES,
    show_default=True,
    metavar="BYTES",
    help="Size of the segments.",
)
@replay_options
@format_option(Format.TEXT, Format.JSON)
def compact_command(
    paths: tuple[str, ...],
    output: str,
    output_format: Format,
    options: ReplayOptions,
    **chosen: Any,
) -> int:
    """Write SNAPSHOT compacted to DIR, as a broker can load it, once it is proved that it loads the same
    state.

    Nothing from the first open transaction on is touched. Input that cannot be read ends with exit code 3, a
    failed proof with 4; both publish nothing.
    """
    if chosen["offsets_retention_ms"] is not None and not chosen["expire"]:
        raise UsageError("--offsets-retention-ms goes with --expire")
    if chosen["expire"]:
        chosen["offsets_retention_ms"] = given_or_captured_ms(chosen["offsets_retention_ms"], paths)
    compact = _with_spark if options.engine is Engine.SPARK else _compact
    document = compact(paths, output, chosen, options)
    warn_about_told(document, options.on_damage)
    for row in document["partitions"]:
        if row["expiry_failure"] is not None:
            note(
                f"regroup: warning: {document['profile']} expires nothing in offsets partition "
                f"{row['offsets_partition']}: {row['expiry_failure']}"
            )
    if output_format is Format.JSON:
        write_json(document)
    else:
        _write_text(document)
    return ExitCode.CLEAN


def _compact(paths: tuple[str, ...], output: str, chosen: dict[str, Any], replaying: ReplayOptions) -> Document:
    began = perf_counter()
    keep_freed_memory()
    with new_directory(output) as staging:
        snapshot, profile = open_snapshot(paths, replaying)
        damage: list[Damage] = []
        logs = logs_to_compact(snapshot, replaying.on_damage, damage)
        options = CompactionOptions.chosen(profile, now_ms=replaying.now_ms, **chosen)
        reports = compact_logs(logs, staging, options)
        return finish_compaction(
            reports,
            staging,
            options,
            output=output,
            sources=snapshot.sources,
            damage=damage,
            engine="local",
            began=began,
        )


def _with_spark(paths: tuple[str, ...], output: str, chosen: dict[str, Any], replaying: ReplayOptions) -> Document:
    """The same in a Spark application of its own process, which reports its own errors."""
    if replaying.on_damage is OnDamage.SALVAGE:
        raise UsageError("--salvage does not go with compaction")
    command = ["--snapshot", *paths, "--output", output, "--now-ms", str(replaying.now_ms), *replay_words(replaying)]
    for name, value in chosen.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            command.append(option)
        elif value not in (None, False):
            command += [option, str(value)]
    document = run_spark_app("compact", replaying.master, command, done=(ExitCode.CLEAN,))
    note_inferred(replaying, document["profile"], is_told=any(row["input_records"] for row in document["partitions"]))
    return document


def _write_text(document: Document) -> None:
    """A line for every partition that holds something, then the sums; on standard error what was
    protected."""
    columns = "{:<18}{:>15} {:>15} {:>12} {:>12} {:>12} {:>14}"
    names = ("OFFSETS-PARTITION", "BYTES-BEFORE", "BYTES-AFTER", "RECORDS", "LEFT", "PROTECTED", "STABLE-OFFSET")
    write_line(columns.format(*names))
    for row in document["partitions"]:
        if row["input_batches"]:
            sums = (row[name] for name in _SUMS)
            write_line(columns.format(row["offsets_partition"], *sums, row["last_stable_offset"]))
        for told in row["told"][:_MOST_TOLD]:
            note(f"regroup: offsets partition {row['offsets_partition']}: kept for: {visible(told)}")
        if (more := len(row["told"]) - _MOST_TOLD) > 0:
            note(
                f"regroup: offsets partition {row['offsets_partition']}: and for {more} more (compaction.json has all)"
            )
        if row["open_producers"]:
            producers = ", ".join(map(str, row["open_producers"][:_MOST_TOLD]))
            count = len(row["open_producers"])
            more = count - _MOST_TOLD
            note(
                f"regroup: offsets partition {row['offsets_partition']}: nothing from record offset "
                f"{row['last_stable_offset']} on is compacted: open {noun(count, 'transaction')} of "
                f"{noun(count, 'producer')} {producers}{f' and {more} more' if more > 0 else ''}"
            )
    write_line(columns.format("all", *(document[name] for name in _SUMS), ""))
    if document["offsets_retention_ms"] is not None:
        expired = numbered(document["expired_offsets"], "offset"), numbered(document["expired_groups"], "group")
        write_line(f"expired: {', '.join(expired)}")
    for row in document["moved"]:
        if row["groups"]:
            sources = ", ".join(map(str, row["sources"]))
            write_line(
                f"offsets partition {row['offsets_partition']} of {document['offsets_partitions']}: "
                f"{numbered(row['groups'], 'group')} from {sources}, {numbered(row['records'], 'record')}, "
                f"{row['bytes']} bytes"
            )
