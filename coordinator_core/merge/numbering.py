"""Numbers of names and offset keys across many folds, in the order of their first appearance."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.fold.arrow import column
from coordinator_core.kernels import KeyTable, number_keys
from coordinator_core.kernels.arrays import Bytes, Int64s, array_of, viewed
from coordinator_core.kernels.layout import MERGED_KEY_BYTES, RECORDS_AT_A_TIME
from coordinator_core.merge.values import inverse


class NameNumbers:
    """Group ids, or topics."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._texts: list[pa.Array] = []
        self.bytes = 0
        """UTF-8 bytes of all names."""

    def state(self) -> pa.Table:
        """All names, by number, in a table."""
        return pa.table([self.texts()], ["name"])

    def load(self, state: pa.Table) -> None:
        """Go on from a :meth:`state`; nothing may have been added."""
        self._keep(state["name"].combine_chunks())
        self._numbers = {name: number for number, name in enumerate(self._texts[0].to_pylist())}

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, names: pa.Array) -> Int64s:
        """Numbers of ``names`` (int64, one each); new names get the next numbers."""
        numbers, known = self._numbers, len(self._numbers)
        found = [numbers.setdefault(name, len(numbers)) for name in names.to_pylist()]
        array = np.array(found, np.int64)
        if len(numbers) > known:
            # A name may come twice: bytes that are not UTF-8 can decode to the same text.
            _, first = np.unique(array, return_index=True)
            self._keep(names.take(column(first[array[first] >= known])))
        return array

    def _keep(self, names: pa.Array) -> None:
        self._texts.append(names)
        self.bytes += pc.sum(pc.binary_length(names)).as_py() or 0

    def texts(self) -> pa.Array:
        """All names, by number."""
        whole = pa.chunked_array(self._texts, pa.large_string()).combine_chunks()
        self._texts = [whole]
        return whole

    def sizes(self) -> Int64s:
        """UTF-8 bytes of each name, by number."""
        found: Int64s = pc.binary_length(self.texts()).to_numpy()
        return found

    def of(self, numbers: Int64s) -> list[str]:
        """The names with these numbers."""
        found: list[str] = self.texts().take(column(numbers)).to_pylist()
        return found

    def ranks(self) -> Int64s:
        """Rank of each name in the order of their UTF-8 bytes (int64), by number."""
        order = pc.sort_indices(self.texts()).to_numpy().astype(np.int64)
        return inverse(order)


class OffsetKeyNumbers:
    """Offset keys: group and topic by number, and partition."""

    def __init__(self) -> None:
        self._table = KeyTable()
        self._scratch = viewed(np.empty(RECORDS_AT_A_TIME * MERGED_KEY_BYTES, np.uint8))
        self._hashes = viewed(np.empty(RECORDS_AT_A_TIME, np.int64))

    def state(self) -> Bytes:
        """Bytes of the keys end to end, in the order of their numbers."""
        return self._held().copy()

    def load(self, keys: Bytes) -> None:
        """Go on from a :meth:`state`; nothing may have been added."""
        self._table.add_all(viewed(keys), MERGED_KEY_BYTES)

    def __len__(self) -> int:
        used: int = self._table.used
        return used

    def add(self, keys: pa.Table, group_of: Int64s, topic_of: Int64s) -> Int64s:
        """Numbers of a fold's offset keys (int64, one a row). ``group_of``, ``topic_of``: those of its names."""
        names = [keys[name].to_numpy() for name in ("group", "topic", "partition")]
        numbers = np.empty(keys.num_rows, np.int64)
        number_keys(*names, group_of, topic_of, self._table, self._scratch, self._hashes, numbers)
        return numbers

    def groups(self, keys: Int64s) -> Int64s:
        """Numbers of the groups of ``keys`` (int64)."""
        return self._field(keys, 0).astype(np.int64)

    def topics(self, keys: Int64s) -> Int64s:
        """Numbers of the topics of ``keys`` (int64)."""
        return self._field(keys, 1).astype(np.int64)

    def partitions(self, keys: Int64s) -> npt.NDArray[np.int32]:
        return self._field(keys, 2).astype(np.int32)

    def _field(self, keys: Int64s, field: int) -> npt.NDArray[np.int32]:
        return self._held().view(">i4").take(3 * keys + field)

    def _held(self) -> Bytes:
        return array_of(self._table.data)[: len(self) * MERGED_KEY_BYTES]
