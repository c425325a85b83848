"""Lines of batches and records, with their keys and values, as the dump tool of a Kafka release prints them.

The text of a release is a table of ``TextField``, made by :mod:`coordinator_core.reports.dump_tables` of the
templates of its lines and of Kafka's record schemas. A key or value is some rows, one a field in the order of
the bytes: the text before it, how it is read, how it is printed; structs and arrays refer to other rows. A
line is some rows, too: each is a piece of text, then a number of the batch or the record.

:class:`TextWriter` goes over the batches and prints them by this table. Data that the table does not cover is
for Python: a key or value is given to a function, a batch is where :meth:`TextWriter.write` stops.
"""

import cython

from coordinator_core.kernels.arrays import grown, new_bytes, zeros

if not cython.compiled:
    from coordinator_core.kernels.declare import *
    from coordinator_core.kernels.framing import *
    from coordinator_core.kernels.primitives import *


@cython.cfunc
def put_number(out: MutableBytes, at: Int, value: Int) -> Int:
    """Write a number; returns the position behind it, at most 20 bytes on."""
    rest: Word = cython.cast(Word, value)
    if value < 0:
        out[at] = 0x2D
        at += 1
        rest = (0 - rest) & ALL_64_BITS
    stop: Int = at + 1
    bound: Word = 10
    while rest >= bound:
        bound *= 10
        stop += 1
    digit: Int = stop
    while digit > at:
        digit -= 1
        out[digit] = 0x30 + rest % 10
        rest //= 10
    return stop


@cython.cfunc
def put_base64(data: Bytes, at: Int, length: Int, texts: Bytes, digits: Int, out: MutableBytes, out_at: Int) -> Int:
    """Write bytes by the 64 ``digits`` of ``texts``; returns the position behind them."""
    stop: Int = at + length
    bits: Int
    left: Int
    while at < stop:
        left = min(stop - at, 3)
        bits = data[at] << 16
        if left > 1:
            bits |= data[at + 1] << 8
        if left > 2:
            bits |= data[at + 2]
        for place in range(4):
            if place <= left:
                out[out_at] = texts[digits + ((bits >> (18 - 6 * place)) & 63)]
                out_at += 1
            elif digits == BASE64_DIGITS:
                out[out_at] = 0x3D
                out_at += 1
        at += 3
    return out_at


@cython.cfunc
def put_escaped(data: Bytes, at: Int, length: Int, texts: Bytes, out: MutableBytes, out_at: Int) -> Int:
    """Write text as the inside of a JSON string; returns the position behind it."""
    cell: Int
    for position in range(at, at + length):
        cell = ESCAPES + ESCAPE_BYTES * data[position]
        out[out_at] = texts[cell + 1]
        if texts[cell] > 1:
            copy_bytes(texts, cell + 1, out, out_at, texts[cell])
        out_at += texts[cell]
    return out_at


@cython.cfunc
def sequence_of(base_sequence: Int, delta: Int) -> Int:
    """Sequence number ``delta`` behind the first one of a batch, which wraps around to 0; -1 without one."""
    return -1 if base_sequence < 0 else (base_sequence + delta) & MAX_INT


