"""The objects of ``dump --format jsonl`` against the lines of Kafka's dump tool, and their keys."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest

from coordinator_core.errors import Damage, DamagedInputError
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import PartitionLog
from coordinator_core.reports.dump import dump_objects
from tests.cases import CORPUS, case
from tests.reports import tool_logs

KEYS = {
    "offsets_partition",
    "record_offset",
    "timestamp_ms",
    "magic",
    "batch_base_offset",
    "partition_leader_epoch",
    "producer_id",
    "producer_epoch",
    "is_transactional",
    "is_control",
    "codec",
    "crc_valid",
}
_BATCH = re.compile(
    r"baseOffset: (?P<base>\d+) .* producerId: (?P<producer>-?\d+) producerEpoch: (?P<epoch>-?\d+) "
    r"partitionLeaderEpoch: (?P<leader>-?\d+) isTransactional: (?P<transactional>\w+) "
    r"isControl: (?P<control>\w+) .*compresscodec: (?P<codec>\w+) "
)
_RECORD = re.compile(
    r"\| offset: (?P<offset>\d+) \w+: (?P<timestamp>-?\d+) "
    r".*?(?: endTxnMarker: (?P<marker>\w+) .*|key: (?P<key>\{.*\}) payload: (?P<payload>.*))"
)

SNAPSHOTS = ["k431-mixed", "k431-txn", "k431-expired/C", "k392-classic", "k011/cleaned", "k241/after"]


def _partition(path: str) -> PartitionLog:
    [log] = discover([path]).partitions
    return log


def _number(text: str) -> int | None:
    return None if text == "-1" else int(text)


def _objects_of_tool(text: str, partition: int) -> list[dict[str, Any]]:
    found = []
    for line in text.split("\n"):
        batch = _BATCH.match(line)
        if batch is not None:
            header = {
                "offsets_partition": partition,
                "magic": 2,
                "batch_base_offset": int(batch["base"]),
                "partition_leader_epoch": int(batch["leader"]),
                "producer_id": _number(batch["producer"]),
                "producer_epoch": _number(batch["epoch"]),
                "is_transactional": batch["transactional"] == "true",
                "is_control": batch["control"] == "true",
                "codec": batch["codec"],
                "crc_valid": True,
            }
        record = _RECORD.match(line)
        if record is not None:
            item = {
                **header,
                "record_offset": int(record["offset"]),
                "timestamp_ms": int(record["timestamp"]),
            }
            if record["marker"]:
                item["control"] = record["marker"]
            else:
                payload = record["payload"]
                item["key"] = json.loads(record["key"])
                item["value"] = None if payload == "<DELETE>" else json.loads(payload)
            found.append(item)
    return found


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_equal_to_the_tool(name: str) -> None:
    snapshot = case(name)
    compared = 0
    for log in discover([str(path) for path in snapshot.paths]).partitions:
        partition = log.offsets_partition
        recorded = snapshot.expected / f"dump-{partition}.txt"
        newer = recorded.with_suffix(".3.9.2.txt")
        text = (newer if newer.exists() else recorded).read_text(encoding="utf-8")
        objects = list(dump_objects(log))
        assert objects == _objects_of_tool(text, partition)
        compared += len(objects)
    assert compared > 50


def test_keys_are_the_documented_ones() -> None:
    for log in discover([str(CORPUS / "k431-txn/log")]).partitions:
        for item in dump_objects(log):
            rest = {"control"} if item["is_control"] else {"key", "value"}
            assert item.keys() == KEYS | rest
            json.dumps(item)


def test_legacy_messages() -> None:
    objects = list(dump_objects(_partition(str(tool_logs.DATA / "legacy/__consumer_offsets-0"))))
    by_offset = {item["record_offset"]: item for item in objects}
    assert len(by_offset) == len(objects) == 27
    absent = {"partition_leader_epoch": None, "producer_id": None, "producer_epoch": None}
    for item in objects:
        assert item.items() >= absent.items()
    assert (by_offset[0]["timestamp_ms"], by_offset[0]["magic"], by_offset[0]["codec"]) == (None, 0, "none")
    assert by_offset[10]["codec"] == "gzip"
    assert by_offset[21]["batch_base_offset"] == 20, "where the wrapper begins, not where it ends"
    assert by_offset[24]["timestamp_ms"] == tool_logs.NOW_MS + 5, "append time of the wrapper"


def test_undecodable_records_are_shown_in_hexadecimal() -> None:
    pairs = tool_logs.odd_pairs()
    objects = list(dump_objects(_partition(str(tool_logs.DATA / "odd/__consumer_offsets-0"))))
    assert [item["record_offset"] for item in objects] == list(range(len(pairs)))
    errors = 0
    for item, (key, value) in zip(objects, pairs, strict=True):
        if "error" in item:
            assert item.keys() == KEYS | {"error", "key_hex", "value_hex"}
            assert item["key_hex"] == (None if key is None else key.hex())
            assert item["value_hex"] == (None if value is None else value.hex())
            errors += 1
        else:
            assert key is not None
            assert item["key"]["type"] == str(int.from_bytes(key[:2], "big"))
            assert (item["value"] is None) == (value is None)
    assert errors == 25
    assert objects[0]["error"] == "unknown record type 18"
    assert objects[4]["error"].startswith("byte 0: ")
    assert objects[16]["error"] == "unknown version 5 of record type 1"


def test_early_layouts_are_named() -> None:
    objects = list(dump_objects(_partition(str(tool_logs.DATA / "odd/__consumer_offsets-0"))))
    layouts = {
        (item["key"]["type"], item["value"]["layout"]) for item in objects if (item.get("value") or {}).get("layout")
    }
    assert layouts == {("8", "preview-3.7"), ("11", "share-4.0"), ("15", "share-4.0")}


def test_blobs_that_cannot_be_decoded_stay_base64() -> None:
    objects = list(dump_objects(_partition(str(tool_logs.DATA / "odd/__consumer_offsets-0"))))
    group = next(item["value"] for item in objects if (item.get("key") or {}).get("type") == "2")
    members = {member["memberId"]: member for member in group["data"]["members"]}
    assert members["m2"]["assignment"] == ""
    assert base64.b64decode(members["m4"]["subscription"])[:2] == b"\x00\x04"
    assert members["m7"]["subscription"]["rackId"] == "r"


def test_control_records() -> None:
    objects = list(dump_objects(_partition(str(tool_logs.DATA / "batches/__consumer_offsets-0"))))
    controls = {item["record_offset"]: item["control"] for item in objects if item["is_control"]}
    assert controls == {13: "COMMIT", 15: "ABORT", 30: "UNKNOWN"}


def test_damage() -> None:
    log = _partition(str(CORPUS / "k431-torn/bitflip/log/__consumer_offsets-16"))
    seen: list[dict[str, Any]] = []
    with pytest.raises(DamagedInputError) as raised:
        seen.extend(dump_objects(log))
    assert raised.value.damage.byte_position == 3205
    damage: list[Damage] = []
    salvaged = list(dump_objects(log, on_damage=OnDamage.SALVAGE, damage=damage))
    assert salvaged == seen
    assert damage == [raised.value.damage]
    assert [item["record_offset"] for item in salvaged if not item["crc_valid"]] == [23]
