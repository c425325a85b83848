"""Compaction of bytes that it cannot read, and of those that nobody knows yet."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from crc32c import crc32c

from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import read_records
from coordinator_core.log.types import Codec
from tests.cli.test_damaged_input import outcome
from tests.log.builders import (
    NewRecord,
    build_batch,
    build_raw_batch,
    compress,
    encode_record,
    write_partition,
)
from tests.replay.histories import OffsetKey, encoded_key, offset_value

RELEASE = ["--kafka-version", "4.3.1", "--now-ms", "1795260000000"]
MAGIC, RECORDS, LENGTH = 16, 61, 8


def batch(number: int, codec: Codec = Codec.LZ4) -> bytes:
    offset_keys = [OffsetKey("g", "t", 2 * number), OffsetKey("g", "t", 0)]
    rows = [(encoded_key(offset_key), offset_value(number)) for offset_key in offset_keys]
    return build_batch(2 * number, rows, codec=codec)


def flipped(position: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:position] + bytes([data[position] ^ 0x55]) + data[position + 1 :]


def with_crc(data: bytes) -> bytes:
    return data[:17] + crc32c(data[21:]).to_bytes(4, "big") + data[21:]


DAMAGE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "bit of a record": (flipped(RECORDS + 3), "bad_crc"),
    "attributes": (flipped(22), "bad_crc"),
    "unknown magic": (lambda data: data[:MAGIC] + b"\x03" + data[MAGIC + 1 :], "bad_magic"),
    "length of nothing": (lambda data: data[:LENGTH] + bytes(4) + data[LENGTH + 4 :], "bad_length"),
    "negative length": (lambda data: data[:LENGTH] + b"\xff" * 4 + data[LENGTH + 4 :], "bad_length"),
    "cut short": (lambda data: data[: len(data) // 2], ""),
    "cut in the header": (lambda data: data[:20], ""),
    "missing bytes": (lambda data: data[: RECORDS + 2] + data[RECORDS + 9 :], ""),
    "zeros": (lambda data: bytes(len(data)), ""),
    "twice": (lambda data: data + data, ""),
    "frame of another codec": (lambda data: with_crc(data[:22] + b"\x04" + data[23:]), ""),
    "record count": (lambda data: with_crc(data[:60] + b"\x09" + data[61:]), ""),
    "records of no shape": (
        lambda data: with_crc(data[:22] + b"\x00" + data[23:RECORDS] + b"\xff" * (len(data) - RECORDS)),
        "",
    ),
}


@pytest.mark.parametrize(
    "name, in_segments",
    # Zeros that fill a segment end it, as a preallocated file ends: nothing is damaged.
    [(name, in_segments) for name in DAMAGE for in_segments in (False, True) if (name, in_segments) != ("zeros", True)],
)
def test_damage_in_the_middle_ends_with_its_place_and_without_output(
    name: str, in_segments: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    damage, kind = DAMAGE[name]
    parts = [batch(0), damage(batch(1)), batch(2), batch(3)]
    segments = {2 * n: part for n, part in enumerate(parts)} if in_segments else {0: b"".join(parts)}
    log = tmp_path / "log"
    partition = write_partition(log, segments)
    before = {path.name: path.read_bytes() for path in partition.iterdir()}
    arguments = ["compact", str(log), "--output", str(tmp_path / "out"), *RELEASE]
    code, out, err = outcome(arguments, capfd)
    assert (code, out) == (3, ""), err
    first = 0 if in_segments else len(batch(0))
    place = re.search(r"(\d{20})\.log: byte (\d+)(?:, record offset \d+)?: (\w+): ", err)
    assert place, err
    # Where the damaged entry begins; cut and doubled entries show in what comes behind them.
    assert int(place[2]) >= first
    if kind:
        assert (int(place[2]), place[3]) == (first, kind)
    assert [path.name for path in tmp_path.iterdir()] == ["log"]
    assert {path.name: path.read_bytes() for path in partition.iterdir()} == before


def test_every_byte_of_a_header_is_read_or_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Outside the CRC lie offset, length, leader epoch and magic: what is accepted there is written again."""
    codes = []
    for position in range(RECORDS):
        place = tmp_path / str(position)
        data = batch(0) + flipped(position)(batch(1)) + batch(2)
        write_partition(place / "log", {0: data})
        code, _, err = outcome(["compact", str(place / "log"), "--output", str(place / "out"), *RELEASE], capfd)
        codes.append(code)
        assert code in (0, 3), (position, err)
        assert (place / "out").exists() == (code == 0)
        if code == 0:
            assert records(place / "out")[-2:] == records(place / "log")[-2:]
    assert codes.count(3) >= RECORDS - 16


def records(directory: Path) -> list[tuple[int, bytes | None, bytes | None]]:
    (log,) = discover([str(directory)]).partitions
    return [(record.offset, record.key, record.value) for _, _, found in read_records(log) for record in found]


