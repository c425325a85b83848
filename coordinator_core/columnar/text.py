"""The compiled dump: batches and their records as lines of text.

A line is written by *programs*, tables of steps that :mod:`coordinator_core.reports.dump_programs` makes of
a release's lines and of Kafka's record schemas: every step is a piece of fixed text and then something to be
read from the record's bytes, or a number of its batch. So one kernel prints all releases and all types of
records. What a program does not cover (malformed bytes, unknown versions) is for the formatters in Python:
a record whose key or value is odd leaves a hole in the text, a batch whose records are odd is handed over.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from coordinator_core.columnar import types
from coordinator_core.columnar.bytestrings import INVALID, is_plain_utf8, uvarint, varint, varlong
from coordinator_core.columnar.compiling import called, inlined, kernel
from coordinator_core.columnar.intrinsics import be16, be32, be64, le64, put64
from coordinator_core.columnar.kernels import sound_size
from coordinator_core.columnar.tables import BYTES_TYPE, MUTABLE_BYTES_TYPE, Int
from coordinator_core.log.layout import (
    CODEC_BITS,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    MIN_RECORD_BYTES,
    TRANSACTIONAL_BIT,
)

KEY_TYPES, VALUE_VERSIONS = 32, 8
"""Record types and value versions that can have programs."""

STACK_SIZE = 64
LITERAL_PADDING = 8
"""Bytes behind the literals: they are copied word by word."""

MAX_CHOICE_BYTES = 32
_SLACK = 64
"""Bytes of ``out`` kept free for what a step writes of limited length, and for what copying by words writes
too much."""

_LAST_CODEC = 4
_COMMIT = 1
_INT32_MAX = 0x7FFFFFFF
_STRING_MAX = 0x7FFF
_ODD, _FULL = -1, -2
_NEEDS_ESCAPE, _NOT_ASCII = 1, 2


class Status(IntEnum):
    """Why :func:`write_text` returned; ``cursor`` tells where it stands."""

    END = 0
    FULL = 1
    """There is no room for the next record in ``out``, or in ``holes``."""
    COMPRESSED = 2
    """The records are wanted in decompressed form, of this batch and of what follows."""
    ODD = 3
    """The rest of the batch, from ``Cursor.RECORD`` on, is for the readers of ``coordinator_core.log``."""


class Op(IntEnum):
    """What a step does when its literal is written."""

    END = 0
    NUMBER = 1
    """``numbers[ARG]``."""
    CHOICE = 2
    """The literal of step ``TARGET + numbers[ARG]``."""
    INT = 3
    """A signed integer of ``ARG`` bytes."""
    UINT16 = 4
    STRING = 5
    UUID = 6
    BYTES = 7
    """In base64."""
    ARRAY = 8
    """Its elements up to the ``NEXT`` before ``TARGET``, in brackets."""
    NEXT = 9
    """The next element: go to ``TARGET``, behind the array when there is none."""
    OPTIONAL = 10
    """A nullable struct, whose steps go up to ``TARGET``."""
    TAGS = 11
    """A tag section: the blocks of its tags go up to the ``TAGS_END`` at ``TARGET``."""
    TAG = 12
    """The block of tag ``ARG``; the next block, or ``TAGS_END``, is at ``TARGET``."""
    TAG_END = 13
    TAGS_END = 14
    BLOB = 15
    """Bytes that begin with a version of at most ``ARG``: go to ``TARGET`` plus that; or none, in base64."""
    RETURN = 16
    """Behind the blob."""
    JUMP = 17
    MATCH = 18
    """Go to ``TARGET`` unless the next bytes are the literal, which is not written."""


class Flag(IntEnum):
    """Bits of ``Step.FLAGS``."""

    NONE = 0
    COMPACT = 1
    """The length is an unsigned varint, one more than it is."""
    NULLABLE = 2
    QUOTED = 4
    """As a JSON string; without, strings are written as they are."""
    SILENT = 8
    """Read, not written; neither is the literal."""
    OMIT_EMPTY = 16
    """Of an empty string the literal is not written either."""
    NOT_DEFAULT = 32
    """A default, of an integer ``TARGET``, is for others: a tag that has it is not printed."""


class Step(IntEnum):
    """Columns of a program."""

    OP = 0
    LITERAL = 1
    LITERAL_BYTES = 2
    ARG = 3
    FLAGS = 4
    TARGET = 5
    WIDTH = 6


class Start(IntEnum):
    """Positions in ``starts``: the first step of every program, -1 where there is none."""

    BATCH = 0
    """Without it batches have no line."""
    BATCH_WITH_HORIZON = 1
    RECORD = 2
    ABORT = 3
    COMMIT = 4
    TOMBSTONE = 5
    """The payload of a tombstone; without it neither key nor payload of tombstones are written."""
    KEYS = 6
    """By record type."""
    VALUES = KEYS + KEY_TYPES
    """By record type and value version."""
    SIZE = VALUES + KEY_TYPES * VALUE_VERSIONS


class Number(IntEnum):
    """Positions in ``numbers``: what a line can say of a batch or a record."""

    POSITION = 0
    SIZE = 1
    BASE_OFFSET = 2
    LAST_OFFSET = 3
    COUNT = 4
    BASE_SEQUENCE = 5
    LAST_SEQUENCE = 6
    PRODUCER_ID = 7
    PRODUCER_EPOCH = 8
    PARTITION_LEADER_EPOCH = 9
    CRC = 10
    CODEC = 11
    TIMESTAMP_TYPE = 12
    IS_TRANSACTIONAL = 13
    IS_CONTROL = 14
    BASE_TIMESTAMP = 15
    MAX_TIMESTAMP = 16
    OFFSET = 17
    TIMESTAMP = 18
    KEY_SIZE = 19
    VALUE_SIZE = 20
    SEQUENCE = 21
    COORDINATOR_EPOCH = 22
    LENGTH = 23


class Cursor(IntEnum):
    """Positions in ``cursor``: where the kernel stands, so that it can be called again."""

    POSITION = 0
    """The batch."""
    RECORD = 1
    """Its next record; -1 when its own line is still to be written."""
    AT = 2
    """Where that record begins."""
    DELTA = 3
    """Offset delta of the record before, -1 for none."""
    OUT = 4
    """Bytes of ``out`` that are used."""
    HOLES = 5
    """Rows of ``holes`` that are used."""
    SECTION = 6
    """The batch's row of ``sections``."""
    LENGTH = 7


