"""A table that cannot grow ends the kernel with ``MemoryError``; it must not be written beyond its end."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from coordinator_core.fold.schema import FoldRules
from coordinator_core.fold.segments import fold_batches
from coordinator_core.kernels import (
    BatchFilter,
    BatchIndex,
    Bounds,
    KeyTable,
    NewestTable,
    SizeTable,
    add_record_sizes,
    arrays,
    enter_newest,
    filter_batches,
    index_batches,
)
from coordinator_core.kernels.mode import IS_COMPILED
from coordinator_core.log.batch import parse_batch
from coordinator_core.merge.partition import PartitionMerge
from coordinator_core.records.codec import encode_key
from tests.fold.group_histories import Writer, classic_value
from tests.fold.parity import PROFILES
from tests.replay.histories import History

PROFILE = PROFILES["4.3.1"]
NONE = np.empty(0, np.int64)


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Callable[[np.dtype[Any]], None]:
    """A function that lets no array of a dtype grow any more, as when memory is short."""

    def refuse(kind: np.dtype[Any]) -> None:
        def grown(array: Any, used: int, need: int) -> Any:
            if np.asarray(array).dtype == kind and need > len(array):
                raise MemoryError
            return arrays.grown(array, used, need)

        names = ["compiled"] if IS_COMPILED else ["batch_filter", "batch_index", "fold_tables", "group_records"]
        names += [] if IS_COMPILED else ["key_table", "newest", "record_sizes", "shapes"]
        for name in names:
            monkeypatch.setattr(importlib.import_module(f"coordinator_core.kernels.{name}"), "grown", grown)

    return refuse


def log(*keys: bytes, size: int = 1) -> np.ndarray[Any, Any]:
    """Batches of ``size`` records with these keys, of a producer of its own."""
    made = History()
    for first in range(0, len(keys), size):
        made.records(*((key, b"value") for key in keys[first : first + size]), producer_id=first, transactional=False)
    return np.frombuffer(b"".join(made.batches), np.uint8)


KEYS = [b"key %06d" % number for number in range(700)]


def index() -> None:
    data = log(*KEYS)
    index_batches(data, 0, len(data), Bounds(1 << 27, 1 << 20), BatchIndex(0))


def sizes() -> None:
    data = log(*KEYS)
    add_record_sizes(data, 0, len(data), NONE, SizeTable(NONE, 0, 0))


def newest(size: int = 1) -> None:
    data = log(*KEYS, size=size)
    enter_newest(data, 0, len(data), 0, 1 << 62, NONE, NewestTable(1 << 20))


def written() -> None:
    data = log(*KEYS)
    kept, tombstones, numbered = np.arange(len(KEYS)), np.zeros(len(KEYS), np.uint8), np.zeros(len(KEYS), np.int64)
    actions = arrays.new_rows("BatchAction", 0)
    plan = BatchFilter(kept, tombstones, numbered, actions, 0, 1 << 62, 0, False, 0, 16, 16)
    filter_batches(data, 0, len(data), plan)


def keys() -> None:
    KeyTable().add_all(arrays.viewed(log(*KEYS)), 10)


def groups(records: list[tuple[bytes, bytes]]) -> None:
    batches = [parse_batch(memoryview(data), 0) for data in History().records(*records).batches]
    fold = fold_batches(batches, rules=FoldRules.of(PROFILE), offsets_partition=0)
    PartitionMerge(PROFILE, 0).add(fold)


def many_groups() -> None:
    groups([(encode_key(2, {"group": f"group {number}"}), classic_value([])) for number in range(700)])


def many_members() -> None:
    members = [(f"member {number}", f"instance {number}") for number in range(700)]
    groups([(encode_key(2, {"group": "g"}), classic_value(members))])


def many_partitions() -> None:
    writer = Writer("g", kind="consumer", epochs={"m": 1})
    writer.metadata()
    writer.describe("m")
    writer.current("m", [(0, partition) for partition in range(700)])
    groups(writer.written)


@pytest.mark.parametrize(
    "kernel, kind",
    [
        (index, "IndexedBatch"),
        (sizes, "RecordSizes"),
        (newest, "Newest"),
        (lambda: newest(size=len(KEYS)), "SplitKey"),
        (written, np.uint8),
        (keys, "Key"),
        (many_groups, "Subject"),
        (many_groups, "NewestRecord"),
        (many_groups, np.uint8),
        (many_members, "Mark"),
        (many_partitions, "PartitionOwner"),
        (many_partitions, np.int64),
    ],
)
def test_a_table_that_cannot_grow_is_a_memory_error(
    kernel: Callable[[], None], kind: Any, refuse: Callable[[np.dtype[Any]], None]
) -> None:
    kernel()
    refuse(arrays.dtype(kind) if isinstance(kind, str) else np.dtype(kind))
    with pytest.raises(MemoryError):
        kernel()
