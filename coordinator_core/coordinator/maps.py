"""Hash maps that iterate as the coordinators' own do.

Which member becomes the next leader, and in which order records of one request are appended, is the order
of the JVM's hash maps. Each class is a ``dict`` whose iteration follows one of them:
``scala.collection.mutable.HashMap`` (2.13), ``java.util.HashMap`` and
``org.apache.kafka.timeline.TimelineHashMap``. Values are found and changed as in any dict.
"""

from __future__ import annotations

import base64
from abc import abstractmethod
from collections.abc import Callable, Collection, ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Any, Final, NamedTuple, TypeVar, overload

from coordinator_core.groups.hashing import java_string_hash

K = TypeVar("K")
V = TypeVar("V")

_MASK32: Final = 0xFFFFFFFF
_MASK64: Final = 0xFFFFFFFFFFFFFFFF
_FIBONACCI: Final = -7046029254386353131


def _signed(value: int) -> int:
    value &= _MASK32
    return value - (1 << 32) if value >> 31 else value


class TopicId(str):
    """A topic id as its 22-character text; apart from other strings only in its hash code."""


class TopicPartition(NamedTuple):
    """``org.apache.kafka.common.TopicPartition``."""

    topic: str
    partition: int


Partitions = dict[TopicId, frozenset[int]]
"""An assignment as assignors see it: its topics iterate as those of Kafka's map do."""


class TopicIdPartition(NamedTuple):
    """``TopicIdPartition`` without a topic id, as the Scala coordinator makes it of a request."""

    topic: str
    partition: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(*self)


class SharePartition(NamedTuple):
    """``org.apache.kafka.server.common.TopicIdPartition``, a Java record."""

    topic_id: TopicId
    partition: int


def hash_code(key: Any) -> int:
    """``Object.hashCode`` of a string, an int, or one of the classes above."""
    if isinstance(key, TopicId):
        raw = base64.urlsafe_b64decode(key + "==")
        halves = int.from_bytes(raw[:8], "big") ^ int.from_bytes(raw[8:], "big")
        return _signed((halves >> 32) ^ halves)
    if isinstance(key, str):
        return java_string_hash(key)
    if isinstance(key, int):
        return _signed(key)
    if isinstance(key, SharePartition):
        return _signed(31 * hash_code(key.topic_id) + key.partition)
    topic, partition = key
    code = 31 * (31 + partition) + java_string_hash(topic)
    return _signed(31 * 31 + code if isinstance(key, TopicIdPartition) else code)


class _Ordered(dict[K, V]):
    """A dict that iterates in the order of a JVM hash table of ``capacity`` offset keys, which only grows."""

    def __init__(self, items: Mapping[K, V] | Iterable[tuple[K, V]] = (), capacity: int = 16) -> None:
        super().__init__()
        self._capacity = capacity
        for key, value in items.items() if isinstance(items, Mapping) else items:
            self[key] = value

    @abstractmethod
    def _grow(self, size: int) -> None:
        """Make room for ``size`` entries."""

    @abstractmethod
    def _ordered(self) -> Iterable[K]:
        """The keys as the table's iterator yields them."""

    def __setitem__(self, key: K, value: V) -> None:
        new = key not in self
        self._grow(len(self) + new)
        super().__setitem__(key, value)

    def __iter__(self) -> Iterator[K]:
        return iter(list(self._ordered()))

    def keys(self) -> KeysView[K]:  # type: ignore[override]
        return KeysView(self)

    def values(self) -> ValuesView[V]:  # type: ignore[override]
        return ValuesView(self)

    def items(self) -> ItemsView[K, V]:  # type: ignore[override]
        return ItemsView(self)

    def _plain(self) -> list[K]:
        """The keys in the order in which they were added."""
        return list(super().__iter__())

    @overload
    def setdefault(self, key: K, default: None = None, /) -> V | None: ...
    @overload
    def setdefault(self, key: K, default: V, /) -> V: ...
    def setdefault(self, key: K, default: Any = None, /) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *args: Any, **kwargs: Any) -> None:
        for key, value in dict(*args, **kwargs).items():
            self[key] = value


def capacity_for(entries: int) -> int:
    """Capacity that Java code asks of a ``HashMap`` so that as many entries do not outgrow it."""
    return int(entries / 0.75 + 1)


