"""Folds of logs that are made to hit the limits of tables and arena, and of several at once."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from coordinator_core.fold import arena
from coordinator_core.fold.rules import FoldRules
from coordinator_core.fold.schema import SegmentFold
from coordinator_core.groups.model import OffsetKey
from coordinator_core.log.types import Codec, ControlType, SegmentFile
from coordinator_core.records.codec import encode_value
from tests.fold.parity import PROFILES, assert_merges, merge_folds, partition_log, whole_fold
from tests.fold.random_logs import classic, encoded_key, offset_value
from tests.log.builders import build_batch, build_control_batch
from tests.replay.reference import replay_partition

PROFILE = PROFILES["4.3.1"]
VALUE = {"offset": 5, "metadata": "", "commitTimestamp": 1_000}
RULES = FoldRules.of(PROFILE)


def segment(path: Path, *batches: bytes) -> SegmentFile:
    data = b"".join(batches)
    path.write_bytes(data)
    return SegmentFile(str(path), 0, 0, len(data))


def assert_folds_like_the_scalar_path(found: SegmentFile) -> None:
    expected = replay_partition(partition_log([found]), PROFILE, damage=[])
    assert_merges(expected, [whole_fold(found, rules=RULES)], PROFILE)


def test_every_table_grows(tmp_path: Path) -> None:
    batches, offset = [], 0
    for group in range(150):
        items = [
            (encoded_key(b"group-%d" % group, b"topic-%d" % topic, 0), offset_value(3, topic, b""))
            for topic in range(group, group + 3)
        ]
        items.append(classic(f"group-{group}", group % 3))
        batches.append(build_batch(offset, items))
        batches.append(build_batch(offset + 4, items[:3], producer_id=group, transactional=True))
        offset += 7
    for producer_id in range(0, 150, 2):
        batches.append(build_control_batch(offset, ControlType.COMMIT, producer_id=producer_id))
        batches.append(build_batch(offset + 1, items[:1], producer_id=producer_id, transactional=True))
        batches.append(build_control_batch(offset + 2, ControlType.ABORT, producer_id=producer_id))
        offset += 3
    found = segment(tmp_path / "log", *batches)
    assert_folds_like_the_scalar_path(found)
    fold = whole_fold(found, rules=RULES)
    assert (len(fold.groups), len(fold.topics), fold.offset_keys.num_rows) == (150, 152, 450)
    assert fold.group_records.num_rows == 150
    assert fold.transactions.num_rows == 150


@pytest.mark.parametrize("records", [1, 2, 40, 300])
def test_offset_keys_that_follow_each_other_in_the_same_order_and_in_others(tmp_path: Path, records: int) -> None:
    """The order that an offset key was seen in says where to look for it, never which it is."""
    order, batches = random.Random(records), []
    keys = [encoded_key(b"g%d" % (number % 3), b"t" * (1 + number % 40), number) for number in range(500)]
    for number in range(1_200 // records + 5):
        if number % 5 == 3:
            order.shuffle(keys)
        first = records * (number % 3)
        producer = number % 4 - 1
        items = [
            (
                key,
                None if order.random() < 0.1 else offset_value(order.choice((1, 3, 4)), at, b"m" * (at % 9)),
            )
            for at, key in enumerate(keys[first : first + records])
        ]
        base = number * (records + 1)
        batches.append(build_batch(base, items, producer_id=producer, transactional=producer >= 0))
        if producer >= 0:
            kind = ControlType.COMMIT if order.random() < 0.7 else ControlType.ABORT
            batches.append(build_control_batch(base + records, kind, producer_id=producer))
    assert_folds_like_the_scalar_path(segment(tmp_path / "log", *batches))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_batch_larger_than_all_tables(tmp_path: Path, codec: Codec) -> None:
    items = [
        (encoded_key(b"g%d" % (number % 50), b"t", number), offset_value(4, number, b"")) for number in range(5_000)
    ]
    found = segment(tmp_path / "log", build_batch(0, items, codec=codec), build_batch(5_000, items[:10]))
    assert_folds_like_the_scalar_path(found)


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.GZIP, Codec.SNAPPY, Codec.ZSTD])
def test_decompressed_bytes_are_dropped_when_their_values_lose(
    tmp_path: Path, codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arena, "_KEPT_BYTES", 10_000)
    sizes = []
    tidy = arena.Arena.tidy

    def watched(self: arena.Arena, tables: object) -> None:
        tidy(self, tables)  # type: ignore[arg-type]
        sizes.append(self.used)

    monkeypatch.setattr(arena.Arena, "tidy", watched)
    monkeypatch.setattr("coordinator_core.fold.unpacking._CHUNK_BYTES", 1_000)
    batches = []
    for number in range(400):
        items = [(encoded_key(b"g", b"t", number % 7 + part), offset_value(3, number, b"m" * 50)) for part in range(5)]
        producer = number % 9 - 1
        batches.append(build_batch(5 * number, items, codec=codec, producer_id=producer, transactional=producer >= 0))
    data = sum(5 * 120 for _ in batches)
    found = segment(tmp_path / "log", *batches)
    assert_folds_like_the_scalar_path(found)
    assert len(sizes) > 10
    assert max(sizes) < data / 4


def test_only_odd_batches_leave_the_fast_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scalar: list[Any] = []
    monkeypatch.setattr("coordinator_core.fold.segments.split_scalar", _counted(scalar))
    plain = [(encoded_key(b"g", b"t", 0), offset_value(3, 1, b""))]
    odd = [(encoded_key(b"g", b"t", 0), offset_value(4, 2, b"", b"\1\7\2xy"))]
    for codec in (Codec.NONE, Codec.LZ4):
        scalar.clear()
        found = segment(
            tmp_path / "log",
            build_batch(0, plain, codec=codec),
            build_batch(1, odd, codec=codec),
            build_batch(2, plain, codec=codec),
            build_batch(3, [(b"\0\2\0\1g", None)], codec=codec),
        )
        assert_folds_like_the_scalar_path(found)
        assert scalar == [1]


def _counted(offsets: list[int]) -> object:
    from coordinator_core.fold.scalar import split_scalar

    def split(batch, records, *rest):  # type: ignore[no-untyped-def]
        offsets.append(batch.base_offset)
        return split_scalar(batch, records, *rest)

    return split


def test_a_preallocated_tail_stays_on_the_fast_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_again(*_: object, **__: object) -> None:
        raise AssertionError("the segment was read by the scalar reader")

    monkeypatch.setattr("coordinator_core.fold.segments.read_segment", read_again)
    batch = build_batch(0, [(encoded_key(b"g", b"t", 0), offset_value(3, 1, b""))])
    fold = whole_fold(segment(tmp_path / "log", batch, bytes(10_000)), rules=RULES)
    assert fold.counts.records == 1


def test_two_spellings_of_one_name_are_one_offset_key(tmp_path: Path) -> None:
    batches = [
        build_batch(0, [(encoded_key(b"\xff", b"t", 0), offset_value(3, 1, b""))]),
        build_batch(1, [(encoded_key(b"\xc0", b"t", 0), offset_value(3, 2, b""))], producer_id=1, transactional=True),
        build_batch(2, [(encoded_key("\ufffd".encode(), b"t", 0), offset_value(3, 3, b""))]),
        build_control_batch(3, ControlType.COMMIT, producer_id=1),
    ]
    found = segment(tmp_path / "log", *batches)
    state = merge_folds([whole_fold(found, rules=RULES)], PROFILE, 0)
    assert {offset_key: offset.committed_offset for offset_key, offset in state.offsets.items()} == {
        OffsetKey("\ufffd", "t", 0): 3
    }
    assert_folds_like_the_scalar_path(found)


def test_names_longer_than_their_bytes_allow_once_replaced(tmp_path: Path) -> None:
    """30 000 malformed bytes are 30 000 replacement characters: 90 000 bytes of UTF-8."""
    key = encoded_key(b"\xff" * 30_000, b"\xfe" * 30_000, 0)
    value = offset_value(3, 1, b"\xff" * 30_000)
    assert_folds_like_the_scalar_path(segment(tmp_path / "log", build_batch(0, [(key, value)])))


def test_threads_fold_side_by_side(tmp_path: Path) -> None:
    batches = [
        build_batch(
            10 * number,
            [(encoded_key(b"g%d" % number, b"t", part), offset_value(3, part, b"")) for part in range(10)],
        )
        for number in range(200)
    ]
    found = segment(tmp_path / "log", *batches)
    once = whole_fold(found, rules=RULES)
    with ThreadPoolExecutor(4) as threads:
        folds = list(threads.map(lambda _: whole_fold(found, rules=RULES), range(16)))
    assert all(fold == once for fold in folds)


def test_a_fold_keeps_what_it_holds_when_the_next_one_is_made(tmp_path: Path) -> None:
    """The working tables are used again. A table of one row is where a view would pass for a copy."""

    def one_of_each(number: int) -> SegmentFile:
        name = b"%d" % number
        return segment(
            tmp_path / f"log-{number}",
            build_batch(0, [(encoded_key(name, name, number), offset_value(3, number, name))], timestamp=number),
            build_batch(1, [(b"\0\2\0\1" + name, None)], timestamp=number),
            build_batch(
                2,
                [(encoded_key(name, name, number), offset_value(3, number, name))],
                producer_id=number,
                transactional=True,
                timestamp=number,
            ),
            build_control_batch(3, ControlType.COMMIT, producer_id=number, timestamp=number),
            build_batch(
                4,
                [(encoded_key(name, name, number + 1), offset_value(3, number, name))],
                producer_id=number,
                transactional=True,
                timestamp=number,
            ),
        )

    def rows(fold: SegmentFold) -> list[list[dict[str, object]]]:
        return [value.to_pylist() for value in vars(fold).values() if isinstance(value, pa.Table)]

    fold = whole_fold(one_of_each(1), rules=RULES)
    before = rows(fold)
    whole_fold(one_of_each(2), rules=RULES)
    assert rows(fold) == before
    assert [table.num_rows for table in (fold.producers, fold.group_records, fold.transactions)] == [1, 1, 1]


def test_an_empty_segment(tmp_path: Path) -> None:
    fold = whole_fold(segment(tmp_path / "log"), rules=RULES)
    assert fold.first_offset is None
    assert fold.next_offset is None
    assert fold.counts.records == fold.offset_keys.num_rows == 0
    assert merge_folds([fold], PROFILE, 0).offsets == {}


def test_counts(tmp_path: Path) -> None:
    key = encoded_key(b"g", b"t", 0)
    fold = whole_fold(
        segment(
            tmp_path / "log",
            build_batch(0, [(key, offset_value(3, 1, b"")), (key, None)], timestamp=50),
            build_batch(
                2,
                [(key, offset_value(1, 1, b""))],
                timestamp=70,
                codec=Codec.LZ4,
                producer_id=4,
                transactional=True,
            ),
            build_control_batch(3, ControlType.ABORT, producer_id=4, timestamp=90),
            build_batch(4, [], last_offset_delta=2),
        ),
        rules=RULES,
    )
    counts = fold.counts
    assert (counts.batches, counts.records, counts.control_records) == (4, 4, 1)
    assert (counts.min_timestamp_ms, counts.max_timestamp_ms) == (50, 70)
    assert counts.codecs == {"none": 3, "lz4": 1}
    assert counts.formats == {2: 4}
    assert counts.commits == {(1, None): 1, (1, 1): 1, (1, 3): 1}
    assert (fold.first_offset, fold.next_offset) == (0, 7)


def test_a_leader_epoch_below_minus_one_is_kept(tmp_path: Path) -> None:
    """Brokers of 3.9.2 and 4.3.1 store -2 and answer it, also after a restart: only -1 stands for none."""
    values = [encode_value(1, 3, VALUE | {"leaderEpoch": epoch}) for epoch in (-2, -1, 0, -(1 << 31))]
    items = [(encoded_key(b"g", b"t", partition), value) for partition, value in enumerate(values)]
    found = segment(tmp_path / "log", build_batch(0, items))
    assert_folds_like_the_scalar_path(found)
    merged = merge_folds([whole_fold(found, rules=RULES)], PROFILE, 0)
    assert [one.leader_epoch for one in merged.offsets.values()] == [-2, None, 0, -(1 << 31)]
