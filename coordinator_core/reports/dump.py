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
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, Final

from coordinator_core.errors import Damage, DamagedInputError, UsageError
from coordinator_core.log.batch import control_type, iter_batch_records
from coordinator_core.log.reader import OnDamage, read_segment, recover
from coordinator_core.log.types import Batch, Codec, ControlType, PartitionLog, Record, SegmentFile
from coordinator_core.records.codec import AUTO, decode_key, decode_value
from coordinator_core.records.jsontext import key_json, value_json
from coordinator_core.records.schemas import CURRENT_LAYOUT
from coordinator_core.records.wire import RecordDecodeError
from coordinator_core.reports.dump_payloads import (
    Formatter,
    json_formatter,
    named_texts,
    plain_json_texts,
    plain_texts,
    plain_texts_without_empty_type,
    raw_texts,
)

_READ_TO_THE_END: Final = frozenset({"torn_tail", "bad_crc", "offset_order", "offset_range"})
"""Damage behind which the tool reads on, in this file or the next."""

_NO_LENGTH: Final = frozenset({"bad_length", "bad_magic"})
"""Damage behind which only a search finds the next batch."""

_ENTRY_HEADER_BYTES: Final = 17
"""The tool looks for no entry in this many bytes or fewer."""

_CONTROL_KEY = struct.Struct(">hh")
_END_MARKER = struct.Struct(">hi")


@dataclass(frozen=True, slots=True)
class DumpStyle:
    """How one family of releases prints segments; ``since`` is the first release of the family."""

    since: tuple[int, ...]
    record_line: Callable[[Batch, Record], str]
    texts: Formatter
    batch_lines: bool = True
    delete_horizon: bool = True
    lower_case_codec: bool = True
    start_label: str = "Log starting offset"


def _codec_name(batch: Batch) -> str:
    try:
        return Codec(batch.codec_id).name
    except ValueError:
        return f"ILLEGAL_{batch.codec_id}"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _java_bool(value: bool | None) -> str:
    return "true" if value else "false"


def _stamp(batch: Batch, record: Record) -> str:
    return f"{batch.timestamp_type}: {record.timestamp_ms}"


def _message_line(record: Record, position: int, stamp: str, magic: int, codec: str) -> str:
    key_size = "" if record.key is None else f" keysize: {len(record.key)}"
    return (
        f"offset: {record.offset} position: {position}{stamp} isvalid: {_java_bool(record.crc_valid)} "
        f"payloadsize: {_size(record.value)} magic: {magic} compresscodec: {codec} "
        f"crc: {record.crc}{key_size}"
    )


def _line_0_8(batch: Batch, record: Record) -> str:
    return _message_line(record, batch.position, "", batch.magic, "NoCompressionCodec")


def _line_0_10_1(batch: Batch, record: Record) -> str:
    return _message_line(
        record, batch.position, f" {_stamp(batch, record)}", batch.magic, "NoCompressionCodec"
    )


def _line_0_10_2(batch: Batch, record: Record) -> str:
    return _message_line(record, batch.position, f" {_stamp(batch, record)}", batch.magic, "NONE")


def _line_0_11(batch: Batch, record: Record) -> str:
    is_valid = _java_bool(batch.magic >= 2 or record.crc_valid)
    line = (
        f"offset: {record.offset} position: {batch.position} {_stamp(batch, record)} isvalid: {is_valid} "
        f"keysize: {_size(record.key)} valuesize: {_size(record.value)} magic: {batch.magic} "
        f"compresscodec: {_codec_name(batch)}"
    )
    if batch.magic < 2:
        return f"{line} crc: {record.crc}"
    return (
        f"{line} producerId: {batch.producer_id} producerEpoch: {batch.producer_epoch} "
        f"sequence: {record.sequence} isTransactional: {_java_bool(batch.is_transactional)}"
        f"{_header_keys(record)}{_control(batch, record)}"
    )


def _line_2_2(batch: Batch, record: Record) -> str:
    line = (
        f"| offset: {record.offset} {_stamp(batch, record)} "
        f"keysize: {_size(record.key)} valuesize: {_size(record.value)}"
    )
    return line + _sequence_or_crc(batch, record)


