"""Byte strings numbered in the order of their first appearance: the one key table of compiled code."""

import cython

from coordinator_core.kernels.arrays import grown, new_bytes, new_rows, zeros

if not cython.compiled:
    from coordinator_core.kernels.declare import *
    from coordinator_core.kernels.primitives import *

_FIRST_KEYS = 64
_FIRST_BYTES = 4096


@cython.final
@cython.cclass
class KeyTable:
    """Interned byte strings: ``used`` rows of ``keys``, whose bytes are in ``data``.

    ``index`` is a hash table with linear probing, at most half full. Callers make room by :meth:`reserve` before
    they add a key.
    """

    used = cython.declare(Int, visibility="public")
    data_used = cython.declare(Int, visibility="public")
    index = cython.declare(MutableInt64s, visibility="public")
    keys = cython.declare(KeyRows, visibility="public")
    data = cython.declare(MutableBytes, visibility="public")

    def __init__(self, keys: Int = 0, data_bytes: Int = 0) -> None:
        """An empty table with room for ``keys`` keys of ``data_bytes`` bytes together."""
        self.index = zeros(2 * _FIRST_KEYS)
        self.keys = new_rows("Key", max(keys, _FIRST_KEYS))
        self.data = new_bytes(max(data_bytes, _FIRST_BYTES))
        self.clear()

    def clear(self) -> None:
        """Forget all keys; the memory is kept."""
        self.used = 0
        self.data_used = 0
        for place in range(len(self.index)):
            self.index[place] = 0

    @cython.cfunc
    def find(self, data: Bytes, at: Int, length: Int, hashed: Int) -> Int:
        """Row of the ``length`` bytes at ``at``, whose :func:`hash_bytes` is ``hashed``; -1 for none."""
        mask: Int = len(self.index) - 1
        place: Int = hashed & mask
        tag: Int = hashed & KEY_TAG_BITS
        while True:
            entry = self.index[place]
            if entry == 0:
                return -1
            if entry & KEY_TAG_BITS == tag:
                row = (entry & KEY_ROW_BITS) - 1
                if (
                    self.keys[row].hash == hashed
                    and self.keys[row].length == length
                    and same_bytes(self.data, self.keys[row].start, data, at, length)
                ):
                    return row
            place = (place + 1) & mask

    @cython.cfunc
    def add(self, data: Bytes, at: Int, length: Int, hashed: Int) -> Int:
        """Row of a key that the table does not hold yet."""
        row: Int = self.used
        self.used = row + 1
        self.keys[row].hash = hashed
        self.keys[row].start = self.data_used
        self.keys[row].length = length
        copy_bytes(data, at, self.data, self.data_used, length)
        self.data_used += length
        self._enter(hashed, row)
        return row

    @cython.cfunc
    def number(self, data: Bytes, at: Int, length: Int) -> Int:
        """Row of a key, made when it is new."""
        hashed: Int = hash_bytes(data, at, length)
        row: Int = self.find(data, at, length, hashed)
        return row if row >= 0 else self.add(data, at, length, hashed)

    def add_all(self, data: Bytes, key_bytes: Int) -> None:
        """Number keys of ``key_bytes`` each, which lie end to end in ``data``."""
        at: Int = 0
        self.reserve(len(data) // key_bytes, len(data))
        with cython.nogil:
            while key_bytes <= len(data) - at:
                self.number(data, at, key_bytes)
                at += key_bytes

    def key(self, row: Int) -> bytes:
        """The bytes of a row."""
        start: Int = self.keys[row].start
        return bytes(self.data[start : start + self.keys[row].length])

    @cython.cfunc
    def likely_row(self, hashed: Int) -> Int:
        """The row that :meth:`find` looks at first, -1 for none."""
        return (self.index[hashed & (len(self.index) - 1)] & KEY_ROW_BITS) - 1

    @cython.cfunc
    def fetch_index(self, hashed: Int) -> cython.void:
        """Have the processor fetch what :meth:`likely_row` reads."""
        if cython.compiled:
            fetch_ahead(cython.address(self.index[hashed & (len(self.index) - 1)]))

    @cython.cfunc
    def fetch_key(self, row: Int) -> cython.void:
        """Have the processor fetch the row, which exists."""
        if cython.compiled:
            fetch_ahead(cython.address(self.keys[row]))

    @cython.cfunc
    def fetch_data(self, row: Int) -> cython.void:
        """Have the processor fetch the bytes of the row."""
        if cython.compiled:
            fetch_ahead(cython.address(self.data[self.keys[row].start]))
            fetch_ahead(cython.address(self.data[min(self.keys[row].start + 64, len(self.data) - 1)]))

    @cython.cfunc
    @cython.exceptval(-1)
    def reserve(self, keys: Int, data_bytes: Int) -> cython.int:
        """Make room for ``keys`` more keys of ``data_bytes`` bytes together."""
        if (
            self.used + keys > len(self.keys)
            or 2 * (self.used + keys) > len(self.index)
            or self.data_used + data_bytes > len(self.data)
        ):
            with cython.gil:
                self._grow(self.used + keys, self.data_used + data_bytes)
        return 0

    def _grow(self, keys: Int, data_bytes: Int) -> None:
        self.keys = grown(self.keys, self.used, keys)
        self.data = grown(self.data, self.data_used, data_bytes)
        if 2 * keys > len(self.index):
            places = 2
            while places < 4 * keys:
                places *= 2
            self.index = zeros(places)
            for row in range(self.used):
                self._enter(self.keys[row].hash, row)

    @cython.cfunc
    def _enter(self, hashed: Int, row: Int) -> cython.void:
        """Put an entry into the first free place."""
        mask: Int = len(self.index) - 1
        place: Int = hashed & mask
        while self.index[place] != 0:
            place = (place + 1) & mask
        self.index[place] = (hashed & KEY_TAG_BITS) | (row + 1)
