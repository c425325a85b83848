"""Segments as text, line by line as the release's own ``kafka-dump-log`` prints them, or as objects.

:func:`dump_text` prints what ``kafka-dump-log --offsets-decoder --print-data-log --deep-iteration --files
a,b,…`` of a release writes to stdout (0.8.2, which has no decoder: without that option).  Differences, all
of which the tests normalise in one place:

- ``Dumping`` shows the path as it was given.
- Releases up to 3.7 die on records they cannot decode; here the record's key is replaced by the reason
  (``Error at offset …``, ``Unknown record type …``) and the dump goes on.  An assignment that cannot be
  decoded, on which they die too, is printed in hexadecimal like those of other protocol types.
- Releases up to 3.7 print the members of a group in the order of a Scala hash map, which is imitated for
  the Scala builds that :mod:`coordinator_core.reports.scala_maps` names.
- From 3.8 on the tool stops with an exception at a batch length below the minimum, or at records it cannot
  iterate over; what happens here is ``on_damage``'s choice.
- Nothing is written to stderr (``Non-consecutive offsets in`` and the like; ``regroup verify`` reports
  damage).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, Final

from coordinator_core.errors import Damage, DamagedInputError
from coordinator_core.log.batch import control_type, iter_batch_records
from coordinator_core.log.limits import Limits
from coordinator_core.log.reader import OnDamage, SegmentWalk, read_segment, recover
from coordinator_core.log.types import Batch, PartitionLog, Record, SegmentFile
from coordinator_core.records.codec import AUTO, decode_key, decode_value
from coordinator_core.records.jsontext import key_json, value_json
from coordinator_core.records.schemas import CURRENT_LAYOUT
from coordinator_core.records.wire import RecordDecodeError
from coordinator_core.reports.dump_compiled import CompiledDump
from coordinator_core.reports.dump_styles import batch_text, codec_name, record_text, style_of

_READ_TO_THE_END: Final = frozenset({"torn_tail", "bad_crc", "offset_order", "offset_range"})
"""Damage behind which the tool reads on, in this file or the next."""

_NO_LENGTH: Final = frozenset({"bad_length", "bad_magic"})
"""Damage behind which only a search finds the next batch."""

_ENTRY_HEADER_BYTES: Final = 17
"""The tool looks for no entry in this many bytes or fewer."""

_LIMITS: Final = Limits()


def dump_text(
    log: PartitionLog,
    *,
    release: str,
    on_damage: OnDamage = OnDamage.FAIL,
    damage: list[Damage] | None = None,
) -> Iterator[bytes | memoryview]:
    """What the dump tool of ``release`` prints for the segments of ``log``, in UTF-8.

    It comes in pieces of any length, each of which is valid until the next one is asked for.  Batches whose
    CRC is wrong are printed with ``isvalid: false``, as the tool does.  Under ``FAIL`` what the tool prints
    is printed, then the first damage is raised as :class:`DamagedInputError`; under ``SALVAGE`` the dump goes
    on behind the damage, under ``RECOVER`` it shows what a starting broker keeps, and what was found is
    appended to ``damage``.
    """
    style = style_of(release)
    compiled = None if style.line is None else CompiledDump(style)
    for event in _walk(log, on_damage, [] if damage is None else damage, compiled):
        match event:
            case memoryview():
                yield event
            case _SegmentStart(segment):
                yield _line(f"Dumping {segment.path}")
                yield _line(f"{style.start_label}: {segment.base_offset}")
            case _BatchStart(batch):
                line = batch_text(batch, style)
                if line is not None:
                    yield _line(line)
            case _RecordIn(_, batch, record):
                yield _line(record_text(batch, record, style))
            case _TrailingBytes(segment, count):
                name = PurePosixPath(segment.path).name
                yield _line(f"Found {count} invalid bytes at the end of {name}")


def _line(text: str) -> bytes:
    return f"{text}\n".encode("utf-8", "surrogateescape")


def dump_objects(
    log: PartitionLog, *, on_damage: OnDamage = OnDamage.FAIL, damage: list[Damage] | None = None
) -> Iterator[dict[str, Any]]:
    """One object per record, with the keys that ``docs/cli.md`` lists for ``dump --format jsonl``.

    ``value`` has a ``layout`` besides when it was read by another layout than today's.  Damage as for
    :func:`dump_text`; ``crc_valid`` is that of the record's batch.
    """
    for event in _walk(log, on_damage, [] if damage is None else damage):
        if isinstance(event, _RecordIn):
            yield record_object(event.segment, event.batch, event.record)


def record_object(segment: SegmentFile, batch: Batch, record: Record) -> dict[str, Any]:
    """The object of one record; see :func:`dump_objects`."""
    has_producer = batch.magic >= 2 and batch.producer_id >= 0
    described: dict[str, Any] = {
        "offsets_partition": segment.offsets_partition,
        "record_offset": record.offset,
        "timestamp_ms": None if batch.magic == 0 else record.timestamp_ms,
        "magic": batch.magic,
        "batch_base_offset": batch.base_offset,
        "partition_leader_epoch": batch.partition_leader_epoch if batch.magic >= 2 else None,
        "producer_id": batch.producer_id if has_producer else None,
        "producer_epoch": batch.producer_epoch if has_producer else None,
        "is_transactional": batch.is_transactional,
        "is_control": batch.is_control,
        "codec": codec_name(batch).lower(),
        "crc_valid": batch.crc_valid,
    }
    if batch.is_control:
        try:
            return described | {"control": control_type(record).name}
        except ValueError as error:
            return described | _undecodable(record, str(error))
    try:
        return described | _key_and_value(record)
    except RecordDecodeError as error:
        return described | _undecodable(record, str(error))


def _undecodable(record: Record, reason: str) -> dict[str, Any]:
    return {
        "key_hex": None if record.key is None else record.key.hex(),
        "value_hex": None if record.value is None else record.value.hex(),
        "error": reason,
    }


def _key_and_value(record: Record) -> dict[str, Any]:
    if record.key is None:
        return _undecodable(record, "record without a key")
    key = decode_key(record.key)
    if key.data is None:
        return _undecodable(record, f"unknown record type {key.type}")
    value = None
    if record.value is not None:
        decoded = decode_value(key.type, record.value, AUTO)
        if decoded.data is None:
            reason = f"unknown version {decoded.version} of record type {key.type}"
            return _undecodable(record, reason)
        value = json.loads(value_json(key.type, decoded))
        if decoded.layout != CURRENT_LAYOUT:
            value["layout"] = decoded.layout
    return {"key": json.loads(key_json(key)), "value": value}


@dataclass(frozen=True, slots=True)
class _Text:
    """The lines of batches up to the byte position ``end``."""

    text: memoryview
    end: int


@dataclass(frozen=True, slots=True)
class _SegmentStart:
    segment: SegmentFile


@dataclass(frozen=True, slots=True)
class _BatchStart:
    batch: Batch


@dataclass(frozen=True, slots=True)
class _RecordIn:
    segment: SegmentFile
    batch: Batch
    record: Record


@dataclass(frozen=True, slots=True)
class _TrailingBytes:
    segment: SegmentFile
    count: int


_Event = memoryview | _SegmentStart | _BatchStart | _RecordIn | _TrailingBytes


def _walk(
    log: PartitionLog, on_damage: OnDamage, damage: list[Damage], compiled: CompiledDump | None = None
) -> Iterator[_Event]:
    """The segments, batches and records of ``log`` in the order in which they are dumped.

    Batches that ``compiled`` covers come as text.
    """
    known = len(damage)
    if on_damage is OnDamage.RECOVER:
        log = recover(log, damage=damage)
    for number, segment in enumerate(log.segments, 1):
        end_offset = log.segments[number].base_offset if number < len(log.segments) else None
        yield _SegmentStart(segment)
        valid_bytes = 0
        found: list[Damage] = []
        for batch in _batches(segment, end_offset, on_damage, found, compiled):
            if isinstance(batch, _Text):
                yield batch.text
                valid_bytes = batch.end
                continue
            yield _BatchStart(batch)
            try:
                for index, record in enumerate(iter_batch_records(batch, path=segment.path)):
                    if index == 0 and batch.record_count is None:
                        # Only the records of a legacy wrapper tell where it begins.
                        batch = replace(batch, base_offset=record.offset)
                    yield _RecordIn(segment, batch, record)
            except DamagedInputError as error:
                found.append(error.damage)
                if on_damage is OnDamage.FAIL:
                    break
            valid_bytes = batch.position + batch.size
        # What the reader says besides is about a broker, not about what is dumped.
        damage += [
            replace(each, detail=each.detail.partition(";")[0]) for each in found if each.kind != "not_read"
        ]
        kinds = {each.kind for each in found} - {"not_read"}
        trailing = segment.size - valid_bytes
        if not kinds <= _READ_TO_THE_END and on_damage is OnDamage.FAIL:
            break
        if trailing > 0 and ("torn_tail" in kinds or trailing <= _ENTRY_HEADER_BYTES):
            yield _TrailingBytes(segment, trailing)
    if on_damage is OnDamage.FAIL and len(damage) > known:
        raise DamagedInputError(damage[known])


def _batches(
    segment: SegmentFile,
    end_offset: int | None,
    on_damage: OnDamage,
    damage: list[Damage],
    compiled: CompiledDump | None,
) -> Iterator[_Text | Batch]:
    """Batches as the tool sees them, wrong CRC or not; under ``SALVAGE`` also those behind a bad length."""
    walk = SegmentWalk(segment, _LIMITS, OnDamage.RECOVER, damage, end_offset, check_crc=False)
    batches = walk.batches()
    texts = None if compiled is None else compiled.segment(walk)
    while True:
        if texts is not None:
            for text in texts():
                yield _Text(text, walk.position)
        batch = next(batches, None)
        if batch is None:
            break
        yield batch
    if on_damage is OnDamage.SALVAGE and any(each.kind in _NO_LENGTH for each in damage):
        later: list[Damage] = []
        for batch in read_segment(segment, on_damage=OnDamage.SALVAGE, damage=later, end_offset=end_offset):
            if batch.position >= walk.position:
                yield batch
        known = {(each.byte_position, each.kind) for each in damage}
        damage += [
            each
            for each in later
            if each.byte_position >= walk.position and (each.byte_position, each.kind) not in known
        ]
