"""Any request of the group APIs over the Kafka protocol, as JSON with Kafka's own field names.

Message definitions are Kafka's, which kafka-python carries; those that it lacks stand here.
"""

from __future__ import annotations

import base64
import re
import select
import socket
import struct
import time
from collections.abc import Callable
from functools import cache
from typing import Any

from kafka.protocol.schemas.load_json import load_json

from tests.live.wire import uuid_text

Json = dict[str, Any]
Definitions = Callable[[str, str], Json]
"""Kafka's message definition by API name and ``request`` or ``response``."""

CONSUMER_GROUP_HEARTBEAT: Json = {
    "apiKey": 68,
    "request": {
        "flexibleVersions": "0+",
        "fields": [
            {"name": "GroupId", "type": "string", "versions": "0+"},
            {"name": "MemberId", "type": "string", "versions": "0+"},
            {"name": "MemberEpoch", "type": "int32", "versions": "0+"},
            {"name": "InstanceId", "type": "string", "versions": "0+", "nullableVersions": "0+"},
            {"name": "RackId", "type": "string", "versions": "0+", "nullableVersions": "0+"},
            {"name": "RebalanceTimeoutMs", "type": "int32", "versions": "0+"},
            {"name": "SubscribedTopicNames", "type": "[]string", "versions": "0+", "nullableVersions": "0+"},
            {"name": "SubscribedTopicRegex", "type": "string", "versions": "1+", "nullableVersions": "1+"},
            {"name": "ServerAssignor", "type": "string", "versions": "0+", "nullableVersions": "0+"},
            {
                "name": "TopicPartitions",
                "type": "[]TopicPartitions",
                "versions": "0+",
                "nullableVersions": "0+",
                "fields": [
                    {"name": "TopicId", "type": "uuid", "versions": "0+"},
                    {"name": "Partitions", "type": "[]int32", "versions": "0+"},
                ],
            },
        ],
    },
    "response": {
        "flexibleVersions": "0+",
        "fields": [
            {"name": "ThrottleTimeMs", "type": "int32", "versions": "0+"},
            {"name": "ErrorCode", "type": "int16", "versions": "0+"},
            {"name": "ErrorMessage", "type": "string", "versions": "0+", "nullableVersions": "0+"},
            {"name": "MemberId", "type": "string", "versions": "0+", "nullableVersions": "0+"},
            {"name": "MemberEpoch", "type": "int32", "versions": "0+"},
            {"name": "HeartbeatIntervalMs", "type": "int32", "versions": "0+"},
            {
                "name": "Assignment",
                "type": "Assignment",
                "versions": "0+",
                "nullableVersions": "0+",
                "fields": [
                    {
                        "name": "TopicPartitions",
                        "type": "[]TopicPartitions",
                        "versions": "0+",
                        "fields": [
                            {"name": "TopicId", "type": "uuid", "versions": "0+"},
                            {"name": "Partitions", "type": "[]int32", "versions": "0+"},
                        ],
                    }
                ],
            },
        ],
    },
}

