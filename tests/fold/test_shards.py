"""An offsets partition merged in shards is the same as merged in one piece."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.errors import Damage
from coordinator_core.fold.rules import FoldRules
from coordinator_core.fold.schema import SegmentFold
from coordinator_core.fold.segments import fold_partition
from coordinator_core.groups.model import OffsetKey
from coordinator_core.log.batch import parse_batch
from coordinator_core.log.limits import Limits
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import ControlType, PartitionLog, SegmentFile
from coordinator_core.merge import partition as merge
from coordinator_core.merge import shards
from coordinator_core.merge.partition import merge_columns, merge_shard
from coordinator_core.merge.schema import OFFSETS, MergedPartition
from coordinator_core.merge.shards import (
    CombinedRows,
    StoredShard,
    combine_shards,
    shard_folds,
    store_rows,
)
from coordinator_core.records.codec import encode_key
from coordinator_core.releases import Profile
from coordinator_core.runs.schemas import TABLES
from coordinator_core.runs.state_hash import all_digests
from coordinator_core.runs.tables import OffsetTable, merged_tables
from tests.examples import examples
from tests.fold.parity import (
    PROFILES,
    differences,
    every_profile,
    fold_all,
    fold_batches,
    sequential_outcome,
    write_log,
)
from tests.fold.random_logs import Log, contended_logs, logs
from tests.log.builders import build_batch
from tests.replay.histories import History, encoded_key, offset_value, replay_batches

IN_PARTS = Limits(kept_floor_bytes=0, kept_ratio=0)
random_logs = examples(25)


def merged_in_shards(folds: Sequence[SegmentFold], profile: Profile, count: int, directory: Path) -> MergedPartition:
    parts = [shard_folds(fold, count) for fold in folds]
    stored = [
        merge_shard([part[shard] for part in parts], profile, 0).stored(str(directory / f"{shard}.arrows"))
        for shard in range(count)
    ]
    sent: list[StoredShard] = pickle.loads(pickle.dumps(stored))
    return combine_shards([shard.read(profile) for shard in sent])


@dataclass(frozen=True)
class InMemory:
    """Rows of a table."""

    table: pa.Table

    @property
    def num_rows(self) -> int:
        return int(self.table.num_rows)

    def blocks(self, block_rows: int = 1 << 20) -> Iterator[pa.Table]:
        for start in range(0, self.table.num_rows, block_rows):
            yield self.table.slice(start, block_rows)


def digests(merged: MergedPartition) -> dict[tuple[str, int], str]:
    tables = merged_tables(merged, now_ms=0)
    offsets = pa.concat_tables([TABLES["offsets"].arrow.empty_table(), *OffsetTable(merged).blocks()])
    return all_digests(tables | {"offsets": offsets})


@every_profile
@random_logs
@given(log=st.one_of(logs, contended_logs), data=st.data())
def test_any_number_of_shards_gives_the_same_state(name: str, log: Log, data: st.DataObject) -> None:
    profile = PROFILES[name]
    cuts = data.draw(st.sets(st.integers(1, max(1, len(log.batches) - 1)), max_size=3))
    with tempfile.TemporaryDirectory() as directory:
        pieces = write_log(Path(directory), log, (cut for cut in cuts if cut < len(log.batches)))
        folds = fold_all(pieces, profile)
        expected = merge_columns(folds, profile, 0)
        for count in (1, 2, 7):
            merged = merged_in_shards(folds, profile, count, Path(directory))
            assert not differences(expected.to_state(), merged.to_state())
            assert digests(merged) == digests(expected)


@every_profile
@random_logs
@given(log=st.one_of(contended_logs, logs), data=st.data())
def test_batches_that_come_again_and_go_back(name: str, log: Log, data: st.DataObject) -> None:
    """After a clean shutdown ``--partial`` reads them as they are: record offsets name nothing for sure."""
    profile = PROFILES[name]
    numbers = st.lists(st.integers(0, len(log.batches) - 1), min_size=1, max_size=10)
    parts = data.draw(st.lists(numbers, min_size=1, max_size=3))
    with tempfile.TemporaryDirectory() as directory:
        segments = []
        for base, part in enumerate(parts):
            path = Path(directory, f"{base:020d}.log")
            path.write_bytes(b"".join(log.batches[number] for number in part))
            segments.append(SegmentFile(str(path), 0, base, path.stat().st_size))
        whole = PartitionLog(0, directory, tuple(segments), None, clean_shutdown=True)
        for on_damage in (OnDamage.RECOVER, OnDamage.SALVAGE):
            expected, expected_damage = sequential_outcome(whole, profile, on_damage)
            assert not isinstance(expected, Damage)
            damage: list[Damage] = []
            rules = FoldRules.of(profile)
            folds = list(fold_partition(whole, rules=rules, limits=IN_PARTS, on_damage=on_damage, damage=damage))
            assert damage == expected_damage
            merged = merge_columns(folds, profile, 0)
            assert not differences(expected, merged.to_state())
            in_shards = merged_in_shards(folds, profile, 3, Path(directory))
            assert not differences(expected, in_shards.to_state())
            assert digests(in_shards) == digests(merged)


def test_transactions_with_one_offset_and_producer_keep_their_shares() -> None:
    """Batches that come again after a clean shutdown, cut between records and end marker."""
    profile = PROFILES["4.3.1"]
    history = History()
    for number in range(12):
        history.commit(1, OffsetKey(f"g{number}", "t", number), producer_id=7)
    history.marker(ControlType.COMMIT, 7)
    *commits, marker = (parse_batch(memoryview(data), 0) for data in history.batches)
    rules = FoldRules.of(profile)
    cuts = (commits, [marker, *commits[:5]], [marker])
    folds = [fold_batches(part, rules=rules, offsets_partition=0) for part in cuts]
    expected = replay_batches([bytes(batch.data) for part in cuts for batch in part], profile)
    with tempfile.TemporaryDirectory() as directory:
        merged = merged_in_shards(folds, profile, 3, Path(directory))
        assert not differences(expected, merged.to_state())
    assert [row["keys"] for row in merged.transactions.to_pylist()] == [12, 5]


def test_failures_at_one_offset_have_an_order() -> None:
    profile = PROFILES["3.7.2 new"]
    records = [(encode_key(3, {"groupId": group}), None) for group in ("a", "b", "c", "d")]
    data = build_batch(0, [*records, (None, b"")])
    folds = [fold_batches([parse_batch(memoryview(data), 0)] * 2, rules=FoldRules.of(profile), offsets_partition=0)]
    with tempfile.TemporaryDirectory() as directory:
        merged = merged_in_shards(folds, profile, 3, Path(directory))
        assert not differences(replay_batches([data] * 2, profile), merged.to_state())


@every_profile
@examples(15)
@given(log=st.one_of(logs, contended_logs))
def test_values_that_no_longer_stand_may_be_dropped_at_any_time(name: str, log: Log) -> None:
    profile = PROFILES[name]
    with tempfile.TemporaryDirectory() as directory:
        folds = fold_all(write_log(Path(directory), log, range(1, len(log.batches))), profile)
        expected = merge_columns(folds, profile, 0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(merge, "_SPARE_ROWS", -(1 << 30))
            always = merge_columns(folds, profile, 0)
        assert not differences(expected.to_state(), always.to_state())


def test_a_transaction_over_segments_and_shards_is_one_row() -> None:
    profile = PROFILES["4.3.1"]
    history = History()
    offset_keys = [OffsetKey(f"g{number}", "t", number) for number in range(20)]
    for offset_key in offset_keys[:10]:
        history.commit(1, offset_key, producer_id=7)
    history.commit(1, offset_keys[19], producer_id=8)
    cut = len(history.batches)
    for offset_key in offset_keys[5:15]:
        history.commit(2, offset_key, producer_id=7)
    history.marker(ControlType.COMMIT, 7).commit(3, offset_keys[0], producer_id=7).marker(ControlType.ABORT, 7)
    batches = [parse_batch(memoryview(data), 0) for data in history.batches]
    rules = FoldRules.of(profile)
    folds = [fold_batches(part, rules=rules, offsets_partition=0) for part in (batches[:cut], batches[cut:])]
    with tempfile.TemporaryDirectory() as directory:
        merged = merged_in_shards(folds, profile, 3, Path(directory))
    rows = [(row["producer_id"], row["keys"], len(row["groups"])) for row in merged.transactions.to_pylist()]
    assert rows == [(7, 15, 15), (8, 1, 1), (7, 1, 1)]


def test_shards_share_the_offset_keys_evenly() -> None:
    profile = PROFILES["4.3.1"]
    history = History().records(
        *((encoded_key(OffsetKey("g", "t", number)), offset_value(1)) for number in range(7_000))
    )
    (batch,) = [parse_batch(memoryview(data), 0) for data in history.batches]
    fold = fold_batches([batch], rules=FoldRules.of(profile), offsets_partition=0)
    sizes = [part.offset_keys.num_rows for part in shard_folds(fold, 7)]
    assert sum(sizes) == 7_000
    assert min(sizes) > 800


@examples(50)
@given(
    offsets=st.lists(st.lists(st.integers(0, 40), max_size=12), min_size=1, max_size=4),
    block_rows=st.integers(1, 9),
    stored_rows=st.integers(1, 5),
)
def test_shards_are_read_in_one_order(offsets: list[list[int]], block_rows: int, stored_rows: int) -> None:
    """Record offsets repeat in damaged logs only; then the names decide."""
    tables = [
        OFFSETS.empty_table()
        if not part
        else pa.Table.from_pylist(
            [
                {
                    **dict.fromkeys(OFFSETS.names, 0),
                    "group_id": f"g{shard}",
                    "topic": "t",
                    "metadata": "",
                    "topic_id": None,
                    "record_offset": offset,
                    "partition": partition,
                }
                for partition, offset in enumerate(sorted(part))
            ],
            schema=OFFSETS,
        )
        for shard, part in enumerate(offsets)
    ]
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "_STORED_ROWS", stored_rows)
        parts = [store_rows(InMemory(rows), f"{directory}/{shard}") for shard, rows in enumerate(tables)]
        blocks = list(CombinedRows(parts).blocks(block_rows))
    keys = ["record_offset", "group_id", "topic", "partition"]
    expected = pa.concat_tables(tables).sort_by([(key, "ascending") for key in keys])
    assert pa.concat_tables([OFFSETS.empty_table(), *blocks]) == expected
    assert all(block.num_rows == block_rows for block in blocks[:-1])
