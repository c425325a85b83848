"""Sizes and attribute bits of record batches (``org.apache.kafka.common.record.DefaultRecordBatch``).

Compiled code takes them in as numbers; ``columnar.compiling`` compiles it anew when this text changes.
"""

from __future__ import annotations

HEADER_BYTES = 61
"""Size of a v2 batch without records: from the int64 base offset to the record count."""

MIN_RECORD_BYTES = 7
"""Size of a v2 record without key and value: each of its seven fields takes a byte."""

CODEC_BITS = 0x07
LOG_APPEND_TIME_BIT = 0x08
"""These two in message formats 0 and 1 as well, the time from 1 on."""

TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
"""The base timestamp is the delete horizon (KIP-534)."""
