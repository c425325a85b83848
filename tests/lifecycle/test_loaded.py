"""Committed offsets of two loads, compared as columns, against the same comparison key by key."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from coordinator_core.groups.model import OffsetKey, PartitionState
from coordinator_core.lifecycle.loaded import Loaded, changed_offset_keys
from coordinator_core.lifecycle.loaded import loaded as loaded_of
from coordinator_core.releases import profile_for_release
from coordinator_core.runs.local import merged_partitions
from tests.lifecycle.test_loads import snapshot_of
from tests.replay.histories import History

SCHEMA = Loaded(PartitionState(0)).offsets.schema
KEY = ("group_id", "topic", "partition")


def row(number: int, record_offset: int, **values: Any) -> dict[str, Any]:
    empty = {field.name: None if field.nullable else 0 for field in SCHEMA}
    key = {"group_id": f"g{number % 7}", "topic": "t", "partition": number}
    return empty | {"metadata": "", **key, "record_offset": record_offset} | values


def loaded(rows: list[dict[str, Any]]) -> Loaded:
    ordered = sorted(rows, key=lambda one: one["record_offset"])
    chunks = [pa.Table.from_pylist(ordered[at : at + 5], SCHEMA) for at in range(0, len(rows), 5)]
    return Loaded(PartitionState(0), pa.concat_tables(chunks))


def by_key(rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], dict[str, Any]]:
    shown = [{name: value for name, value in one.items() if name != "record_offset"} for one in rows]
    return {tuple(one[name] for name in KEY): one for one in shown}


@pytest.mark.parametrize("repeats", [False, True], ids=["ascending", "repeated record offsets"])
@pytest.mark.parametrize("seed", range(20))
def test_the_keys_are_those_that_a_comparison_of_each_finds(seed: int, repeats: bool) -> None:
    chosen = random.Random(seed)
    before = [row(number, number // 2 if repeats else number, committed_offset=number) for number in range(40)]
    after = []
    for one in before:
        match chosen.randrange(10):
            case 0:
                continue
            case 1:
                after.append(one | {"committed_offset": 99})
            case 2:
                after.append(one | {"expire_timestamp_ms": 5})
            case 3:
                # The same was committed again: no request shows where.
                after.append(one | {"record_offset": one["record_offset"] + 100})
            case 4:
                after.append(one | {"record_offset": one["record_offset"] + 200, "leader_epoch": 3})
            case _:
                after.append(one)
    after += [row(number, 1000 + number, committed_offset=1) for number in range(40, 40 + chosen.randrange(3))]
    old, new = by_key(before), by_key(after)
    expected = Counter(key[0] for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    assert expected
    assert changed_offset_keys(loaded(before), loaded(after)) == expected
    assert changed_offset_keys(loaded(after), loaded(before)) == expected
    assert changed_offset_keys(loaded(after), loaded(after)) == Counter()


def test_a_long_name_is_not_in_memory_for_each_of_its_offsets(tmp_path: Path) -> None:
    """Small logs unpack to as many: names compress well."""
    history = History()
    for partition in range(300):
        history.commit(5, OffsetKey("g" * 30_000, "t", partition))
    snapshot = snapshot_of(tmp_path, history.batches)
    ((merged, _),) = merged_partitions(snapshot, profile_for_release("4.3.1"))
    found, metadata_bytes = loaded_of(merged)
    assert (found.offsets.num_rows, metadata_bytes) == (300, 0)
    assert found.offsets.get_total_buffer_size() < 1 << 20