def _line_2_8(batch: Batch, record: Record) -> str:
    is_valid = _java_bool(batch.magic >= 2 or record.crc_valid)
    crc = "null" if record.crc is None else record.crc
    line = (
        f"| offset: {record.offset} isValid: {is_valid} crc: {crc} keySize: {_size(record.key)} "
        f"valueSize: {_size(record.value)} {_stamp(batch, record)} baseOffset: {batch.base_offset} "
        f"lastOffset: {batch.last_offset} baseSequence: {batch.base_sequence} "
        f"lastSequence: {batch.last_sequence} producerEpoch: {batch.producer_epoch} "
        f"partitionLeaderEpoch: {batch.partition_leader_epoch} batchSize: {batch.size} "
        f"magic: {batch.magic} compressType: {_codec_name(batch)} position: {batch.position}"
    )
    return line + _sequence_or_crc(batch, record)


def _line_3_0(batch: Batch, record: Record) -> str:
    line = (
        f"| offset: {record.offset} {batch.timestamp_type}: {record.timestamp_ms} "
        f"keySize: {_size(record.key)} valueSize: {_size(record.value)}"
    )
    if batch.magic < 2:
        # The brace is a slip of the Scala tool.
        return f"{line} isValid: {_java_bool(record.crc_valid)} crc: {record.crc}}}"
    return f"{line} sequence: {record.sequence}{_header_keys(record)}{_control(batch, record)}"


def _line_4_3(batch: Batch, record: Record) -> str:
    line = _line_3_0(batch, record)
    return line[:-1] if batch.magic < 2 else line


def _sequence_or_crc(batch: Batch, record: Record) -> str:
    if batch.magic < 2:
        return f" crc: {record.crc} isvalid: {_java_bool(record.crc_valid)}"
    return f" sequence: {record.sequence}{_header_keys(record)}{_control(batch, record)}"


def _header_keys(record: Record) -> str:
    return f" headerKeys: [{','.join(name for name, _ in record.headers)}]"


def _control(batch: Batch, record: Record) -> str:
    if not batch.is_control:
        return ""
    try:
        kind = control_type(record)
    except ValueError as error:
        return f" controlType: {error}"
    if kind in (ControlType.ABORT, ControlType.COMMIT):
        if record.value is None or len(record.value) < _END_MARKER.size:
            return f" endTxnMarker: {kind.name} coordinatorEpoch: missing"
        return f" endTxnMarker: {kind.name} coordinatorEpoch: {_END_MARKER.unpack_from(record.value)[1]}"
    assert record.key is not None
    return f" controlType: {kind.name}({_CONTROL_KEY.unpack_from(record.key)[1]})"


def _flat(since: tuple[int, ...], line: Callable[[Batch, Record], str], texts: Formatter) -> DumpStyle:
    return DumpStyle(since, line, texts, batch_lines=False, start_label="Starting offset")


def _upper(since: tuple[int, ...], line: Callable[[Batch, Record], str], texts: Formatter) -> DumpStyle:
    return DumpStyle(
        since, line, texts, delete_horizon=False, lower_case_codec=False, start_label="Starting offset"
    )


STYLES: Final = (
    _flat((0, 8), _line_0_8, raw_texts),
    _flat((0, 9), _line_0_8, plain_texts),
    _flat((0, 10, 1), _line_0_10_1, plain_texts_without_empty_type),
    _flat((0, 10, 2), _line_0_10_2, plain_texts_without_empty_type),
    _flat((0, 11), _line_0_11, plain_texts_without_empty_type),
    _flat((1, 0), _line_0_11, plain_json_texts),
    _upper((2, 2), _line_2_2, plain_json_texts),
    _upper((2, 4), _line_2_2, named_texts),
    _upper((2, 8), _line_2_8, named_texts),
    DumpStyle((3, 0), _line_3_0, named_texts, delete_horizon=False, start_label="Starting offset"),
    DumpStyle((3, 2), _line_3_0, named_texts, start_label="Starting offset"),
    DumpStyle((3, 3), _line_3_0, named_texts),
    DumpStyle((3, 8), _line_3_0, json_formatter((3, 8))),
    DumpStyle((4, 0), _line_3_0, json_formatter((4, 0))),
    DumpStyle((4, 1), _line_3_0, json_formatter((4, 1))),
    DumpStyle((4, 2), _line_3_0, json_formatter((4, 2))),
    DumpStyle((4, 3), _line_4_3, json_formatter((4, 3))),
    DumpStyle((4, 4), _line_4_3, json_formatter((4, 4))),
)
"""Oldest first."""


def style_of(release: str) -> DumpStyle:
    """The style of ``release`` (such as ``3.9.2``); :class:`UsageError` when it is no release from 0.8 on."""
    try:
        numbers = tuple(int(part) for part in release.split("."))
    except ValueError:
        raise UsageError(f"not a Kafka release: {release}") from None
    for style in reversed(STYLES):
        if style.since <= numbers:
            return style
    raise UsageError(f"Kafka {release} has no offsets log that could be dumped")


