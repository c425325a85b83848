"""``regroup rescue``."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import click

from coordinator_core import storage
from coordinator_core.cli.not_here import groups_by_partition, offsets_partitions
from coordinator_core.cli.options import (
    ExistingFile,
    Format,
    ReplayOptions,
    format_option,
    log_options,
    write_json,
    write_lines,
)
from coordinator_core.cli.source import found_beside, open_snapshot, refuse_other_rules, warn_about_damage
from coordinator_core.cli.undo import cluster_words, log_words
from coordinator_core.errors import Damage, ExitCode, UsageError
from coordinator_core.groups.model import LoadFailure
from coordinator_core.ingest.unknown import is_unknown, refuse_records
from coordinator_core.investigate.words import count
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import Snapshot
from coordinator_core.releases import Profile
from coordinator_core.reports.describe import Selection, describe
from coordinator_core.restore.rescue import RepairError, Stuck, repair, stuck_partitions
from coordinator_core.topology import load_topology
from coordinator_core.untrusted import exact_row, shell_words, visible

_SHOWN = 12
_MENDED: Mapping[str | None, str] = {
    "KAFKA-9065": "without its empty last segment",
    "KAFKA-7286": "with its large batches compressed",
}


@click.command("rescue")
@click.argument("paths", nargs=-1, required=True, metavar="SNAPSHOT…")
@click.option(
    "--topology",
    "topology_file",
    type=ExistingFile(),
    metavar="FILE",
    help="topology.json of the cluster: who leads. [default: beside the log]",
)
@click.option(
    "--repair", "repaired", metavar="DIR", help="Write the partitions without the records that stop the load."
)
@click.option("--names", "names_file", metavar="CSV", help="Write old,new names of the groups, for restore plan.")
@log_options
@format_option(Format.TEXT, Format.JSON)
def rescue_command(
    paths: tuple[str, ...],
    topology_file: str | None,
    repaired: str | None,
    names_file: str | None,
    output_format: Format,
    options: ReplayOptions,
) -> int:
    """Tell what keeps a coordinator of --kafka-version from loading its partitions, which groups that
    concerns, and the ways out.

    Exits with 1 when a partition does not load, with 4 when a repair cannot be proved.
    """
    if options.profile is None:
        raise UsageError("rescue needs --kafka-version: the release of the broker that does not load")
    refuse_other_rules(paths)
    snapshot, profile = open_snapshot(paths, options)
    if repaired is not None:
        refuse_records(snapshot)
    topology_file = topology_file or found_beside(paths).topology
    topology = None if topology_file is None else load_topology(topology_file)
    leaders = {} if topology is None else topology.offsets_leaders

    @functools.cache
    def placed() -> dict[int, Collection[str]]:
        return dict(groups_by_partition(snapshot, options))

    count = offsets_partitions(paths, options, lambda: placed().items(), topology=topology)
    number = None if count.told_by is None else count.number
    damage: list[Damage] = []
    found = stuck_partitions(
        snapshot,
        profile,
        number,
        lambda: chain.from_iterable(placed().values()),
        on_damage=options.on_damage,
        damage=damage,
        cache=options.fold_cache,
        leaders=leaders,
    )
    warn_about_damage(damage, options.on_damage)
    dropped: dict[int, list[LoadFailure]] = {}
    unproved: RepairError | None = None
    try:
        if repaired is not None:
            dropped = _repair(snapshot, found, profile, repaired, options.on_damage)
    except RepairError as error:
        # The other ways out are told all the same.
        unproved = error
    if names_file is not None:
        storage.write_text(names_file, (f"{exact_row(pair)}\n" for one in found for pair in one.names.items()))
    if output_format is Format.JSON:
        document = {
            "profile": profile.label,
            "partial": bool(damage),
            "offsets_partitions": number,
            "partitions": [_document(one, snapshot, options.now_ms, bool(damage), leaders, dropped) for one in found],
        }
        write_json(document)
    else:
        can_repair = unproved is None and not any(map(is_unknown, snapshot.damage))
        words = {one.read_by: log_words(paths, one.read_by, options.on_damage) for one in found}
        cluster = cluster_words(topology)
        text = _text(found, profile, words, cluster, leaders, dropped, repaired, can_repair, number is not None)
        write_lines(map(visible, text))
    if unproved is not None:
        raise unproved
    return ExitCode.FINDINGS if found else ExitCode.CLEAN


def _repair(
    snapshot: Snapshot, found: Sequence[Stuck], profile: Profile, output: str, on_damage: OnDamage
) -> dict[int, list[LoadFailure]]:
    stuck = {one.offsets_partition for one in found}
    if not stuck:
        return {}
    with storage.new_directory(output) as staging:
        return {
            log.offsets_partition: repair(log, profile, staging, on_damage=on_damage)
            for log in snapshot.partitions
            if log.offsets_partition in stuck
        }


def _document(
    stuck: Stuck,
    snapshot: Snapshot,
    now_ms: int,
    partial: bool,
    leaders: dict[int, int],
    dropped: dict[int, list[LoadFailure]],
) -> dict[str, Any]:
    state = describe(
        [stuck.state],
        profile=stuck.read_by,
        now_ms=now_ms,
        partial=partial,
        known_topic_names=snapshot.topic_names,
        selection=Selection(),
    )
    return {
        "offsets_partition": stuck.offsets_partition,
        "leader": leaders.get(stuck.offsets_partition),
        "stop": stuck.stop.as_dict(),
        "refused": [one._asdict() for one in stuck.refused],
        "groups": state["groups"],
        "loaded_by": [one.as_dict() for one in stuck.loaded_by],
        "read_by": stuck.read_by.as_dict(),
        "names": stuck.names,
        "dropped": [one._asdict() for one in dropped.get(stuck.offsets_partition, ())],
    }


def _text(
    found: Sequence[Stuck],
    profile: Profile,
    log: Mapping[Profile, Sequence[str]],
    cluster: Sequence[str],
    leaders: dict[int, int],
    dropped: dict[int, list[LoadFailure]],
    repaired: str | None,
    can_repair: bool,
    has_number: bool,
) -> Iterator[str]:
    if not found:
        yield f"{profile.label} loads every partition"
        return
    groups = sum(len(one.state.groups) for one in found)
    yield f"{profile.label} does not load {count(len(found), 'offsets partition')}: {count(groups, 'group')} behind"
    by_broker: dict[int, list[Stuck]] = {}
    for one in found:
        if one.offsets_partition in leaders:
            by_broker.setdefault(leaders[one.offsets_partition], []).append(one)
    for broker, some in sorted(by_broker.items()):
        concerned = count(sum(len(one.state.groups) for one in some), "group")
        yield f"broker {broker}: {count(len(some), 'partition')}, {concerned}"
    for one in found:
        yield ""
        yield from _partition(
            one, log[one.read_by], cluster, dropped.get(one.offsets_partition), repaired, can_repair, has_number
        )


def _partition(
    stuck: Stuck,
    log: Sequence[str],
    cluster: Sequence[str],
    dropped: Sequence[LoadFailure] | None,
    repaired: str | None,
    can_repair: bool,
    has_number: bool,
) -> Iterator[str]:
    stop, number = stuck.stop, stuck.offsets_partition
    at = "its end" if stop.record_offset is None else f"record {stop.record_offset}"
    bug = "" if stop.bug is None else f" ({stop.bug})"
    yield f"offsets partition {number} stops at {at}: {visible(stop.detail)}{bug}"
    names = sorted(stuck.state.groups)
    for group_id in names[:_SHOWN]:
        group = stuck.state.groups[group_id]
        offsets = sum(key.group_id == group_id for key in stuck.state.offsets)
        state = group.state or "Empty"
        members = count(len(group.members), "member")
        yield f"  {visible(group_id)}: {group.type}, {state}, {members}, {count(offsets, 'committed offset')}"
    if len(names) > _SHOWN:
        yield f"  and {count(len(names) - _SHOWN, 'group')} more (--format json has all, in full)"
    yield "  ways out:"
    releases = ", ".join(f"{one.release} {one.coordinator}" for one in stuck.loaded_by)
    yield f"  - a release that loads it: {releases or 'none of the table'}"
    if dropped is not None and not dropped:
        yield f"  - stop the broker and take the partition from {repaired}, which loads, {_MENDED[stop.bug]}"
    elif dropped is not None:
        yield f"  - stop the broker and take the partition from {repaired}, which loads: these records are not in it"
        yield from (f"      record {one.record_offset}: {visible(one.detail)}" for one in dropped[:_SHOWN])
        if len(dropped) > _SHOWN:
            yield f"      and {len(dropped) - _SHOWN} more"
    elif can_repair and (stuck.refused or stop.never_ends):
        how = f"without {count(len(stuck.refused), 'record')}" if stuck.refused else _MENDED[stop.bug]
        yield f"  - a repaired partition for the stopped broker, {how}: --repair DIR"
    if stop.never_ends:
        yield "  - other names only where other brokers lead: this load keeps all partitions of its broker waiting"
    if not has_number:
        yield "  - other names, once the number of offsets partitions is given: --offsets-topic-num-partitions N"
    if stuck.names:
        committed = {key.group_id for key in stuck.state.offsets}
        first = next(((old, new) for old, new in stuck.names.items() if old in committed), None)
        others = "the groups under names that hash to partitions that load (--names CSV has all)"
        if first is None:
            yield f"  - {others}; no offset is committed, and none is to be restored"
            return
        old, new = first
        groups = ["--group", old, "--map-group", f"{old}={new}"]
        words = ["regroup", "restore", "plan", *log, *groups, *cluster, "--output", "plan.json"]
        yield f"  - {others}:"
        yield f"      {shell_words(words)}"
