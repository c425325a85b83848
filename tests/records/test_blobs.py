"""Member blobs: consumer protocol v0 to v3, Connect v0 to v2, and garbage."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.records.blobs import (
    CONSUMER_ASSIGNMENT,
    CONSUMER_SUBSCRIPTION,
    blob_version,
    decode_consumer_assignment,
    decode_consumer_subscription,
    encode_consumer_assignment,
)
from coordinator_core.records.wire import RecordDecodeError
from tests.blobs import (
    decode_connect_assignment,
    decode_connect_metadata,
    encode_connect_assignment,
    encode_connect_metadata,
    encode_consumer_subscription,
)
from tests.examples import examples
from tests.records.strategies import data_for

EXAMPLES = examples(60)
DECODERS = [
    decode_consumer_subscription,
    decode_consumer_assignment,
    decode_connect_metadata,
    decode_connect_assignment,
]
Decoder = Callable[[bytes], dict[str, Any]]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@EXAMPLES
@given(draw=st.data(), rest=st.binary(max_size=4))
def test_subscription(version: int, draw: st.DataObject, rest: bytes) -> None:
    data = draw.draw(data_for(CONSUMER_SUBSCRIPTION, version))
    raw = encode_consumer_subscription(version, data)
    assert blob_version(raw) == version
    assert decode_consumer_subscription(raw + rest) == data
    if version == 3:
        assert decode_consumer_subscription(b"\x00\x09" + raw[2:]) == data


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@EXAMPLES
@given(draw=st.data(), rest=st.binary(max_size=4))
def test_assignment(version: int, draw: st.DataObject, rest: bytes) -> None:
    data = draw.draw(data_for(CONSUMER_ASSIGNMENT, version))
    raw = encode_consumer_assignment(version, data)
    assert decode_consumer_assignment(raw + rest) == data
    assert decode_consumer_assignment(b"\x7f\xff" + raw[2:]) == data


def test_fields_of_each_subscription_version() -> None:
    fields = {
        version: list(decode_consumer_subscription(encode_consumer_subscription(version, {}))) for version in range(4)
    }
    newest = ["topics", "userData", "ownedPartitions", "generationId", "rackId"]
    assert fields == {0: newest[:2], 1: newest[:3], 2: newest[:4], 3: newest}


_CONNECTORS = [{"connector": "sink", "tasks": [-1, 0]}]
_EAGER = {
    "error": 1,
    "leader": "worker-1",
    "leaderUrl": "http://h:8083/",
    "configOffset": 9,
    "assignment": _CONNECTORS,
}


def test_connect_metadata() -> None:
    eager = {"url": "http://h:8083/", "configOffset": 9}
    assert decode_connect_metadata(encode_connect_metadata(0, eager)) == eager
    allocation = encode_connect_assignment(1, _EAGER | {"revoked": [], "delay": 0})
    for version in (1, 2):
        compatible = eager | {"allocation": allocation}
        raw = encode_connect_metadata(version, compatible)
        assert blob_version(raw) == version
        assert decode_connect_metadata(raw) == compatible
        nothing = encode_connect_metadata(version, eager | {"allocation": None})
        assert decode_connect_metadata(nothing)["allocation"] is None
        assert decode_connect_metadata(nothing[:-4]) == eager | {"allocation": None}, "may be missing"


def test_connect_assignment() -> None:
    raw = encode_connect_assignment(0, _EAGER)
    assert raw.startswith(b"\x00\x00\x00\x01\x00\x08worker-1")
    assert decode_connect_assignment(raw) == _EAGER
    cooperative = _EAGER | {"revoked": [{"connector": "old", "tasks": []}], "delay": 300000}
    for version in (1, 2):
        assert decode_connect_assignment(encode_connect_assignment(version, cooperative)) == cooperative
    bare = {**cooperative, "assignment": None, "revoked": None}
    raw = encode_connect_assignment(1, bare)
    assert decode_connect_assignment(raw) == bare
    assert decode_connect_assignment(raw[:-4]) == bare | {"delay": 0}
    assert decode_connect_assignment(raw[:-12]) == bare | {"delay": 0}


def test_connect_as_a_worker_wrote_it() -> None:
    """Assignment of a sessioned worker with connector ``source1`` (its task 0 comes with the connector)."""
    raw = bytes.fromhex("0002 0000 0001 77 0001 75 0000000000000005 00000001 0001 63 00000002 ffffffff00000000")
    raw += bytes.fromhex("00000000 00000000")
    assert decode_connect_assignment(raw) == {
        "error": 0,
        "leader": "w",
        "leaderUrl": "u",
        "configOffset": 5,
        "assignment": [{"connector": "c", "tasks": [-1, 0]}],
        "revoked": [],
        "delay": 0,
    }


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\xff" + bytes(40), b"\x00\x01\x7f\xff\xff\xff", b"\x00\x03"])
def test_refused(decode: Decoder, data: bytes) -> None:
    with pytest.raises(RecordDecodeError):
        decode(data)


@pytest.mark.parametrize("decode", DECODERS)
@examples(200)
@given(data=st.binary(max_size=60))
def test_garbage(decode: Decoder, data: bytes) -> None:
    with suppress(RecordDecodeError):
        assert decode(data)


@pytest.mark.parametrize("version", [-1, 4])
def test_encode_refuses_versions(version: int) -> None:
    with pytest.raises(ValueError, match=str(version)):
        encode_consumer_subscription(version, {})
