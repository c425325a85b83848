"""``regroup history``."""

from __future__ import annotations

import click

from coordinator_core.cli.options import ReplayOptions, note, replay_options
from coordinator_core.cli.retention import configured_retention_ms, offsets_retention_option
from coordinator_core.cli.source import found_beside, log_of, open_snapshot, refuse_other_rules, warn_about_damage
from coordinator_core.errors import Damage
from coordinator_core.history.parts import history_tables
from coordinator_core.ingest.unknown import is_unknown
from coordinator_core.process.allocator import keep_freed_memory
from coordinator_core.reports.history_file import write_history
from coordinator_core.rules.topics import read_topics
from coordinator_core.rules.transaction_log import read_transaction_log
from coordinator_core.runs.place import check_output_outside, source_directories


@click.command("history")
@click.argument("paths", nargs=-1, required=True, metavar="SNAPSHOT|RUN")
@click.option("--output", required=True, metavar="FILE", help="Parquet file to write; an older one is replaced.")
@offsets_retention_option
@replay_options
def history_command(
    paths: tuple[str, ...], output: str, offsets_retention_ms: int | None, options: ReplayOptions
) -> None:
    """Write the table ``history`` of all groups: every value of every offset key, how long it was valid, who committed
    it, and what ended it.

    Of a RUN, the logs that it was made from are read again.
    """
    keep_freed_memory()
    beside = found_beside(paths)
    paths, options = log_of(paths, options)
    refuse_other_rules(paths)
    snapshot, profile = open_snapshot(paths, options)
    check_output_outside(output, source_directories(snapshot))
    topics = None if beside.topics is None else read_topics(beside.topics)
    damage: list[Damage] = [entry for entry in snapshot.damage if is_unknown(entry)]
    tables = history_tables(
        snapshot,
        profile,
        retention_ms=offsets_retention_ms or configured_retention_ms(topics),
        transactional_ids=read_transaction_log(*beside.transaction_log).names if beside.transaction_log else {},
        on_damage=options.on_damage,
        damage=damage,
    )
    rows = write_history(output, tables)
    warn_about_damage(damage, options.on_damage)
    note(f"regroup: {rows:,} rows of the table history are in {output}")
