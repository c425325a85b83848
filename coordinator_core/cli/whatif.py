"""``regroup whatif``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from coordinator_core.cli.not_here import check_groups, tell_split
from coordinator_core.cli.options import (
    Format,
    ReplayOptions,
    Whole,
    format_option,
    note,
    replay_options,
    require_topic_names,
    write_csv,
    write_json,
    write_lines,
)
from coordinator_core.cli.retention import offsets_retention_option, retention_ms
from coordinator_core.cli.source import load_source, refuse_other_rules
from coordinator_core.errors import ExitCode, UsageError
from coordinator_core.groups.model import GroupType, PartitionState
from coordinator_core.lifecycle import whatif
from coordinator_core.lifecycle.expiry import plan_expiry
from coordinator_core.lifecycle.plan import ExpiryPlan
from coordinator_core.lifecycle.whatif import Effect
from coordinator_core.releases import Loader
from coordinator_core.reports.whatif import CSV_COLUMNS, whatif_document, whatif_text
from coordinator_core.topology import is_topic_name
from coordinator_core.untrusted import INT32_END

_CHANGES = ("to", "offsets_partitions", "retention_ms", "delete_group", "delete_topic")


@click.command("whatif")
@click.argument("paths", nargs=-1, required=True, metavar="SNAPSHOT…|RUN")
@click.option(
    "--to",
    type=click.Choice([GroupType.CONSUMER.value, GroupType.STREAMS.value, GroupType.SHARE.value]),
    help="A member of this protocol joins each group: KIP-848, KIP-1071, KIP-932.",
)
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="With --to: only this group (repeatable).")
@click.option(
    "--no-upgrades", is_flag=True, help="With --to: group.consumer.migration.policy is disabled or downgrade."
)
@click.option(
    "--offsets-partitions",
    type=Whole(min=1, max=INT32_END - 1),
    metavar="N",
    help="The offsets topic that loads this log has N partitions.",
)
@click.option(
    "--retention-ms",
    type=Whole(min=1),
    metavar="MS",
    help="offsets.retention.minutes becomes this, in milliseconds; today's is --offsets-retention-ms.",
)
@click.option("--delete-group", multiple=True, metavar="GROUP", help="DeleteGroups of this group (repeatable).")
@click.option("--delete-topic", multiple=True, metavar="TOPIC", help="DeleteTopics of this topic (repeatable).")
@offsets_retention_option
@replay_options
@format_option(Format.TEXT, Format.JSON, Format.CSV)
def whatif_command(
    paths: tuple[str, ...],
    groups: tuple[str, ...],
    no_upgrades: bool,
    offsets_retention_ms: int | None,
    output_format: Format,
    options: ReplayOptions,
    **changes: Any,
) -> int:
    """Tell what one change would do, group by group, with the records concerned. Changes nothing, asks no cluster.

    The release is that of the brokers after the change (--kafka-version, --profile; by default the one that the records
    tell). Exits with 1 when a committed offset goes or is not found any more, when the broker refuses a group, or when
    it does not load an offsets partition.
    """
    chosen = [name for name in _CHANGES if changes[name]]
    if len(chosen) != 1:
        raise UsageError(f"name one change: {', '.join('--' + name.replace('_', '-') for name in _CHANGES)}")
    (name,) = chosen
    if name != "to" and (groups or no_upgrades):
        raise UsageError("--group and --no-upgrades go with --to")
    is_expired = name in ("retention_ms", "delete_topic")
    if offsets_retention_ms is not None and not is_expired:
        raise UsageError("--offsets-retention-ms goes with --retention-ms and --delete-topic")
    refuse_other_rules(paths)
    source = load_source(paths, options)
    named = (*groups, *changes["delete_group"])
    check_groups(source, named, paths, options)
    _check_topics(source.states, changes["delete_topic"])
    now_ms = source.judged_at_ms(options)
    profile, value = source.profile, changes[name]
    today_ms = retention_ms(offsets_retention_ms, paths if is_expired else (), profile)
    warned: set[int] = set()

    def plan(state: PartitionState, retained_ms: int = today_ms) -> ExpiryPlan:
        found = plan_expiry(state, profile, now_ms=now_ms, offsets_retention_ms=retained_ms)
        if found.failure is not None and state.offsets_partition not in warned:
            warned.add(state.offsets_partition)
            note(f"regroup: warning: nothing expires in offsets partition {state.offsets_partition}: {found.failure}")
        return found

    effects: dict[str, Callable[[PartitionState], list[Effect]]] = {
        "to": lambda state: whatif.migrated(
            state, profile, GroupType(value), upgrades=not no_upgrades, groups=groups or None
        ),
        "offsets_partitions": lambda state: whatif.repartitioned(state, value),
        "retention_ms": lambda state: whatif.retained(state, plan(state), plan(state, value)),
        "delete_group": lambda state: whatif.groups_deleted(state, profile, value),
        "delete_topic": lambda state: whatif.topics_deleted(
            state, profile, value, today=plan(state), then=plan(whatif.without_topics(state, value))
        ),
    }
    found = [effect for state in source.states for effect in effects[name](state)]
    if changes["offsets_partitions"] and found and profile.loader is Loader.SCALA:
        note("The classic coordinator of a broker that leads both partitions of such a group finds it all the same.")
    for group_id in named:
        if not any(group_id in state.groups for state in source.states):
            note(f"The coordinator does not have group {group_id!r} any more: committed offsets alone are left of it.")
    if not is_expired:
        # The others are changes to each copy of a group.
        concerned = {effect.group_id for effect in found}
        held = (
            {"group_id": group_id, "offsets_partition": state.offsets_partition}
            for state in source.states
            for group_id in state.groups
            if group_id in concerned
        )
        tell_split(source, held, paths, options)
    if changes["delete_topic"] and not found:
        note("None of the groups has an offset of these topics, or subscribes to one.")
    document = whatif_document(
        source.states,
        found,
        change={name: list(value) if isinstance(value, tuple) else value},
        profile=profile.label,
        now_ms=now_ms,
        partial=source.partial,
    )
    match output_format:
        case Format.JSON:
            write_json(document)
        case Format.CSV:
            write_csv(CSV_COLUMNS, document["effects"])
        case _:
            write_lines(whatif_text(document))
    stops = any(state.load_failures for state in source.states)
    return ExitCode.FINDINGS if stops or any(effect.is_loss for effect in found) else ExitCode.CLEAN


def _check_topics(states: Sequence[PartitionState], topics: Sequence[str]) -> None:
    """No topic name is a mistake, such as ``orders:0``, unless the log has it."""
    wrong = {topic for topic in topics if not is_topic_name(topic)}
    if wrong:
        require_topic_names(wrong - {key.topic for state in states for key in state.offsets}, "--delete-topic")
