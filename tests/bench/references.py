"""``python -m tests.bench.references struct|kafka-python LOG``: what a replay costs in plain Python.

Both keep the newest committed offset of each key, without transactions, groups and publication, and print how
many there are: less than what Regroup does.
"""

from __future__ import annotations

import mmap
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

from kafka.record import MemoryRecords

_BATCH = struct.Struct(">qiibIhiqqqhii")
_OFFSET = struct.Struct(">q")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    shift = value = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def by_struct(data: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    """Keys and values of the records of uncompressed batches, markers left out."""
    at = 0
    while at < len(data):
        _, length, _, _, _, attributes, *_, count = _BATCH.unpack_from(data, at)
        place, at = at + _BATCH.size, at + 12 + length
        if attributes & 0x20:
            continue
        for _ in range(count):
            size, place = _varint(data, place)
            end = place + size
            _, place = _varint(data, place + 1)
            _, place = _varint(data, place)
            size, place = _varint(data, place)
            key = data[place : place + size]
            size, place = _varint(data, place + size)
            yield key, None if size < 0 else data[place : place + size]
            place = end


def by_kafka_python(data: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    """The same, by the record reader of kafka-python."""
    records = MemoryRecords(data)
    while (batch := records.next_batch()) is not None:
        if not batch.is_control_batch:
            for record in batch:
                yield record.key, record.value


READERS = {"struct": by_struct, "kafka-python": by_kafka_python}


def main(reader: str, log: str) -> None:
    newest: dict[bytes, int | None] = {}
    for segment in sorted(Path(log).glob("*/*.log")):
        with segment.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            for key, value in READERS[reader](mapped[:]):
                if key[:2] == b"\0\1":
                    newest[key] = None if value is None else _OFFSET.unpack_from(value, 2)[0]
    print(sum(committed is not None for committed in newest.values()))


if __name__ == "__main__":
    main(*sys.argv[1:])
