"""Cut at each byte and with each byte changed, a segment folds or fails exactly as the scalar reader says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import crc32c
import pytest

from coordinator_core.errors import Damage, DamagedInputError
from coordinator_core.fold.rules import FoldRules
from coordinator_core.fold.segments import fold_partition
from coordinator_core.groups.model import PartitionState
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import Codec, ControlType, PartitionLog, SegmentFile
from coordinator_core.releases import Profile, profile_for_release
from tests.examples import strides
from tests.fold.parity import merge_folds, partition_log, sequential_outcome
from tests.fold.random_logs import Item, classic, encoded_key, offset_value
from tests.log.builders import build_batch, build_control_batch, build_message, build_wrapper

PROFILE = profile_for_release("4.3.1")
KEY = encoded_key(b"g", b"t", 0)
ITEMS: list[Item] = [(KEY, offset_value(3, 1, b"m")), (encoded_key(b"h", b"t", 1), offset_value(4, 2, b""))]


def v2(codec: Codec) -> bytes:
    return b"".join(
        (
            build_batch(0, ITEMS, codec=codec),
            build_batch(2, [(KEY, offset_value(3, 5, b""))], codec=codec, producer_id=5, transactional=True),
            build_control_batch(3, ControlType.COMMIT, producer_id=5),
            build_batch(4, [(KEY, None), classic("g", 1)], codec=codec),
        )
    )


LOGS = {
    **{f"format 2 {codec.name.lower()}": v2(codec) for codec in (Codec.NONE, Codec.SNAPPY, Codec.LZ4)},
    "format 1": build_message(0, *ITEMS[0]) + build_wrapper(1, ITEMS, codec=Codec.GZIP),
    "legacy, then format 2": build_message(0, *ITEMS[0], magic=0) + build_batch(1, ITEMS),
}


each_log = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.full) if name == "format 2 snappy" else name for name in LOGS],
)


def damaged(data: bytes, stride: int) -> Iterator[bytes]:
    """Each truncation, and each byte changed, one in ``stride`` of them."""
    for cut in range(0, len(data), stride):
        yield data[:cut]
    for position in range(0, len(data), stride):
        flip = 0xFF if position % 2 else 0x01
        yield data[:position] + bytes((data[position] ^ flip,)) + data[position + 1 :]
    yield data + bytes(30)


def columnar_outcome(
    log: PartitionLog, profile: Profile, on_damage: OnDamage
) -> tuple[PartitionState | Damage, list[Damage]]:
    damage: list[Damage] = []
    rules = FoldRules.of(profile)
    try:
        folds = list(fold_partition(log, rules=rules, on_damage=on_damage, damage=damage))
    except DamagedInputError as error:
        return error.damage, damage
    return merge_folds(folds, profile, log.offsets_partition), damage


def assert_same_outcome(path: Path, data: bytes, on_damage: OnDamage) -> PartitionState | Damage:
    path.write_bytes(data)
    log = partition_log([SegmentFile(str(path), 0, 0, len(data))])
    expected = sequential_outcome(log, PROFILE, on_damage)
    assert columnar_outcome(log, PROFILE, on_damage) == expected
    return expected[0]


@strides(6)
@each_log
def test_every_byte(tmp_path: Path, name: str, stride: int) -> None:
    path = tmp_path / f"{0:020d}.log"
    outcomes = [assert_same_outcome(path, data, OnDamage.FAIL) for data in damaged(LOGS[name], stride)]
    assert sum(isinstance(outcome, Damage) for outcome in outcomes) > len(outcomes) * 3 / 4


@pytest.mark.parametrize("on_damage", [OnDamage.SALVAGE, OnDamage.RECOVER])
@strides(37, 7)
@each_log
def test_some_bytes_when_going_on(tmp_path: Path, name: str, on_damage: OnDamage, stride: int) -> None:
    path = tmp_path / f"{0:020d}.log"
    for data in damaged(LOGS[name], stride):
        assert not isinstance(assert_same_outcome(path, data, on_damage), Damage)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("crc", [True, False], ids=["valid crc", "stale crc"])
@strides(6)
def test_bytes_of_records_changed_under_a_crc(tmp_path: Path, codec: Codec, crc: bool, stride: int) -> None:
    """With a valid CRC the damage is in the records: found where they are split, by both in the same way."""
    data = bytearray(build_batch(0, ITEMS, codec=codec) + build_batch(2, ITEMS))
    size = 12 + int.from_bytes(data[8:12], "big")
    path = tmp_path / f"{0:020d}.log"
    seen = set()
    for position in range(21, size, stride):
        changed = bytearray(data)
        changed[position] ^= 0x41
        if crc:
            changed[17:21] = crc32c.crc32c(bytes(changed[21:size])).to_bytes(4, "big")
        outcome = assert_same_outcome(path, bytes(changed), OnDamage.FAIL)
        assert_same_outcome(path, bytes(changed), OnDamage.SALVAGE)
        seen.add(outcome.kind if isinstance(outcome, Damage) else "read")
    assert seen >= ({"bad_records", "read"} if crc else {"bad_crc"})


def two_segments(directory: Path, first: bytes, second: bytes, second_base: int) -> PartitionLog:
    segments: list[SegmentFile] = []
    for base, data in ((0, first), (second_base, second)):
        path = directory / f"{base:020d}.{len(segments)}.log"
        path.write_bytes(data)
        segments.append(SegmentFile(str(path), 0, base, len(data)))
    return partition_log(segments)


@pytest.mark.parametrize("on_damage", OnDamage)
@pytest.mark.parametrize("case", ["in order", "swapped", "overlap", "hole that the next batch fills", "shrunk"])
def test_segments_that_contradict_each_other(tmp_path: Path, case: str, on_damage: OnDamage) -> None:
    first, second = build_batch(0, ITEMS), build_batch(2, [(KEY, offset_value(3, 9, b""))])
    match case:
        case "swapped":
            log = two_segments(tmp_path, second, first, 2)
        case "overlap":
            log = two_segments(tmp_path, first + second, build_batch(1, ITEMS), 1)
        case "hole that the next batch fills":
            log = two_segments(tmp_path, build_batch(50, ITEMS) + build_batch(0, ITEMS), build_batch(60, ITEMS), 60)
        case _:
            log = two_segments(tmp_path, first, second, 2)
    if case == "shrunk":
        path = Path(log.segments[0].path)
        path.write_bytes(path.read_bytes()[:-1])
    assert columnar_outcome(log, PROFILE, on_damage) == sequential_outcome(log, PROFILE, on_damage)


def test_offsets_that_go_back_do_not_make_commits_newer(tmp_path: Path) -> None:
    """Of what a later segment holds, a broker passes over batches below the next offset, and reads one that reaches
    over it. A transaction that commits then replaces older commits only."""

    def commit(offset: int, value: int, producer_id: int = -1, **options: int) -> bytes:
        row = (KEY, offset_value(3, value, b""))
        return build_batch(offset, [row], producer_id=producer_id, transactional=producer_id >= 0, **options)

    marker = build_control_batch(7, ControlType.COMMIT, producer_id=1)
    for first, second, base, committed in (
        (commit(5, 55, producer_id=1), commit(2, 22) + marker, 6, 55),
        (commit(5, 55, producer_id=1), commit(2, 22, last_offset_delta=4) + marker, 6, 55),
        (commit(5, 55), commit(2, 22, producer_id=1) + marker, 6, 55),
        (commit(4, 55), commit(2, 22, producer_id=1) + marker, 6, 55),
    ):
        log = two_segments(tmp_path, first, second, base)
        for release in ("4.3.1", "2.4.1"):
            profile = profile_for_release(release)
            expected = sequential_outcome(log, profile, OnDamage.RECOVER)
            assert columnar_outcome(log, profile, OnDamage.RECOVER) == expected
            assert isinstance(expected[0], PartitionState)
            assert [found.committed_offset for found in expected[0].offsets.values()] == [committed]


def test_the_log_start_offset_leaves_out_whole_batches(tmp_path: Path) -> None:
    for codec in (Codec.NONE, Codec.ZSTD):
        data = build_batch(0, ITEMS, codec=codec) + build_batch(2, ITEMS, codec=codec)
        data += build_batch(4, [(KEY, None)])
        path = tmp_path / f"{0:020d}.{codec.name}.log"
        path.write_bytes(data)
        for start in range(6):
            log = partition_log([SegmentFile(str(path), 0, 0, len(data))], start)
            outcome = columnar_outcome(log, PROFILE, OnDamage.FAIL)
            assert outcome == sequential_outcome(log, PROFILE, OnDamage.FAIL)
