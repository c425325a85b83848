"""Producers with an open transaction, by ``__transaction_state``: the transaction coordinator's log."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from coordinator_core import storage
from coordinator_core.errors import DamagedInputError, UsageError
from coordinator_core.log.batch import iter_batch_records
from coordinator_core.log.reader import OnDamage, read_segment
from coordinator_core.log.types import SegmentFile
from coordinator_core.untrusted import INT32_END, whole_number

TRANSACTION_TOPIC = "__transaction_state"

_VALUE = struct.Struct(">hqhib")
"""First fields of ``TransactionLogValue`` 0 and 1: version, producer id, its epoch, timeout, state."""

STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
"""States of a transaction by their number (``TransactionState``)."""

_Newest = dict[tuple[int, bytes], tuple[int, int, bytes | None]]
"""Record offset, timestamp and value of the newest record of each partition and key."""

_OPEN = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})


@dataclass(frozen=True, slots=True)
class TransactionLog:
    """``going``: epoch and transactional id of every producer whose transaction has not ended. ``names``: transactional
    id of every producer id that the log has. ``updated_ms``: time of a producer's newest record."""

    path: str
    going: dict[int, tuple[int, str]]
    names: dict[int, str]
    updated_ms: dict[int, int]


def read_transaction_log(*paths: str) -> TransactionLog:
    """Read the ``__transaction_state-<n>`` directories of log directories, or of several below a path.

    Of several replicas the newest record of a transactional id counts.  Raises :class:`UsageError` when there
    is no such directory.
    """
    newest: _Newest = {}
    directories = [found for path in paths for found in transaction_directories(path)]
    if not directories:
        raise UsageError(f"{', '.join(paths)} holds no directory {TRANSACTION_TOPIC}-<n>")
    names: dict[int, str] = {}
    for directory, partition in directories:
        for file in storage.list_directory(directory):
            stem, _, suffix = file.name.partition(".")
            base_offset = whole_number(stem) if suffix == "log" else None
            if base_offset is not None:
                _read(SegmentFile(file.path, partition, base_offset, file.size), newest, names)
    going, updated = {}, {}
    for (_, key), (_, timestamp_ms, value) in sorted(newest.items()):
        if value is None or len(value) < _VALUE.size:
            continue
        _version, producer_id, epoch, _timeout, state = _VALUE.unpack_from(value)
        updated[producer_id] = timestamp_ms
        if 0 <= state < len(STATES) and STATES[state] in _OPEN:
            going[producer_id] = epoch, _transactional_id(key)
    return TransactionLog(", ".join(paths), going, names, updated)


def _transactional_id(key: bytes) -> str:
    return key[4:].decode("utf-8", "replace")


def transaction_directories(path: str) -> list[tuple[str, int]]:
    """The directories of the transaction log's partitions in a log directory, or in several below ``path``."""
    found = []
    entries = _directories(path)
    below = [inner for entry in entries if not _partition(entry.name) for inner in _directories(entry.path)]
    for entry in [*entries, *below]:
        partition = _partition(entry.name)
        if partition is not None:
            found.append((entry.path, partition))
    return found


def _directories(path: str) -> list[storage.Entry]:
    return [entry for entry in storage.list_directory(path) if entry.is_directory]


def _partition(name: str) -> int | None:
    topic, _, number = name.rpartition("-")
    return whole_number(number, INT32_END) if topic == TRANSACTION_TOPIC else None


def _read(segment: SegmentFile, newest: _Newest, names: dict[int, str]) -> None:
    for batch in read_segment(segment, on_damage=OnDamage.SALVAGE):
        if batch.is_control:
            continue
        try:
            for record in iter_batch_records(batch, path=segment.path):
                place = segment.offsets_partition, record.key or b""
                if record.value is not None and len(record.value) >= _VALUE.size:
                    # An id has several producer ids in its life: each incarnation of them is named.
                    names[_VALUE.unpack_from(record.value)[1]] = _transactional_id(place[1])
                if place not in newest or newest[place][0] <= record.offset:
                    newest[place] = record.offset, record.timestamp_ms, record.value
        except DamagedInputError:
            continue
