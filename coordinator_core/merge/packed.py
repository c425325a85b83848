"""Text and bytes that are kept compressed where the values are large, as arrays or one by one.

A log of a few hundred kilobytes can unpack to gigabytes of metadata. Texts that must be kept until the end are kept as
small as they came, and unpacked a block at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa

from coordinator_core.groups.offsets import metadata_length
from coordinator_core.kernels.arrays import Int64s
from coordinator_core.process.allocator import give_back_freed_memory

BLOCK_BYTES = 1 << 26
"""Bytes of values that are handled at once, however few rows they are in."""

_LEAST_BYTES, _LEAST_MEAN = 1 << 20, 1 << 10
"""Smaller arrays, and those of smaller values (usual metadata has a few dozen bytes), are kept as they are."""
_CODEC = pa.Codec("zstd", compression_level=1)


class Packed:
    """A (large) string or binary array; :attr:`array` unpacks it each time."""

    def __init__(self, array: pa.Array) -> None:
        self.null_count = int(array.null_count)
        self._array: pa.Array | None = array
        self.lengths = np.diff(bounds := _bounds(array))
        size = int(bounds[-1] - bounds[0])
        if self.null_count or size < max(_LEAST_BYTES, _LEAST_MEAN * len(array)):
            return
        give_back_freed_memory()
        packed = _CODEC.compress(array.buffers()[2].slice(int(bounds[0]), size))
        if packed.size > size // 2:
            return
        self._array = None
        # A copy: the codec's own buffer has room for texts that do not compress.
        self._type, self._data = array.type, packed.to_pybytes()
        self._bounds = pa.py_buffer((bounds - bounds[0]).astype(_width(array.type)))

    @property
    def array(self) -> pa.Array:
        if self._array is not None:
            return self._array
        give_back_freed_memory()
        data = _CODEC.decompress(self._data, int(self.lengths.sum()))
        return pa.Array.from_buffers(self._type, len(self.lengths), [None, self._bounds, data])


class PackedTexts:
    """Texts that come one by one. A dropped text is forgotten with the last one of its block."""

    def __init__(self) -> None:
        self._block = _TextBlock()
        self._unpacked: tuple[_TextBlock, bytes] | None = None

    def add(self, text: str) -> str | PackedText:
        """``text``, or what ``str()`` makes it of."""
        if len(text) < _LEAST_MEAN:
            return text
        data, block = text.encode(), self._block
        start = len(block.data)
        block.data += data
        if len(block.data) >= _LEAST_BYTES:
            block.pack()
            self._block = _TextBlock()
        return PackedText(self, block, start, start + len(data))

    def unpacked(self, block: _TextBlock) -> bytes | bytearray:
        """The bytes of a block; those that were asked for last are kept."""
        if not block.size:
            return block.data
        if self._unpacked is None or self._unpacked[0] is not block:
            self._unpacked = block, _CODEC.decompress(block.data, block.size, asbytes=True)
        return self._unpacked[1]


class _TextBlock:
    def __init__(self) -> None:
        self.data: bytes | bytearray = bytearray()
        self.size = 0
        """Bytes when unpacked, once it is packed."""

    def pack(self) -> None:
        self.size = len(self.data)
        self.data = _CODEC.compress(self.data, asbytes=True)


@dataclass(frozen=True, slots=True, eq=False)
class PackedText:
    """A text of :class:`PackedTexts`, by its place in a block; ``str()`` unpacks it."""

    _texts: PackedTexts
    _block: _TextBlock
    _start: int
    _stop: int

    def __len__(self) -> int:
        """Bytes, in UTF-8."""
        return self._stop - self._start

    def __str__(self) -> str:
        return self._texts.unpacked(self._block)[self._start : self._stop].decode()

    @property
    def place(self) -> tuple[int, int]:
        """Order in which texts are unpacked with the fewest blocks."""
        return id(self._block), self._start


@dataclass(frozen=True, slots=True, eq=False)
class LongText:
    """A text that is not kept whole: its digest (:func:`digest_of`), and its ``length`` as Kafka's clients count.

    It equals every text that is the same, long or ``str``; ``str()`` unpacks it.
    """

    digest: str
    length: int
    _text: str | PackedText

    @classmethod
    def of(cls, text: str, texts: PackedTexts) -> str | LongText:
        """``text``, packed into ``texts`` where it is long."""
        kept = texts.add(text)
        return kept if isinstance(kept, str) else cls(digest_of(text), metadata_length(text), kept)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, LongText):
            return self.digest == other.digest
        return isinstance(other, str) and self.digest == digest_of(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __len__(self) -> int:
        """Bytes of a packed text, characters of one that is not: what it takes in memory, about."""
        return len(self._text)

    def __str__(self) -> str:
        return str(self._text)

    @property
    def place(self) -> tuple[int, int]:
        """Order in which texts are unpacked with the fewest blocks."""
        return (0, 0) if isinstance(self._text, str) else self._text.place


def digest_of(text: str | pa.Scalar) -> str:
    """SHA-256 that stands for a text."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text.as_buffer()
    return f"sha256:{sha256(data).hexdigest()}"


