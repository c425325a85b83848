"""Small segments of every format and codec, cut at each byte and with each byte changed.

Whatever happens to a file, reading it ends cleanly or with damage at a position inside it; and what the
change did not touch is read as before, by the policies that go on too.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator_core.errors import Damage, DamagedInputError
from coordinator_core.log.reader import OnDamage, read_records
from coordinator_core.log.types import Codec, ControlType, PartitionLog, Record
from tests.log.builders import build_batch, build_control_batch, build_message, build_wrapper

Partition = Callable[..., PartitionLog]

_ITEMS = [(b"group-a", b"12"), (b"group-b", None), (b"group-a", b"13")]


def v2(codec: Codec) -> list[bytes]:
    return [
        build_batch(0, _ITEMS, codec=codec),
        build_batch(3, _ITEMS[:1], codec=codec, producer_id=5, transactional=True, leader_epoch=1),
        build_control_batch(4, ControlType.COMMIT, producer_id=5, leader_epoch=1),
        build_batch(5, _ITEMS, codec=codec, leader_epoch=1, delete_horizon=99),
    ]


def wrappers(codec: Codec, magic: int) -> list[bytes]:
    return [
        build_wrapper(0, _ITEMS, codec=codec, magic=magic),
        build_message(3, b"plain", b"x", magic=magic),
        build_wrapper(4, _ITEMS, codec=codec, magic=magic),
    ]


def messages(magic: int) -> list[bytes]:
    return [build_message(offset, b"key", b"value", magic=magic) for offset in range(5)]


LOGS = {
    **{f"format 2 {codec.name.lower()}": v2(codec) for codec in Codec},
    **{f"format {magic} none": messages(magic) for magic in (0, 1)},
    **{
        f"format {magic} {codec.name.lower()}": wrappers(codec, magic)
        for magic in (0, 1)
        for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
    },
}
IN_ANOTHER_FORMAT = {f"format {each}" for each in ("0 gzip", "0 snappy", "1 gzip", "1 lz4", "2 gzip", "2 snappy")}
"""Logs of the full tier: another format has their codec."""

every_log = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.full) if name in IN_ANOTHER_FORMAT else name for name in LOGS]
)


def read(log: PartitionLog, on_damage: OnDamage = OnDamage.FAIL) -> tuple[list[list[Record]], list[Damage]]:
    damage: list[Damage] = []
    return [records for _, _, records in read_records(log, on_damage=on_damage, damage=damage)], damage


def outcome(log: PartitionLog) -> tuple[list[list[Record]] | None, Damage | None]:
    try:
        return read(log)[0], None
    except DamagedInputError as error:
        return None, error.damage


def rewrite(log: PartitionLog, data: bytes) -> None:
    """Other bytes in the same file; the pinned size stays the new one's."""
    segment = log.segments[0]
    Path(segment.path).write_bytes(data)
    object.__setattr__(segment, "size", len(data))


@every_log
def test_cut_at_each_byte(partition: Partition, name: str) -> None:
    entries = LOGS[name]
    data = b"".join(entries)
    log = partition({0: data})
    whole, damage = read(log)
    assert damage == []
    ends = [sum(map(len, entries[: count + 1])) for count in range(len(entries))]

    for length in range(len(data)):
        rewrite(log, data[:length])
        complete = sum(end <= length for end in ends)
        got, found = outcome(log)
        start = [0, *ends][complete]
        if not any(data[start:length]):
            # At an entry's end, or in the zeroes that begin one: those may as well be a preallocated tail.
            assert got == whole[:complete]
        else:
            assert found is not None
            assert found.kind == "torn_tail"
            assert found.byte_position == start
        for policy in (OnDamage.RECOVER, OnDamage.SALVAGE):
            assert read(log, policy)[0] == whole[:complete], (length, policy)


@every_log
@pytest.mark.parametrize("bits", ["one", "all"])
def test_each_byte_changed(partition: Partition, name: str, bits: str) -> None:
    entries = LOGS[name]
    data = b"".join(entries)
    log = partition({0: data})
    whole, _ = read(log)
    starts = [sum(map(len, entries[:count])) for count in range(len(entries))]

    for position in range(len(data)):
        mask = 0xFF if bits == "all" else 1 << position % 8
        rewrite(log, data[:position] + bytes((data[position] ^ mask,)) + data[position + 1 :])
        touched = max(index for index, start in enumerate(starts) if start <= position)
        where = position - starts[touched]
        got, found = outcome(log)
        if found is not None:
            assert 0 <= found.byte_position < len(data), position
            assert found.byte_position == starts[touched], position
        else:
            # Not covered by a CRC, and contradicting nothing: a leader epoch, or the last entry's offset.
            assert got is not None
            assert where < 8 or (name.startswith("format 2") and 12 <= where < 16), position
            assert where >= 8 or touched == len(entries) - 1, position
            assert got[:touched] + got[touched + 1 :] == whole[:touched] + whole[touched + 1 :]

        kept, damage = read(log, OnDamage.SALVAGE)
        if found is None:
            assert (kept, damage) == (got, [])
        else:
            assert kept == whole[:touched] + whole[touched + 1 :], position
            assert damage
        recovered, damage = read(log, OnDamage.RECOVER)
        assert recovered[:touched] == whole[:touched], position


