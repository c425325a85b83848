"""Segments read a window at a time, into memory that no other process can change.

Nothing is mapped: a process that reads a mapped file dies when another one cuts the file (an election, a cleaner, a
broker that shuts down). Bytes that were read are the reader's own. The version of
the file shows whether it is still the one that was opened.
"""

from __future__ import annotations

import struct
import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future

import numpy as np

from coordinator_core import storage
from coordinator_core.errors import Damage, DamagedInputError
from coordinator_core.log.ahead import segment_bytes
from coordinator_core.log.layout import LENGTH_END
from coordinator_core.log.limits import Limits
from coordinator_core.log.types import SegmentFile

_FEW, _WINDOW, _WIDE_WINDOW = 1 << 18, 1 << 21, 1 << 23
_TICK_NS = 50_000_000
"""Time in which a second write may not show in the file's version."""
_LENGTH = struct.Struct(">i")
_LIMITS = Limits()
_spare: deque[memoryview] = deque(maxlen=8)
"""Memory for windows that nobody uses: new memory costs more than reading into it."""


class Windows:
    """``size`` bytes in memory, as one window."""

    def __init__(self, data: memoryview) -> None:
        self.size = len(data)
        self.whole: memoryview | None = data
        """All bytes, where they are in memory."""
        self._view = data
        self._first = 0

    def at(self, position: int, *, wide: bool = False) -> tuple[memoryview, int]:
        """A window, and the position at which it begins: it holds the batch at ``position`` whole, if all bytes do.

        It is valid until the next call. ``wide``: many compressed batches are wanted in one window.
        """
        return self._view, self._first

    def covering(self, position: int, size: int) -> tuple[memoryview, int]:
        """A window that holds ``size`` bytes from ``position`` on."""
        return self._view, self._first

    def is_zero_from(self, position: int) -> bool:
        """Whether all bytes from ``position`` on are zero: the end of a preallocated file."""
        while position < self.size:
            view, first = self.covering(position, 1)
            if any(bytes(view[position - first :])):
                return False
            position = first + len(view)
        return True

    def release(self) -> None:
        """Let go of the window; the bytes can be read again."""

    def has_changed(self) -> bool:
        """Whether other bytes may be there now than when the file was opened."""
        return False


class SegmentWindows(Windows):
    """The bytes of a segment. ``size`` is less than the segment's when the file is shorter.

    Raises ``UsageError`` when the file cannot be read, and :class:`DamagedInputError` (``file_changed``) when it is
    not the file any more that was opened first.
    """

    def __init__(self, segment: SegmentFile) -> None:
        super().__init__(memoryview(b""))
        self.segment = segment
        self._file: storage.LocalFile | None = None
        self._buffer = memoryview(b"")
        self._version: storage.Version | None = None
        self._opened_ns = 0
        if storage.is_local(segment.path):
            self.whole = None
            self.size = min(segment.size, self._open().version.size)
        else:
            self.whole = self._view = segment_bytes(segment)
            self.size = len(self._view)

    def at(self, position: int, *, wide: bool = False) -> tuple[memoryview, int]:
        left = self._first + len(self._view) - position
        is_narrow = wide and len(self._view) < _WIDE_WINDOW and left < self.size - position
        if is_narrow or position < self._first or left < self._wanted(position, left):
            self._fill(position, _WIDE_WINDOW if wide else _WINDOW)
            if (wanted := self._wanted(position, len(self._view))) > len(self._view):
                self._fill(position, wanted)
        return self._view, self._first

    def covering(self, position: int, size: int) -> tuple[memoryview, int]:
        if position < self._first or position + size > self._first + len(self._view):
            self._fill(position, max(size, _FEW))
        return self._view, self._first

    def release(self) -> None:
        if self._version is None:
            return
        self._view, self._first = memoryview(b""), 0
        if 0 < len(self._buffer) <= _WIDE_WINDOW:
            _spare.append(self._buffer)
        self._buffer = memoryview(b"")
        self._close()

    def has_changed(self) -> bool:
        if self._version is None:
            return False
        if self._opened_ns - self._version.modified_ns < _TICK_NS:
            return True
        try:
            with storage.LocalFile(self.segment.path) as file:
                return file.version != self._version
        except OSError:
            return True

    def _wanted(self, position: int, left: int) -> int:
        """Bytes from ``position`` on that a window needs to hold the batch there."""
        most = self.size - position
        if left >= most or left < LENGTH_END:
            return min(LENGTH_END, most)
        (length,) = _LENGTH.unpack_from(self._view, position - self._first + LENGTH_END - _LENGTH.size)
        # Readers report the error of any other batch.
        return LENGTH_END + length if 0 <= length <= min(_LIMITS.max_batch_bytes, most - LENGTH_END) else 0

    def _fill(self, position: int, wanted: int) -> None:
        wanted = min(wanted, self.size - position)
        self._view = memoryview(b"")
        if len(self._buffer) < wanted:
            self._buffer = _taken(wanted)
        count = (self._file or self._open()).read_into(self._buffer[:wanted], position)
        if count < wanted:
            raise file_changed(self.segment.path, position + count, "the file became shorter while it was read")
        self._view, self._first = self._buffer[:wanted], position

    def _open(self) -> storage.LocalFile:
        try:
            self._file = file = storage.LocalFile(self.segment.path)
        except OSError as error:
            raise storage.unreadable(self.segment.path, error) from error
        if self._version is None:
            self._version, self._opened_ns = file.version, time.time_ns()
        elif file.version[:2] != self._version[:2] or file.version.size < self.size:
            self._close()
            raise file_changed(
                self.segment.path, file.version.size, "another file has taken its place, or it became shorter"
            )
        return file

    def _close(self) -> None:
        if self._file is not None:
            self._file.__exit__()
            self._file = None

    def __del__(self) -> None:
        self._close()


