"""``regroup expire``."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import click

from coordinator_core.cli.not_here import check_groups
from coordinator_core.cli.options import (
    Format,
    ReplayOptions,
    format_option,
    group_option,
    note,
    replay_options,
    write_csv,
    write_json,
    write_line,
)
from coordinator_core.cli.retention import offsets_retention_option, retention_ms
from coordinator_core.cli.source import load_source, refuse_other_rules
from coordinator_core.errors import ExitCode, UsageError
from coordinator_core.groups.model import GroupType, PartitionState
from coordinator_core.lifecycle.expiry import plan_expiry
from coordinator_core.lifecycle.publish_expiry import publish_expiry
from coordinator_core.reports.expiry import CSV_COLUMNS, expiry_document, expiry_rows, expiry_text
from coordinator_core.runs.place import is_one_run
from coordinator_core.runs.read import open_run


@click.command("expire")
@click.argument("paths", nargs=-1, required=True, metavar="SNAPSHOT…|RUN")
@offsets_retention_option
@click.option(
    "--rebalancing-group",
    "rebalancing",
    multiple=True,
    metavar="GROUP",
    help="This classic group is rebalancing now, which no record says (repeatable).",
)
@group_option
@click.option("--publish", is_flag=True, help="Also write the plan, of all groups, as a table beside the RUN.")
@replay_options
@format_option(Format.TEXT, Format.JSON, Format.CSV)
def expire_command(
    paths: tuple[str, ...],
    offsets_retention_ms: int | None,
    rebalancing: tuple[str, ...],
    groups: tuple[str, ...],
    publish: bool,
    output_format: Format,
    options: ReplayOptions,
) -> int:
    """Tombstones that the next expiry sweep would write to this log, and those to come. Changes no log.

    The time is --now-ms; without it, the clock for a snapshot, and the time of the run for a run.
    """
    if publish and not is_one_run(paths):
        raise UsageError("--publish writes beside a run: name one")
    refuse_other_rules(paths)
    source = load_source(paths, options)
    now_ms = source.judged_at_ms(options)
    retained_ms = retention_ms(offsets_retention_ms, paths, source.profile)
    check_groups(source, (*groups, *rebalancing), paths, options)
    _check_rebalancing(source.states, rebalancing)
    plans = [
        plan_expiry(
            state,
            source.profile,
            now_ms=now_ms,
            offsets_retention_ms=retained_ms,
            rebalancing=rebalancing,
        )
        for state in source.states
    ]
    document = expiry_document(
        plans,
        profile=source.profile.label,
        now_ms=now_ms,
        offsets_retention_ms=retained_ms,
        partial=source.partial,
        group_ids=frozenset(groups) if groups else None,
    )
    for failure in document["failures"]:
        note(
            f"regroup: warning: {source.profile.label} expires nothing in offsets partition "
            f"{failure['offsets_partition']}: {failure['detail']}"
        )
    if publish:
        directory = publish_expiry(
            open_run(paths[0]),
            plans,
            now_ms=now_ms,
            offsets_retention_ms=retained_ms,
            rebalancing=rebalancing,
        )
        note(f"regroup: tombstones: {directory}")
    match output_format:
        case Format.JSON:
            write_json(document)
        case Format.CSV:
            write_csv(CSV_COLUMNS, expiry_rows(document))
        case _:
            write_line(expiry_text(document))
    return ExitCode.FINDINGS if document["failures"] else ExitCode.CLEAN


def _check_rebalancing(states: Sequence[PartitionState], rebalancing: Collection[str]) -> None:
    """The log has every phase of the other groups: naming one would make a plan that no broker carries out."""
    for state in states:
        for group_id in rebalancing:
            group = state.groups.get(group_id)
            if group is not None and group.type is not GroupType.CLASSIC:
                raise UsageError(f"--rebalancing-group: {group_id!r} is a {group.type} group, not a classic one")