def unpacked(texts: Iterable[LongText]) -> dict[str, str]:
    """Texts by digest, as many as ``BLOCK_BYTES`` take. One by one in any order, each would unpack its block again."""
    found: dict[str, str] = {}
    size = 0
    for text in sorted({text.digest: text for text in texts}.values(), key=lambda text: text.place):
        size += len(text)
        if size > BLOCK_BYTES:
            break
        found[text.digest] = str(text)
    return found


class LongTexts:
    """Texts by the digests that stand for them (``merge.schema.without_long_texts``), each once."""

    def __init__(self) -> None:
        self._packed = PackedTexts()
        self._places: dict[str, int] = {}
        self._texts: list[str | PackedText] = []
        self._lengths: list[int] = []
        self.bytes = 0
        """Of all texts, unpacked."""

    def add(self, digest: str, text: str) -> None:
        if digest not in self._places:
            self.bytes += len(text)
            self._lengths.append(metadata_length(text))
            self._places[digest] = len(self._texts)
            self._texts.append(self._packed.add(text))

    def text(self, name: str) -> str | LongText:
        """The text behind ``name``: the one whose digest it is, or itself."""
        place = self._places.get(name)
        return name if place is None else LongText(name, self._lengths[place], self._texts[place])

    def whole(self, rows: Sequence[dict[str, Any]], name: str) -> Iterator[dict[str, Any]]:
        """The rows, with the text in field ``name`` where a digest stands for it.

        Texts of up to ``BLOCK_BYTES`` are unpacked at once, in the order in which they came: rows may have any other.
        """
        places = [self._places.get(row[name]) for row in rows]
        lengths = np.array([0 if place is None else len(self._texts[place]) for place in places], np.int64)
        for some in cuts(lengths):
            wanted = sorted({place for place in places[some] if place is not None})
            texts = {place: str(self._texts[place]) for place in wanted}
            for row, place in zip(rows[some], places[some], strict=True):
                yield row if place is None else row | {name: texts[place]}


def cuts(lengths: Int64s) -> Iterator[slice]:
    """Ranges of rows that follow each other, of up to ``BLOCK_BYTES`` each, or of one row."""
    ends = np.cumsum(lengths)
    start = 0
    while start < len(lengths):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + BLOCK_BYTES, "right")))
        yield slice(start, stop)
        start = stop


def _bounds(array: pa.Array) -> Int64s:
    buffer = array.buffers()[1]
    if buffer is None or not buffer.size:
        return np.zeros(1, np.int64)
    found = np.frombuffer(buffer, _width(array.type))[array.offset : array.offset + len(array) + 1]
    return found.astype(np.int64, copy=False)


def _width(kind: pa.DataType) -> type[np.int64] | type[np.int32]:
    return np.int64 if pa.types.is_large_binary(kind) or pa.types.is_large_string(kind) else np.int32