class Hole(IntEnum):
    """Columns of ``holes``: a record whose texts are missing at ``OUT``. Sizes are -1 for null."""

    OUT = 0
    OFFSET = 1
    KEY = 2
    KEY_BYTES = 3
    VALUE = 4
    VALUE_BYTES = 5
    WIDTH = 6


@inlined
def _put_number(out: Any, out_at: Int, value: Int) -> Int:
    rest = np.uint64(value)
    if value < 0:
        out[out_at] = ord("-")
        out_at += 1
        rest = np.uint64(0) - rest
    stop = out_at + 1
    bound = np.uint64(10)
    while rest >= bound and stop - out_at < 19:
        bound *= np.uint64(10)
        stop += 1
    if rest >= np.uint64(10_000_000_000_000_000_000):
        stop = out_at + 20
    at = stop
    while at > out_at:
        at -= 1
        tenth = rest // np.uint64(10)
        out[at] = np.uint8(rest - tenth * np.uint64(10)) + np.uint8(48)
        rest = tenth
    return stop


@inlined
def _put_null(out: Any, out_at: Int) -> Int:
    out[out_at] = ord("n")
    out[out_at + 1] = ord("u")
    out[out_at + 2] = ord("l")
    out[out_at + 3] = ord("l")
    return out_at + 4


@inlined
def _copy_literal(literals: Any, at: Int, length: Int, out: Any, out_at: Int) -> Int:
    """Copy by words, so up to seven bytes too many."""
    done = 0
    while done < length:
        put64(out, out_at + done, le64(literals, at + done))
        done += 8
    return out_at + length


