"""The lines of each release's ``kafka-dump-log``: templates, in which a word in braces is a :data:`WORDS`."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final

from coordinator_core.errors import UsageError
from coordinator_core.kernels.layout import Number, Text
from coordinator_core.log.batch import control_type
from coordinator_core.log.types import Batch, Codec, ControlType, Record
from coordinator_core.releases import Release
from coordinator_core.releases.facts import DumpText
from coordinator_core.releases.table import TABLE
from coordinator_core.reports.dump_payloads import (
    COLON_FORM,
    NAMED_FORM,
    CommitForm,
    Formatter,
    json_formatter,
    named_texts,
    plain_json_texts,
    plain_texts,
    plain_texts_without_empty_type,
    raw_texts,
)
from coordinator_core.reports.dump_tables import Tables, TableWriter, Word

_CONTROL_KEY = struct.Struct(">hh")
_END_MARKER = struct.Struct(">hi")

_ILLEGAL_CODECS = tuple(f"ILLEGAL_{number}" for number in range(len(Codec), 8))
_CODECS = tuple(codec.name for codec in Codec) + _ILLEGAL_CODECS
_BOOL = ("false", "true")

_CHOICES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "codec": ("codec_id", _CODECS),
    "codec_in_lower_case": ("codec_id", tuple(name.lower() for name in _CODECS)),
    "is_control": ("is_control", _BOOL),
    "is_transactional": ("is_transactional", _BOOL),
    "is_valid": ("crc_valid", _BOOL),
    "timestamp_type": ("timestamp_type", ("CreateTime", "LogAppendTime")),
}
"""Words that stand for one of several texts, by an attribute of the batch; other words are its attributes."""

_RECORD_WORDS: Final[dict[str, Callable[[Record], object]]] = {
    "header_keys": lambda record: ",".join(name for name, _ in record.headers),
    "key_size": lambda record: _size(record.key),
    "key_size_if_any": lambda record: "" if record.key is None else f" keysize: {len(record.key)}",
    "offset": lambda record: record.offset,
    "record_crc": lambda record: record.crc,
    "record_is_valid": lambda record: _BOOL[record.crc_valid or 0],
    "sequence": lambda record: record.sequence,
    "timestamp_ms": lambda record: record.timestamp_ms,
    "value_size": lambda record: _size(record.value),
}

# Compiled code prints sound batches of format 2, and records without headers.
_COMPILED_WORDS: Final[dict[str, Word]] = {
    **{number.name.lower(): number for number in Number},
    **{word: (Number[name.upper()], texts) for word, (name, texts) in _CHOICES.items() if word != "is_valid"},
    "is_valid": "true",
    "magic": "2",
    "header_keys": "",
}


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def codec_name(batch: Batch) -> str:
    """``NONE``, ``GZIP`` and so on; a name too for codecs that do not exist."""
    return _CODECS[batch.codec_id]


@dataclass(frozen=True, slots=True)
class _Words:
    """The words of a template, looked up as they are wanted."""

    batch: Batch
    record: Record | None = None

    def __getitem__(self, word: str) -> object:
        if self.record is not None and word in _RECORD_WORDS:
            return _RECORD_WORDS[word](self.record)
        name, texts = _CHOICES.get(word, (word, ()))
        value = getattr(self.batch, name)
        return texts[value] if texts and isinstance(value, int) else value


@dataclass(frozen=True, slots=True)
class DumpStyle:
    """Style in which one family of releases prints segments; ``since`` is the first release of the family.

    ``line`` is the template of records in batches (``None``: no such release knows them), ``legacy_line``
    that of messages. ``form`` is the form that compiled code prints of batches in place of ``texts``.
    """

    since: Release
    line: str | None
    legacy_line: str
    texts: Formatter
    form: CommitForm | Release | None
    batch_line: str | None = None
    legacy_batch_line: str = ""
    start_label: str = "Starting offset"


_STAMP = "{timestamp_type}: {timestamp_ms}"
_SIZES = "keysize: {key_size} valuesize: {value_size}"
_SEQUENCE = " sequence: {sequence} headerKeys: [{header_keys}]"
_CRC = " crc: {record_crc} isvalid: {record_is_valid}"


def _message(stamp: str, codec: str) -> str:
    return (
        f"offset: {{offset}} position: {{position}}{stamp} isvalid: {{record_is_valid}} "
        f"payloadsize: {{value_size}} magic: {{magic}} compresscodec: {codec} "
        "crc: {record_crc}{key_size_if_any}"
    )


_0_8 = None, _message("", "NoCompressionCodec")
_0_10_1 = None, _message(f" {_STAMP}", "NoCompressionCodec")
_0_10_2 = None, _message(f" {_STAMP}", "NONE")


def _lines_0_11() -> tuple[str, str]:
    def line(is_valid: str) -> str:
        return (
            f"offset: {{offset}} position: {{position}} {_STAMP} isvalid: {is_valid} {_SIZES} "
            "magic: {magic} compresscodec: {codec}"
        )

    batch = " producerId: {producer_id} producerEpoch: {producer_epoch} sequence: {sequence} "
    batch += "isTransactional: {is_transactional} headerKeys: [{header_keys}]"
    return line("true") + batch, line("{record_is_valid}") + " crc: {record_crc}"


def _lines_2_2() -> tuple[str, str]:
    line = f"| offset: {{offset}} {_STAMP} {_SIZES}"
    return line + _SEQUENCE, line + _CRC


def _lines_2_8() -> tuple[str, str]:
    def line(is_valid: str, crc: str) -> str:
        return (
            f"| offset: {{offset}} isValid: {is_valid} crc: {crc} keySize: {{key_size}} "
            f"valueSize: {{value_size}} {_STAMP} baseOffset: {{base_offset}} "
            "lastOffset: {last_offset} baseSequence: {base_sequence} "
            "lastSequence: {last_sequence} producerEpoch: {producer_epoch} "
            "partitionLeaderEpoch: {partition_leader_epoch} batchSize: {size} "
            "magic: {magic} compressType: {codec} position: {position}"
        )

    return line("true", "null") + _SEQUENCE, line("{record_is_valid}", "{record_crc}") + _CRC


def _lines_3_0(end: str) -> tuple[str, str]:
    line = f"| offset: {{offset}} {_STAMP} keySize: {{key_size}} valueSize: {{value_size}}"
    return line + _SEQUENCE, f"{line} isValid: {{record_is_valid}} crc: {{record_crc}}{end}"


_0_11 = _lines_0_11()
_2_2 = _lines_2_2()
_2_8 = _lines_2_8()
# The brace is a slip of the Scala tool.
_3_0 = _lines_3_0("}}")
_4_3 = _lines_3_0("")

_HORIZON = " deleteHorizonMs: OptionalLong"
_NO_HORIZON_SET, _HORIZON_SET = f"{_HORIZON}.empty", f"{_HORIZON}[{{base_timestamp_ms}}]"


def _batch_lines(horizon: str, codec: str) -> tuple[str, str]:
    rest = (
        " position: {position} {timestamp_type}: {max_timestamp_ms} size: {size} magic: {magic} "
        f"compresscodec: {codec} crc: {{crc}} isvalid: {{is_valid}}"
    )
    batch = (
        "baseOffset: {base_offset} lastOffset: {last_offset} count: {record_count} "
        "baseSequence: {base_sequence} lastSequence: {last_sequence} "
        "producerId: {producer_id} producerEpoch: {producer_epoch} partitionLeaderEpoch: {partition_leader_epoch} "
        f"isTransactional: {{is_transactional}} isControl: {{is_control}}{horizon}"
    )
    return batch + rest, "offset: {last_offset}" + rest


_UPPER = _batch_lines("", "{codec}")
_LOWER = _batch_lines("", "{codec_in_lower_case}")
_LOWER_WITH_HORIZON = _batch_lines(_NO_HORIZON_SET, "{codec_in_lower_case}")
_LOG_START = "Log starting offset"


def _json(release: Release, lines: tuple[str, str]) -> DumpStyle:
    return DumpStyle(release, *lines, json_formatter(release), release, *_LOWER_WITH_HORIZON, _LOG_START)


_SINCE: Final = {text: since for since, text in reversed([*TABLE.dump_changes()])}
_JSON_LINES: Final = {DumpText.JSON: _3_0, DumpText.JSON_WITHOUT_SLIP: _4_3}

STYLES: Final = (
    DumpStyle(_SINCE[DumpText.RAW], *_0_8, raw_texts, None),
    DumpStyle(_SINCE[DumpText.PLAIN], *_0_8, plain_texts, None),
    DumpStyle(_SINCE[DumpText.TIMESTAMPS], *_0_10_1, plain_texts_without_empty_type, None),
    DumpStyle(_SINCE[DumpText.CODEC_NAMES], *_0_10_2, plain_texts_without_empty_type, None),
    DumpStyle(_SINCE[DumpText.BATCHES], *_0_11, plain_texts_without_empty_type, COLON_FORM),
    DumpStyle(_SINCE[DumpText.GROUPS_AS_JSON], *_0_11, plain_json_texts, COLON_FORM),
    DumpStyle(_SINCE[DumpText.BATCH_LINES], *_2_2, plain_json_texts, COLON_FORM, *_UPPER),
    DumpStyle(_SINCE[DumpText.NAMED_KEYS], *_2_2, named_texts, NAMED_FORM, *_UPPER),
    DumpStyle(_SINCE[DumpText.BATCH_IN_EVERY_LINE], *_2_8, named_texts, NAMED_FORM, *_UPPER),
    DumpStyle(_SINCE[DumpText.SHORT_LINES], *_3_0, named_texts, NAMED_FORM, *_LOWER),
    DumpStyle(_SINCE[DumpText.DELETE_HORIZON], *_3_0, named_texts, NAMED_FORM, *_LOWER_WITH_HORIZON),
    DumpStyle(_SINCE[DumpText.LOG_START], *_3_0, named_texts, NAMED_FORM, *_LOWER_WITH_HORIZON, _LOG_START),
    *(_json(since, _JSON_LINES[text]) for since, text in TABLE.dump_changes() if text in _JSON_LINES),
)
"""Oldest first."""


def style_of(release: str) -> DumpStyle:
    """The style of ``release`` (such as ``3.9.2``); :class:`UsageError` when it is none from 0.8.2 on."""
    numbers = Release.parse(release)
    for style in reversed(STYLES):
        if style.since <= numbers:
            return style
    raise UsageError(f"Kafka {release} has no offsets log that could be dumped")


@cache
def tables_of(style: DumpStyle) -> Tables | None:
    """Table by which compiled code prints batches of this style; ``None`` for releases without batches."""
    if style.line is None:
        return None
    writer = TableWriter()
    writer.line(Text.RECORD, style.line, _COMPILED_WORDS)
    if style.batch_line is not None:
        writer.line(Text.BATCH, style.batch_line + "\n", _COMPILED_WORDS)
        writer.line(Text.BATCH_WITH_HORIZON, _with_horizon(style.batch_line) + "\n", _COMPILED_WORDS)
    for start, kind in ((Text.ABORT, ControlType.ABORT), (Text.COMMIT, ControlType.COMMIT)):
        writer.line(start, _end_marker(kind, "{coordinator_epoch}"), _COMPILED_WORDS)
    if isinstance(style.form, CommitForm):
        writer.commits(style.form)
    elif style.form is not None:
        writer.json(style.form)
    return writer.tables()


def _with_horizon(batch_line: str) -> str:
    return batch_line.replace(_NO_HORIZON_SET, _HORIZON_SET)


def batch_text(batch: Batch, style: DumpStyle) -> str | None:
    """The line of a batch; ``None`` where batches have none."""
    line = style.batch_line
    if line is None:
        return None
    if batch.magic < 2:
        line = style.legacy_batch_line
    elif batch.delete_horizon_ms is not None:
        line = _with_horizon(line)
    return line.format_map(_Words(batch))


def record_text(batch: Batch, record: Record, style: DumpStyle) -> str:
    """The line of a record, with its key and payload."""
    template = style.legacy_line if batch.magic < 2 or style.line is None else style.line
    line = template.format_map(_Words(batch, record))
    if batch.is_control and style.line is not None:
        line += _control(record)
    return line if batch.is_control else line + texts_of(record, style)


def texts_of(record: Record, style: DumpStyle) -> str:
    """Text behind the line of a record that is no control record."""
    key, payload = style.texts(record)
    return (f" key: {key}" if key is not None else "") + (f" payload: {payload}" if payload is not None else "")


def _control(record: Record) -> str:
    try:
        kind = control_type(record)
    except ValueError as error:
        return f" controlType: {error}"
    if kind in (ControlType.ABORT, ControlType.COMMIT):
        if record.value is None or len(record.value) < _END_MARKER.size:
            return _end_marker(kind, "missing")
        return _end_marker(kind, str(_END_MARKER.unpack_from(record.value)[1]))
    assert record.key is not None
    return f" controlType: {kind.name}({_CONTROL_KEY.unpack_from(record.key)[1]})"


def _end_marker(kind: ControlType, epoch: str) -> str:
    return f" endTxnMarker: {kind.name} coordinatorEpoch: {epoch}"
