"""The captured log, replayed, against what the coordinators say of their groups at the same moment."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from coordinator_core.cluster.client import LATEST, Client
from coordinator_core.cluster.crosscheck import Commit, CrossCheck, cross_check, differing_offset_keys
from coordinator_core.cluster.fetch import Fetcher, Fetching, RateLimiter
from coordinator_core.cluster.files import PartitionFiles
from coordinator_core.cluster.groups import ask_groups
from coordinator_core.fold.inference import infer_profile
from coordinator_core.groups.model import OffsetKey, PartitionState
from coordinator_core.log.reader import read_records
from coordinator_core.log.segments import partition_directory_name
from coordinator_core.log.types import OFFSETS_TOPIC, PartitionLog, SegmentFile, Snapshot
from coordinator_core.releases import Profile
from coordinator_core.replay.interpret import OffsetRecord, interpret
from coordinator_core.runs.local import replay_snapshot
from coordinator_core.topology import TopicInfo

Json = dict[str, Any]


def check_groups(
    client: Client, info: TopicInfo, states: Sequence[Fetching], scratch: Path, profile: Profile | None
) -> tuple[Json, Json]:
    """Answers of the coordinators, and how the replay of the captured partitions differs from them.

    The log is read on into ``scratch`` up to an end that is asked for after the answers, so that commits made meanwhile
    are known. ``profile`` is inferred from the records when it is ``None``.
    """
    logs = {state.partition: captured_log(state.partition, state.start_offset, [state.files]) for state in states}
    rules = profile or infer_profile(list(logs.values()))
    pinned = _replayed(logs, rules)
    answered = ask_groups(client, info, _expected(pinned))
    # Files that a killed check has left are not this one's.
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        tails = _read_on(client, states, scratch)
        longer = {
            state.partition: captured_log(state.partition, state.start_offset, [state.files, tails[state.partition]])
            for state in states
            if state.partition in tails
        }
        later = {**pinned, **_replayed(longer, rules)}
        wanted = differing_offset_keys(list(pinned.values()), answered)
        checked = cross_check(
            list(pinned.values()),
            list(later.values()),
            _history({**logs, **longer}, wanted, rules),
            answered,
            {state.partition: state.end_offset for state in states},
        )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return answered, _document(checked, rules)


def captured_log(partition: int, start_offset: int, held: Sequence[PartitionFiles]) -> PartitionLog:
    """Log of a partition from one or several files, one behind the other."""
    segments = [
        SegmentFile(str(files.directory / segment.name), partition, segment.base_offset, segment.size)
        for files in held
        for segment in files.segments
        if segment.size
    ]
    if not segments:
        files = held[0]
        segments = [SegmentFile(str(files.directory / files.segments[0].name), partition, start_offset, 0)]
    return PartitionLog(partition, str(held[0].directory), tuple(segments), start_offset, clean_shutdown=False)


def _replayed(logs: Mapping[int, PartitionLog], profile: Profile) -> dict[int, PartitionState]:
    if not logs:
        return {}
    snapshot = Snapshot((), tuple(logs[partition] for partition in sorted(logs)), (), (), {})
    return {state.offsets_partition: state for state in replay_snapshot(snapshot, profile, damage=[])}


def _expected(states: Mapping[int, PartitionState]) -> dict[str, list[tuple[str, int]]]:
    """Every group of the replayed log, and every offset key that is committed or about to be."""
    found: dict[str, list[tuple[str, int]]] = {}
    for state in states.values():
        offset_keys = {offset_key for offset_key in state.offsets if offset_key.group_id in state.groups}
        offset_keys |= {offset_key for commits in state.pending.values() for offset_key in commits}
        for group_id in state.groups:
            found[group_id] = []
        for offset_key in sorted(offset_keys):
            found.setdefault(offset_key.group_id, []).append((offset_key.topic, offset_key.partition))
    return found


def _read_on(client: Client, states: Sequence[Fetching], scratch: Path) -> dict[int, PartitionFiles]:
    """The log behind the pinned ends, of the partitions that have grown."""
    leaders = {(OFFSETS_TOPIC, state.partition): state.leader for state in states}
    ends = client.offsets(leaders, LATEST)
    tails = []
    for state in states:
        end = ends.get((OFFSETS_TOPIC, state.partition), state.end_offset)
        if end > state.end_offset:
            files = PartitionFiles(scratch / partition_directory_name(state.partition))
            tail = Fetching(
                state.partition, state.end_offset, end, state.leader, state.leader_epoch, files, state.end_offset
            )
            tails.append(tail)
    Fetcher(client, OFFSETS_TOPIC, limiter=RateLimiter(None)).run(tails)
    for tail in tails:
        tail.files.flush()
    return {tail.partition: tail.files for tail in tails if tail.files.batches}


def _history(
    logs: Mapping[int, PartitionLog], wanted: set[OffsetKey], profile: Profile
) -> dict[OffsetKey, list[Commit]]:
    """Every commit of the wanted offset keys; nothing is read for none."""
    found: dict[OffsetKey, list[Commit]] = {}
    if not wanted:
        return found
    for partition, log in logs.items():
        for _, batch, records in read_records(log):
            for record in [] if batch.is_control else records:
                meaning = interpret(record.offset, record.key, record.value, profile)
                if isinstance(meaning, OffsetRecord) and meaning.offset_key in wanted:
                    value = None if meaning.value is None else meaning.value["offset"]
                    found.setdefault(meaning.offset_key, []).append(Commit(partition, record.offset, value))
    return found


def _document(checked: CrossCheck, profile: Profile) -> Json:
    return {
        "profile": profile.label,
        "groups": checked.groups,
        "slots": checked.offset_keys,
        "counts": checked.counts(),
        "differences": [asdict(each) for each in checked.differences],
    }
