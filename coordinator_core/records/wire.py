"""Primitive encodings of Kafka's message protocol, both directions.

A :class:`Reader` walks over one ``bytes`` object and never reads past its end; every failure is a
:class:`RecordDecodeError`.  Integers are big-endian.  "uvarint" is the protocol's unsigned varint: an
int32 in at most five groups of seven bits, so a value with bit 31 set comes out negative, as it does in
``org.apache.kafka.common.utils.ByteUtils``.
"""

from __future__ import annotations

import base64
import codecs
import struct
from collections.abc import Callable
from typing import Final

from coordinator_core.errors import ExitCode, RegroupError

MAX_STRING_BYTES: Final = 0x7FFF
MAX_ELEMENTS: Final = 1 << 20
"""Elements of all arrays in a value: as objects, structs take a hundred times their bytes. A member with a hundred
thousand partitions has a tenth of it."""

StructError = struct.error

_INT8: Final = struct.Struct(">b")
_INT16: Final = struct.Struct(">h")
_UINT16: Final = struct.Struct(">H")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")


class RecordDecodeError(RegroupError):
    """Key, value or embedded blob bytes that Kafka's own reader would reject too.

    ``position`` is the byte position inside the decoded bytes at which the reader stood; ``detail`` is
    the reason; ``java_message`` is the message of Kafka's exception (``None`` for the exceptions without a message that
    ``java.nio`` buffers throw), which the dump tool prints.
    """

    exit_code = ExitCode.DAMAGED_INPUT

    def __init__(self, position: int, detail: str, java_message: str | None = None) -> None:
        super().__init__(f"byte {position}: {detail}")
        self.position = position
        self.detail = detail
        self.java_message = java_message


class TooManyElementsError(RegroupError):
    """A value with more than :data:`MAX_ELEMENTS`, of which no objects are made."""

    exit_code = ExitCode.DAMAGED_INPUT

    def __init__(self, record_offset: int | None = None) -> None:
        self.record_offset = record_offset
        self.detail = f"a value with more than {MAX_ELEMENTS} elements of arrays"
        place = "" if record_offset is None else f"record offset {record_offset}: "
        super().__init__(f"{place}too_large: {self.detail}")

    def __reduce__(self) -> tuple[type[TooManyElementsError], tuple[int | None]]:
        return type(self), (self.record_offset,)


def _replace_like_java(error: UnicodeError) -> tuple[str, int]:
    """Stand one U+FFFD in for as many bytes as ``java.lang.String`` does.

    Java and Python agree on every ill-formed sequence except encoded surrogates (``ED A0..BF xx``),
    which Java takes as one unit and Python byte by byte.
    """
    if not isinstance(error, UnicodeDecodeError):
        raise error
    data, start = error.object, error.start
    if data[start] == 0xED and start + 1 < len(data) and 0xA0 <= data[start + 1] <= 0xBF:
        third_continues = start + 2 < len(data) and data[start + 2] & 0xC0 == 0x80
        return "\ufffd", start + (3 if third_continues else 2)
    return "\ufffd", error.end


codecs.register_error("regroup-java-utf8", _replace_like_java)


