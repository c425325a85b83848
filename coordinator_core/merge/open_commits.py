"""Commits of transactions that are open between segments, and the offset keys that these contest.

An offset key that no open transaction holds is easy: the last fold that has an event for it decides. The others go
by the rules here, one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from coordinator_core.fold import schema as columns
from coordinator_core.fold.arrow import column
from coordinator_core.fold.schema import SegmentFold
from coordinator_core.kernels.arrays import Int64s
from coordinator_core.merge.values import NOWHERE, ValueStore
from coordinator_core.releases import MergeOffsetRule, Profile


@dataclass(frozen=True, slots=True)
class Marker:
    """A producer's first end marker in a segment."""

    sequence: int
    commits: bool


@dataclass(frozen=True, slots=True)
class Event:
    """Last change of an offset key in a segment, apart from its open transactions."""

    place: int
    kind: int
    sequence: int
    last_tombstone: int


_Events = Mapping[int, Event]
_Mask = npt.NDArray[np.bool_]
_NO_EVENT = Event(NOWHERE, columns.NOT_VALUE, -1, -1)


class OpenCommits:
    """The open transactions' commits, as places in a :class:`ValueStore`.

    ``committed`` arguments are the places of the committed values by offset key number, ``NOWHERE`` where none is.
    """

    def __init__(self, profile: Profile, values: ValueStore) -> None:
        self._values = values
        self._places: dict[int, dict[int, int]] = {}
        self._producers: dict[int, set[int]] = {}
        self._always = profile.ordering_offset_rule is MergeOffsetRule.NONE
        self._drops = profile.tombstone_drops_pending

    def state(self) -> dict[int, dict[int, int]]:
        """Places by producer id and offset key."""
        return self._places

    def load(self, state: dict[int, dict[int, int]]) -> None:
        """Go on from a :meth:`state`; the store of values has that of the same moment."""
        self._places = state
        for producer_id, places in state.items():
            for offset_key in places:
                self._producers.setdefault(offset_key, set()).add(producer_id)

    def items(self) -> tuple[Int64s, Int64s]:
        """Numbers of offset keys and places (int64) of all open commits, by producer in the order of appearance."""
        pairs = [pair for places in self._places.values() for pair in places.items()]
        both = np.array(pairs, np.int64).reshape(-1, 2)
        return both[:, 0].copy(), both[:, 1].copy()

    def move(self, places: Int64s) -> None:
        """Set the places (int64) of the commits, in the order of :meth:`items`."""
        moved = iter(places.tolist())
        for held in self._places.values():
            for offset_key in held:
                held[offset_key] = next(moved)

    def apply(self, fold: SegmentFold, offset_key_of: Int64s, committed: Int64s) -> None:
        """Splice ``fold``, whose offset key rows have the numbers ``offset_key_of``, behind the state so far."""
        first_place = self._values.add(fold.offset_keys)
        kinds = fold.offset_keys["kind"].to_numpy()
        free = np.ones(len(offset_key_of), np.bool_)
        if self._producers:
            contested = np.zeros(len(committed), np.bool_)
            contested[np.fromiter(self._producers, np.int64, len(self._producers))] = True
            free = ~contested[offset_key_of]
        rows = np.flatnonzero(free & (kinds == columns.VALUE))
        committed[offset_key_of[rows]] = first_place + rows
        committed[offset_key_of[free & (kinds == columns.TOMBSTONE)]] = NOWHERE
        if self._producers:
            events = _events(fold, offset_key_of, np.flatnonzero(~free), first_place)
            self._apply_contested(fold, offset_key_of, ~free, events, committed)
        self._open(fold, offset_key_of)

    def _apply_contested(
        self, fold: SegmentFold, offset_key_of: Int64s, contested: _Mask, events: _Events, committed: Int64s
    ) -> None:
        markers = self._markers(fold)
        if self._drops:
            self._drop_pending(events, markers)
        decided = contested[fold.pending["key"].to_numpy()]
        decided &= fold.pending["kind"].to_numpy() != columns.NOTED
        rows = np.flatnonzero(decided)
        is_open = fold.pending["open"].to_numpy()[rows].tolist()
        for offset_key, producer_id, opened in zip(
            *_offset_keys_and_producers(fold, offset_key_of, rows), is_open, strict=True
        ):
            # This segment's value for the offset key takes the place of earlier pending ones.
            if (producer_id in markers) != opened:
                self._drop(producer_id, offset_key)
        overridden = self._end_transactions(events, markers, committed)
        for offset_key, event in events.items():
            if offset_key not in overridden:
                if event.kind == columns.VALUE:
                    committed[offset_key] = event.place
                elif event.kind == columns.TOMBSTONE:
                    committed[offset_key] = NOWHERE

    def _markers(self, fold: SegmentFold) -> dict[int, Marker]:
        """The first end markers of the producers that have something open."""
        sequences = fold.producers["first_marker"].to_numpy()
        rows = np.flatnonzero(sequences >= 0)
        producer_ids = fold.producers["producer_id"].to_numpy()[rows].tolist()
        commits = fold.producers["first_marker_commits"].to_numpy()[rows].tolist()
        return {
            producer_id: Marker(sequence, committed)
            for producer_id, sequence, committed in zip(producer_ids, sequences[rows].tolist(), commits, strict=True)
            if producer_id in self._places
        }

    def _drop_pending(self, events: _Events, markers: Mapping[int, Marker]) -> None:
        """A tombstone takes the offset key out of all transactions that are open when it comes (Java)."""
        for offset_key, event in events.items():
            if event.last_tombstone < 0:
                continue
            for producer_id in [*self._producers.get(offset_key, ())]:
                marker = markers.get(producer_id)
                if marker is None or event.last_tombstone < marker.sequence:
                    self._drop(producer_id, offset_key)

    def _end_transactions(self, events: _Events, markers: Mapping[int, Marker], committed: Int64s) -> set[int]:
        """Apply the first end markers to pending commits of earlier segments.

        Returns the offset keys that hold such a value although the segment has an event of its own for them.
        """
        overridden: set[int] = set()
        ended = sorted(self._places.keys() & markers.keys(), key=lambda found: markers[found].sequence)
        for producer_id in ended:
            marker = markers[producer_id]
            for offset_key, place in [*self._places[producer_id].items()]:
                self._drop(producer_id, offset_key)
                if not marker.commits:
                    continue
                event = events.get(offset_key, _NO_EVENT)
                if event.kind == columns.NOT_VALUE or offset_key in overridden:
                    # Nothing in this segment decides, or only what an earlier marker already overrode.
                    if self._is_newer(place, int(committed[offset_key])):
                        committed[offset_key] = place
                elif event.sequence < marker.sequence and (
                    event.kind == columns.TOMBSTONE or self._is_newer(place, event.place)
                ):
                    # What the marker came upon is empty, or older: offsets may go back (``OnDamage.RECOVER``).
                    committed[offset_key] = place
                    overridden.add(offset_key)
        return overridden

    def _is_newer(self, place: int, existing: int) -> bool:
        if existing == NOWHERE or self._always:
            return True
        return self._values.ordering_offset(existing) < self._values.ordering_offset(place)

    def _open(self, fold: SegmentFold, offset_key_of: Int64s) -> None:
        """Keep the commits that the fold leaves pending."""
        is_value = fold.pending["kind"].to_numpy() == columns.PENDING_VALUE
        rows = np.flatnonzero(is_value & fold.pending["open"].to_numpy())
        if len(rows):
            first_place = self._values.add(fold.pending.take(column(rows)))
            offset_keys, producer_ids = _offset_keys_and_producers(fold, offset_key_of, rows)
            for place, (offset_key, producer_id) in enumerate(zip(offset_keys, producer_ids, strict=True), first_place):
                self._places.setdefault(producer_id, {})[offset_key] = place
                self._producers.setdefault(offset_key, set()).add(producer_id)

    def _drop(self, producer_id: int, offset_key: int) -> None:
        held = self._places.get(producer_id)
        if held is None or held.pop(offset_key, None) is None:
            return
        if not held:
            del self._places[producer_id]
        self._producers[offset_key].discard(producer_id)
        if not self._producers[offset_key]:
            del self._producers[offset_key]


def _events(fold: SegmentFold, offset_key_of: Int64s, rows: Int64s, first_place: int) -> _Events:
    taken = [fold.offset_keys[name].to_numpy()[rows] for name in ("kind", "sequence", "last_tombstone")]
    numbers = [(first_place + rows).tolist(), *(values.tolist() for values in taken)]
    return dict(zip(offset_key_of[rows].tolist(), map(Event, *numbers), strict=True))


def _offset_keys_and_producers(fold: SegmentFold, offset_key_of: Int64s, rows: Int64s) -> tuple[list[int], list[int]]:
    offset_keys = offset_key_of[fold.pending["key"].to_numpy()[rows]]
    producers = fold.pending["producer"].to_numpy()[rows]
    return offset_keys.tolist(), fold.producers["producer_id"].to_numpy()[producers].tolist()
