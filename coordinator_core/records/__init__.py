"""Record keys and values: typed data to and from bytes, embedded member blobs, and Kafka's JSON."""

from coordinator_core.records.codec import (
    AUTO,
    CURRENT,
    PREVIEW_3_7,
    SHARE_3_9,
    SHARE_4_0,
    Key,
    Layouts,
    RecordDecodeError,
    Value,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    key_reencodes_exactly,
    reencodes_exactly,
)

__all__ = [
    "AUTO",
    "CURRENT",
    "PREVIEW_3_7",
    "SHARE_3_9",
    "SHARE_4_0",
    "Key",
    "Layouts",
    "RecordDecodeError",
    "Value",
    "decode_key",
    "decode_value",
    "encode_key",
    "encode_value",
    "key_reencodes_exactly",
    "reencodes_exactly",
]