_ASSIGNMENT: list[Json] = [
    {
        "name": "TopicPartitions",
        "type": "[]TopicPartitions",
        "versions": "0+",
        "fields": [
            {"name": "TopicId", "type": "uuid", "versions": "0+"},
            {"name": "TopicName", "type": "string", "versions": "0+"},
            {"name": "Partitions", "type": "[]int32", "versions": "0+"},
        ],
    }
]
CONSUMER_GROUP_DESCRIBE: Json = {
    "apiKey": 69,
    "request": {
        "flexibleVersions": "0+",
        "fields": [
            {"name": "GroupIds", "type": "[]string", "versions": "0+"},
            {"name": "IncludeAuthorizedOperations", "type": "bool", "versions": "0+"},
        ],
    },
    "response": {
        "flexibleVersions": "0+",
        "fields": [
            {"name": "ThrottleTimeMs", "type": "int32", "versions": "0+"},
            {
                "name": "Groups",
                "type": "[]DescribedGroup",
                "versions": "0+",
                "fields": [
                    {"name": "ErrorCode", "type": "int16", "versions": "0+"},
                    {"name": "ErrorMessage", "type": "string", "versions": "0+"},
                    {"name": "GroupId", "type": "string", "versions": "0+"},
                    {"name": "GroupState", "type": "string", "versions": "0+"},
                    {"name": "GroupEpoch", "type": "int32", "versions": "0+"},
                    {"name": "AssignmentEpoch", "type": "int32", "versions": "0+"},
                    {"name": "AssignorName", "type": "string", "versions": "0+"},
                    {
                        "name": "Members",
                        "type": "[]Member",
                        "versions": "0+",
                        "fields": [
                            {"name": "MemberId", "type": "string", "versions": "0+"},
                            {"name": "InstanceId", "type": "string", "versions": "0+"},
                            {"name": "RackId", "type": "string", "versions": "0+"},
                            {"name": "MemberEpoch", "type": "int32", "versions": "0+"},
                            {"name": "ClientId", "type": "string", "versions": "0+"},
                            {"name": "ClientHost", "type": "string", "versions": "0+"},
                            {"name": "SubscribedTopicNames", "type": "[]string", "versions": "0+"},
                            {"name": "SubscribedTopicRegex", "type": "string", "versions": "0+"},
                            {"name": "Assignment", "type": "A", "versions": "0+", "fields": _ASSIGNMENT},
                            {
                                "name": "TargetAssignment",
                                "type": "A",
                                "versions": "0+",
                                "fields": _ASSIGNMENT,
                            },
                            {"name": "MemberType", "type": "int8", "versions": "1+"},
                        ],
                    },
                    {"name": "AuthorizedOperations", "type": "int32", "versions": "0+"},
                ],
            },
        ],
    },
}
_OWN = {
    "ConsumerGroupHeartbeat": CONSUMER_GROUP_HEARTBEAT,
    "ConsumerGroupDescribe": CONSUMER_GROUP_DESCRIBE,
}

_INTEGERS = {"int8": "b", "int16": "h", "uint16": "H", "int32": "i", "int64": "q", "bool": "?"}


@cache
def definition(api: str, direction: str) -> Json:
    """Kafka's definition of a ``request`` or ``response``."""
    if api in _OWN:
        own: Json = {"apiKey": _OWN[api]["apiKey"], **_OWN[api][direction]}
        return own
    found: Json = load_json(f"{api}{direction.capitalize()}")
    return found


@cache
def _range(text: str) -> tuple[int, int]:
    if text in ("", "none"):
        return 1, 0
    match = re.fullmatch(r"(\d+)(?:(\+)|-(\d+))?", text)
    assert match is not None
    low = int(match[1])
    return low, 1 << 15 if match[2] else int(match[3] or low)


def has_version(version: int, text: str) -> bool:
    low, high = _range(text)
    return low <= version <= high


def json_name(name: str) -> str:
    return name[0].lower() + name[1:]


