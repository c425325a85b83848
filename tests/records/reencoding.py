"""Whether what was decoded encodes to the same bytes."""

from __future__ import annotations

from coordinator_core.records.codec import Key, Value, encode_key, encode_value


def key_reencodes_exactly(key: Key, original: bytes) -> bool:
    """Whether encoding ``key``, decoded from ``original``, gives the same bytes again."""
    if key.data is None:
        return original == key.type.to_bytes(2, "big", signed=True) + key.trailing
    try:
        return encode_key(key.type, key.data) + key.trailing == original
    except ValueError:
        # Replacement characters can make a legal string longer than Kafka allows.
        return False


def reencodes_exactly(key_type: int, value: Value, original: bytes) -> bool:
    """Whether encoding ``value``, decoded from ``original``, gives the same bytes again.

    It does not when the writer used over-long varints, malformed UTF-8, tags out of order or twice, tags
    holding their default, or sizes that do not match their payload.
    """
    if value.data is None:
        return original == value.version.to_bytes(2, "big", signed=True) + value.trailing
    try:
        return encode_value(key_type, value.version, value.data, value.layout) + value.trailing == original
    except ValueError:
        return False