@pytest.mark.parametrize("name", ["format 2 none", "format 2 zstd", "format 1 snappy"])
def test_segments_swapped_or_doubled(partition: Partition, name: str) -> None:
    entries = LOGS[name]
    first, second = entries[0], b"".join(entries[1:])
    base = 3
    whole = read(partition({0: first, base: second}))[0]
    assert [record.offset for records in whole for record in records] == list(
        range(sum(len(records) for records in whole))
    )
    for segments in ({0: second, base: first}, {0: first, base: first}, {0: second, base: second}):
        log = partition(segments)
        found = outcome(log)[1]
        assert found is not None
        assert found.kind in ("offset_range", "offset_order")
        kept, damage = read(log, OnDamage.SALVAGE)
        assert damage
        assert all(records in whole for records in kept)


HOSTILE = """
import gzip, struct, sys
from pathlib import Path

from coordinator_core.errors import DamagedInputError
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import read_records
from coordinator_core.log.types import Codec
from coordinator_core.log.verify import verify
from tests.log.builders import build_message, build_raw_batch, compress, lz4_frame, varint, xerial

kind, directory = sys.argv[1:]
MIB = 1 << 20
zeroes = bytes(MIB)
null_record = b"\\x0c\\x00\\x00\\x00\\x01\\x01\\x00"


def compressed(codec, blob, count=1):
    return build_raw_batch(0, blob, count=count, last_offset_delta=max(0, count - 1), attributes=int(codec))


if kind == "gzip":
    data = compressed(Codec.GZIP, gzip.compress(zeroes) * 1000)
elif kind == "snappy":
    data = compressed(Codec.SNAPPY, xerial(zeroes) * 40)
elif kind == "lz4":
    frame = lz4_frame(zeroes)
    data = compressed(Codec.LZ4, frame[:7] + frame[7:-4] * 400 + frame[-4:])
elif kind == "zstd":
    data = compressed(Codec.ZSTD, compress(Codec.ZSTD, zeroes) * 20000)
elif kind == "wrapper":
    data = build_message(0, None, gzip.compress(zeroes) * 1000, attributes=Codec.GZIP)
elif kind == "records":
    data = build_raw_batch(0, null_record * 300_000, count=300_000, last_offset_delta=299_999)
elif kind == "compressed records":
    data = compressed(Codec.GZIP, gzip.compress(null_record * 300_000), count=300_000)
elif kind == "headers":
    body = b"\\x00\\x00\\x00\\x01\\x01" + varint(1_000_000, 32) + b"\\x00\\x01" * 1_000_000
    data = compressed(Codec.GZIP, gzip.compress(varint(len(body), 32) + body))
elif kind == "lengths":
    # Every fourth byte begins something that looks like the prefix of a long entry.
    data = b"\\x01" + struct.pack(">qiiB", 0, MIB, 0, 2) * 200_000
size = len(data)
log_dir = Path(directory)
(log_dir / "__consumer_offsets-0").mkdir()
(log_dir / "__consumer_offsets-0" / ("0" * 20 + ".log")).write_bytes(data)
del data, zeroes
Path("/proc/self/clear_refs").write_text("5")  # the peak so far does not count


def resident(field):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024


before = resident("VmRSS")
(log,) = discover([directory]).partitions
try:
    for _ in read_records(log):
        pass
except DamagedInputError as error:
    kind = error.damage.kind
report = verify(discover([directory]))
assert report.damage[0].kind == kind
print(kind, size, resident("VmHWM") - before)
"""


@pytest.mark.parametrize(
    "kind",
    ["gzip", "snappy", "lz4", "zstd", "wrapper", "records", "compressed records", "headers", "lengths"],
)
def test_memory_stays_bounded_on_hostile_input(tmp_path: Path, kind: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HOSTILE, kind, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).resolve().parents[2],
    )
    found, size, peak = done.stdout.split()
    assert found == ("bad_crc" if kind == "lengths" else "limit_exceeded")
    # Ten times the input, or what a batch of any ratio may take (32 MiB, one block, one copy growing).
    assert int(peak) < max(10 * int(size), 80 << 20), (found, size, peak)
