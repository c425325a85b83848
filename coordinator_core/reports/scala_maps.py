"""Iteration order of Scala's mutable hash maps with string keys.

Brokers and tools up to 3.7 print group members in this order.  Kafka up to 2.3 came for Scala 2.10 to 2.12,
later releases are taken to be the builds for 2.13.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from coordinator_core.coordinator.maps import ScalaHashMap
from coordinator_core.groups.hashing import java_string_hash

MapOrder = Callable[[Iterable[str]], list[str]]

_INITIAL_SIZE: Final = 16
_MASK: Final = 0xFFFFFFFF
_FACTOR: Final = 0x9E3775CD
_SEED: Final = _INITIAL_SIZE.bit_length() - 1


def scala_2_12_order(keys: Iterable[str]) -> list[str]:
    """Order in which ``scala.collection.mutable.HashMap`` of Scala 2.10 to 2.12 yields ``keys``."""
    table: list[list[str]] = [[] for _ in range(_INITIAL_SIZE)]
    for count, key in enumerate(dict.fromkeys(keys), 1):
        table[_bucket_2_12(key, len(table))].insert(0, key)
        if count > len(table) * 3 // 4:
            grown: list[list[str]] = [[] for _ in range(2 * len(table))]
            for chain in reversed(table):
                for moved in chain:
                    grown[_bucket_2_12(moved, len(grown))].insert(0, moved)
            table = grown
    return [key for chain in reversed(table) for key in chain]


def _bucket_2_12(key: str, size: int) -> int:
    mixed = java_string_hash(key) * _FACTOR & _MASK
    mixed = int.from_bytes(mixed.to_bytes(4, "little"), "big") * _FACTOR & _MASK
    rotated = (mixed >> _SEED | mixed << (32 - _SEED)) & _MASK
    return rotated >> (33 - size.bit_length()) & (size - 1)


def scala_2_13_order(keys: Iterable[str]) -> list[str]:
    """Order in which ``scala.collection.mutable.HashMap`` of Scala 2.13 yields ``keys``."""
    return list(ScalaHashMap((key, None) for key in keys))
