"""Reading only the batches that matter: those with records of some groups, or of some key types.

The kernel passes the others, and sums up their headers.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np

from coordinator_core.errors import Damage
from coordinator_core.fold.unpacking import Chunk, chunks
from coordinator_core.kernels import BatchIndex, Bounds, Passage, index_batches, pass_batches, portion_of
from coordinator_core.kernels.arrays import Bytes, Int64s
from coordinator_core.kernels.layout import Stop
from coordinator_core.log.ahead import Reads, segment_bytes
from coordinator_core.log.compression import CompressionError
from coordinator_core.log.layout import LAST_OFFSET
from coordinator_core.log.legacy import LOG_OVERHEAD
from coordinator_core.log.limits import Limits
from coordinator_core.log.reader import OnDamage, Passes, read_partition, read_records
from coordinator_core.log.types import Batch, PartitionLog, Record, SegmentFile
from coordinator_core.log.windows import KeptWindows, WindowsAhead
from coordinator_core.records.wire import decode_utf8

_Found = TypeVar("_Found", bound=tuple[Any, ...])

_REPLACEMENT = "\ufffd"
_MOST_RECORDS = 4096
"""Larger batches are looked at one record after the other."""
_MOST_KNOWN = 1 << 12


class Portion(NamedTuple):
    """The groups of one of ``of`` portions, which are about as large as each other: ``number`` from 0 on."""

    number: int
    of: int


class Chosen:
    """The keys of ``groups``: group ids, or a portion of all."""

    def __init__(self, groups: Collection[str] | Portion) -> None:
        self.portion = groups if isinstance(groups, Portion) else Portion(0, 0)
        ids = () if isinstance(groups, Portion) else groups
        self.prefixes = frozenset(prefix_of(one) for one in ids)
        self.replaced = frozenset(one for one in ids if _REPLACEMENT in one)
        """Group ids that may stand for other bytes, too: bytes that are no UTF-8 are read as U+FFFD."""
        self._known: dict[bytes, bool] = {}

    def __contains__(self, key: object) -> bool:
        """Whether records with these key bytes are wanted."""
        assert isinstance(key, bytes)
        prefix = key[2 : 4 + int.from_bytes(key[2:4], "big")]
        known = self._known.get(prefix)
        if known is None:
            if len(self._known) == _MOST_KNOWN:
                self._known.clear()
            known = self._known[prefix] = self._has(prefix)
        return known

    def _has(self, prefix: bytes) -> bool:
        if not self.portion.of:
            return prefix in self.prefixes or (bool(self.replaced) and decode_utf8(prefix[2:]) in self.replaced)
        # No key but a whole one belongs to a group.
        return len(prefix) > 1 and portion_of(np.frombuffer(prefix, np.uint8), 0, len(prefix), self.portion.of) == (
            self.portion.number
        )


def prefix_of(group_id: str) -> bytes:
    """A group id as it stands in keys. No key has one that is too long: malformed bytes grow when decoded."""
    encoded = group_id.encode("utf-8", "surrogateescape")
    return (len(encoded) & 0xFFFF).to_bytes(2, "big") + encoded


class Passing:
    """One offsets partition without the batches of magic 2 that have no record of ``groups``, wanted otherwise.

    None is passed where the id of a group has a U+FFFD: the kernel compares bytes. Never passed are control batches,
    empty ones, the first batch of a codec or leader epoch, batches from ``end_offset`` on, those of more than
    ``most_batch_bytes``, and what takes a closer look. Facts of passed batches are in ``passage``; readers take
    them from there.
    """

    def __init__(
        self,
        groups: Collection[str] | Portion,
        *,
        wants_tombstones: bool = False,
        newest_key_type: int | None = None,
        end_offset: int | None = None,
        most_batch_bytes: int | None = None,
    ) -> None:
        self.chosen = chosen = Chosen(groups)
        self._limits = Limits()
        self._last_offset = LAST_OFFSET if end_offset is None else end_offset - 1
        most = self._limits.max_batch_bytes if most_batch_bytes is None else most_batch_bytes - LOG_OVERHEAD
        self.passage = passage = Passage(Bounds(most, _MOST_RECORDS), *chosen.portion)
        passage.wants_tombstones = wants_tombstones
        if newest_key_type is not None:
            passage.newest_key_type = newest_key_type
        for prefix in chosen.prefixes:
            passage.group_ids.add_all(np.frombuffer(prefix, np.uint8), len(prefix))
        self._view: memoryview | None = None
        self._found: Generator[Chunk, None, None] | None = None
        self._chunk: Chunk | None = None
        self._checks = Bounds(most, self._limits.max_records)
        self._ahead: WindowsAhead | None = None

    def read(
        self, log: PartitionLog, *, on_damage: OnDamage, damage: list[Damage], reads: Reads = segment_bytes
    ) -> Iterator[tuple[SegmentFile, Batch, list[Record]]]:
        """Batches that were not passed, with their records, as ``read_records`` yields them; raises as it does."""
        return self._noted(read_records(log, on_damage=on_damage, damage=damage, passes=self._passes(), reads=reads))

    def batches(
        self, log: PartitionLog, *, on_damage: OnDamage, damage: list[Damage]
    ) -> Iterator[tuple[SegmentFile, Batch]]:
        """The same without the records, as ``read_partition`` yields them."""
        return self._noted(read_partition(log, on_damage=on_damage, damage=damage, passes=self._passes()))

    def _passes(self) -> Passes | None:
        return None if self.chosen.replaced else self

    def _noted(self, found: Iterable[_Found]) -> Iterator[_Found]:
        passage = self.passage
        self._reader = ThreadPoolExecutor(1)
        try:
            for one in found:
                yield one
                batch: Batch = one[1]
                passage.next_offset = batch.next_offset
                passage.leader_epoch = max(passage.leader_epoch, batch.partition_leader_epoch)
                if batch.magic >= 2:
                    passage.codecs |= 1 << batch.codec_id
        finally:
            self._forget()
            self._ahead = None
            self._reader.shutdown()

    def windows(self, segment: SegmentFile) -> KeptWindows:
        """Windows of a segment, each read and checked while the last one is in use."""
        self._ahead = WindowsAhead(segment, self._reader, self._sound_end)
        return self._ahead

    def _sound_end(self, view: memoryview) -> int:
        return int(index_batches(np.frombuffer(view, np.uint8), 0, len(view), self._checks, BatchIndex(0))[1])

    def _forget(self) -> None:
        """End the thread that unpacks."""
        if self._found is not None:
            self._found.close()
        self._view = self._found = self._chunk = None

    def __call__(
        self, view: memoryview, first: int, position: int, expected: int, last_offset: int, *, is_cut: bool
    ) -> tuple[int, int]:
        passage = self.passage
        # Elsewhere something was left out, and the caller must see the next batch.
        if passage.next_offset == expected:
            passage.bounds.last_offset = min(last_offset, self._last_offset)
            passage.origin, passage.is_cut = first, is_cut
            data = np.frombuffer(view, np.uint8)
            at = position - first
            status: int = Stop.END
            sound = 0 if self._ahead is None else self._ahead.sound_bytes(view)
            if at < sound:
                passage.is_cut, passage.bounds.check_crc = True, False
                status, at = self._through(data[:sound], at, None)
                passage.is_cut, passage.bounds.check_crc = is_cut, True
            while status in (Stop.END, Stop.COMPRESSED):
                status, at = self._through(data, at, None)
                if status != Stop.COMPRESSED:
                    break
                after = self._pass_unpacked(view, at)
                if after == at:
                    break
                at = after
            position = first + at
        return position, max(expected, passage.next_offset)

    def _through(self, data: Bytes, position: int, positions: Int64s | None) -> tuple[int, int]:
        """Pass batches from ``position`` on: a :class:`Stop`, and the position reached. Unpacked ones are at
        ``positions`` in their segment."""
        status, reached = pass_batches(data, position, len(data), positions is not None, self.passage)
        return status, reached

    def _pass_unpacked(self, view: memoryview, position: int) -> int:
        chunk = self._chunk_at(view, position)
        if chunk is None:
            return position
        ends = np.cumsum(chunk.batches["plain_size"])
        row = int(np.searchsorted(chunk.batches["position"], position))
        start = int(ends[row - 1]) if row else 0
        _, reached = self._through(chunk.data, start, chunk.batches["position"][row:])
        row = int(np.searchsorted(ends, reached, "right"))
        return int(chunk.batches["position"][row]) if row < len(ends) else chunk.end

    def _chunk_at(self, view: memoryview, position: int) -> Chunk | None:
        """The chunk with the batch at ``position``; ``None`` if that must be looked at otherwise."""
        try:
            if view is self._view and self._found is not None:
                while self._chunk is not None and self._chunk.end <= position:
                    self._chunk = next(self._found, None)
            else:
                self._chunk = None
            if self._chunk is None:
                self._forget()
                self._view = view
                self._found = chunks(view, position, self.passage.next_offset, self.passage.bounds, self._limits)
                self._chunk = next(self._found, None)
        except CompressionError:
            self._forget()
        chunk = self._chunk
        return None if chunk is None or position not in chunk.batches["position"] else chunk
