"""Every record that real brokers wrote decodes and encodes to the same bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache

import pytest

from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import OnDamage, read_records
from coordinator_core.log.types import Record
from coordinator_core.records.blobs import (
    decode_consumer_assignment,
    decode_consumer_subscription,
    encode_consumer_assignment,
)
from coordinator_core.records.codec import decode_key, decode_value
from tests.blobs import (
    decode_connect_assignment,
    decode_connect_metadata,
    encode_connect_assignment,
    encode_connect_metadata,
    encode_consumer_subscription,
)
from tests.cases import CASES, Case
from tests.records.reencoding import key_reencodes_exactly, reencodes_exactly

IDS = [case.name for case in CASES]


def _records(case: Case) -> Iterator[Record]:
    for path in case.paths:
        for log in discover([str(path)]).partitions:
            for _, batch, records in read_records(log, on_damage=OnDamage.SALVAGE, damage=[]):
                if not batch.is_control:
                    yield from records


EARLY_LAYOUTS = {
    "3.7.2": dict.fromkeys((4, 5, 7, 8), "preview-3.7"),
    "4.0.2": {11: "share-4.0", 15: "share-4.0"},
}
"""Layouts of releases that had others under the same version, by record type."""


@cache
def _inventory(case: Case) -> Counter[tuple[int, int | None]]:
    """Records by (key type, value version; None for tombstones), each checked."""
    counts: Counter[tuple[int, int | None]] = Counter()
    for record in _records(case):
        assert record.key is not None
        key = decode_key(record.key)
        assert key.data is not None
        assert not key.trailing
        assert key_reencodes_exactly(key, record.key)
        version = None
        if record.value is not None:
            value = decode_value(key.type, record.value)
            version = value.version
            own = EARLY_LAYOUTS.get(case.release, {}).get(key.type, "current")
            assert (value.layout, value.trailing) == (own, b"")
            assert reencodes_exactly(key.type, value, record.value)
        counts[key.type, version] += 1
    return counts


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_every_record_is_exact(case: Case) -> None:
    assert _inventory(case).total() > 0


def test_inventory_covers_the_types() -> None:
    total: Counter[tuple[int, int | None]] = Counter()
    for case in CASES:
        total += _inventory(case)
    types = {key_type for key_type, _ in total}
    assert types >= {*range(9), *range(10, 18), *range(19, 24)}
    assert {version for key_type, version in total if key_type == 1} == {None, 1, 3, 4}
    assert {version for key_type, version in total if key_type == 2} == {None, 0, 1, 3}


BLOBS = {
    "consumer": (
        (decode_consumer_subscription, encode_consumer_subscription),
        (decode_consumer_assignment, encode_consumer_assignment),
    ),
    "connect": (
        (decode_connect_metadata, encode_connect_metadata),
        (decode_connect_assignment, encode_connect_assignment),
    ),
}


def test_member_blobs_are_exact() -> None:
    seen: Counter[tuple[str, int, int]] = Counter()
    for case in CASES:
        for record in _records(case):
            if record.key is None or record.value is None or decode_key(record.key).type != 2:
                continue
            data = decode_value(2, record.value).data
            assert data is not None
            codecs = BLOBS.get(data["protocolType"])
            for member in data["members"]:
                blobs = (member["subscription"], member["assignment"])
                for which, blob in enumerate(blobs if codecs else ()):
                    if len(blob) < 2:
                        continue
                    assert codecs is not None
                    decode, encode = codecs[which]
                    version = int.from_bytes(blob[:2], "big")
                    if data["protocolType"] == "connect" and len(blob) < 12:
                        continue  # Made by hand for the corpus, of a worker that never was.
                    fields = decode(blob)
                    assert encode(version, fields) == blob
                    seen[data["protocolType"], which, version] += 1
    assert set(seen) >= {
        ("consumer", 0, 0),
        ("consumer", 0, 1),
        ("consumer", 0, 3),
        ("connect", 0, 2),
        ("connect", 1, 2),
    }
