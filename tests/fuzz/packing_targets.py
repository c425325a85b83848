"""Versions that a kernel packs and unpacks."""

from __future__ import annotations

from random import Random

import numpy as np

from coordinator_core.kernels import pack_versions, unpack_versions
from coordinator_core.kernels.arrays import Array, dtype
from coordinator_core.kernels.layout import PACKED_VERSION_BYTES
from tests.fuzz.checks import array_of, require_equal
from tests.fuzz.hostile import Hostile

_KEYS = 12
_LOOKED_UP_TOGETHER = 3
_KIND = dtype("ClosedVersion")


def make_versions(hostile: Hostile) -> bytes:
    """Rows of versions, with any numbers."""
    return hostile.random.randbytes(hostile.random.randrange(1, 40) * _KIND.itemsize)


def vary_versions(hostile: Hostile, data: bytes) -> bytes:
    """Some bytes the same in each row: most versions differ in few."""
    rows = np.frombuffer(data[: len(data) // _KIND.itemsize * _KIND.itemsize], np.uint8).reshape(-1, _KIND.itemsize)
    rows = rows.copy()
    for _ in range(hostile.random.randrange(_KIND.itemsize)):
        rows[:, hostile.random.randrange(_KIND.itemsize)] = hostile.random.choice((0, 1, 0x7F, 0xFF))
    return rows.tobytes()


def packing(data: bytes, choices: Random) -> str:
    """What was packed comes back in order; packed bytes that were changed do no harm."""
    rows = np.frombuffer(data[: len(data) // _KIND.itemsize * _KIND.itemsize], _KIND).copy()
    if not len(rows):
        return "none"
    rows["key"] %= _KEYS
    rows["group"] = rows["key"] % 5
    rows["metadata"] &= 0x7FFF
    rows["leader_epoch"] = np.maximum(rows["leader_epoch"], -1)
    buckets = choices.choice((1, 3, 256))
    turn, counts = np.empty(len(rows), np.int64), np.empty(buckets, np.int64)
    starts, out = np.empty(buckets + 1, np.int64), np.empty(len(rows) * PACKED_VERSION_BYTES, np.uint8)
    pack_versions(rows, len(rows), turn, counts, starts, out)
    bucket_of = rows["group"] % buckets
    require_equal(turn.tolist(), np.argsort(bucket_of, kind="stable").tolist(), "order")
    require_equal(counts.tolist(), np.bincount(bucket_of, minlength=buckets).tolist(), "versions of each bucket")
    packed = out[: starts[-1]]

    left_out = choices.randrange(_KEYS)
    order = turn[np.argsort(rows["key"][turn], kind="stable")]
    order = order[rows["key"][order] != left_out]
    expected = rows[order]
    expected["group"] = 0
    texts = np.empty(len(rows), np.int64)
    texts[turn] = np.cumsum(rows["metadata"][turn]) - rows["metadata"][turn]
    found, found_texts, end = _unpacked(packed, rows[:1], rows["key"], left_out)
    require_equal(end, int(rows["metadata"].sum(dtype=np.int64)), "end of the texts")
    require_equal(found.tolist(), expected.tolist(), "versions")
    require_equal(found_texts.tolist(), texts[order].tolist(), "places of texts")

    changed = bytearray(packed.tobytes())
    changed[choices.randrange(len(changed))] = choices.randrange(256)
    del changed[choices.randrange(len(changed)) :]
    _, _, end = _unpacked(array_of(bytes(changed)), rows[:1], rows["key"], left_out)
    return "refused" if end < 0 else "taken"


def _unpacked(packed: Array, base: Array, keys: Array, left_out: int) -> tuple[Array, Array, int]:
    counts = np.bincount(keys, minlength=_KEYS)
    counts[left_out] = 0
    places = np.cumsum(counts) - counts
    places[left_out] = -1
    rows, texts = np.zeros(int(counts.sum()), _KIND), np.zeros(int(counts.sum()), np.int64)
    some = np.zeros(_LOOKED_UP_TOGETHER, _KIND)
    return rows, texts, unpack_versions(packed, base, places, 0, rows, texts, some)