@cython.final
@cython.cclass
class TextWriter:
    """Writes lines in the words of one release: ``used`` bytes of UTF-8 in ``out``.

    ``starts`` are rows of ``fields`` by :class:`Text`; ``texts`` is what the rows refer to. ``other`` gives
    the text of a key and value that the fields do not cover, from record offset, key and value (``None`` for
    null).
    """

    used = cython.declare(Int, visibility="public")
    position = cython.declare(Int, visibility="readonly")
    """The batch at which :meth:`write` stopped; with ``COMPRESSED`` it ends at ``end``."""
    end = cython.declare(Int, visibility="readonly")
    expected = cython.declare(Int, visibility="readonly")  # The lowest offset that it may have.
    out = cython.declare(MutableBytes)
    texts = cython.declare(Bytes)
    fields = cython.declare(TextFieldRows)
    starts = cython.declare(Int64s)
    numbers = cython.declare(MutableInt64s)
    records = cython.declare(Bytes)
    max_records = cython.declare(Int)
    is_consumer = cython.declare(cython.bint)
    other = cython.declare(object)

    def __init__(self, texts: Bytes, fields: TextFieldRows, starts: Int64s, other: object) -> None:
        self.texts, self.fields, self.starts, self.other = texts, fields, starts, other
        self.out, self.numbers, self.records = new_bytes(1 << 16), zeros(Number.LENGTH), texts
        self.used = self.position = self.end = self.expected = self.max_records = self.is_consumer = 0

    def text(self) -> memoryview:
        """Text written so far; valid until more is written."""
        return memoryview(self.out)[: self.used]

    def write(self, data: Bytes, start: Int, stop: Int, expected: Int, enough: Int, bounds: Bounds) -> int:
        """Write the lines of the sound v2 batches from ``start`` on; returns why it stopped (:class:`Stop`).

        It stops before ``stop``, with ``FULL`` when ``enough`` bytes are written, and at a batch that is for
        the caller: one to be unpacked for :meth:`write_unpacked`, or whose lines are for Python.
        """
        reason: Int = Stop.END
        size: Int
        self.position, self.expected = start, expected
        self.records, self.max_records = data, bounds.max_records
        with cython.nogil:
            while self.position < stop:
                if self.used >= enough:
                    reason = Stop.FULL
                    break
                size = sound_size(data, self.position, stop, self.expected, False, bounds)
                if size == 0:
                    reason = Stop.UNUSUAL_BATCH
                    break
                self.end = self.position + size
                batch = header(data, self.position)
                if is_compressed(batch):
                    reason = Stop.COMPRESSED
                    break
                if not self._batch(data, batch, self.position + HEADER_BYTES, self.end):
                    reason = Stop.UNUSUAL_RECORDS
                    break
        return reason

    def write_unpacked(self, data: Bytes, records: Bytes) -> bool:
        """Write the lines of the batch at which :meth:`write` stopped, whose ``records`` were compressed.

        False when they are for Python.
        """
        self.records = records
        fits: cython.bint = self.end - self.position >= HEADER_BYTES and self.end <= len(data)
        return bool(fits and self._batch(data, header(data, self.position), 0, len(records)))

    @cython.cfunc
    @cython.exceptval(-1)
    def _batch(self, data: Bytes, batch: Header, start: Int, stop: Int) -> Int:
        """Write a batch whose records are ``records[start:stop]``, and go to the next one.

        Returns 0, and leaves everything as it was, when there is something unusual about them.
        """
        before: Int = self.used
        self._note_batch(data, batch)
        has_horizon: cython.bint = batch.attributes & DELETE_HORIZON_BIT != 0
        line: Int = self.starts[Text.BATCH_WITH_HORIZON if has_horizon else Text.BATCH]
        if line != INVALID:
            self._struct(line, 0, 0)
        if batch.count > 0 and not self._records(batch, start, stop):
            self.used = before
            return 0
        self.position = self.end
        self.expected = batch.last_offset + 1
        return 1

    @cython.cfunc
    def _note_batch(self, data: Bytes, batch: Header) -> cython.void:
        at: Int = self.position
        base_sequence: Int = be32(data, at + BatchField.BASE_SEQUENCE)
        self.numbers[Number.POSITION] = at
        self.numbers[Number.SIZE] = self.end - at
        self.numbers[Number.BASE_OFFSET] = batch.base_offset
        self.numbers[Number.LAST_OFFSET] = batch.last_offset
        self.numbers[Number.RECORD_COUNT] = batch.count
        self.numbers[Number.BASE_SEQUENCE] = base_sequence
        self.numbers[Number.LAST_SEQUENCE] = sequence_of(base_sequence, batch.last_offset - batch.base_offset)
        self.numbers[Number.PRODUCER_ID] = batch.producer_id
        self.numbers[Number.PRODUCER_EPOCH] = batch.producer_epoch
        self.numbers[Number.PARTITION_LEADER_EPOCH] = be32(data, at + BatchField.LEADER_EPOCH)
        self.numbers[Number.CRC] = be32(data, at + BatchField.CRC) & LOW_32_BITS
        self.numbers[Number.CODEC_ID] = batch.attributes & CODEC_BITS
        self.numbers[Number.TIMESTAMP_TYPE] = batch.attributes & LOG_APPEND_TIME_BIT != 0
        self.numbers[Number.IS_TRANSACTIONAL] = batch.attributes & TRANSACTIONAL_BIT != 0
        self.numbers[Number.IS_CONTROL] = batch.attributes & CONTROL_BIT != 0
        self.numbers[Number.BASE_TIMESTAMP_MS] = batch.base_timestamp
        self.numbers[Number.MAX_TIMESTAMP_MS] = batch.max_timestamp

    @cython.cfunc
    @cython.exceptval(-1)
    def _records(self, batch: Header, start: Int, stop: Int) -> Int:
        """Write the lines of the records; returns 0 when there is something unusual about them."""
        records: Bytes = self.records
        delta: Int = -1
        if batch.count > self.max_records or batch.count * MIN_RECORD_BYTES > stop - start:
            return 0
        for _ in range(batch.count):
            record = next_record(records, start, stop)
            if record.unusual & ~Unusual.NO_KEY or not follows(record, delta, batch):
                return 0
            start, delta = record.end, record.offset_delta
            timestamp = record_timestamp(batch, record)
            self.numbers[Number.OFFSET] = batch.base_offset + delta
            self.numbers[Number.TIMESTAMP_MS] = signed(cython.cast(Word, timestamp) & ALL_64_BITS)
            self.numbers[Number.KEY_SIZE] = record.key_bytes
            self.numbers[Number.VALUE_SIZE] = record.value_bytes
            self.numbers[Number.SEQUENCE] = sequence_of(self.numbers[Number.BASE_SEQUENCE], delta)
            self._struct(self.starts[Text.RECORD], 0, 0)
            line_end = self.used
            if batch.attributes & CONTROL_BIT:
                if not self._end_marker(record):
                    return 0
            elif not self._key_and_value(record):
                self.used = line_end
                with cython.gil:
                    self._put_other(record.key, record.key_bytes, record.value, record.value_bytes)
            self._put(0x0A)
        return start == stop

    @cython.cfunc
    @cython.exceptval(-1)
    def _end_marker(self, record: Record) -> Int:
        """Write the kind of a control record; returns 0 unless it ends a transaction."""
        if record.key_bytes < 4 or record.value_bytes < 6 or be16(self.records, record.key) < 0:
            return 0
        kind: Int = be16(self.records, record.key + 2)
        if kind < 0 or Text.ABORT + kind > Text.COMMIT:
            return 0
        self.numbers[Number.COORDINATOR_EPOCH] = be32(self.records, record.value + 2)
        self._struct(self.starts[Text.ABORT + kind], 0, 0)
        return 1

    @cython.cfunc
    @cython.exceptval(-1)
    def _key_and_value(self, record: Record) -> Int:
        """Write a key and its value; returns 0, some of them written, when the fields do not cover them.

        Bytes behind the last field are ignored, as by Kafka.
        """
        field: Int = self.starts[Text.TOMBSTONE]
        if record.value_bytes < 0 and field == INVALID:
            return 1
        key_type: Int = be16(self.records, record.key) if record.key_bytes >= 2 else INVALID
        if key_type < 0 or key_type >= TEXT_KEY_TYPES or self.starts[Text.KEYS + key_type] == INVALID:
            return 0
        at: Int = record.key + 2
        if self._struct(self.starts[Text.KEYS + key_type], at, record.key + record.key_bytes) == INVALID:
            return 0
        at = record.value + 2
        if record.value_bytes >= 0:
            version: Int = be16(self.records, record.value) if record.value_bytes >= 2 else INVALID
            if version < 0 or version >= TEXT_VERSIONS:
                return 0
            field = self.starts[Text.VALUES + key_type * TEXT_VERSIONS + version]
        return field != INVALID and self._struct(field, at, record.value + record.value_bytes) != INVALID

    def _put_other(self, key: Int, key_bytes: Int, value: Int, value_bytes: Int) -> None:
        """Write a key and value that the fields do not cover."""
        text: Bytes = self.other(
            self.numbers[Number.OFFSET],
            bytes(self.records[key : key + key_bytes]) if key_bytes >= 0 else None,
            bytes(self.records[value : value + value_bytes]) if value_bytes >= 0 else None,
        )
        self._room(len(text))
        copy_bytes(text, 0, self.out, self.used, len(text))
        self.used += len(text)

    @cython.cfunc
    @cython.exceptval(-1)
    def _room(self, count: Int) -> Int:
        """Make room for ``count`` bytes, and for ``SHORT_TEXT_BYTES`` more."""
        count += self.used + SHORT_TEXT_BYTES
        if count > len(self.out):
            with cython.gil:
                self.out = grown(self.out, self.used, count)
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def _put(self, character: Int) -> Int:
        """Write a character."""
        self._room(1)
        self.out[self.used] = character
        self.used += 1
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def _copy(self, text: Int, length: Int) -> Int:
        """Write ``length`` bytes of ``texts``."""
        self._room(length)
        copy_bytes(self.texts, text, self.out, self.used, length)
        self.used += length
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def _struct(self, field: Int, at: Int, stop: Int) -> Int:
        """Write fields, or a line, from ``field`` on; returns the position behind them, or ``INVALID``."""
        while self.fields[field].kind != FieldKind.END:
            at = self._field(field, at, stop)
            if at == INVALID:
                return INVALID
            field += 1
        if self.fields[field].flags & FieldFlag.COMPACT:
            at = self._tags(field + 1, at, stop)
        self._copy(self.fields[field].label, self.fields[field].label_bytes)
        return at

    @cython.cfunc
    @cython.exceptval(-1)
    def _tags(self, field: Int, at: Int, stop: Int) -> Int:
        """Write a tag section; ``INVALID`` for tags out of order, of another size, or in no schema."""
        count: Int
        tag: Int
        size: Int
        count, at = uvarint(self.records, at, stop)
        while at != INVALID and count > 0:
            count -= 1
            tag, at = uvarint(self.records, at, stop)
            if at == INVALID:
                return INVALID
            size, at = uvarint(self.records, at, stop)
            if at == INVALID or size > stop - at:
                return INVALID
            while self.fields[field].kind != FieldKind.END and self.fields[field].tag != tag:
                field += 1
            before = self.used
            if self.fields[field].kind == FieldKind.END or self._field(field, at, at + size) != at + size:
                return INVALID
            if self._has_text(field, before):
                self.used = before
            at += size
            field += 1
        return at

    @cython.cfunc
    def _has_text(self, field: Int, before: Int) -> cython.bint:
        """Whether the value of a field, written with its label from ``before`` on, is ``TextField.text``."""
        start: Int = before + self.fields[field].label_bytes
        length: Int = self.fields[field].text_bytes
        text: Int = self.fields[field].text
        return self.used - start == length and same_bytes(self.out, start, self.texts, text, length)

    @cython.cfunc
    @cython.exceptval(-1)
    def _field(self, field: Int, at: Int, stop: Int) -> Int:
        """Write a field with its label; returns the position behind it, or ``INVALID``."""
        kind: Int = self.fields[field].kind
        flags: Int = self.fields[field].flags
        inner: Int = self.fields[field].inner
        before: Int = self.used
        self._copy(self.fields[field].label, self.fields[field].label_bytes)
        if kind == FieldKind.NUMBER:
            self.used = put_number(self.out, self.used, self.numbers[inner])
        elif kind == FieldKind.CHOICE:
            inner = self.fields[field].text + self.fields[field].text_bytes * self.numbers[inner]
            self._copy(inner + 1, self.texts[inner])
        elif kind == FieldKind.INT or kind == FieldKind.UUID:
            if inner > stop - at:
                return INVALID
            if kind == FieldKind.INT:
                self.used = put_number(self.out, self.used, self._int(at, inner, flags & FieldFlag.UNSIGNED))
            else:
                self._base64(at, inner, URL_DIGITS)
            at += inner
        elif kind == FieldKind.STRUCT:
            if flags & FieldFlag.NULLABLE:
                # An int8 below 0 stands for null; in a tag, an unsigned varint that is 0.
                if at >= stop or (flags & FieldFlag.TAGGED and self.records[at] >= 0x80):
                    return INVALID
                at += 1
                if self.records[at - 1] >= 0x80 or (flags & FieldFlag.TAGGED and self.records[at - 1] == 0):
                    self._copy(NULL_TEXT, NULL_TEXT_BYTES)
                    return at
            at = self._struct(inner, at, stop)
        else:
            at = self._sized(field, before, at, stop)
        if flags & FieldFlag.UNPRINTED:
            self.used = before
        return at

    @cython.cfunc
    def _int(self, at: Int, size: Int, is_unsigned: cython.bint) -> Int:
        """The big-endian number of ``size`` bytes."""
        value: Int = 0
        if self.records[at] >= 0x80 and not is_unsigned:
            value = -1
        for index in range(size):
            value = (value << 8) | self.records[at + index]
        return value

    @cython.cfunc
    @cython.exceptval(-1)
    def _sized(self, field: Int, before: Int, at: Int, stop: Int) -> Int:
        """Write a field that begins with its length, its label written from ``before`` on."""
        kind: Int = self.fields[field].kind
        flags: Int = self.fields[field].flags
        inner: Int = self.fields[field].inner
        length: Int
        is_text: cython.bint = FieldKind.STRING <= kind <= FieldKind.PROTOCOL_TYPE
        if flags & FieldFlag.COMPACT:
            length, at = uvarint(self.records, at, stop)
            length -= 1
        elif stop - at < (2 if is_text else 4):
            return INVALID
        else:
            length = self._int(at, 2 if is_text else 4, False)
            at += 2 if is_text else 4
        # Each byte and each element of an array must be there.
        if at == INVALID or length > stop - at or (length < 0 and not flags & FieldFlag.NULLABLE):
            return INVALID
        if length < 0:
            self._copy(NULL_TEXT, NULL_TEXT_BYTES)
            return at
        if kind == FieldKind.ARRAY:
            return self._array(inner, length, at, stop)
        if is_text:
            if length > MAX_STRING_BYTES or not is_plain_utf8(self.records, at, length):
                return INVALID
            self._text(field, before, at, length)
        elif kind == FieldKind.BLOB and self.is_consumer and length > 0:
            version = self._int(at, 2, False) if length >= 2 else INVALID
            if version < 0 or version > self.fields[field].last_version:
                return INVALID
            if self._field(inner + version, at + 2, at + length) == INVALID:
                return INVALID
        else:
            self._base64(at, length, BASE64_DIGITS)
        return at + length

    @cython.cfunc
    @cython.exceptval(-1)
    def _text(self, field: Int, before: Int, at: Int, length: Int) -> Int:
        """Write the text of a field, its label written from ``before`` on."""
        kind: Int = self.fields[field].kind
        if kind == FieldKind.PLAIN_STRING:
            self._room(length)
            copy_bytes(self.records, at, self.out, self.used, length)
            self.used += length
            if length == 0 and self.fields[field].flags & FieldFlag.OMIT_EMPTY:
                self.used = before
            return 0
        self._room(ESCAPE_BYTES * length)
        self._put(0x22)
        self.used = put_escaped(self.records, at, length, self.texts, self.out, self.used)
        self._put(0x22)
        if kind == FieldKind.PROTOCOL_TYPE:
            self.is_consumer = self._has_text(field, before)
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def _array(self, element: Int, length: Int, at: Int, stop: Int) -> Int:
        """Write the elements of an array; returns the position behind them, or ``INVALID``."""
        self._put(0x5B)
        for index in range(length):
            if index > 0:
                self._put(0x2C)
            at = self._field(element, at, stop)
            if at == INVALID:
                return INVALID
        self._put(0x5D)
        return at

    @cython.cfunc
    @cython.exceptval(-1)
    def _base64(self, at: Int, length: Int, digits: Int) -> Int:
        """Write bytes as a JSON string."""
        self._room(2 * length)
        self._put(0x22)
        self.used = put_base64(self.records, at, length, self.texts, digits, self.out, self.used)
        self._put(0x22)
        return 0