@inlined
def _copy_text(data: Any, at: Int, length: Int, out: Any, out_at: Int) -> Int:
    """Copy text; returns which of ``_NEEDS_ESCAPE`` (in JSON) and ``_NOT_ASCII`` it is."""
    ones, tops = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
    special = np.uint64(0)
    high = np.uint64(0)
    done = 0
    while done + 8 <= length:
        word = le64(data, at + done)
        put64(out, out_at + done, word)
        quote = word ^ np.uint64(0x2222222222222222)
        backslash = word ^ np.uint64(0x5C5C5C5C5C5C5C5C)
        # The top bit of some byte is set exactly when some byte is below 0x20, or zero.
        special |= (word - np.uint64(0x2020202020202020)) & ~word
        special |= (quote - ones) & ~quote
        special |= (backslash - ones) & ~backslash
        high |= word
        done += 8
    marks = 0
    if special & tops != np.uint64(0):
        marks |= _NEEDS_ESCAPE
    if high & tops != np.uint64(0):
        marks |= _NOT_ASCII
    while done < length:
        byte = data[at + done]
        out[out_at + done] = byte
        if byte < 0x20 or byte == 0x22 or byte == 0x5C:
            marks |= _NEEDS_ESCAPE
        elif byte >= 0x80:
            marks |= _NOT_ASCII
        done += 1
    return marks


@called
def _copy_escaped(data: Any, at: Int, length: Int, out: Any, out_at: Int) -> Int:
    """Copy text as the inside of a JSON string (see ``records.jsontext.quote``); returns the end."""
    for position in range(at, at + length):
        byte: Int = np.int64(data[position])
        if byte >= 0x20 and byte != 0x22 and byte != 0x5C:
            out[out_at] = byte
            out_at += 1
            continue
        out[out_at] = ord("\\")
        out_at += 1
        if byte == 0x08:
            byte = ord("b")
        elif byte == 0x09:
            byte = ord("t")
        elif byte == 0x0A:
            byte = ord("n")
        elif byte == 0x0C:
            byte = ord("f")
        elif byte == 0x0D:
            byte = ord("r")
        elif byte < 0x20:
            digit = byte & 15
            out[out_at] = ord("u")
            out[out_at + 1] = ord("0")
            out[out_at + 2] = ord("0")
            out[out_at + 3] = 48 + (byte >> 4)
            byte = 48 + digit if digit < 10 else 55 + digit
            out_at += 4
        out[out_at] = byte
        out_at += 1
    return out_at


@inlined
def _base64_digit(bits: Int, for_uuid: bool) -> Int:
    if bits < 26:
        return bits + 65
    if bits < 52:
        return bits + 71
    if bits < 62:
        return bits - 4
    if bits == 62:
        return 45 if for_uuid else 43
    return 95 if for_uuid else 47


@called
def _put_base64(data: Any, at: Int, length: Int, for_uuid: bool, out: Any, out_at: Int) -> Int:
    """Base64 with padding, or for UUIDs the URL's alphabet and no padding; returns the end."""
    done = 0
    while done < length:
        left = min(length - done, 3)
        bits = np.int64(data[at + done]) << 16
        if left > 1:
            bits |= np.int64(data[at + done + 1]) << 8
        if left > 2:
            bits |= np.int64(data[at + done + 2])
        for place in range(4):
            if place <= left:
                out[out_at] = _base64_digit((bits >> (18 - 6 * place)) & 63, for_uuid)
                out_at += 1
            elif not for_uuid:
                out[out_at] = ord("=")
                out_at += 1
        done += 3
    return out_at


@called
def _length(data: Any, at: Int, stop: Int, flags: Int, size: Int) -> tuple[Int, Int]:
    """A length, of ``size`` bytes unless it is compact, and the position behind it.

    The position is ``INVALID`` when so many bytes, or elements of at least one, cannot follow.
    """
    if flags & Flag.COMPACT:
        length, at = uvarint(data, at, stop)
        length -= 1
    elif at + size > stop:
        return 0, INVALID
    else:
        length = be16(data, at) if size == 2 else be32(data, at)
        at += size
    if length > stop - at or (length < 0 and not flags & Flag.NULLABLE):
        return 0, INVALID
    return length, at


