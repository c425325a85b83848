"""The text of a dump: lines of batches and records, and their keys and values, as a Kafka release prints them.

The release is in two tables, which :mod:`coordinator_core.reports.dump_tables` makes of the templates of its
lines and of Kafka's record schemas:

- A line is some rows of ``LinePart``: a piece of text, then a number of the batch or the record.
- A key or value is some rows of ``TextField``, one a field in the order of the bytes: its name, how it is
  read, how it is printed. Structs and arrays refer to rows of their own.

:class:`TextWriter` goes over the batches and prints them by these tables. Whatever the tables do not cover is
for Python: a key or value is given to a function, a batch is where :meth:`TextWriter.write` stops.
"""

import cython

from coordinator_core.kernels.arrays import grown, new_bytes, zeros

if not cython.compiled:
    from coordinator_core.kernels.declare import Bytes, Int, Int64s, LinePartRows, MutableBytes, TextFieldRows, Word
    from coordinator_core.kernels.framing import (
        Bounds,
        follows,
        header,
        is_compressed,
        may_hold_records,
        next_record,
        record_timestamp,
        sound_size,
    )
    from coordinator_core.kernels.layout import (
        ALL_64_BITS,
        BASE64_DIGITS,
        INVALID,
        LOW_32_BITS,
        MAX_INT,
        MAX_STRING_BYTES,
        SHORT_TEXT_BYTES,
        TEXT_KEY_TYPES,
        TEXT_VERSIONS,
        URL_DIGITS,
        FieldFlag,
        FieldKind,
        Header,
        Number,
        Record,
        Stop,
        Text,
        Unusual,
    )
    from coordinator_core.kernels.primitives import (
        be16,
        be32,
        be64,
        copy_bytes,
        is_plain_utf8,
        same_bytes,
        signed,
        uvarint,
    )
    from coordinator_core.log.layout import (
        CODEC_BITS,
        CONTROL_BIT,
        DELETE_HORIZON_BIT,
        HEADER_BYTES,
        LOG_APPEND_TIME_BIT,
        TRANSACTIONAL_BIT,
        BatchField,
    )


@cython.cfunc
@cython.nogil
@cython.inline
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
@cython.nogil
def put_base64(
    data: Bytes, at: Int, length: Int, texts: Bytes, digits: Int, padding: cython.bint, out: MutableBytes, out_at: Int
) -> Int:
    """Write bytes by the 64 ``digits`` of ``texts``; returns the position behind them."""
    stop: Int = at + length
    bits: Int
    left: Int
    place: Int
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
            elif padding:
                out[out_at] = 0x3D
                out_at += 1
        at += 3
    return out_at


@cython.cfunc
@cython.nogil
@cython.inline
def put_escaped(data: Bytes, at: Int, length: Int, out: MutableBytes, out_at: Int) -> Int:
    """Write text as the inside of a JSON string (``records.jsontext.quote``); returns the position behind it."""
    byte: Int
    digit: Int
    for position in range(at, at + length):
        byte = data[position]
        if byte < 0x20 or byte == 0x22 or byte == 0x5C:
            out[out_at] = 0x5C
            out_at += 1
            if byte == 0x08:
                byte = 0x62
            elif byte == 0x09:
                byte = 0x74
            elif byte == 0x0A:
                byte = 0x6E
            elif byte == 0x0C:
                byte = 0x66
            elif byte == 0x0D:
                byte = 0x72
            elif byte < 0x20:
                digit = byte & 15
                out[out_at] = 0x75
                out[out_at + 1] = 0x30
                out[out_at + 2] = 0x30
                out[out_at + 3] = 0x30 + (byte >> 4)
                byte = 0x30 + digit if digit < 10 else 0x37 + digit
                out_at += 4
        out[out_at] = byte
        out_at += 1
    return out_at


@cython.cfunc
@cython.nogil
@cython.inline
def sequence_of(base_sequence: Int, delta: Int) -> Int:
    """Sequence number ``delta`` behind the first of a batch; -1 without one. It wraps around to 0."""
    if base_sequence < 0:
        return -1
    return (base_sequence + delta) & MAX_INT