class Codec:
    """Encodes and decodes messages of one version."""

    def __init__(self, definition: Json, version: int) -> None:
        self.version = version
        self.flexible = has_version(version, definition.get("flexibleVersions", "none"))
        self.fields: list[Json] = definition["fields"]
        self.structs = {one["name"]: one["fields"] for one in definition.get("commonStructs", ())}

    def inner(self, field: Json) -> list[Json]:
        name = field["type"].removeprefix("[]")
        return field.get("fields") or self.structs[name]

    def _may_be_absent(self, field: Json) -> bool:
        """A nullable struct begins with a byte that says whether it is there."""
        return not field["type"].startswith("[]") and has_version(self.version, field.get("nullableVersions", "none"))

    # Encoding

    def encode(self, fields: list[Json], data: Json) -> bytes:
        out = bytearray()
        for field in fields:
            if has_version(self.version, field["versions"]) and "tag" not in field:
                value = data[json_name(field["name"])]
                out += self._value(field, field["type"], value)
        return bytes(out + b"\0") if self.flexible else bytes(out)

    def _value(self, field: Json, type_: str, value: Any) -> bytes:
        if type_.startswith("[]"):
            if value is None:
                return b"\0" if self.flexible else struct.pack(">i", -1)
            items = b"".join(self._value(field, type_[2:], one) for one in value)
            return self._length(len(value), ">i") + items
        if type_ in _INTEGERS:
            return struct.pack(f">{_INTEGERS[type_]}", value)
        if type_ == "uuid":
            return base64.urlsafe_b64decode(value + "==")
        if type_ in ("string", "bytes", "records"):
            layout = ">h" if type_ == "string" else ">i"
            if value is None:
                return b"\0" if self.flexible else struct.pack(layout, -1)
            raw = value.encode() if type_ == "string" else base64.b64decode(value)
            return self._length(len(raw), layout) + raw
        if self._may_be_absent(field):
            return b"\xff" if value is None else b"\x01" + self.encode(self.inner(field), value)
        return self.encode(self.inner(field), value)

    def _length(self, length: int, layout: str) -> bytes:
        return _uvarint(length + 1) if self.flexible else struct.pack(layout, length)

    # Decoding

    def decode(self, fields: list[Json], reader: Reader) -> Json:
        data: Json = {}
        for field in fields:
            if has_version(self.version, field["versions"]) and "tag" not in field:
                value = self._read(field, field["type"], reader)
                if field["name"] != "ThrottleTimeMs":
                    data[json_name(field["name"])] = value
        if self.flexible:
            for _ in range(reader.uvarint()):
                reader.uvarint()
                reader.take(reader.uvarint())
        return data

    def _read(self, field: Json, type_: str, reader: Reader) -> Any:
        if type_.startswith("[]"):
            length = self._read_length(reader, ">i")
            return None if length < 0 else [self._read(field, type_[2:], reader) for _ in range(length)]
        if type_ in _INTEGERS:
            return reader.unpack(f">{_INTEGERS[type_]}")
        if type_ == "uuid":
            return uuid_text(reader.take(16))
        if type_ in ("string", "bytes", "records"):
            length = self._read_length(reader, ">h" if type_ == "string" else ">i")
            if length < 0:
                return None
            raw = reader.take(length)
            return raw.decode() if type_ == "string" else base64.b64encode(raw).decode()
        if self._may_be_absent(field) and reader.unpack(">b") < 0:
            return None
        return self.decode(self.inner(field), reader)

    def _read_length(self, reader: Reader, layout: str) -> int:
        return reader.uvarint() - 1 if self.flexible else reader.unpack(layout)


class Reader:
    """Reads big-endian values from bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, size: int) -> bytes:
        taken = self.data[self.position : self.position + size]
        assert len(taken) == size, "the answer ends early"
        self.position += size
        return taken

    def unpack(self, layout: str) -> Any:
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class Connection:
    """One connection with at most one request under way."""

    def __init__(self, port: int, client_id: str, definitions: Definitions = definition) -> None:
        self._definitions = definitions
        self._socket = socket.create_connection(("127.0.0.1", port), 30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client_id = client_id.encode()
        self._correlation_id = 0
        self._api = ""
        self._version = 0
        self.waiting = False

    def close(self) -> None:
        self._socket.close()

    def send(self, api: str, version: int, body: Json) -> None:
        request = self._definitions(api, "request")
        codec = Codec(request, version)
        self._correlation_id += 1
        self._api, self._version, self.waiting = api, version, True
        header = struct.pack(">hhih", request["apiKey"], version, self._correlation_id, len(self._client_id))
        frame = header + self._client_id + (b"\0" if codec.flexible else b"")
        frame += codec.encode(codec.fields, body)
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)

    def poll(self, seconds: float) -> Json | None:
        """The answer, if it comes in time."""
        if not select.select([self._socket], [], [], seconds)[0]:
            return None
        size = struct.unpack(">i", self._receive(4))[0]
        reader = Reader(self._receive(size))
        assert reader.unpack(">i") == self._correlation_id
        codec = Codec(self._definitions(self._api, "response"), self._version)
        # Who asks for versions does not know yet which headers the broker speaks.
        if codec.flexible and self._api != "ApiVersions":
            reader.uvarint()
        self.waiting = False
        return codec.decode(codec.fields, reader)

    def ask(self, api: str, version: int, body: Json, seconds: float = 30) -> Json:
        self.send(api, version, body)
        answer = self.poll(seconds)
        assert answer is not None, f"{api} was not answered within {seconds} s"
        return answer

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        deadline = time.monotonic() + 30
        while len(data) < size and time.monotonic() < deadline:
            part = self._socket.recv(size - len(data))
            assert part, "the broker closed the connection"
            data += part
        return bytes(data)
