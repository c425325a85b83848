"""Text of single values by the compiled writer; text of logs is in ``tests/reports``."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coordinator_core.kernels import Bounds, TextWriter
from coordinator_core.kernels.layout import Stop
from coordinator_core.kernels.mode import UNCOMPILED
from coordinator_core.records.codec import encode_key, encode_value
from coordinator_core.records.jsontext import quote
from coordinator_core.records.wire import uuid_text
from coordinator_core.reports.dump_styles import style_of, tables_of
from tests.cases import CORPUS
from tests.log.builders import build_batch
from tests.reports import tool_logs

ROOT = Path(__file__).resolve().parents[2]
LIMITS = 1 << 27, 1 << 18


def refuse(offset: int, key: bytes | None, value: bytes | None) -> bytes:
    raise AssertionError(f"record {offset} is not covered: {key!r} {value!r}")


def line_of(key: bytes, value: bytes, release: str = "4.3.1") -> str:
    """The line of a record, printed by compiled code."""
    tables = tables_of(style_of(release))
    assert tables is not None
    writer = TextWriter(*tables, refuse)
    batch = build_batch(0, [(key, value)])
    assert writer.write(batch, 0, len(batch), 0, 1 << 30, Bounds(*LIMITS)) == Stop.END
    assert writer.position == len(batch)
    return bytes(writer.text()).decode().split("\n")[1]


def payload(key_type: int, version: int, key: dict[str, Any], value: dict[str, Any]) -> str:
    line = line_of(encode_key(key_type, key), encode_value(key_type, version, value))
    return line.partition(" payload: ")[2]


def commit(offset: int, metadata: str = "", partition: int = 0, timestamp: int = 0) -> str:
    key = {"group": "g", "topic": "t", "partition": partition}
    value = {"offset": offset, "leaderEpoch": 0, "metadata": metadata, "commitTimestamp": timestamp}
    return payload(1, 3, key, value)


@given(st.integers(-(1 << 63), (1 << 63) - 1))
@example(-(1 << 63))
@example((1 << 63) - 1)
@example(0)
def test_numbers(value: int) -> None:
    assert f'{{"offset":{value},' in commit(value)


@pytest.mark.parametrize("digits", range(1, 20))
def test_numbers_around_powers_of_ten(digits: int) -> None:
    for value in (10**digits - 1, 10 ** (digits - 1), -(10 ** (digits - 1))):
        if value < 1 << 63:
            assert f'{{"offset":{value},' in commit(value)


@pytest.mark.parametrize("state", [-128, -1, 0, 127])
def test_bytes_are_signed(state: int) -> None:
    value: dict[str, Any] = {"memberEpoch": -1, "previousMemberEpoch": 1 << 30, "state": state}
    value |= {"assignedPartitions": [], "partitionsPendingRevocation": []}
    text = payload(8, 0, {"groupId": "g", "memberId": "m"}, value)
    start = f'"memberEpoch":-1,"previousMemberEpoch":{1 << 30},"state":{state},"assignedPartitions":[],'
    assert start in text


@pytest.mark.parametrize("port", [0, 1, 0x7FFF, 0x8000, 0xFFFF])
def test_ports_are_unsigned(port: int) -> None:
    value: dict[str, Any] = {"instanceId": None, "rackId": None, "clientId": "c", "clientHost": "h"}
    value |= {"topologyEpoch": 0, "processId": "p", "userEndpoint": {"host": "h", "port": port}}
    text = payload(19, 0, {"groupId": "g", "memberId": "m"}, value)
    assert f'"userEndpoint":{{"host":"h","port":{port}}}' in text


def group(protocol_type: str, subscription: bytes) -> str:
    member = {"memberId": "m", "clientId": "c", "clientHost": "h", "sessionTimeout": 0}
    value = {"protocolType": protocol_type, "generation": 1, "protocol": None, "leader": None}
    members = [member | {"subscription": subscription, "assignment": b""}]
    return payload(2, 3, {"group": "g"}, value | {"members": members})


@given(st.binary(max_size=40))
@example(bytes(1 << 20))
def test_base64(data: bytes) -> None:
    assert f'"subscription":"{base64.b64encode(data).decode()}","assignment":""' in group("connect", data)


def test_blobs_are_objects_in_groups_of_consumers_alone() -> None:
    subscription = b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff\0\0\0\0"
    expected = '"subscription":{"topics":["t"],"userData":null,"ownedPartitions":[]}'
    assert expected in group("consumer", subscription)
    assert expected not in group("consumers", subscription)
    assert expected not in group("consume", subscription)


@given(st.binary(min_size=16, max_size=16))
def test_uuids(data: bytes) -> None:
    partitions = [{"topicId": uuid_text(data), "partitions": [1, 2]}]
    text = payload(7, 0, {"groupId": "g", "memberId": "m"}, {"topicPartitions": partitions})
    assert f'[{{"topicId":"{uuid_text(data)}","partitions":[1,2]}}]' in text


@given(st.text(st.characters(exclude_characters="�", exclude_categories=["Cs"]), max_size=24))
@example('\x00\x07\b\t\n\x0b\f\r\x1f "\\/\x7f')
@example("\x01" * 0x7FFF)
def test_texts(written: str) -> None:
    assert f'"metadata":{quote(written)},"commitTimestamp"' in commit(0, written)


def test_tags_at_their_default_are_left_out() -> None:
    def metadata_hash(value: int) -> str:
        return payload(3, 0, {"groupId": "g"}, {"epoch": 1, "metadataHash": value})

    assert metadata_hash(5) == '{"version":"0","data":{"epoch":1,"metadataHash":5}}'
    assert metadata_hash(0) == '{"version":"0","data":{"epoch":1}}'
    key = encode_key(3, {"groupId": "g"})
    # A tag section that holds the default all the same.
    written = b"\0\0" + b"\0\0\0\1" + b"\1\0\x08" + bytes(8)
    assert line_of(key, written).endswith(' payload: {"version":"0","data":{"epoch":1}}')


def test_an_error_of_the_caller_is_raised() -> None:
    with pytest.raises(AssertionError, match="record 0 is not covered: None"):
        line_of(None, b"\0\0")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("directory", "release"),
    [
        pytest.param(CORPUS / "k431-txn/log", "4.3.1", marks=pytest.mark.full),
        pytest.param(CORPUS / "k241/after", "2.4.1", marks=pytest.mark.full),
        (tool_logs.DATA / "odd", "4.3.1"),
        (tool_logs.DATA / "batches", "2.1.1"),
    ],
    ids=lambda value: value.name if isinstance(value, Path) else value,
)
def test_uncompiled(directory: Path, release: str) -> None:
    """Kernels print the same as the Python that they are written in."""
    command = [sys.executable, "-m", "coordinator_core", "dump", str(directory), "--kafka-version", release]
    compiled, uncompiled = (
        subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **changes},
            capture_output=True,
            check=True,
        )
        for changes in ({}, {UNCOMPILED: "1", "PYTHONWARNINGS": "ignore"})
    )
    assert compiled.stdout.count(b"\n") > 20
    assert uncompiled.stdout == compiled.stdout
