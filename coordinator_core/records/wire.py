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
from typing import Final

from coordinator_core.errors import ExitCode, RegroupError

MAX_STRING_BYTES: Final = 0x7FFF

StructError = struct.error

_INT8: Final = struct.Struct(">b")
_INT16: Final = struct.Struct(">h")
_UINT16: Final = struct.Struct(">H")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")


class RecordDecodeError(RegroupError):
    """Key, value or embedded blob bytes that Kafka's own reader would reject too.

    ``position`` is the byte position inside the decoded bytes at which the reader stood; ``detail`` is
    the reason; ``java_message`` is what Kafka's exception says about it (``None`` for the exceptions
    without a message that ``java.nio`` buffers throw), which the dump tool prints.
    """

    exit_code = ExitCode.DAMAGED_INPUT

    def __init__(self, position: int, detail: str, java_message: str | None = None) -> None:
        super().__init__(f"byte {position}: {detail}")
        self.position = position
        self.detail = detail
        self.java_message = java_message


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


class Reader:
    """Cursor over ``data``; the read methods advance ``position`` or raise :class:`RecordDecodeError`."""

    __slots__ = ("data", "end", "position")

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position
        self.end = len(data)

    @property
    def remaining(self) -> int:
        return self.end - self.position

    def underflow(self, wanted: int) -> RecordDecodeError:
        return RecordDecodeError(self.position, f"{wanted} bytes needed, {self.remaining} left", java_message=None)

    def int8(self) -> int:
        position = self.position
        if position >= self.end:
            raise self.underflow(1)
        self.position = position + 1
        byte = self.data[position]
        return byte - 256 if byte > 127 else byte

    def int16(self) -> int:
        position = self.position
        if position + 2 > self.end:
            raise self.underflow(2)
        self.position = position + 2
        value: int = _INT16.unpack_from(self.data, position)[0]
        return value

    def uint16(self) -> int:
        return self.int16() & 0xFFFF

    def int32(self) -> int:
        position = self.position
        if position + 4 > self.end:
            raise self.underflow(4)
        self.position = position + 4
        value: int = _INT32.unpack_from(self.data, position)[0]
        return value

    def int64(self) -> int:
        position = self.position
        if position + 8 > self.end:
            raise self.underflow(8)
        self.position = position + 8
        value: int = _INT64.unpack_from(self.data, position)[0]
        return value

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


def write_int8(out: bytearray, value: int) -> None:
    """Appends a big-endian int8; ``struct.error`` when ``value`` does not fit."""
    out += _INT8.pack(value)


def write_int16(out: bytearray, value: int) -> None:
    """Appends a big-endian int16; ``struct.error`` when ``value`` does not fit."""
    out += _INT16.pack(value)


def write_uint16(out: bytearray, value: int) -> None:
    """Appends a big-endian uint16; ``struct.error`` when ``value`` does not fit."""
    out += _UINT16.pack(value)


def write_int32(out: bytearray, value: int) -> None:
    """Appends a big-endian int32; ``struct.error`` when ``value`` does not fit."""
    out += _INT32.pack(value)


def write_int64(out: bytearray, value: int) -> None:
    """Appends a big-endian int64; ``struct.error`` when ``value`` does not fit."""
    out += _INT64.pack(value)


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
