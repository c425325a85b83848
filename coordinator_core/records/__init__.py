"""Record keys and values: typed data to and from bytes, embedded member blobs, Kafka's JSON.

Every record type is declared as data. May import ``errors`` and ``releases``. Start reading at ``schemas`` (record
types and their fields), then ``codec`` (bytes to data and back) and ``jsontext`` (the text of Kafka's tools).
"""

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