TAGGED = [
    # ConsumerGroupMetadataValue: epoch, metadata hash; then three tagged fields of the future.
    (b"\x00\x03\x00\x01g", b"\x00\x00\x00\x00\x00\x07\x02\x00\x08" + bytes(8) + b"\x28\x02hi\x7e\x00"),
    # OffsetCommitValue v4, with one.
    (encoded_key(OffsetKey("g", "t", 9)), offset_value(9)[:-1] + b"\x01\x63\x04when"),
    # A version that no release writes yet, and a record type with a tail.
    (b"\x00\x05\x00\x01g\x00\x01m", b"\x00\x7fwhatever comes"),
    (b"\x00\x77\x00\x01g\x01\x02\x03", b"\x00\x00\xff"),
]


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
@pytest.mark.parametrize("superseded", [False, True], ids=["batch copied", "batch rebuilt"])
def test_what_nobody_knows_yet_survives_byte_for_byte(
    superseded: bool, codec: Codec, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    newer = [(encoded_key(), offset_value(2))]
    older = [(encoded_key(), offset_value(1))] if superseded else []
    first = build_batch(0, [*older, *TAGGED], codec=codec)
    write_partition(tmp_path / "log", {0: first + build_batch(9, newer)})
    arguments = ["compact", str(tmp_path / "log"), "--output", str(tmp_path / "out"), *RELEASE]
    assert outcome(arguments, capfd)[0] == 0
    start = len(older)
    expected = [(start + n, key, value) for n, (key, value) in enumerate(TAGGED)] + [(9, *newer[0])]
    assert records(tmp_path / "out") == expected


LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4, Codec.GZIP], ids=lambda codec: codec.name.lower())
@pytest.mark.parametrize("base", [LOWEST, -1, HIGHEST])
def test_timestamps_wrap_as_in_java(base: int, codec: Codec, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Base and delta of int64 each, the sum beyond it, in a batch that is built again."""
    offset_keys = [OffsetKey("g", "t", number) for number in range(4)]
    times = [HIGHEST, 0, LOWEST, HIGHEST - 1]
    section = b"".join(
        encode_record(
            NewRecord(encoded_key(offset_key), offset_value(1), base + delta),
            offset_delta=number,
            base_timestamp=base,
            default_timestamp=0,
        )
        for number, (offset_key, delta) in enumerate(zip(offset_keys, times, strict=True))
    )
    first = build_raw_batch(
        0,
        compress(codec, section),
        count=4,
        last_offset_delta=3,
        attributes=codec,
        base_timestamp=base,
        max_timestamp=HIGHEST,
    )
    write_partition(tmp_path / "log", {0: first + build_batch(4, [(encoded_key(offset_keys[1]), offset_value(2))])})
    for name, options in {"kept": [], "numbered": ["--renumber"], "zstd": ["--codec", "zstd"]}.items():
        output = tmp_path / name
        arguments = ["compact", str(tmp_path / "log"), "--output", str(output), *RELEASE, *options]
        code, _, err = outcome(arguments, capfd)
        assert code == 0, err
        (log,) = discover([str(output)]).partitions
        found = [record.timestamp_ms for _, _, records in read_records(log) for record in records]
        wrapped = [(base + delta - LOWEST) % (1 << 64) + LOWEST for delta in times]
        assert found[:-1] == [wrapped[0], *wrapped[2:]]
    code, _, err = outcome(["stats", str(tmp_path / "log"), *RELEASE], capfd)
    assert code == 0, err


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_wrong_crc_that_no_broker_verifies(codec: Codec, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Statistics count it as replay reads it; a compaction, whose output must stand a recovery, does not take it."""
    batches = [batch(number, codec) for number in range(4)]
    directory = tmp_path / "log"
    partition = write_partition(directory, {0: b"".join(batches)})
    marker = directory / ".kafka_cleanshutdown"
    marker.touch()
    arguments = [str(directory), *RELEASE, "--partial", "--format", "json"]

    def answers() -> list[tuple[int, str, str]]:
        return [outcome([command, *arguments], capfd) for command in ("stats", "describe")]

    sound = answers()
    at = len(batches[0])
    wrong = flipped(at + 20)(b"".join(batches))
    (partition / f"{0:020d}.log").write_bytes(wrong)
    found = answers()
    for (code, text, said), (_, expected, _) in zip(found, sound, strict=True):
        assert (code, text) == (0, expected.replace('"partial": false', '"partial": true'))
        assert f"byte {at}, record offset 2: bad_crc" in said
    code, _, said = outcome(["compact", *arguments, "--output", str(tmp_path / "compacted")], capfd)
    assert (code, f"byte {at}, record offset 2: bad_crc" in said) == (3, True)
    marker.unlink()
    (code, text, _), _ = answers()
    assert (code, json.loads(text)["partitions"][0]["size_bytes"]) == (0, at)


def test_only_wrong_crcs_are_read_as_they_are(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    first, second, third = batch(0), batch(1), batch(1)
    directory = tmp_path / "log"
    write_partition(directory, {0: flipped(20)(first) + second + third})
    (directory / ".kafka_cleanshutdown").touch()
    code, _, said = outcome(["stats", str(directory), *RELEASE, "--partial"], capfd)
    assert (code, f"byte {len(first + second)}, record offset 2: offset_order" in said) == (3, True)
