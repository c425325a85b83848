"""All groups and offsets partitions at one moment of a drill, as events of its journal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafka.protocol.metadata import FindCoordinatorRequest

from coordinator_core.cluster.client import RETRIABLE, Client, error_name
from coordinator_core.cluster.drill_probes import Note
from coordinator_core.cluster.drill_served import Starts, described, start_offsets
from coordinator_core.cluster.drill_watch import note_partition
from coordinator_core.cluster.errors import ClusterError
from coordinator_core.cluster.groups import GROUPS_PER_REQUEST, ask_groups
from coordinator_core.drill.canaries import PREFIX
from coordinator_core.drill.model import ServedGroup
from coordinator_core.durations import is_or_are, numbered
from coordinator_core.groups.hashing import partition_for
from coordinator_core.groups.model import REBALANCE_STATES, GroupState
from coordinator_core.jsontext import to_json
from coordinator_core.log.types import OFFSETS_TOPIC
from coordinator_core.topology import TopicInfo

_BATCHED_VERSION = 4

Json = dict[str, Any]

REBALANCING = REBALANCE_STATES | {GroupState.ASSIGNING, GroupState.RECONCILING}


def coordinators(client: Client, info: TopicInfo, group_ids: Iterable[str]) -> dict[str, int]:
    """Coordinators of :func:`found_coordinators`; ``ClusterError`` for a group of which none can be found."""
    found, refused = found_coordinators(client, info, group_ids)
    for group_id, code in refused.items():
        raise ClusterError(f"coordinator of group {group_id!r}: {error_name(code)}")
    return found


def found_coordinators(
    client: Client, info: TopicInfo, group_ids: Iterable[str]
) -> tuple[dict[str, int], dict[str, int]]:
    """Coordinator of each group as FindCoordinator answers, -1 while there is none; and the error codes of the others,
    which asking again does not remove.

    Brokers before 3.0 are not asked group by group: there it is the leader of the group's partition.
    """
    wanted = sorted(group_ids)
    if client.max_version(FindCoordinatorRequest(max_version=_BATCHED_VERSION)) < _BATCHED_VERSION:
        leaders = {each.partition: each.leader for each in info.partitions}
        return {group_id: leaders[partition_for(group_id, len(leaders))] for group_id in wanted}, {}
    found: dict[str, int] = {}
    refused: dict[str, int] = {}
    for first in range(0, len(wanted), GROUPS_PER_REQUEST):
        part = wanted[first : first + GROUPS_PER_REQUEST]
        answer = client.ask(
            lambda part=part: FindCoordinatorRequest(  # type: ignore[misc]
                key_type=0, coordinator_keys=part, min_version=_BATCHED_VERSION, max_version=_BATCHED_VERSION
            )
        )
        if {each.key for each in answer.coordinators} != set(part):
            raise ClusterError("a broker names coordinators of other groups than it was asked for")
        for each in answer.coordinators:
            if each.error_code and each.error_code not in RETRIABLE:
                refused[each.key] = each.error_code
            else:
                found[each.key] = -1 if each.error_code else each.node_id
    return found, refused


def note_states(
    client: Client,
    note: Note,
    phase: str,
    end_offsets: Mapping[int, int] | None = None,
    *,
    expected: Iterable[str] = (),
) -> list[Json]:
    """Notes ``partition`` and ``group`` events of a phase; the groups, canaries left out.

    ``MissingAclError`` when one of the ``expected`` may not be seen: lists leave it out, as if it were not there.
    """
    info = client.topic(OFFSETS_TOPIC)
    for each in info.partitions:
        end = None if end_offsets is None else end_offsets.get(each.partition)
        note_partition(note, "partition", each, phase=phase, end_offset=end)
    found = ask_groups(client, info, dict.fromkeys(expected, ()))["groups"]
    groups = [group for group in found if group["listed"] and not group["group_id"].startswith(PREFIX)]
    places = coordinators(client, info, [group["group_id"] for group in groups])
    served: dict[str, ServedGroup] = {}
    starts: Starts = {}
    try:
        served = described(client, info, groups)
        starts = start_offsets(client, info, groups)
    except ClusterError as error:
        # A drill goes on: states that are not reported are not compared.
        note("trouble", text=f"share and streams groups: {error}")
    for group in groups:
        place = places[group["group_id"]]
        note(
            "group",
            phase=phase,
            group_id=group["group_id"],
            type=group["type"],
            state=group["state"],
            members=group["members"],
            coordinator=None if place < 0 else place,
            offsets=[[row["topic"], row["partition"], row["committed_offset"]] for row in group["offsets"]],
            served=to_json(served.get(group["group_id"])),
            start_offsets=starts.get(group["group_id"]),
        )
    return groups


def rebalancing(groups: Iterable[Json]) -> str | None:
    """Which of the groups rebalance, in words; ``None`` for none."""
    moving = [group["group_id"] for group in groups if group["state"] in REBALANCING]
    if not moving:
        return None
    first = f", the first is {moving[0]!r}" if len(moving) > 1 else f": {moving[0]!r}"
    return f"{numbered(len(moving), 'group')} {is_or_are(len(moving))} rebalancing{first}"


def committed(groups: Iterable[Json]) -> dict[str, dict[tuple[str, int], int]]:
    """Committed offsets of groups as :func:`note_states` returns them."""
    return {
        group["group_id"]: {
            (row["topic"], row["partition"]): row["committed_offset"]
            for row in group["offsets"]
            if row["committed_offset"] is not None
        }
        for group in groups
    }