@inlined
def _run(
    start: Int,
    data: Any,
    at: Int,
    stop: Int,
    numbers: Any,
    program: Any,
    literals: Any,
    stack: Any,
    out: Any,
    out_at: Int,
) -> tuple[Int, Int]:
    """Run a program on ``data[at:stop]``; returns 0, or ``_ODD`` or ``_FULL``, and the end of the text."""
    room = len(out) - _SLACK
    step = start
    depth = 0
    while True:
        op = program[step, Step.OP]
        literal = program[step, Step.LITERAL]
        literal_bytes = program[step, Step.LITERAL_BYTES]
        argument = program[step, Step.ARG]
        flags = program[step, Step.FLAGS]
        target = program[step, Step.TARGET]
        if out_at + literal_bytes > room:
            return _FULL, out_at
        before = out_at
        out_at = _copy_literal(literals, literal, literal_bytes, out, out_at)
        step += 1
        if op == Op.END:
            return 0, out_at
        elif op == Op.NUMBER:
            out_at = _put_number(out, out_at, numbers[argument])
        elif op == Op.CHOICE:
            chosen = target + numbers[argument]
            length = program[chosen, Step.LITERAL_BYTES]
            out_at = _copy_literal(literals, program[chosen, Step.LITERAL], length, out, out_at)
        elif op == Op.INT:
            if at + argument > stop:
                return _ODD, out_at
            if argument == 8:
                value = be64(data, at)
            elif argument == 4:
                value = be32(data, at)
            elif argument == 2:
                value = be16(data, at)
            else:
                value = np.int64(np.int8(data[at]))
            at += argument
            if flags & Flag.NOT_DEFAULT and value == target:
                return _ODD, out_at
            out_at = _put_number(out, out_at, value)
        elif op == Op.STRING:
            length, at = _length(data, at, stop, flags, 2)
            if at == INVALID:
                return _ODD, out_at
            if length > 0:
                if length > _STRING_MAX:
                    return _ODD, out_at
                if out_at + 6 * length > room:
                    return _FULL, out_at
                text_at = out_at
                if flags & Flag.QUOTED:
                    out[out_at] = 0x22
                    text_at = out_at + 1
                marks = _copy_text(data, at, length, out, text_at)
                out_at = text_at + length
                if marks != 0:
                    if marks & _NOT_ASCII and not is_plain_utf8(data, at, length):
                        return _ODD, out_at
                    if marks & _NEEDS_ESCAPE and flags & Flag.QUOTED:
                        out_at = _copy_escaped(data, at, length, out, text_at)
                if flags & Flag.QUOTED:
                    out[out_at] = 0x22
                    out_at += 1
                at += length
            elif length < 0:
                out_at = _put_null(out, out_at)
            elif flags & Flag.OMIT_EMPTY:
                out_at = before
            elif flags & Flag.QUOTED:
                out[out_at] = 0x22
                out[out_at + 1] = 0x22
                out_at += 2
        elif op == Op.UINT16:
            if at + 2 > stop:
                return _ODD, out_at
            out_at = _put_number(out, out_at, be16(data, at) & 0xFFFF)
            at += 2
        elif op == Op.UUID:
            if at + 16 > stop:
                return _ODD, out_at
            if flags & Flag.NOT_DEFAULT and be64(data, at) == 0 and be64(data, at + 8) == 0:
                return _ODD, out_at
            out[out_at] = 0x22
            out_at = _put_base64(data, at, 16, True, out, out_at + 1)
            out[out_at] = 0x22
            out_at += 1
            at += 16
        elif op == Op.BYTES or op == Op.BLOB or op == Op.ARRAY:
            length, at = _length(data, at, stop, flags, 4)
            if at == INVALID or (flags & Flag.NOT_DEFAULT and length == 0):
                return _ODD, out_at
            if op == Op.BLOB and length != 0:
                if length < 2 or not 0 <= be16(data, at) <= argument:
                    return _ODD, out_at
                stack[depth] = step
                stack[depth + 1] = at + length
                stack[depth + 2] = stop
                depth += 3
                stop = at + length
                step = target + be16(data, at)
                at += 2
            elif length < 0:
                out_at = _put_null(out, out_at)
                if op == Op.ARRAY:
                    step = target
            elif op != Op.ARRAY:
                if out_at + 2 * length > room:
                    return _FULL, out_at
                out[out_at] = 0x22
                out_at = _put_base64(data, at, length, False, out, out_at + 1)
                out[out_at] = 0x22
                out_at += 1
                at += length
            else:
                out[out_at] = ord("[")
                out_at += 1
                if length == 0:
                    out[out_at] = ord("]")
                    out_at += 1
                    step = target
                else:
                    stack[depth] = length
                    depth += 1
        elif op == Op.NEXT:
            stack[depth - 1] -= 1
            if stack[depth - 1] > 0:
                out[out_at] = ord(",")
                step = target
            else:
                out[out_at] = ord("]")
                depth -= 1
            out_at += 1
        elif op == Op.OPTIONAL:
            if at >= stop:
                return _ODD, out_at
            # An int8 that is negative for null, or, as a tag, an unsigned varint that is 0.
            is_null = data[at] >= 0x80
            if flags & Flag.COMPACT:
                if is_null:
                    return _ODD, out_at
                is_null = data[at] == 0
            if is_null:
                out_at = _put_null(out, out_at)
                step = target
            at += 1
        elif op == Op.TAGS or op == Op.TAG_END:
            if op == Op.TAGS:
                left, at = uvarint(data, at, stop)
                if at == INVALID:
                    return _ODD, out_at
                depth += 3
            else:
                if at != stack[depth - 1]:
                    return _ODD, out_at
                left = stack[depth - 3]
            if left == 0:
                stack[depth - 2] = -1
                step = target
            else:
                stack[depth - 3] = left - 1
                stack[depth - 2], at = uvarint(data, at, stop)
                if at == INVALID:
                    return _ODD, out_at
                length, at = uvarint(data, at, stop)
                if at == INVALID or at + length > stop:
                    return _ODD, out_at
                stack[depth - 1] = at + length
        elif op == Op.TAG:
            if stack[depth - 2] != argument:
                out_at = before
                step = target
        elif op == Op.TAGS_END:
            # A tag that no block was for: unknown, or out of order.
            if stack[depth - 2] >= 0:
                return _ODD, out_at
            depth -= 3
        elif op == Op.RETURN:
            depth -= 3
            step = stack[depth]
            at = stack[depth + 1]
            stop = stack[depth + 2]
        elif op == Op.JUMP:
            step = target
        elif op == Op.MATCH:
            out_at = before
            if at + literal_bytes > stop:
                return _ODD, out_at
            for index in range(literal_bytes):
                if data[at + index] != literals[literal + index]:
                    step = target
        if flags & Flag.SILENT:
            out_at = before