@cython.final
@cython.cclass
class TextWriter:
    """Writes lines in the words of one release: ``used`` bytes of UTF-8 in ``out``.

    ``starts`` are positions in ``parts`` and ``fields`` by :class:`Text`; ``texts`` is what their rows refer
    to. ``other`` gives the text of a key and value that the fields do not cover, from record offset, key and
    value (``None`` for null).
    """

    used = cython.declare(Int, visibility="public")
    position = cython.declare(Int, visibility="readonly")
    """The batch at which :meth:`write` stopped."""
    expected = cython.declare(Int, visibility="readonly")
    """The lowest offset that it may have."""
    out = cython.declare(MutableBytes)
    texts = cython.declare(Bytes)
    parts = cython.declare(LinePartRows)
    fields = cython.declare(TextFieldRows)
    starts = cython.declare(Int64s)
    numbers = cython.declare(Int64s)
    records = cython.declare(Bytes)
    max_records = cython.declare(Int)
    is_consumer = cython.declare(cython.bint)
    other = cython.declare(object)

    def __init__(
        self, texts: Bytes, parts: LinePartRows, fields: TextFieldRows, starts: Int64s, other: object
    ) -> None:
        self.texts = texts
        self.parts = parts
        self.fields = fields
        self.starts = starts
        self.other = other
        self.numbers = zeros(Number.LENGTH)
        self.out = new_bytes(1 << 16)
        self.records = texts
        self.used = 0
        self.position = 0
        self.expected = 0
        self.max_records = 0
        self.is_consumer = False

    def text(self) -> object:
        """What was written, and is valid until more is."""
        return memoryview(self.out)[: self.used]

    def write(self, data: Bytes, start: Int, stop: Int, expected: Int, enough: Int, bounds: Bounds) -> int:
        """Write the lines of the sound v2 batches from ``start`` on; returns why it stopped (:class:`Stop`).

        It stops before ``stop``, with ``FULL`` when ``enough`` bytes are written, and at a batch that is for
        the caller: one to be unpacked for :meth:`write_unpacked`, or whose lines are for Python.
        """
        reason: Int = Stop.END
        size: Int
        batch: Header
        self.records = data
        self.max_records = bounds.max_records
        self.position = start
        self.expected = expected
        with cython.nogil:
            while self.position < stop:
                if self.used >= enough:
                    reason = Stop.FULL
                    break
                size = sound_size(data, self.position, stop, self.expected, False, bounds)
                if size == 0:
                    reason = Stop.UNUSUAL_BATCH
                    break
                batch = header(data, self.position)
                if is_compressed(batch):
                    reason = Stop.COMPRESSED
                    break
                if not self._batch(data, batch, self.position + HEADER_BYTES, self.position + size):
                    reason = Stop.UNUSUAL_RECORDS
                    break
        return reason

    def write_unpacked(self, data: Bytes, records: Bytes) -> bool:
        """Write the lines of the batch at which :meth:`write` stopped, whose ``records`` were compressed.

        False when they are for Python.
        """
        if self.position + HEADER_BYTES > len(data):
            return False
        self.records = records
        return bool(self._batch(data, header(data, self.position), 0, len(records)))

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1)
    def _batch(self, data: Bytes, batch: Header, start: Int, stop: Int) -> Int:
        """Write a batch whose records are ``records[start:stop]``, and go to the next one.

        Returns 0, and leaves everything as it was, when there is something unusual about them.
        """
        before: Int = self.used
        self._note_batch(data, batch)
        if batch.attributes & DELETE_HORIZON_BIT:
            self._line(self.starts[Text.BATCH_WITH_HORIZON])
        else:
            self._line(self.starts[Text.BATCH])
        if batch.count > 0 and not self._records(batch, start, stop):
            self.used = before
            return 0
        self.position += batch.size
        self.expected = batch.last_offset + 1
        return 1

    @cython.cfunc
    @cython.nogil
    def _note_batch(self, data: Bytes, batch: Header) -> cython.void:
        at: Int = self.position
        base_sequence: Int = be32(data, at + BatchField.BASE_SEQUENCE)
        self.numbers[Number.POSITION] = at
        self.numbers[Number.SIZE] = batch.size
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
        self.numbers[Number.TIMESTAMP_TYPE] = 1 if batch.attributes & LOG_APPEND_TIME_BIT else 0
        self.numbers[Number.IS_TRANSACTIONAL] = 1 if batch.attributes & TRANSACTIONAL_BIT else 0
        self.numbers[Number.IS_CONTROL] = 1 if batch.attributes & CONTROL_BIT else 0
        self.numbers[Number.BASE_TIMESTAMP_MS] = batch.base_timestamp
        self.numbers[Number.MAX_TIMESTAMP_MS] = batch.max_timestamp

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1)
    def _records(self, batch: Header, start: Int, stop: Int) -> Int:
        """Write the lines of records; returns 0 when there is something unusual about them."""
        records: Bytes = self.records
        record: Record
        line_end: Int
        delta: Int = -1
        at: Int = start
        unpacked: Header = batch
        unpacked.size = HEADER_BYTES + stop - start
        if not may_hold_records(unpacked, self.max_records):
            return 0
        for _ in range(batch.count):
            record = next_record(records, at, stop)
            if record.unusual & ~Unusual.NO_KEY or not follows(record, delta, batch):
                return 0
            at, delta = record.end, record.offset_delta
            self.numbers[Number.OFFSET] = batch.base_offset + delta
            self.numbers[Number.TIMESTAMP_MS] = signed(cython.cast(Word, record_timestamp(batch, record)) & ALL_64_BITS)
            self.numbers[Number.KEY_SIZE] = record.key_bytes
            self.numbers[Number.VALUE_SIZE] = record.value_bytes
            self.numbers[Number.SEQUENCE] = sequence_of(self.numbers[Number.BASE_SEQUENCE], delta)
            self._line(self.starts[Text.RECORD])
            if batch.attributes & CONTROL_BIT:
                if not self._end_marker(record):
                    return 0
            else:
                line_end = self.used
                if not self._key_and_value(record):
                    self.used = line_end
                    with cython.gil:
                        self._put_other(record)
            self._room(1)
            self.out[self.used] = 0x0A
            self.used += 1
        return at == stop

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1)
    def _end_marker(self, record: Record) -> Int:
        """Write what a control record is; returns 0 unless it ends a transaction."""
        kind: Int
        if record.key_bytes < 4 or record.value_bytes < 6 or be16(self.records, record.key) < 0:
            return 0
        kind = be16(self.records, record.key + 2)
        if kind < 0 or Text.ABORT + kind > Text.COMMIT:
            return 0
        self.numbers[Number.COORDINATOR_EPOCH] = be32(self.records, record.value + 2)
        self._line(self.starts[Text.ABORT + kind])
        return 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1)
    def _key_and_value(self, record: Record) -> Int:
        """Write a key and its value; returns 0, some of them written, when the fields do not cover them."""
        if record.value_bytes < 0 and self.starts[Text.TOMBSTONE] == INVALID:
            return 1
        if record.key_bytes < 2:
            return 0
        key_type: Int = be16(self.records, record.key)
        version: Int = 0
        if key_type < 0 or key_type >= TEXT_KEY_TYPES:
            return 0
        if not self._payload(self.starts[Text.KEYS + key_type], record.key, record.key_bytes):
            return 0
        if record.value_bytes < 0:
            self._label(self.starts[Text.TOMBSTONE])
            return 1
        if record.value_bytes < 2:
            return 0
        version = be16(self.records, record.value)
        if version < 0 or version >= TEXT_VERSIONS:
            return 0
        key_type = Text.VALUES + key_type * TEXT_VERSIONS + version
        return self._payload(self.starts[key_type], record.value, record.value_bytes)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1)
    def _payload(self, first: Int, at: Int, length: Int) -> Int:
        """Write the fields behind the int16 at ``at``; bytes behind the last field are ignored, as by Kafka."""
        return first != INVALID and self._struct(first, at + 2, at + length) != INVALID

    @cython.cfunc
    @cython.exceptval(-1)
    def _put_other(self, record: Record) -> Int:
        """Write a key and value that the fields do not cover."""
        text: Bytes = self.other(
            self.numbers[Number.OFFSET],
            None if record.key_bytes < 0 else bytes(self.records[record.key : record.key + record.key_bytes]),
            None if record.value_bytes < 0 else bytes(self.records[record.value : record.value + record.value_bytes]),
        )
        self._room(len(text))
        copy_bytes(text, 0, self.out, self.used, len(text))
        self.used += len(text)
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.inline
    @cython.exceptval(-1)
    def _room(self, count: Int) -> Int:
        """Make room for ``count`` bytes more."""
        if self.used + count > len(self.out):
            with cython.gil:
                self.out = grown(self.out, self.used, self.used + count)
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.inline
    @cython.exceptval(-1)
    def _copy(self, text: Int, length: Int) -> Int:
        """Write ``length`` bytes of ``texts``; there is room for ``SHORT_TEXT_BYTES`` more."""
        self._room(length + SHORT_TEXT_BYTES)
        copy_bytes(self.texts, text, self.out, self.used, length)
        self.used += length
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.inline
    @cython.exceptval(-1)
    def _label(self, field: Int) -> Int:
        return self._copy(self.fields[field].label, self.fields[field].label_bytes)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1)
    def _line(self, part: Int) -> Int:
        """Write a line, if there is one, by its parts."""
        number: Int = part
        choice: Int
        while number != INVALID:
            self._copy(self.parts[part].text, self.parts[part].text_bytes)
            number = self.parts[part].number
            if number == Number.NONE:
                break
            choice = self.parts[part].choices
            if choice == INVALID:
                self.used = put_number(self.out, self.used, self.numbers[number])
            else:
                choice += self.numbers[number]
                self._copy(self.parts[choice].text, self.parts[choice].text_bytes)
            part += 1
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1)
    def _struct(self, field: Int, at: Int, stop: Int) -> Int:
        """Write the fields from ``field`` on; returns the position behind them, or ``INVALID``."""
        while self.fields[field].kind != FieldKind.END:
            at = self._field(field, at, stop)
            if at == INVALID:
                return INVALID
            field += 1
        if self.fields[field].flags & FieldFlag.COMPACT:
            at = self._tags(field + 1, at, stop)
            if at == INVALID:
                return INVALID
        self._label(field)
        return at

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1)
    def _tags(self, field: Int, at: Int, stop: Int) -> Int:
        """Write a tag section; ``INVALID`` for tags out of order, of another size, or in no schema."""
        count: Int
        tag: Int
        size: Int
        before: Int
        count, at = uvarint(self.records, at, stop)
        if at == INVALID:
            return INVALID
        for _ in range(count):
            tag, at = uvarint(self.records, at, stop)
            if at == INVALID:
                return INVALID
            size, at = uvarint(self.records, at, stop)
            if at == INVALID or size > stop - at:
                return INVALID
            while self.fields[field].kind != FieldKind.END and self.fields[field].tag != tag:
                field += 1
            if self.fields[field].kind == FieldKind.END:
                return INVALID
            before = self.used
            if self._field(field, at, at + size) != at + size:
                return INVALID
            if self._has_text(field, before):
                self.used = before
            at += size
            field += 1
        return at

    @cython.cfunc
    @cython.nogil
    @cython.inline
    def _has_text(self, field: Int, before: Int) -> cython.bint:
        """Whether the value of a field, written from ``before`` on, is ``TextField.text``."""
        start: Int = before + self.fields[field].label_bytes
        length: Int = self.fields[field].text_bytes
        return self.used - start == length and same_bytes(self.out, start, self.texts, self.fields[field].text, length)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1)
    def _field(self, field: Int, at: Int, stop: Int) -> Int:
        """Write a field with its label; returns the position behind it, or ``INVALID``."""
        kind: Int = self.fields[field].kind
        before: Int = self.used
        self._label(field)
        if kind == FieldKind.INT:
            at = self._int(self.fields[field].inner, at, stop)
        elif kind == FieldKind.UINT16:
            if stop - at < 2:
                return INVALID
            self.used = put_number(self.out, self.used, be16(self.records, at) & 0xFFFF)
            at += 2
        elif kind == FieldKind.UUID:
            if stop - at < 16:
                return INVALID
            self._base64(at, 16, URL_DIGITS)
            at += 16
        elif kind == FieldKind.STRUCT:
            at = self._optional_struct(field, at, stop)
        else:
            at = self._sized(field, before, at, stop)
        if self.fields[field].flags & FieldFlag.UNPRINTED:
            self.used = before
        return at

    @cython.cfunc
    @cython.nogil
    @cython.inline
    def _int(self, size: Int, at: Int, stop: Int) -> Int:
        value: Int
        if stop - at < size:
            return INVALID
        if size == 4:
            value = be32(self.records, at)
        elif size == 8:
            value = be64(self.records, at)
        elif size == 2:
            value = be16(self.records, at)
        else:
            value = self.records[at]
            value = (value ^ 0x80) - 0x80
        self.used = put_number(self.out, self.used, value)
        return at + size

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1)
    def _optional_struct(self, field: Int, at: Int, stop: Int) -> Int:
        """Write a struct. One that can be null begins with an int8 below 0 for that, tagged: with a varint 0."""
        is_null: cython.bint
        if self.fields[field].flags & FieldFlag.NULLABLE:
            if at >= stop:
                return INVALID
            is_null = self.records[at] >= 0x80
            if self.fields[field].tag >= 0:
                if is_null:
                    return INVALID
                is_null = self.records[at] == 0
            at += 1
            if is_null:
                return self._null(at)
        return self._struct(self.fields[field].inner, at, stop)

    @cython.cfunc
    @cython.nogil
    @cython.inline
    def _null(self, at: Int) -> Int:
        """Write ``null``; returns ``at``."""
        self._put(0x6E)
        self._put(0x75)
        self._put(0x6C)
        self._put(0x6C)
        return at

    @cython.cfunc
    @cython.nogil
    @cython.inline
    def _put(self, character: Int) -> cython.void:
        """Write a character, for which there is room."""
        self.out[self.used] = character
        self.used += 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1)
    def _sized(self, field: Int, before: Int, at: Int, stop: Int) -> Int:
        """Write a field that begins with its length."""
        kind: Int = self.fields[field].kind
        flags: Int = self.fields[field].flags
        length: Int
        is_text: cython.bint = (
            kind == FieldKind.STRING or kind == FieldKind.PLAIN_STRING or kind == FieldKind.PROTOCOL_TYPE
        )
        if flags & FieldFlag.COMPACT:
            length, at = uvarint(self.records, at, stop)
            length -= 1
            if at == INVALID:
                return INVALID
        elif stop - at < (2 if is_text else 4):
            return INVALID
        elif is_text:
            length = be16(self.records, at)
            at += 2
        else:
            length = be32(self.records, at)
            at += 4
        # Bytes, and elements of an array, which take one or more each.
        if length > stop - at or (length < 0 and not flags & FieldFlag.NULLABLE):
            return INVALID
        if length < 0:
            return self._null(at)
        if kind == FieldKind.ARRAY:
            return self._array(self.fields[field].inner, length, at, stop)
        if is_text:
            if length > MAX_STRING_BYTES or not is_plain_utf8(self.records, at, length):
                return INVALID
            self._room(6 * length + 2)
            if kind == FieldKind.PLAIN_STRING:
                copy_bytes(self.records, at, self.out, self.used, length)
                self.used += length
                if length == 0 and flags & FieldFlag.OMIT_EMPTY:
                    self.used = before
            else:
                self._put(0x22)
                self.used = put_escaped(self.records, at, length, self.out, self.used)
                self._put(0x22)
                if kind == FieldKind.PROTOCOL_TYPE:
                    self.is_consumer = self._has_text(field, before)
        elif kind == FieldKind.BLOB and self.is_consumer and length > 0:
            if not self._blob(field, at, at + length):
                return INVALID
        else:
            self._base64(at, length, BASE64_DIGITS)
        return at + length

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1)
    def _array(self, element: Int, length: Int, at: Int, stop: Int) -> Int:
        self._put(0x5B)
        for index in range(length):
            if index > 0:
                self._room(1)
                self._put(0x2C)
            at = self._field(element, at, stop)
            if at == INVALID:
                return INVALID
        self._room(1)
        self._put(0x5D)
        return at

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1)
    def _blob(self, field: Int, at: Int, stop: Int) -> Int:
        """Write what a member's bytes hold, an int16 version and a struct; returns 0 if they hold none."""
        version: Int
        if stop - at < 2:
            return 0
        version = be16(self.records, at)
        if version < 0 or version > self.fields[field].last_version:
            return 0
        return self._field(self.fields[field].inner + version, at + 2, stop) != INVALID

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1)
    def _base64(self, at: Int, length: Int, digits: Int) -> Int:
        """Write bytes as a JSON string, those of a UUID without padding."""
        self._room(2 * length + SHORT_TEXT_BYTES)
        self._put(0x22)
        self.used = put_base64(
            self.records, at, length, self.texts, digits, digits == BASE64_DIGITS, self.out, self.used
        )
        self._put(0x22)
        return 0
