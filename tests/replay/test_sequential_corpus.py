"""State of old brokers' memory, beyond what describe prints: ages, expiry, state times, open producers."""

from __future__ import annotations

import pytest

from coordinator_core.groups.model import ClassicGroup, OffsetKey
from coordinator_core.log.discovery import discover
from coordinator_core.releases import profile_for_release
from tests.cases import CASES, Case
from tests.replay.reference import replay_partition

OLD = [case for case in CASES if not case.is_modern]


@pytest.mark.parametrize("case", OLD, ids=lambda case: case.name)
def test_memory_of_the_reloaded_broker(case: Case) -> None:
    profile = profile_for_release(case.release)
    states = [replay_partition(log, profile, damage=[]) for log in discover([str(case.paths[0])]).partitions]
    offsets = {offset_key: offset for state in states for offset_key, offset in state.offsets.items()}
    groups = {group_id: group for state in states for group_id, group in state.groups.items()}
    document = case.reloaded()
    for group_id, group in document["groups"].items():
        for row in group["offsets"]:
            offset = offsets[OffsetKey(group_id, row["topic"], row["partition"])]
            if "append_offset" in row:
                assert offset.ordering_offset == row["append_offset"], (group_id, row)
        loaded = groups[group_id]
        assert isinstance(loaded, ClassicGroup)
        # A group without a metadata record gets the time of the load, which no log can tell.
        if "state_timestamp" in group and loaded.record_offset is not None and group["state_timestamp"]:
            assert loaded.state_timestamp_ms == group["state_timestamp"], group_id
    open_groups: dict[str, set[str]] = {}
    for state in states:
        for producer_id, offset_keys in state.pending.items():
            open_groups.setdefault(str(producer_id), set()).update(offset_key.group_id for offset_key in offset_keys)
    theirs = document["open_groups_for_producer"] or {}
    assert open_groups == {producer_id: set(ids) for producer_id, ids in theirs.items()}