@inlined
def _note_batch(data: Any, position: Int, numbers: Any) -> None:
    attributes = np.int64(data[position + 22])
    base_offset = be64(data, position)
    last_offset_delta = be32(data, position + 23)
    base_sequence = be32(data, position + 53)
    last_sequence = -1
    if base_sequence >= 0:
        last_sequence = base_sequence + last_offset_delta
        if last_sequence > _INT32_MAX:
            last_sequence -= _INT32_MAX + 1
    numbers[Number.POSITION] = position
    numbers[Number.SIZE] = be32(data, position + 8) + 12
    numbers[Number.BASE_OFFSET] = base_offset
    numbers[Number.LAST_OFFSET] = base_offset + last_offset_delta
    numbers[Number.COUNT] = be32(data, position + 57)
    numbers[Number.BASE_SEQUENCE] = base_sequence
    numbers[Number.LAST_SEQUENCE] = last_sequence
    numbers[Number.PRODUCER_ID] = be64(data, position + 43)
    numbers[Number.PRODUCER_EPOCH] = be16(data, position + 51)
    numbers[Number.PARTITION_LEADER_EPOCH] = be32(data, position + 12)
    numbers[Number.CRC] = be32(data, position + 17) & 0xFFFFFFFF
    numbers[Number.CODEC] = attributes & CODEC_BITS
    numbers[Number.TIMESTAMP_TYPE] = 1 if attributes & LOG_APPEND_TIME_BIT else 0
    numbers[Number.IS_TRANSACTIONAL] = 1 if attributes & TRANSACTIONAL_BIT else 0
    numbers[Number.IS_CONTROL] = 1 if attributes & CONTROL_BIT else 0
    numbers[Number.BASE_TIMESTAMP] = be64(data, position + 27)
    numbers[Number.MAX_TIMESTAMP] = be64(data, position + 35)


