"""Redpanda's placement of groups, against published values of its hash and a library that checks it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.groups.redpanda import redpanda_partitions, xxh64
from coordinator_core.log.compression import CompressionError, decompress
from coordinator_core.log.types import Codec
from tests.groups.jump_hash import redpanda_partition_for


@pytest.mark.parametrize(
    "data, digest",
    [
        (b"", 0xEF46DB3751D8E999),
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"as", 0x1C330FB2D66BE179),
        (b"asd", 0x631C37CE72A97393),
        (b"asdf", 0x415872F599CEA71E),
        (b"Call me Ishmael. Some years ago--never mind how long precisely-", 0x02A2E85470D6FD96),
    ],
)
def test_xxh64_has_the_values_of_other_implementations(data: bytes, digest: int) -> None:
    assert xxh64(data) == digest


def unpacked(data: bytes) -> bytes:
    return bytes(decompress(Codec.ZSTD, memoryview(data), magic=2, max_bytes=1000))


def zstd_frame(data: bytes, checksum: int) -> bytes:
    """A frame of one raw block, with the lower half of the content's XXH64 behind it (RFC 8878, 3.1.1)."""
    block = (len(data) << 3 | 1).to_bytes(3, "little") + data
    return bytes.fromhex("28b52ffd24") + bytes([len(data)]) + block + (checksum & 0xFFFFFFFF).to_bytes(4, "little")


@given(st.binary(max_size=255))
def test_zstd_accepts_the_hash_as_the_checksum_of_a_frame(data: bytes) -> None:
    assert unpacked(zstd_frame(data, xxh64(data))) == data
    with pytest.raises(CompressionError):
        unpacked(zstd_frame(data, xxh64(data) ^ 1))


@given(st.text(max_size=20), st.integers(1, 200))
def test_a_group_stays_or_moves_to_the_newest_partition(group_id: str, count: int) -> None:
    """Property that makes the hash a consistent one."""
    before, after = (redpanda_partition_for(group_id, number) for number in (count, count + 1))
    assert after in (before, count)


def test_groups_are_spread_evenly() -> None:
    found = [redpanda_partition_for(f"group-{number}", 16) for number in range(16_000)]
    assert all(850 < found.count(partition) < 1150 for partition in range(16))


@given(st.lists(st.text(max_size=20), min_size=1, max_size=5), st.integers(1, 40))
def test_the_numbers_of_partitions_are_those_that_fit(group_ids: list[str], count: int) -> None:
    placed = [(group_id, redpanda_partition_for(group_id, count)) for group_id in group_ids]
    found = redpanda_partitions(placed)
    fits = [all(redpanda_partition_for(name, n) == at for name, at in placed) for n in range(1, 60)]
    assert [n in found for n in range(1, 60)] == fits
    assert count in found


def test_groups_are_read_up_to_the_one_that_fits_no_number() -> None:
    """Of 2 to 6 partitions ``a`` is in 1, of more never in 2."""
    assert [redpanda_partition_for("a", count) for count in range(1, 9)] == [0, 1, 1, 1, 1, 1, 6, 6]
    placed = iter([("b", redpanda_partition_for("b", 16)), ("a", 2), ("c", 0)])
    assert not redpanda_partitions(placed)
    assert next(placed) == ("c", 0)
