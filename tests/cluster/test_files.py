"""Fetched bytes split into batches, and written as segments: over logs of every message format."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import pytest

from coordinator_core.cluster.chunks import Chunk, Column, DamagedBatchError, split, wanted
from coordinator_core.cluster.files import PartitionFiles
from coordinator_core.log.reader import read_segment
from coordinator_core.log.types import Batch, SegmentFile
from tests.cases import Case, cross_section
from tests.runs.logs import WHOLE, name, snapshot


@cache
def batches(item: Case) -> dict[int, list[Batch]]:
    return {
        log.offsets_partition: [batch for segment in log.segments for batch in read_segment(segment)]
        for log in snapshot(item).partitions
    }


def joined(found: list[Batch]) -> bytes:
    return b"".join(bytes(batch.data) for batch in found)


@pytest.mark.parametrize("item", WHOLE, ids=name)
def test_split_finds_the_batches_that_the_reader_finds(item: Case) -> None:
    for found in batches(item).values():
        data = joined(found)
        chunk = split(memoryview(data))
        assert bytes(chunk.data) == data
        assert chunk.rows[:, Column.SIZE].tolist() == [batch.size for batch in found]
        assert chunk.rows[:, Column.BASE_OFFSET].tolist() == [batch.base_offset for batch in found]
        assert chunk.rows[:, Column.NEXT_OFFSET].tolist() == [batch.next_offset for batch in found]


@pytest.mark.parametrize("item", cross_section(WHOLE))
def test_an_answer_that_is_cut_off_ends_with_its_last_whole_batch(item: Case) -> None:
    found = max(batches(item).values(), key=len)
    data = joined(found)
    chance = random.Random(7)
    for cut in [0, 1, 11, 12, 16, 17, *(chance.randrange(len(data)) for _ in range(20))]:
        chunk = split(memoryview(data)[:cut])
        whole = [batch for batch in found if batch_end(found, batch) <= cut]
        assert len(chunk) == len(whole)
        assert bytes(chunk.data) == joined(whole)


def batch_end(found: list[Batch], batch: Batch) -> int:
    return sum(each.size for each in found[: found.index(batch) + 1])


@pytest.mark.parametrize("item", WHOLE, ids=name)
def test_what_is_wanted_of_an_answer(item: Case) -> None:
    """From the batch that holds the offset on, up to those that begin at the end."""
    found = max(batches(item).values(), key=len)
    chunk = split(memoryview(joined(found)))
    chance = random.Random(8)
    last = found[-1].next_offset
    for _ in range(20):
        start, end = sorted((chance.randrange(last + 1), chance.randrange(last + 2)))
        part = wanted(chunk, start, end)
        expected = [each for each in found if each.next_offset > start and each.base_offset < end]
        assert bytes(part.data) == joined(expected)
        assert len(part) == len(expected)


@pytest.mark.parametrize("byte", [8, 16, 30, -1])
def test_a_damaged_batch_is_found_at_its_place(byte: int) -> None:
    """Length, format, header, last record: not the first batch, so that its place counts."""
    found = max((found for item in WHOLE for found in batches(item).values()), key=len)
    data = bytearray(joined(found))
    place = found[0].size
    data[place + (found[1].size - 1 if byte < 0 else byte)] ^= 0x40
    with pytest.raises(DamagedBatchError) as caught:
        split(memoryview(bytes(data)))
    assert caught.value.byte_position == place


def test_an_offset_that_goes_back_is_damage() -> None:
    found = max((found for item in WHOLE for found in batches(item).values()), key=len)
    with pytest.raises(DamagedBatchError, match="goes back") as caught:
        split(memoryview(joined([*found[:3], found[1]])))
    assert caught.value.byte_position == sum(batch.size for batch in found[:3])


def written(directory: Path, found: list[Batch], segment_bytes: int, seed: int = 1) -> PartitionFiles:
    """The batches appended in pieces of random length."""
    chance = random.Random(seed)
    files = PartitionFiles(directory, segment_bytes)
    at = 0
    while at < len(found):
        stop = min(len(found), at + chance.randint(1, 9))
        position = files.next_offset or 0
        files.append(split(memoryview(joined(found[at:stop]))), position)
        at = stop
    files.seal()
    return files


@pytest.mark.parametrize("item", cross_section(WHOLE))
def test_segments_are_those_of_a_broker(item: Case, tmp_path: Path) -> None:
    """Named by their base offsets, in order, each batch whole; read again, they are known as before."""
    for partition, found in batches(item).items():
        if not found:
            continue
        directory = tmp_path / str(partition)
        files = written(directory, found, segment_bytes=2000)
        paths = sorted(directory.glob("*.log"))
        assert b"".join(path.read_bytes() for path in paths) == joined(found)
        for path, segment in zip(paths, files.segments, strict=True):
            (first, *_) = read_segment(SegmentFile(str(path), partition, int(path.stem), path.stat().st_size))
            assert int(path.stem) == segment.base_offset <= first.base_offset
        again = PartitionFiles(directory, 2000)
        assert again.next_offset == files.next_offset == found[-1].next_offset
        assert (again.batches, again.records, again.bytes, again.removed, again.epochs) == (
            files.batches,
            files.records,
            files.bytes,
            files.removed,
            files.epochs,
        )
        sealed = {segment.base_offset: (segment.size, segment.fingerprint) for segment in files.segments}
        assert all(again.check(base, size, str(print_)) for base, (size, print_) in sealed.items())


def test_a_torn_file_is_cut_at_its_last_whole_batch(tmp_path: Path) -> None:
    found = max((found for item in WHOLE for found in batches(item).values()), key=len)
    written(tmp_path, found, segment_bytes=2000)
    paths = sorted(tmp_path.glob("*.log"))
    assert len(paths) > 4
    data = paths[2].read_bytes()
    paths[2].write_bytes(data[:-3])
    files = PartitionFiles(tmp_path, 2000)
    kept = b"".join(path.read_bytes() for path in sorted(tmp_path.glob("*.log")))
    assert joined(found).startswith(kept)
    assert len(files.segments) == 3
    rest = [batch for batch in found if batch.base_offset >= (files.next_offset or 0)]
    files.append(split(memoryview(joined(rest))), files.next_offset or 0)
    files.flush()
    assert b"".join(path.read_bytes() for path in sorted(tmp_path.glob("*.log"))) == joined(found)


def test_cuts_at_both_ends(tmp_path: Path) -> None:
    found = max((found for item in WHOLE for found in batches(item).values()), key=len)
    files = written(tmp_path, found, segment_bytes=2000)
    end, first = found[-4].base_offset, files.segments[2].base_offset
    files.cut(end_offset=end)
    assert files.next_offset == found[-5].next_offset
    files.cut(first_offset=first)
    assert files.segments[0].base_offset == first
    held = [batch for batch in found if first <= batch.base_offset < end]
    assert b"".join(path.read_bytes() for path in sorted(tmp_path.glob("*.log"))) == joined(held)
    files.clear()
    assert (files.next_offset, files.bytes, list(tmp_path.glob("*.log"))) == (None, 0, [])
    files.start_at(17)
    files.seal()
    assert [path.name for path in tmp_path.glob("*.log")] == ["00000000000000000017.log"]
    assert isinstance(split(memoryview(b"")), Chunk)
