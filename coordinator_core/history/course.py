"""What batches tell of the log of an offsets partition: holes, leaders, message formats, leftovers, clocks."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator_core.durations import HOUR_MS
from coordinator_core.history.model import ClockBack, Hole, LeaderChange, PartitionHistory, Place
from coordinator_core.kernels import Passage
from coordinator_core.log.types import Batch, Record, SegmentFile

_HOLES = 32
_CLOCKS_DIFFER_MS = HOUR_MS


class Course:
    """Notes in ``history`` what its batches tell, one after the other in log order.

    ``newest_ms`` is the largest time so far, epoch ms, -1 before the first batch.
    """

    def __init__(self, history: PartitionHistory) -> None:
        self._history = history
        self._expected: int | None = None
        self._epoch = -1
        self._is_left = False
        self.newest_ms = -1

    def passed(self, passage: Passage) -> None:
        """Batches of whose headers alone a kernel has taken notice since the last call."""
        if not passage.batches:
            return
        history = self._history
        for at in range(0, passage.holes_used, 2):
            self._hole(passage.holes[at], passage.holes[at + 1])
        history.missing += passage.removed
        history.cleaned_to = max(history.cleaned_to, passage.removed_end)
        history.batches += passage.batches
        self._expected = history.end_offset = passage.next_offset
        self.newest_ms = history.last_ms = max(self.newest_ms, passage.max_timestamp)
        self._is_left = False
        passage.begin()

    def batch(self, segment: SegmentFile, batch: Batch, records: Sequence[Record]) -> None:
        """A batch with its records."""
        history = self._history
        first, time = batch.base_offset, batch.max_timestamp_ms
        if records and batch.magic < 2:
            first, time = records[0].offset, records[-1].timestamp_ms
        place = Place(
            history.offsets_partition, first, time, segment.path, batch.position, batch.partition_leader_epoch
        )
        self._leftover(batch, place)
        if self._expected is None:
            history.first_offset = first
            history.first_ms = time
        elif first > self._expected:
            self._hole(self._expected, first)
        if batch.magic >= 2 and not batch.is_control:
            removed = batch.last_offset - batch.base_offset + 1 - len(records)
            history.missing += removed
            if removed:
                history.cleaned_to = batch.last_offset + 1
        self._expected = history.end_offset = batch.next_offset
        epoch = batch.partition_leader_epoch
        if epoch > self._epoch:
            if self._epoch >= 0:
                pause_ms = max(0, time - self.newest_ms) if self.newest_ms >= 0 else 0
                history.leaders.append(LeaderChange(place, self._epoch, pause_ms))
            self._epoch = epoch
        self.newest_ms = history.last_ms = max(self.newest_ms, time)
        history.batches += 1
        history.formats.setdefault((batch.magic, batch.codec_id), place)

    def clock(self, place: Place, newest_ms: int) -> None:
        """A record; ``newest_ms`` was the largest time before its batch. A clock that was wrong by more than brokers'
        clocks differ shows when it is set right."""
        known = self._history.clock
        least = _CLOCKS_DIFFER_MS if known is None else known.back_ms
        if 0 <= place.timestamp_ms < newest_ms - least:
            self._history.clock = ClockBack(place, newest_ms - place.timestamp_ms, newest_ms)

    def end(self) -> None:
        """No batch follows: holes are sorted, the largest first."""
        self._history.holes.sort(key=_size)

    def _leftover(self, batch: Batch, place: Place) -> None:
        """Batches that the cleaner emptied, and end markers of whose transaction nothing stands before them."""
        found = self._history.leftovers
        is_behind_hole = self._expected is not None and batch.base_offset > self._expected
        if batch.magic >= 2 and batch.record_count == 0:
            found.emptied[batch.producer_id] = found.emptied.get(batch.producer_id, 0) + 1
        elif batch.is_control and (self._is_left or is_behind_hole):
            hour = place.timestamp_ms // HOUR_MS
            found.markers[hour] = found.markers.get(hour, 0) + 1
        else:
            self._is_left = False
            return
        self._is_left = True
        found.size_bytes += batch.size
        found.place = found.place or place

    def _hole(self, first: int, end: int) -> None:
        self._history.missing += end - first
        self._history.cleaned_to = end
        holes = self._history.holes
        holes.append(Hole(first, end))
        if len(holes) > 2 * _HOLES:
            holes.sort(key=_size)
            del holes[_HOLES:]


def _size(hole: Hole) -> int:
    """Negative, so that large ones come first."""
    return hole.first - hole.end
