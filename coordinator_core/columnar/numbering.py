"""Names and slots of many folds, numbered across them in the order in which they are met."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.columnar.arrow import column
from coordinator_core.columnar.finishing import SlotKey, index_slots, number_slots
from coordinator_core.columnar.tables import Int64s
from coordinator_core.columnar.values import inverse


class NameNumbers:
    """Group ids, or topics."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._texts: list[pa.Array] = []

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, names: pa.Array) -> Int64s:
        """The number of each of ``names``."""
        numbers, known = self._numbers, len(self._numbers)
        found = [numbers.setdefault(name, len(numbers)) for name in names.to_pylist()]
        array = np.array(found, np.int64)
        if len(numbers) > known:
            # A name may come twice: bytes that are not UTF-8 can decode to the same text.
            _, first = np.unique(array, return_index=True)
            self._texts.append(names.take(column(first[array[first] >= known])))
        return array

    def texts(self) -> pa.Array:
        """All names, by number."""
        whole = pa.chunked_array(self._texts, pa.large_string()).combine_chunks()
        self._texts = [whole]
        return whole

    def of(self, numbers: Int64s) -> list[str]:
        """The names with these numbers."""
        found: list[str] = self.texts().take(column(numbers)).to_pylist()
        return found

    def ranks(self) -> Int64s:
        """Place of each name, by number, in the order of their UTF-8 bytes."""
        order = pc.sort_indices(self.texts()).to_numpy().astype(np.int64)
        return inverse(order)


class SlotNumbers:
    """Slots: group and topic by number, and partition."""

    def __init__(self) -> None:
        self._used = 0
        self._keys = np.empty((0, SlotKey.WIDTH), np.int64)
        self._index = np.zeros(1, np.int64)

    def __len__(self) -> int:
        return self._used

    def add(self, slots: pa.Table, group_of: Int64s, topic_of: Int64s) -> Int64s:
        """The number of each row of a fold's ``slots``, whose groups and topics have these numbers."""
        names = [slots[name].to_numpy() for name in ("group", "topic", "partition")]
        numbers = np.empty(slots.num_rows, np.int64)
        if self._used == 0:
            self._resize(1 << slots.num_rows.bit_length())
        row = 0
        while True:
            reached = number_slots(
                *names, group_of, topic_of, row, self._keys, self._index, self._used, numbers
            )
            self._used = max(self._used, int(numbers[row:reached].max(initial=-1)) + 1)
            row = reached
            if row == len(numbers):
                return numbers
            self._resize(2 * len(self._keys))

    def groups(self, slots: Int64s) -> Int64s:
        names: Int64s = self._keys[slots, SlotKey.NAMES]
        return names >> 32

    def topics(self, slots: Int64s) -> Int64s:
        names: Int64s = self._keys[slots, SlotKey.NAMES]
        return names & 0xFFFFFFFF

    def partitions(self, slots: Int64s) -> npt.NDArray[np.int32]:
        partitions: Int64s = self._keys[slots, SlotKey.PARTITION]
        return partitions.astype(np.int32)

    def _resize(self, capacity: int) -> None:
        keys = np.empty((capacity, SlotKey.WIDTH), np.int64)
        keys[: self._used] = self._keys[: self._used]
        self._keys = keys
        self._index = np.zeros(2 * capacity, np.int64)
        index_slots(self._keys, self._used, self._index)
