"""Layout of record batches (``org.apache.kafka.common.record.DefaultRecordBatch``).

The compiled kernels take these numbers in when they are built (``setup.py``), so each stands here alone.
"""

from __future__ import annotations

from enum import IntEnum

HEADER_BYTES = 61
"""Size of a v2 batch without records: from the int64 base offset to the record count."""

LENGTH_END = 12
"""Size of base offset and batch length: the length counts the bytes behind them."""

MIN_RECORD_BYTES = 7
"""Size of a v2 record without key and value: each of its seven fields takes a byte."""

CODEC_BITS = 0x07
LOG_APPEND_TIME_BIT = 0x08
"""These two in message formats 0 and 1 as well, the time from 1 on."""

TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
"""The base timestamp is the delete horizon (KIP-534)."""

NO_PRODUCER_ID = -1

LAST_OFFSET = (1 << 63) - 2
"""Largest record offset that can be: the one behind it is an int64 as well."""


class BatchField(IntEnum):
    """Byte positions of the fields of a v2 batch, counted from its first byte."""

    BASE_OFFSET = 0
    LENGTH = 8
    LEADER_EPOCH = 12
    MAGIC = 16
    CRC = 17
    ATTRIBUTES = 21
    """int16: the bits above are in its lower byte."""
    LAST_OFFSET_DELTA = 23
    BASE_TIMESTAMP = 27
    MAX_TIMESTAMP = 35
    PRODUCER_ID = 43
    PRODUCER_EPOCH = 51
    BASE_SEQUENCE = 53
    RECORD_COUNT = 57


class LegacyField(IntEnum):
    """Byte positions of the fields of a message of format 0 or 1, counted from its first byte.

    Behind them come key and value, each with its int32 length.
    """

    OFFSET = 0
    SIZE = 8
    CRC = 12
    MAGIC = 16
    ATTRIBUTES = 17
    TIMESTAMP = 18
    """Of format 1."""


LEGACY_HEADER_0 = 18
LEGACY_HEADER_1 = 26
"""Sizes of the fields of formats 0 and 1 before the length of the key."""

LEGACY_LENGTHS = 8
"""Size of the lengths of key and value."""
