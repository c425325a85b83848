"""Which producers have a transaction going, by ``__transaction_state``: the transaction coordinator's log."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from coordinator_core import storage
from coordinator_core.errors import DamagedInputError, UsageError
from coordinator_core.log.batch import iter_batch_records
from coordinator_core.log.reader import OnDamage, read_segment
from coordinator_core.log.types import SegmentFile

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

_OPEN = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})


@dataclass(frozen=True, slots=True)
class TransactionLog:
    """Producer id and epoch of every transaction that has not ended, to its transactional id."""

    path: str
    going: dict[int, tuple[int, str]]


def read_transaction_log(path: str) -> TransactionLog:
    """Read the ``__transaction_state-<n>`` directories of a log directory, or of several below ``path``.

    Of several replicas the newest record of a transactional id counts.  Raises :class:`UsageError` when there
    is no such directory.
    """
    newest: dict[tuple[int, bytes], tuple[int, bytes | None]] = {}
    directories = list(_directories(path))
    if not directories:
        raise UsageError(f"{path} holds no directory {TRANSACTION_TOPIC}-<n>")
    for directory, partition in directories:
        for file in storage.list_directory(directory):
            stem, _, suffix = file.name.partition(".")
            if suffix == "log" and stem.isdigit():
                segment = SegmentFile(file.path, partition, int(stem), file.size)
                _read(segment, newest)
    going = {}
    for (_, key), (_, value) in sorted(newest.items()):
        if value is None or len(value) < _VALUE.size:
            continue
        _version, producer_id, epoch, _timeout, state = _VALUE.unpack_from(value)
        if 0 <= state < len(STATES) and STATES[state] in _OPEN:
            going[producer_id] = epoch, key[4:].decode("utf-8", "replace")
    return TransactionLog(path, going)


def _directories(path: str) -> list[tuple[str, int]]:
    found = []
    entries = [entry for entry in storage.list_directory(path) if entry.is_directory]
    below = [inner for entry in entries if not _partition(entry.name) for inner in _inner(entry.path)]
    for entry in [*entries, *below]:
        partition = _partition(entry.name)
        if partition is not None:
            found.append((entry.path, partition))
    return found


def _inner(path: str) -> list[storage.Entry]:
    return [entry for entry in storage.list_directory(path) if entry.is_directory]


def _partition(name: str) -> int | None:
    topic, _, number = name.rpartition("-")
    return int(number) if topic == TRANSACTION_TOPIC and number.isdigit() else None


def _read(segment: SegmentFile, newest: dict[tuple[int, bytes], tuple[int, bytes | None]]) -> None:
    for batch in read_segment(segment, on_damage=OnDamage.SALVAGE):
        if batch.is_control:
            continue
        try:
            for record in iter_batch_records(batch, path=segment.path):
                place = segment.offsets_partition, record.key or b""
                if newest.get(place, (-1, None))[0] <= record.offset:
                    newest[place] = record.offset, record.value
        except DamagedInputError:
            continue
