"""The end of a drill: the cluster as it was, and nothing left in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from coordinator_core.cluster.client import Client
from coordinator_core.cluster.drill_commands import run_command
from coordinator_core.cluster.drill_probes import Note, delete_groups
from coordinator_core.cluster.drill_states import coordinators
from coordinator_core.cluster.errors import ClusterError
from coordinator_core.drill.journal import JournalWriteError
from coordinator_core.errors import RegroupError
from coordinator_core.log.types import OFFSETS_TOPIC
from coordinator_core.topology import TopicInfo

_LOOK_SECONDS = 0.1


def recover_cluster(
    connect: Callable[[], Client],
    write: Note,
    command: str,
    *,
    in_sync_before: Mapping[int, set[int]],
    command_seconds: float,
    limit_seconds: float,
    by: str,
) -> bool:
    """Runs the recover command and waits until every replica that was in sync is so again.

    The command is run whether or not the journal can be written to: that it was not is raised at the end, as
    :class:`JournalWriteError`. ``connect`` is called behind the command: before it, no broker may answer.
    """
    untold: list[JournalWriteError] = []

    def note(event: str, **values: Any) -> None:
        try:
            write(event, **values)
        except JournalWriteError as error:
            untold.append(error)

    note("rollback", stage="begins", command=command, by=by)
    ended = run_command(command, command_seconds)
    note("rollback", stage="ended", by=by, **asdict(ended))
    reason: str | None = f"the recover command: {ended.how}"
    if ended.well:
        try:
            reason = _until_in_sync(connect(), in_sync_before, limit_seconds)
        except RegroupError as error:
            reason = str(error)
    restored = reason is None
    note("restored", restored=restored, reason=reason)
    if untold:
        how = "the cluster is as it was" if restored else "the cluster is NOT as it was"
        raise JournalWriteError(f"the recover command was run, and {how}; {untold[0]}")
    return restored


def _until_in_sync(client: Client, in_sync_before: Mapping[int, set[int]], limit_seconds: float) -> str | None:
    """Wait for the replicas; why they are not in sync when the time is over, ``None`` once they are."""
    deadline = time.monotonic() + limit_seconds
    while True:
        try:
            missing = _missing(client.topic(OFFSETS_TOPIC), in_sync_before)
        except ClusterError as error:
            return str(error)
        if not missing or time.monotonic() > deadline:
            return "; ".join(f"{OFFSETS_TOPIC}-{number} lacks {lacks}" for number, lacks in missing.items()) or None
        time.sleep(_LOOK_SECONDS)


def _missing(info: TopicInfo, in_sync_before: Mapping[int, set[int]]) -> dict[int, list[int]]:
    """Replicas that were in sync and are not, or all that were, where nobody leads."""
    found = {}
    for each in info.partitions:
        wanted = in_sync_before.get(each.partition, set())
        lacks = wanted if each.leader < 0 else wanted - set(each.isr)
        if lacks:
            found[each.partition] = sorted(lacks)
    return found


def clean_up(client: Client, note: Note, group_ids: list[str]) -> None:
    """Deletes the canaries' groups; the journal names those that are left, which expire."""
    try:
        places = coordinators(client, client.topic(OFFSETS_TOPIC), group_ids)
        left = delete_groups(client, group_ids, places)
    except RegroupError as error:
        left = dict.fromkeys(group_ids, str(error))
    note("cleanup", deleted=len(group_ids) - len(left), left=left)