@inlined
def _note_record(
    offset_delta: Int, timestamp_delta: Int, key_bytes: Int, value_bytes: Int, numbers: Any
) -> None:
    base_sequence = numbers[Number.BASE_SEQUENCE]
    sequence = -1
    if base_sequence >= 0:
        sequence = base_sequence + offset_delta
        if sequence > _INT32_MAX:
            sequence -= _INT32_MAX + 1
    timestamp = numbers[Number.BASE_TIMESTAMP] + timestamp_delta
    if numbers[Number.TIMESTAMP_TYPE] != 0:
        timestamp = numbers[Number.MAX_TIMESTAMP]
    numbers[Number.OFFSET] = numbers[Number.BASE_OFFSET] + offset_delta
    numbers[Number.TIMESTAMP] = timestamp
    numbers[Number.KEY_SIZE] = key_bytes
    numbers[Number.VALUE_SIZE] = value_bytes
    numbers[Number.SEQUENCE] = sequence


_WORDS = types.Array(types.int64, 1)
_ROWS = types.Array(types.int64, 2)


@kernel(types.int64(BYTES_TYPE, types.int64, types.int64, types.int64, _WORDS, _WORDS))
def sound_stretch(data: Any, start: Int, stop: Int, max_bytes: Int, rules: Any, expected: Any) -> Int:
    """Where the sound v2 batches from ``start`` on end, or some of at least ``max_bytes`` do.

    ``rules`` are those of a fold (``Rules``); ``expected[0]`` is the lowest offset that the next batch may
    have, and is moved on.
    """
    position = start
    while position < stop and position - start < max_bytes:
        size = sound_size(data, position, stop, expected[0], False, rules)
        if size == 0:
            break
        expected[0] = be64(data, position) + be32(data, position + 23) + 1
        position += size
    return position


