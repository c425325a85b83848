"""Random numbers, varints and names, some of which nobody would write."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from random import Random
from typing import TypeVar

Choice = TypeVar("Choice")

_RATES = (0.0, 0.005, 0.02, 0.05, 0.15, 0.4)
"""Inputs with one hostile field pass most checks and go deep; those with many meet every check."""

_NAMES = (b"g", b"g", b"g", b"h", "ü".encode(), b"t", b"", b"group-with-a-longer-name", b"n" * 130)
_HOSTILE_NAMES = (
    b"\xff",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xed\xb0\x80",
    b"\xef\xbf\xbd",
    b"\xf4\x90\x80\x80",
    b"\xf0\x80\x80\x80",
    b"\xe2\x82",
    b"abcdefgh\xe2",
    b"\0",
    b"g\0",
    b'"\\\n\x7f',
    "\U0001f600".encode(),
    b"\x80" * 9,
    b"x" * 3000,
)


class Hostile:
    """A source of choices: the usual one, or at a rate of its own for each input a hostile one."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.rate = self.random.choice(_RATES)
        self.group_share = 0.3
        """Part of the records that are no commits."""
        self.packed_share = 0.3
        """Part of the batches that are compressed."""

    def strikes(self) -> bool:
        return self.random.random() < self.rate

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def pick(self, choices: Sequence[Choice]) -> Choice:
        return self.random.choice(choices)

    def number(self, usual: int, bits: int) -> int:
        """``usual``, or a signed number of so many bits."""
        if not self.strikes():
            return wrapped(usual, bits)
        top = 1 << (bits - 1)
        hostile = (
            usual - 1,
            usual + 1,
            usual + self.random.randrange(-300, 300),
            -1,
            -2,
            0,
            1,
            0x7F,
            0x80,
            0x7FFF,
            0x8000,
            0x7FFFFFFF,
            0x80000000,
            -top,
            -top + 1,
            top - 1,
            self.random.randrange(-top, top),
        )
        return wrapped(self.pick(hostile), bits)

    def integer(self, usual: int, bits: int) -> bytes:
        """``usual`` or another number, big-endian."""
        return self.number(usual, bits).to_bytes(bits // 8, "big", signed=True)

    def varint(self, usual: int, bits: int = 32) -> bytes:
        """A zigzag varint of ``usual``, of another number, or one that no writer makes."""
        value = self.number(usual, bits)
        return self._spelled(((value << 1) ^ (value >> (bits - 1))) & ((1 << bits) - 1), 5 if bits == 32 else 10)

    def uvarint(self, usual: int) -> bytes:
        """An unsigned varint, likewise."""
        return self._spelled(self.number(usual, 33) & 0xFFFFFFFF, 5)

    def _spelled(self, word: int, most: int) -> bytes:
        out = bytearray()
        while word > 0x7F:
            out.append(word & 0x7F | 0x80)
            word >>= 7
        out.append(word)
        if self.strikes():
            match self.random.randrange(4):
                case 0:  # overlong, yet read
                    wanted = self.random.randint(len(out), most)
                case 1:  # of too many bytes
                    wanted = most + self.random.randint(1, 3)
                case 2:  # without an end
                    return bytes(byte | 0x80 for byte in out)
                case _:  # bits beyond the last that count
                    return b"\xff" * (most - 1) + bytes((self.random.randrange(0x80),))
            out[-1] |= 0x80
            out += b"\x80" * (wanted - len(out))
            out[-1] &= 0x7F
        return bytes(out)

    def name(self) -> bytes:
        return self.pick(_HOSTILE_NAMES if self.strikes() else _NAMES)

    def broken(self, data: bytes) -> bytes:
        """``data``, or some of it: cut at a byte, lengthened, or changed at a byte."""
        if not self.strikes():
            return data
        at = self.random.randrange(len(data) + 1)
        match self.random.randrange(4):
            case 0:
                return data[:at]
            case 1:
                return data + self.random.randbytes(self.random.randint(1, 9))
            case 2:
                return data[:at] + bytes((self.random.randrange(256),)) + data[at + 1 :]
            case _:
                return data[:at] + data[at + self.random.randint(1, 4) :]

    def int16_text(self, text: bytes) -> bytes:
        """A name with its int16 length."""
        return self.integer(len(text), 16) + text


def wrapped(value: int, bits: int) -> int:
    """``value`` as a signed number of so many bits."""
    top = 1 << (bits - 1)
    return (value + top) % (2 * top) - top


def changed(data: bytes, random: Random) -> bytes:
    """``data`` after somebody else has written to it: the same size, other bytes."""
    out = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 5, 40))):
        if not out:
            break
        at = random.randrange(len(out))
        match random.randrange(4):
            case 0:
                out[at] = random.randrange(256)
            case 1:
                out[at] ^= 1 << random.randrange(8)
            case 2:
                word = struct.pack(">i", random.choice((-1, 0, 1, 0x7FFFFFFF, -0x80000000, 61, 200)))
                out[at : at + 4] = word[: len(out) - at]
            case _:
                out[at : at + 8] = (b"\xff" * 8 if random.random() < 0.5 else bytes(8))[: len(out) - at]
    return bytes(out)
