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
  iterate over; here ``on_damage`` decides.
- Nothing is written to stderr (``Non-consecutive offsets in`` and the like; ``regroup verify`` reports
  damage).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
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
from coordinator_core.reports.dump_styles import DumpStyle, batch_text, codec_name, record_text, style_of

_READ_TO_THE_END: Final = frozenset({"torn_tail", "bad_crc", "offset_order", "offset_range"})
"""Damage behind which the tool reads on, in this file or the next."""

_NO_LENGTH: Final = frozenset({"bad_length", "bad_magic"})
"""Damage behind which only a search finds the next batch."""

_ENTRY_HEADER_BYTES: Final = 17
"""The tool looks for no entry in this many bytes or fewer."""

_LIMITS: Final = Limits()


def dump_text(
    log: PartitionLog, *, release: str, on_damage: OnDamage = OnDamage.FAIL, damage: list[Damage] | None = None
) -> Iterator[bytes | memoryview]:
    """Text of the dump tool of ``release`` for the segments of ``log``, in UTF-8.

    It comes in pieces of any length, each of which is valid until the next one is asked for.  Batches whose
    CRC is wrong are printed with ``isvalid: false``, as the tool does.  Under ``FAIL`` the output of the tool is
    printed, then the first damage is raised as :class:`DamagedInputError`; under ``SALVAGE`` the dump goes on behind
    the damage, under ``RECOVER`` it shows the batches that a starting broker keeps, and damage is appended to
    ``damage``.
    """
    style = style_of(release)
    for found in _walk(log, on_damage, [] if damage is None else damage, style):
        match found:
            case memoryview():
                yield found
            case str():
                yield _line(found)
            case _RecordIn(_, batch, record):
                yield _line(record_text(batch, record, style))


def _line(text: str) -> bytes:
    return f"{text}\n".encode("utf-8", "surrogateescape")


def dump_objects(
    log: PartitionLog, *, on_damage: OnDamage = OnDamage.FAIL, damage: list[Damage] | None = None
) -> Iterator[dict[str, Any]]:
    """One object per record, with the keys that ``docs/cli.md`` lists for ``dump --format jsonl``.

    ``value`` has a ``layout`` besides when it was read by another layout than today's.  Damage as for
    :func:`dump_text`; ``crc_valid`` is that of the record's batch.
    """
    for found in _walk(log, on_damage, [] if damage is None else damage, None):
        if isinstance(found, _RecordIn):
            yield record_object(found.segment, found.batch, found.record)


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
            return _undecodable(record, f"unknown version {decoded.version} of record type {key.type}")
        value = json.loads(value_json(key.type, decoded))
        if decoded.layout != CURRENT_LAYOUT:
            value["layout"] = decoded.layout
    return {"key": json.loads(key_json(key)), "value": value}


@dataclass(frozen=True, slots=True)
class _RecordIn:
    segment: SegmentFile
    batch: Batch
    record: Record


def _walk(
    log: PartitionLog, on_damage: OnDamage, damage: list[Damage], style: DumpStyle | None
) -> Iterator[memoryview | str | _RecordIn]:
    """The records of ``log`` in the order in which they are dumped.

    With a ``style`` also the lines around them, without line ends, and sound batches as text.
    """
    known = len(damage)
    compiled = None if style is None or style.line is None else CompiledDump(style)
    if on_damage is OnDamage.RECOVER:
        log = recover(log, damage=damage)
    for number, segment in enumerate(log.segments, 1):
        end_offset = log.segments[number].base_offset if number < len(log.segments) else None
        if style is not None:
            yield f"Dumping {segment.path}"
            yield f"{style.start_label}: {segment.base_offset}"
        valid_bytes = 0
        found: list[Damage] = []
        walk = SegmentWalk(segment, _LIMITS, OnDamage.RECOVER, found, end_offset, check_crc=False)
        for batch in _batches(walk, on_damage, compiled):
            if isinstance(batch, memoryview):
                yield batch
                valid_bytes = walk.position
                continue
            line = None if style is None else batch_text(batch, style)
            if line is not None:
                yield line
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
        # Other damage that the reader names is about a broker, not about the dump.
        damage += [replace(each, detail=each.detail.partition(";")[0]) for each in found if each.kind != "not_read"]
        kinds = {each.kind for each in found} - {"not_read"}
        trailing = segment.size - valid_bytes
        if not kinds <= _READ_TO_THE_END and on_damage is OnDamage.FAIL:
            break
        if trailing > 0 and ("torn_tail" in kinds or trailing <= _ENTRY_HEADER_BYTES):
            yield f"Found {trailing} invalid bytes at the end of {segment.name}"
    if on_damage is OnDamage.FAIL and len(damage) > known:
        raise DamagedInputError(damage[known])


def _batches(walk: SegmentWalk, on_damage: OnDamage, compiled: CompiledDump | None) -> Iterator[memoryview | Batch]:
    """Batches as the tool sees them, wrong CRC or not; under ``SALVAGE`` also those behind a bad length.

    Sound ones come as text up to where the walk stands.
    """
    segment, damage = walk.segment, walk.damage
    batches = walk.batches()
    texts = None if compiled is None else compiled.segment(walk)
    while True:
        if texts is not None:
            yield from texts()
        batch = next(batches, None)
        if batch is None:
            break
        yield batch
    if on_damage is OnDamage.SALVAGE and any(each.kind in _NO_LENGTH for each in damage):
        later: list[Damage] = []
        for batch in read_segment(segment, on_damage=OnDamage.SALVAGE, damage=later, end_offset=walk.end_offset):
            if batch.position >= walk.position:
                yield batch
        known = {(each.byte_position, each.kind) for each in damage}
        damage += [
            each
            for each in later
            if each.byte_position >= walk.position and (each.byte_position, each.kind) not in known
        ]