class JavaHashMap(_Ordered[K, V]):
    """``java.util.HashMap``: buckets by spread hash code, in insertion order within a bucket."""

    def __init__(self, items: Mapping[K, V] | Iterable[tuple[K, V]] = (), capacity: int = 16) -> None:
        self._heads: dict[K, None] = {}
        """Keys that were put at the head of their buckets, the last one foremost."""
        super().__init__(items, capacity)

    @classmethod
    def with_capacity(cls, wanted: int) -> JavaHashMap[K, V]:
        """``new HashMap<>(wanted)``."""
        capacity = 1
        while capacity < wanted:
            capacity *= 2
        return cls(capacity=capacity)

    @classmethod
    def copy_of(cls, items: Mapping[K, V]) -> JavaHashMap[K, V]:
        """``new HashMap<>(map)``, which makes room for just as many entries."""
        copy: JavaHashMap[K, V] = cls.with_capacity(capacity_for(len(items))) if items else cls()
        copy.update(items)
        return copy

    def compute_if_absent(self, key: K, make: Callable[[], V]) -> V:
        """``computeIfAbsent``: unlike those that are put, a new entry goes to the head of its bucket."""
        if key not in self:
            self._grow(len(self))
            dict.__setitem__(self, key, make())
            self._heads[key] = None
        return self[key]

    def __delitem__(self, key: K) -> None:
        super().__delitem__(key)
        self._heads.pop(key, None)

    def pop(self, key: K, *default: Any) -> Any:
        self._heads.pop(key, None)
        return super().pop(key, *default)

    def clear(self) -> None:
        super().clear()
        self._heads.clear()

    def _plain(self) -> list[K]:
        heads = self._heads
        return [*reversed(heads), *(key for key in super()._plain() if key not in heads)] if heads else super()._plain()

    def add(self: JavaHashMap[K, int], key: K, count: int) -> None:
        """``compute`` with a sum: 0 removes an entry, and a new one is added as by ``computeIfAbsent``."""
        total = self.compute_if_absent(key, int) + count
        if total:
            self[key] = total
        else:
            del self[key]

    def _grow(self, size: int) -> None:
        while size > self._capacity * 3 // 4:
            self._capacity *= 2

    def _ordered(self) -> Iterable[K]:
        mask = self._capacity - 1

        def bucket(key: K) -> int:
            code = hash_code(key) & _MASK32
            return (code ^ code >> 16) & mask

        return sorted(self._plain(), key=bucket)


class ScalaHashMap(_Ordered[K, V]):
    """``scala.collection.mutable.HashMap`` of 2.13: buckets by spread hash code, sorted within a bucket."""

    def _grow(self, size: int) -> None:
        while size >= self._capacity * 3 // 4:
            self._capacity *= 2

    def _ordered(self) -> Iterable[K]:
        mask = self._capacity - 1

        def place(key: K) -> tuple[int, int]:
            code = hash_code(key) & _MASK32
            mixed = code ^ code >> 16
            return mixed & mask, _signed(mixed)

        return sorted(self._plain(), key=place)


class TimelineHashMap(_Ordered[K, V]):
    """``TimelineHashMap``: offset keys by Fibonacci hashing, the last one added to an offset key first."""

    def __init__(self, items: Mapping[K, V] | Iterable[tuple[K, V]] = (), capacity: int = 2) -> None:
        super().__init__(items, capacity)

    def __setitem__(self, key: K, value: V) -> None:
        # It makes room for one more even when the key is there already.
        self._grow(len(self) + 1)
        dict.__setitem__(self, key, value)

    def _grow(self, size: int) -> None:
        if size * 3 > self._capacity * 4:
            self._capacity *= 2

    def _ordered(self) -> Iterable[K]:
        shift = 65 - self._capacity.bit_length()
        keys = self._plain()
        keys.reverse()
        return sorted(keys, key=lambda key: (hash_code(key) * _FIBONACCI & _MASK64) >> shift)


def hash_set_order(keys: Collection[int]) -> list[int]:
    """Order of ``new HashSet<>(keys)``, whose keys came in ascending order."""
    entries: JavaHashMap[int, None] = JavaHashMap.with_capacity(max(capacity_for(len(keys)), 16))
    entries.update(dict.fromkeys(sorted(keys)))
    return list(entries)


def java_set_order(keys: Iterable[K]) -> list[K]:
    """Order of a ``HashSet`` to which ``keys`` are added one by one."""
    return list(JavaHashMap((key, None) for key in keys))


def scala_map_order(keys: Iterable[K]) -> list[K]:
    """Order of an immutable Scala ``Map`` built from ``keys``: as given up to four, then that of its trie."""
    distinct = list(dict.fromkeys(keys))
    return distinct if len(distinct) <= 4 else scala_trie_order(distinct)


def scala_trie_order(keys: Iterable[K]) -> list[K]:
    """Order of ``immutable.HashMap`` of Scala 2.13 (CHAMP): a node's own entries, then its children."""
    return _trie([(_improve(hash_code(key)), key) for key in dict.fromkeys(keys)], 0)


def _improve(code: int) -> int:
    """``scala.collection.Hashing.improve``."""
    mixed = code + ~(code << 9)
    mixed = _signed(mixed)
    mixed ^= (mixed & _MASK32) >> 14
    mixed = _signed(mixed + (mixed << 4))
    return (mixed ^ (mixed & _MASK32) >> 10) & _MASK32


def _trie(entries: list[tuple[int, K]], shift: int) -> list[K]:
    if shift >= 32:
        return [key for _, key in entries]
    offset_keys: dict[int, list[tuple[int, K]]] = {}
    for entry in entries:
        offset_keys.setdefault(entry[0] >> shift & 31, []).append(entry)
    ordered = sorted(offset_keys.items())
    found = [offset_key[0][1] for _, offset_key in ordered if len(offset_key) == 1]
    for _, offset_key in ordered:
        if len(offset_key) > 1:
            found += _trie(offset_key, shift + 5)
    return found
