"""``regroup stats``."""

from __future__ import annotations

import click

from coordinator_core.cli.not_here import elsewhere, offsets_partitions
from coordinator_core.cli.options import (
    Finite,
    Format,
    ReplayOptions,
    Whole,
    format_option,
    group_option,
    replay_options,
    write_json,
    write_line,
)
from coordinator_core.cli.retention import delete_retention_option
from coordinator_core.cli.source import load_source, open_log
from coordinator_core.errors import UsageError
from coordinator_core.groups.model import PartitionState
from coordinator_core.lifecycle.cleaning import DEFAULT_MIN_CLEANABLE_DIRTY_RATIO
from coordinator_core.lifecycle.compact_plan import CompactionRules
from coordinator_core.lifecycle.forensics import forensics
from coordinator_core.log.reader import OnDamage, loadable
from coordinator_core.reports.stats import stats_document, stats_text


@click.command("stats")
@click.argument("paths", nargs=-1, required=True, metavar="SNAPSHOT…|RUN")
@group_option
@click.option(
    "--top",
    type=Whole(min=1),
    default=10,
    show_default=True,
    help="Lines of each table of the text.",
)
@click.option(
    "--min-cleanable-dirty-ratio",
    type=Finite(0, 1),
    default=DEFAULT_MIN_CLEANABLE_DIRTY_RATIO,
    show_default=True,
    metavar="RATIO",
    help="min.cleanable.dirty.ratio of the topic.",
)
@delete_retention_option
@replay_options
@format_option(Format.TEXT, Format.JSON)
def stats_command(
    paths: tuple[str, ...],
    groups: tuple[str, ...],
    top: int,
    min_cleanable_dirty_ratio: float,
    delete_retention_ms: int,
    output_format: Format,
    options: ReplayOptions,
) -> None:
    """Sizes in the log: records, bytes, dead bytes and commit rate by group, topic and member
    client; what keeps the broker's cleaner from it; what compaction by the cleaner's rules would leave.

    The log must be sound, or with --partial as a starting broker leaves it. Of a RUN, the logs that it was made from
    are read again, as far as it has read them.
    """
    if options.on_damage is OnDamage.SALVAGE:
        raise UsageError("--salvage does not go with stats; --partial reads a log as a starting broker leaves it")
    source = load_source(paths, options)
    snapshot, options = open_log(paths, options)
    states = {state.offsets_partition: state for state in source.states}
    now_ms = source.judged_at_ms(options)
    rules = CompactionRules(now_ms=now_ms, delete_retention_ms=delete_retention_ms)
    # Bytes that a starting broker would cut, or would not load, are not part of the log; those that it does not verify
    # are read as they are.
    partial = options.on_damage is OnDamage.RECOVER
    partitions = [
        forensics(
            log,
            states.get(log.offsets_partition, PartitionState(log.offsets_partition)),
            rules=rules,
            topic_names=source.topic_names,
            min_cleanable_dirty_ratio=min_cleanable_dirty_ratio,
            as_broker=partial,
        )
        for log in (loadable(log) if partial else log for log in snapshot.partitions)
    ]
    known = {group_id for item in partitions for group_id in item.totals.groups}
    for group_id in groups:
        if group_id not in known:
            count = offsets_partitions(paths, options, source.placed)
            absent = f"no record in this log concerns group {group_id!r}"
            raise UsageError("; ".join((absent, *elsewhere(group_id, source.held, count))))
    document = stats_document(
        partitions,
        profile=source.profile.label,
        now_ms=now_ms,
        group_ids=frozenset(groups) if groups else None,
    )
    if output_format is Format.JSON:
        write_json(document)
    else:
        write_line(stats_text(document, top=top))
