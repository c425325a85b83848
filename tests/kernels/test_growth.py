"""Hostile shapes: twice the input is at most a little more than twice the work. Work is counted, not timed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from coordinator_core.kernels import Bounds, FoldTables, compiled, fold_chunk
from coordinator_core.kernels.layout import Stop
from coordinator_core.log import resync
from coordinator_core.log.discovery import discover
from coordinator_core.log.types import ControlType
from coordinator_core.log.verify import verify
from tests.log.builders import build_batch, build_control_batch, build_empty_batch, write_partition
from tests.replay.histories import encoded_key, offset_value


def commit(base: int, producer: int) -> bytes:
    rows = [(encoded_key(), offset_value(base))]
    return build_batch(base, rows, producer_id=producer, transactional=True)


def producers_on_one_key(size: int) -> bytes:
    """Each opens a transaction with the same offset key, none ends."""
    return b"".join(commit(number, number) for number in range(size))


def tombstones_over_them(size: int) -> bytes:
    tombstones = (build_batch(size + number, [(encoded_key(), None)]) for number in range(size))
    return producers_on_one_key(size) + b"".join(tombstones)


def commits_once_more(size: int) -> bytes:
    """Each producer commits, a tombstone drops it all, each commits again, the oldest first; then all end."""
    again = b"".join(commit(size + 1 + number, number) for number in range(size))
    ends = (
        build_control_batch(2 * size + 1 + number, ControlType.COMMIT, producer_id=number) for number in range(size)
    )
    return producers_on_one_key(size) + build_batch(size, [(encoded_key(), None)]) + again + b"".join(ends)


def list_steps(data: bytes, *, java: bool) -> int:
    bounds = Bounds(1 << 27, 1 << 18)
    bounds.last_offset = 1 << 40
    tables = FoldTables(bounds)
    tables.pending_by_producer = java
    tables.tombstone_drops_pending = True
    tables.max_legacy_version = tables.max_version = 4
    assert fold_chunk(np.frombuffer(data, np.uint8), 0, len(data), 0, False, tables) == Stop.END
    return int(tables.list_steps)


@pytest.mark.parametrize("java", [False, True])
@pytest.mark.parametrize("shape", [producers_on_one_key, tombstones_over_them, commits_once_more])
def test_open_producers_on_one_offset_key(shape: Callable[[int], bytes], java: bool) -> None:
    once, twice = (list_steps(shape(size), java=java) for size in (400, 800))
    assert 0 < twice < 2.1 * once


def test_room_that_suffices_costs_nothing() -> None:
    """Each batch for the plain reader asks for room; half a million of them ended the process when the tables went."""
    script = (
        "from coordinator_core.kernels import Bounds, FoldTables\n"
        "tables = FoldTables(Bounds(1 << 20, 1 << 10))\n"
        "for _ in range(400_000): tables.reserve_scratch(1)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_junk_between_sound_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0
    real = resync._big_endian

    def counted(raw: np.ndarray, at: int, count: int) -> np.ndarray:
        nonlocal read
        read += count
        return real(raw, at, count)

    monkeypatch.setattr(resync, "_big_endian", counted)
    work = []
    for size in (200, 400):
        read = 0
        data = b"".join(build_empty_batch(number) + bytes(16) + b"\x09" for number in range(size))
        write_partition(tmp_path / str(size), {0: data + build_empty_batch(size)})
        report = verify(discover([str(tmp_path / str(size))]))
        assert report.segments[0].batches == size + 1
        assert read < 20 * len(data)
        work.append(read)
    assert work[1] < 2.2 * work[0]


def hashes_elsewhere(names: list[bytes]) -> list[int]:
    script = (
        "import sys; from coordinator_core.kernels.compiled import hash_bytes\n"
        "for line in sys.stdin: name = bytes.fromhex(line); print(hash_bytes(name, 0, len(name)))"
    )
    text = "\n".join(name.hex() for name in names)
    done = subprocess.run(
        [sys.executable, "-c", script], input=text, capture_output=True, text=True, check=True, env=os.environ
    )
    return [int(line) for line in done.stdout.split()]


def test_names_with_one_hash_cannot_be_chosen() -> None:
    """Differences that the old hash passed on unchanged, whatever it began with: the highest bits of two words."""
    names = []
    for chosen in range(256):
        name = bytearray(b"A" * 256)
        for pair in range(8):
            if chosen >> pair & 1:
                # Both words are of one lane.
                for word, bits in ((0, 1 << 63), (2, 1 << 63 | 1 << 34)):
                    at = 32 * pair + 8 * word
                    name[at : at + 8] = (int.from_bytes(name[at : at + 8], "little") ^ bits).to_bytes(8, "little")
        names.append(bytes(name))
    here = [int(compiled.hash_bytes(name, 0, len(name))) for name in names]
    assert len(set(here)) == len(names)
    there = hashes_elsewhere(names)
    assert len(set(there)) == len(names)
    assert not set(here) & set(there)
