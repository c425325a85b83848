"""``regroup history``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import click
import pyarrow as pa

from coordinator_core.cli.options import Engine, ReplayOptions, note, note_inferred, replay_options
from coordinator_core.cli.retention import offsets_retention_option
from coordinator_core.cli.source import found_beside, open_to_read, warn_about_damage, warn_about_told
from coordinator_core.cli.spark_app import replay_words, run_spark_app
from coordinator_core.durations import is_or_are
from coordinator_core.errors import Damage
from coordinator_core.history.digest import HistoryDigest
from coordinator_core.history.parts import Asked, absent_warnings, history_parts, noting_rows
from coordinator_core.investigate.words import count
from coordinator_core.log.types import Snapshot
from coordinator_core.process.allocator import keep_freed_memory
from coordinator_core.reports.history_file import write_history
from coordinator_core.rules.topics import configured_retention_ms, read_topics
from coordinator_core.rules.transaction_log import read_transaction_log
from coordinator_core.runs.place import check_output_outside, is_one_run, source_directories
from coordinator_core.runs.read import open_run


@click.command("history")
@click.argument("paths", nargs=-1, required=True, metavar="SNAPSHOT…|RUN")
@click.option(
    "--output",
    required=True,
    metavar="FILE|DIR",
    help="Parquet file to write; an older one is replaced. With --engine spark a new directory of such files.",
)
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="Only rows of this group (repeatable).")
@click.option("--digest", "with_digest", is_flag=True, help="Tell the digest of the rows, too, as --engine spark does.")
@offsets_retention_option
@replay_options
def history_command(
    paths: tuple[str, ...],
    output: str,
    groups: tuple[str, ...],
    with_digest: bool,
    offsets_retention_ms: int | None,
    options: ReplayOptions,
) -> None:
    """Write the table ``history`` of all groups: every value of every offset key, how long it was valid, who committed
    it, and what ended it.

    Of a RUN, the logs that it was made from are read again, as far as it has read them.
    """
    if options.engine is Engine.SPARK:
        arguments = _arguments(paths, output, groups, offsets_retention_ms, options)
        told = run_spark_app("history", options.master, arguments)
        on_damage = options.on_damage
        if is_one_run(paths):
            on_damage = open_run(paths[0]).on_damage(on_damage)
        else:
            note_inferred(options, told["profile"], is_told=told["profile_told"])
        warn_about_told(told, on_damage)
        _told(told["rows"], told["history"], told["hash"])
        return
    snapshot, asked, damage = asked_of(paths, output, groups, offsets_retention_ms, options)
    digest = HistoryDigest() if with_digest else None
    absent = set(groups)

    def tables() -> Iterator[pa.Table]:
        for part in noting_rows(history_parts(snapshot, asked, damage), absent):
            if digest is not None:
                digest.update(part)
            yield part.table

    rows = write_history(output, tables())
    warn_about_damage(damage, asked.on_damage)
    warn_about_absent(absent)
    _told(rows, output, None if digest is None else digest.hexdigest())


def warn_about_absent(groups: Iterable[str]) -> None:
    """Name groups that were asked for, and that have no row."""
    for text in absent_warnings(groups):
        note(f"regroup: warning: {text}")


def asked_of(
    paths: Sequence[str], output: str, groups: Sequence[str], offsets_retention_ms: int | None, options: ReplayOptions
) -> tuple[Snapshot, Asked, list[Damage]]:
    """The log, the parameters of its table with what lies beside it, and the damage of its directories. ``output``
    is what the table is written to."""
    keep_freed_memory()
    beside = found_beside(paths)
    snapshot, options, damage, profile = open_to_read(paths, options)
    check_output_outside(output, source_directories(snapshot))
    topics = None if beside.topics is None else read_topics(beside.topics)
    asked = Asked(
        profile,
        snapshot.topic_names,
        options.on_damage,
        frozenset(groups) or None,
        offsets_retention_ms,
        read_transaction_log(*beside.transaction_log).names if beside.transaction_log else {},
        captured_retention_ms=configured_retention_ms(topics),
    )
    return snapshot, asked, damage


def _told(rows: int, output: str, digest: str | None) -> None:
    note(f"regroup: {count(rows, 'row')} of the table history {is_or_are(rows)} in {output}")
    if digest is not None:
        note(f"regroup: digest of the rows {digest}")


def _arguments(
    paths: tuple[str, ...],
    output: str,
    groups: tuple[str, ...],
    offsets_retention_ms: int | None,
    options: ReplayOptions,
) -> list[str]:
    """Arguments of the Spark application."""
    found = ["--run", paths[0]] if is_one_run(paths) else ["--snapshot", *paths]
    found += ["--output", output]
    for group in groups:
        found += [f"--group={group}"]
    if offsets_retention_ms is not None:
        found += ["--offsets-retention-ms", str(offsets_retention_ms)]
    return [*found, *replay_words(options)]
