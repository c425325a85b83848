"""Blobs of group members that tests write, and those of Connect workers that they read in the corpus.

Sources: ``ConsumerProtocol``, ``ConnectProtocol`` and ``IncrementalCooperativeConnectProtocol`` (KIP-415, KIP-507).
"""

from __future__ import annotations

from typing import Any, Final

from coordinator_core.records.blobs import CONSUMER_SUBSCRIPTION, encode_blob
from coordinator_core.records.codec_closures import struct_decoder, struct_encoder
from coordinator_core.records.types import ArrayOf, Field, Primitive, Schema, Struct, schema
from coordinator_core.records.wire import Reader, RecordDecodeError

_CONNECTORS = ArrayOf(
    Struct(
        "ConnectorAssignment",
        (Field("connector", Primitive.STRING), Field("tasks", ArrayOf(Primitive.INT32))),
    )
)
_CONNECT_METADATA: Final = schema(
    "ConnectMetadata",
    Field("url", Primitive.STRING),
    Field("configOffset", Primitive.INT64),
    last_version=2,
)
_CONNECT_METADATA_OPTIONAL: Final = (
    Struct("allocation", (Field("allocation", Primitive.BYTES, nullable=True, default=None),)),
)
_CONNECT_ASSIGNMENT: Final = schema(
    "ConnectAssignment",
    Field("error", Primitive.INT16),
    Field("leader", Primitive.STRING),
    Field("leaderUrl", Primitive.STRING),
    Field("configOffset", Primitive.INT64),
    Field("assignment", _CONNECTORS, until=0),
    last_version=2,
)
_CONNECT_ASSIGNMENT_OPTIONAL: Final = (
    Struct("assignment", (Field("assignment", _CONNECTORS, nullable=True, default=None),)),
    Struct("revoked", (Field("revoked", _CONNECTORS, nullable=True, default=None),)),
    Struct("delay", (Field("delay", Primitive.INT32),)),
)


def encode_consumer_subscription(version: int, data: dict[str, Any]) -> bytes:
    """Bytes of a subscription; ``ValueError`` for an unknown version or values it cannot hold."""
    return encode_blob(CONSUMER_SUBSCRIPTION, version, data)


def decode_connect_metadata(data: bytes) -> dict[str, Any]:
    """A Connect worker's state: url, configOffset, and from v1 on allocation (an assignment blob or None)."""
    return _decode_connect(_CONNECT_METADATA, _CONNECT_METADATA_OPTIONAL, data)


def decode_connect_assignment(data: bytes) -> dict[str, Any]:
    """A Connect worker's assignment: error, leader, leaderUrl, configOffset, assignment; from v1 on
    revoked and delay (milliseconds). Connectors are ``{"connector", "tasks"}``; task -1 is the connector itself.
    """
    return _decode_connect(_CONNECT_ASSIGNMENT, _CONNECT_ASSIGNMENT_OPTIONAL, data)


def encode_connect_metadata(version: int, data: dict[str, Any]) -> bytes:
    """Bytes of a worker's state; ``ValueError`` as for subscriptions."""
    return _encode_connect(_CONNECT_METADATA, _CONNECT_METADATA_OPTIONAL, version, data)


def encode_connect_assignment(version: int, data: dict[str, Any]) -> bytes:
    """Bytes of a worker's assignment; ``ValueError`` as for subscriptions."""
    return _encode_connect(_CONNECT_ASSIGNMENT, _CONNECT_ASSIGNMENT_OPTIONAL, version, data)


def _read_version(reader: Reader) -> int:
    version = reader.int16()
    if version < 0:
        raise RecordDecodeError(0, f"unsupported Connect protocol version {version}")
    return version


def _decode_connect(schema_: Schema, optional: tuple[Struct, ...], data: bytes) -> dict[str, Any]:
    """Fields that came with v1 are optional: at the end of the bytes the rest take their defaults."""
    reader = Reader(data)
    version = min(_read_version(reader), schema_.last_version)
    fields = struct_decoder(schema_.struct, version, False)(reader)
    for one_field in optional if version > 0 else ():
        if reader.remaining:
            fields |= struct_decoder(one_field, version, False)(reader)
        else:
            fields |= {field.name: field.default_value(version) for field in one_field.fields}
    return fields


def _encode_connect(schema_: Schema, optional: tuple[Struct, ...], version: int, data: dict[str, Any]) -> bytes:
    later = {field.name for one_field in optional for field in one_field.fields} if version > 0 else set()
    out = bytearray(encode_blob(schema_, version, {name: data[name] for name in data if name not in later}))
    for one_field in optional if version > 0 else ():
        part = {field.name: data[field.name] for field in one_field.fields if field.name in data}
        struct_encoder(one_field, version, False)(out, part)
    return bytes(out)