class KeptWindows(SegmentWindows):
    """Windows that stay valid: memory has the next one when nobody looks at the last one any more."""

    @staticmethod
    def fit(segment: SegmentFile) -> bool:
        """Whether the segment is not to be read whole: it is local, and larger than a window."""
        return segment.size > _WINDOW and storage.is_local(segment.path)

    def behind(self, position: int) -> memoryview:
        """A window from ``position`` on."""
        self._fill(position, _WINDOW)
        return self._view

    def release(self) -> None:
        self._buffer = memoryview(b"")
        super().release()

    def _fill(self, position: int, wanted: int) -> None:
        memory = _taken(min(wanted, self.size - position))
        # Every view of the bytes holds on to this array.
        array = np.asarray(memory)
        weakref.finalize(array, _spare.append, memory)
        self._buffer = array.data
        super()._fill(position, wanted)


class WindowsAhead(KeptWindows):
    """Kept windows of which a ``thread`` reads and checks the next one, which begins where the sound batches end.

    ``sound_end`` tells where they end in a window; the checksums of these batches are those that they say.
    """

    def __init__(self, segment: SegmentFile, thread: Executor, sound_end: Callable[[memoryview], int]) -> None:
        super().__init__(segment)
        self._thread = thread
        self._sound_end = sound_end
        self._last: tuple[memoryview, int] | None = None
        self._following: tuple[int, Future[tuple[memoryview, int]]] | None = None

    def behind(self, position: int) -> memoryview:
        following, self._following = self._following, None
        read = None if following is None else following[1].result()
        is_read = following is not None and following[0] == position
        view, sound = self._last = read if read is not None and is_read else self._read(position)
        end = position + sound
        if position < end < self.size:
            self._following = end, self._thread.submit(self._read, end)
        return view

    def sound_bytes(self, view: memoryview) -> int:
        """Size of the batches at the beginning of ``view`` that were checked: 0 where it is not the last window."""
        return self._last[1] if self._last is not None and self._last[0] is view else 0

    def release(self) -> None:
        if self._following is not None:
            self._following[1].exception()
        self._last = self._following = None
        super().release()

    def _read(self, position: int) -> tuple[memoryview, int]:
        view = super().behind(position)
        return view, self._sound_end(view)


def file_changed(path: str, position: int, detail: str) -> DamagedInputError:
    """The error for a file that changed while it was read."""
    return DamagedInputError(Damage(path, position, None, "file_changed", detail))


def _taken(size: int) -> memoryview:
    """Spare memory of at least ``size`` bytes, or new."""
    try:
        spare = _spare.pop()
    except IndexError:
        spare = memoryview(b"")
    return spare if len(spare) >= size else storage.memory(max(size, _WINDOW))