def dump_text(
    log: PartitionLog,
    *,
    release: str,
    on_damage: OnDamage = OnDamage.FAIL,
    damage: list[Damage] | None = None,
) -> Iterator[str]:
    """Lines, without line ends, that the dump tool of ``release`` prints for the segments of ``log``.

    Batches whose CRC is wrong are printed with ``isvalid: false``, as the tool does.  Under ``FAIL`` what
    the tool prints is printed, then the first damage is raised as :class:`DamagedInputError`; under
    ``SALVAGE`` the dump goes on behind the damage, under ``RECOVER`` it shows what a starting broker keeps,
    and what was found is appended to ``damage``.
    """
    style = style_of(release)
    for event in _walk(log, on_damage, [] if damage is None else damage):
        match event:
            case _SegmentStart(segment):
                yield f"Dumping {segment.path}"
                yield f"{style.start_label}: {segment.base_offset}"
            case _BatchStart(batch):
                if style.batch_lines:
                    yield _batch_line(batch, style)
            case _RecordIn(_, batch, record):
                yield _record_text(batch, record, style)
            case _TrailingBytes(segment, count):
                yield f"Found {count} invalid bytes at the end of {PurePosixPath(segment.path).name}"


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
        "codec": _codec_name(batch).lower(),
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


def _batch_line(batch: Batch, style: DumpStyle) -> str:
    if batch.magic >= 2:
        horizon = ""
        if style.delete_horizon:
            at = batch.delete_horizon_ms
            horizon = f" deleteHorizonMs: OptionalLong{'.empty' if at is None else f'[{at}]'}"
        start = (
            f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} count: {batch.record_count} "
            f"baseSequence: {batch.base_sequence} lastSequence: {batch.last_sequence} "
            f"producerId: {batch.producer_id} producerEpoch: {batch.producer_epoch} "
            f"partitionLeaderEpoch: {batch.partition_leader_epoch} "
            f"isTransactional: {_java_bool(batch.is_transactional)} "
            f"isControl: {_java_bool(batch.is_control)}{horizon}"
        )
    else:
        start = f"offset: {batch.last_offset}"
    codec = _codec_name(batch)
    return (
        f"{start} position: {batch.position} {batch.timestamp_type}: {batch.max_timestamp_ms} "
        f"size: {batch.size} magic: {batch.magic} "
        f"compresscodec: {codec.lower() if style.lower_case_codec else codec} "
        f"crc: {batch.crc} isvalid: {_java_bool(batch.crc_valid)}"
    )


def _record_text(batch: Batch, record: Record, style: DumpStyle) -> str:
    line = style.record_line(batch, record)
    if batch.is_control:
        return line
    key, payload = style.texts(record)
    if key is not None:
        line += f" key: {key}"
    if payload is not None:
        line += f" payload: {payload}"
    return line


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


_Event = _SegmentStart | _BatchStart | _RecordIn | _TrailingBytes


def _walk(log: PartitionLog, on_damage: OnDamage, damage: list[Damage]) -> Iterator[_Event]:
    """The segments, batches and records of ``log`` in the order in which they are dumped."""
    known = len(damage)
    if on_damage is OnDamage.RECOVER:
        log = recover(log, damage=damage)
    for number, segment in enumerate(log.segments, 1):
        end_offset = log.segments[number].base_offset if number < len(log.segments) else None
        yield _SegmentStart(segment)
        valid_bytes = 0
        found: list[Damage] = []
        for batch in _batches(segment, end_offset, on_damage, found):
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
    segment: SegmentFile, end_offset: int | None, on_damage: OnDamage, damage: list[Damage]
) -> Iterator[Batch]:
    """Batches as the tool sees them, wrong CRC or not; under ``SALVAGE`` also those behind a bad length."""
    position = 0
    for batch in read_segment(
        segment, on_damage=OnDamage.RECOVER, damage=damage, end_offset=end_offset, check_crc=False
    ):
        position = batch.position + batch.size
        yield batch
    if on_damage is OnDamage.SALVAGE and any(each.kind in _NO_LENGTH for each in damage):
        later: list[Damage] = []
        for batch in read_segment(segment, on_damage=OnDamage.SALVAGE, damage=later, end_offset=end_offset):
            if batch.position >= position:
                yield batch
        known = {(each.byte_position, each.kind) for each in damage}
        damage += [
            each
            for each in later
            if each.byte_position >= position and (each.byte_position, each.kind) not in known
        ]