@kernel(
    types.int64(
        BYTES_TYPE,
        types.int64,
        BYTES_TYPE,
        _ROWS,
        types.int64,
        _ROWS,
        BYTES_TYPE,
        _WORDS,
        _WORDS,
        _WORDS,
        _WORDS,
        _ROWS,
        MUTABLE_BYTES_TYPE,
    )
)
def write_text(
    data: Any,
    stop: Int,
    records: Any,
    sections: Any,
    max_records: Int,
    program: Any,
    literals: Any,
    starts: Any,
    numbers: Any,
    stack: Any,
    cursor: Any,
    holes: Any,
    out: Any,
) -> Int:
    """Write lines of the sound v2 batches in ``data`` from the cursor to ``stop``; returns a :class:`Status`.

    With ``sections`` the records of the batches are in ``records``, decompressed, from the one column to the
    other; without any, ``records`` is ``data``. ``stack`` has ``STACK_SIZE`` elements, ``numbers`` must be
    kept from call to call.
    """
    in_place = len(sections) == 0
    position, index, section = cursor[Cursor.POSITION], cursor[Cursor.RECORD], cursor[Cursor.SECTION]
    at, delta = cursor[Cursor.AT], cursor[Cursor.DELTA]
    out_at, hole = cursor[Cursor.OUT], cursor[Cursor.HOLES]
    status = Status.END
    while position < stop and status == Status.END:
        size = be32(data, position + 8) + 12
        count = be32(data, position + 57)
        last_offset_delta = be32(data, position + 23)
        attributes = np.int64(data[position + 22])
        records_start, records_stop = position + HEADER_BYTES, position + size
        if not in_place:
            records_start, records_stop = sections[section, 0], sections[section, 1]
        if attributes & CODEC_BITS > _LAST_CODEC:
            status = Status.ODD
            break
        while index < count:
            line = starts[Start.RECORD]
            key_program, value_program = -1, -1
            key, value, key_bytes, value_bytes = 0, 0, 0, 0
            phases = 1
            next_at, offset_delta = at, delta
            if index < 0:
                _note_batch(data, position, numbers)
                line = starts[Start.BATCH]
                if attributes & DELETE_HORIZON_BIT:
                    line = starts[Start.BATCH_WITH_HORIZON]
                if line < 0:
                    index = 0
                    continue
            else:
                if index == 0:
                    if attributes & CODEC_BITS != 0 and in_place:
                        status = Status.COMPRESSED
                        break
                    at = records_start
                    if count > max_records or count * MIN_RECORD_BYTES > records_stop - at:
                        status = Status.ODD
                        break
                status = Status.ODD
                length, body = varint(records, at, records_stop)
                if body == INVALID or length < 0 or body + length > records_stop:
                    break
                next_at = body + length
                timestamp_delta, body = varlong(records, body + 1, next_at)
                if body == INVALID:
                    break
                offset_delta, body = varint(records, body, next_at)
                if body == INVALID or offset_delta <= delta or offset_delta > last_offset_delta:
                    break
                key_bytes, key = varint(records, body, next_at)
                if key == INVALID:
                    break
                key_bytes = max(key_bytes, -1)
                value_bytes, value = varint(records, key + max(key_bytes, 0), next_at)
                if value == INVALID:
                    break
                value_bytes = max(value_bytes, -1)
                # One more byte must be left, and be zero: no headers.
                body = value + max(value_bytes, 0)
                if body + 1 != next_at or records[body] != 0:
                    break
                if attributes & CONTROL_BIT:
                    if key_bytes < 4 or be16(records, key) < 0 or value_bytes < 6:
                        break
                    kind = be16(records, key + 2)
                    if kind < 0 or kind > _COMMIT:
                        break
                    numbers[Number.COORDINATOR_EPOCH] = be32(records, value + 2)
                    key_program = starts[Start.ABORT + kind]
                    phases = 2
                else:
                    key_type, version = -1, -1
                    if key_bytes >= 2:
                        key_type = be16(records, key)
                    if 0 <= key_type < KEY_TYPES:
                        key_program = starts[Start.KEYS + key_type]
                        if value_bytes >= 2:
                            version = be16(records, value)
                        if 0 <= version < VALUE_VERSIONS:
                            value_program = starts[Start.VALUES + key_type * VALUE_VERSIONS + version]
                    phases = 3
                    if value_bytes < 0:
                        value_program = starts[Start.TOMBSTONE]
                        if value_program < 0:
                            phases = 1
                status = Status.END
                _note_record(offset_delta, timestamp_delta, key_bytes, value_bytes, numbers)

            written, texts_at = out_at, out_at
            outcome = 0
            for phase in range(phases):
                start, from_at, to = line, 0, 0
                if phase == 1:
                    texts_at = written
                    start, from_at, to = key_program, key + 2, key + key_bytes
                elif phase == 2:
                    start, from_at, to = value_program, value + 2, value + value_bytes
                if start < 0:
                    outcome = _ODD
                    break
                outcome, written = _run(
                    start, records, from_at, to, numbers, program, literals, stack, out, written
                )
                if outcome != 0:
                    break
            if outcome == _FULL or (outcome == _ODD and hole == len(holes)):
                status = Status.FULL
                break
            if outcome == _ODD:
                holes[hole, Hole.OUT] = texts_at
                holes[hole, Hole.OFFSET] = numbers[Number.OFFSET]
                holes[hole, Hole.KEY] = key
                holes[hole, Hole.KEY_BYTES] = key_bytes
                holes[hole, Hole.VALUE] = value
                holes[hole, Hole.VALUE_BYTES] = value_bytes
                hole += 1
                written = texts_at
            out[written] = ord("\n")
            out_at = written + 1
            at, delta = next_at, offset_delta
            index += 1
        if status != Status.END:
            break
        if count > 0 and at != records_stop:
            status = Status.ODD
            break
        position += size
        section += 1
        index, delta = -1, -1
    cursor[Cursor.POSITION], cursor[Cursor.RECORD], cursor[Cursor.SECTION] = position, index, section
    cursor[Cursor.AT], cursor[Cursor.DELTA] = at, delta
    cursor[Cursor.OUT], cursor[Cursor.HOLES] = out_at, hole
    return status