def decode_utf8(data: bytes) -> str:
    """Text of ``data`` as Java decodes it: malformed sequences become U+FFFD, never an error."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("utf-8", "regroup-java-utf8")


def encode_utf8(text: str) -> bytes:
    """UTF-8 of ``text``; lone surrogates become ``?``, as ``String.getBytes`` writes them."""
    return text.encode("utf-8", "replace")


def uuid_text(data: bytes) -> str:
    """The 22 characters ``org.apache.kafka.common.Uuid`` prints for 16 bytes."""
    return base64.urlsafe_b64encode(data)[:22].decode("ascii")


def uuid_bytes(text: str) -> bytes:
    """The 16 bytes of a 22-character Kafka uuid; ``ValueError`` when ``text`` is none."""
    data = base64.urlsafe_b64decode(text + "==")
    if len(text) != 22 or len(data) != 16:
        raise ValueError(f"not a Kafka uuid: {text!r}")
    return data


def _integer(layout: struct.Struct) -> Callable[[Reader], int]:
    """Method of :class:`Reader` that reads a big-endian integer."""

    def read(reader: Reader) -> int:
        position = reader.position
        if position + layout.size > reader.end:
            raise reader.underflow(layout.size)
        reader.position = position + layout.size
        value: int = layout.unpack_from(reader.data, position)[0]
        return value

    return read


class Reader:
    """Cursor over ``data``; the read methods advance ``position`` or raise :class:`RecordDecodeError`.

    ``elements`` are those of all arrays so far.
    """

    __slots__ = ("data", "elements", "end", "position")

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position
        self.end = len(data)
        self.elements = 0

    @property
    def remaining(self) -> int:
        return self.end - self.position

    def begin_array(self, length: int) -> None:
        """Count the elements of an array; raises :class:`TooManyElementsError`."""
        self.elements += length
        if self.elements > MAX_ELEMENTS:
            raise TooManyElementsError

    def underflow(self, wanted: int) -> RecordDecodeError:
        return RecordDecodeError(self.position, f"{wanted} bytes needed, {self.remaining} left", java_message=None)

    int8 = _integer(_INT8)
    int16 = _integer(_INT16)
    uint16 = _integer(_UINT16)
    int32 = _integer(_INT32)
    int64 = _integer(_INT64)

    def uvarint(self) -> int:
        position = self.position
        if position >= self.end:
            raise self.underflow(1)
        byte = self.data[position]
        if byte < 0x80:
            self.position = position + 1
            return byte
        value = byte & 0x7F
        for shift in (7, 14, 21, 28):
            position += 1
            if position >= self.end:
                self.position = position
                raise self.underflow(1)
            byte = self.data[position]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            value = _as_int32(value | byte << 28)
            raise RecordDecodeError(
                self.position,
                "varint longer than 5 bytes",
                "Varint is too long, the most significant bit in the 5th byte is set, "
                f"converted value: {value & 0xFFFFFFFF:x}",
            )
        self.position = position + 1
        return _as_int32(value)

    def raw(self, length: int) -> bytes:
        """``length`` bytes; a length past the end is refused before anything is allocated."""
        position = self.position
        stop = position + length
        if stop > self.end or length < 0:
            left = self.end - position
            raise RecordDecodeError(
                position,
                f"{length} bytes declared, {left} left",
                str(length)
                if length < 0
                else f"Error reading byte array of {length} byte(s): only {left} byte(s) available",
            )
        self.position = stop
        return self.data[position:stop]

    def text(self, length: int) -> str:
        return decode_utf8(self.raw(length))

    def uuid(self) -> str:
        if self.remaining < 16:
            raise self.underflow(8)
        return uuid_text(self.raw(16))


def _as_int32(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - 0x100000000 if value & 0x80000000 else value


def _writer(layout: struct.Struct) -> Callable[[bytearray, int], None]:
    """Function that appends a big-endian integer; ``struct.error`` for one that does not fit."""

    def write(out: bytearray, value: int) -> None:
        out += layout.pack(value)

    return write


write_int8 = _writer(_INT8)
write_int16 = _writer(_INT16)
write_uint16 = _writer(_UINT16)
write_int32 = _writer(_INT32)
write_int64 = _writer(_INT64)


def write_uvarint(out: bytearray, value: int) -> None:
    """Appends the low 32 bits of ``value`` as an unsigned varint (``ByteUtils.writeUnsignedVarint``)."""
    value &= 0xFFFFFFFF
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_uuid(out: bytearray, text: str) -> None:
    """Appends the 16 bytes of a topic id in Kafka's 22-character text."""
    out += uuid_bytes(text)
