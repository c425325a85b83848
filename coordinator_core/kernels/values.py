"""Keys and values of records, as Python's own objects: those of ordinary bytes.

Ordinary is what Kafka's own writer makes: no unknown tag, no malformed text, nothing cut short. Other bytes are
left to ``records.codec_closures``, which alone knows what Kafka's reader says of it, and at which byte.
"""

import cython

if not cython.compiled:
    from coordinator_core.kernels.declare import *

_MOST_STRING_BYTES = cython.declare(Int, 0x7FFF)
_ONE_BYTE = cython.declare(Int, 0x80)
"""A varint below this is one byte."""


@cython.final
@cython.cclass
class Cursor:
    """A place in ``data``. ``unusual`` is set by the first read of bytes that are not ordinary, and means the end."""

    data = cython.declare(bytes)
    at = cython.declare(Int)
    stop = cython.declare(Int)
    elements = cython.declare(Int)  # Of all arrays.
    unusual = cython.declare(cython.bint)

    def __init__(self, data: bytes, at: Int) -> None:
        self.data = data
        self.at = at
        self.stop = len(data)
        self.elements = 0
        self.unusual = False

    @cython.cfunc
    @cython.returns(Int)
    def number(self, size: Int) -> Int:
        """The signed big-endian number of ``size`` bytes."""
        if size > self.stop - self.at:
            self.unusual = True
            return 0
        found: Int = self.data[self.at]
        if found >= 128:
            found -= 256
        for place in range(self.at + 1, self.at + size):
            found = (found << 8) | self.data[place]
        self.at += size
        return found

    @cython.cfunc
    @cython.returns(Int)
    def uvarint(self) -> Int:
        """An unsigned varint of at most four bytes."""
        found: Int = 0
        for shift in range(0, 28, 7):
            if self.at >= self.stop:
                break
            part: Int = self.data[self.at]
            self.at += 1
            found |= (part & 0x7F) << shift
            if part < _ONE_BYTE:
                return found
        self.unusual = True
        return 0


@cython.final
@cython.cclass
class ValueDecoder:
    """Decoder of a value of one ``Form``.

    ``size`` is that of a number, 0 for the one without a sign, which has two bytes; of others that of their length, 0
    for a varint. ``uuid`` makes text of 16 bytes. A struct has ``parts`` by ``names``; the last ones are those with
    ``tags``, and ``defaults`` make what they are when they are absent. An array has one part, its element.
    """

    form = cython.declare(Int)
    size = cython.declare(Int)
    is_nullable = cython.declare(cython.bint)
    is_flexible = cython.declare(cython.bint)
    uuid = cython.declare(object)
    names = cython.declare(list)
    parts = cython.declare(list)
    tags = cython.declare(list)
    defaults = cython.declare(list)

    def __init__(
        self,
        form: Int,
        size: Int,
        is_nullable: cython.bint,
        is_flexible: cython.bint,
        uuid: object,
        names: list,
        parts: list,
        tags: list,
        defaults: list,
    ) -> None:
        self.form = form
        self.size = size
        self.is_nullable = is_nullable
        self.is_flexible = is_flexible
        self.uuid = uuid
        self.names = names
        self.parts = parts
        self.tags = tags
        self.defaults = defaults

    def decode(self, data: bytes, at: Int) -> object:
        """The value at ``at`` and the position behind it; ``None`` where the bytes are not ordinary."""
        cursor: Cursor = Cursor(data, at)
        try:
            found = self._value(cursor)
        except UnicodeDecodeError:
            return None
        return None if cursor.unusual else (found, cursor.at)

    @cython.cfunc
    @cython.returns(object)
    def _value(self, cursor: Cursor) -> object:
        if self.form == Form.NUMBER:
            number: Int = cursor.number(self.size if self.size > 0 else 2)
            return number & 0xFFFF if self.size == 0 else number
        if self.form == Form.STRUCT:
            return None if self.is_nullable and self._is_null_struct(cursor) else self._fields(cursor)
        if self.form == Form.UUID:
            length: Int = 16
        else:
            length = cursor.number(self.size) if self.size > 0 else cursor.uvarint() - 1
        if length < 0 and self.is_nullable and not cursor.unusual:
            return None
        if length < 0 or length > cursor.stop - cursor.at or cursor.unusual:
            cursor.unusual = True
            return None
        if self.form == Form.ARRAY:
            return self._items(cursor, length)
        start: Int = cursor.at
        cursor.at += length
        data: bytes = cursor.data
        if self.form == Form.BYTES:
            return data[start : start + length]
        if self.form == Form.UUID:
            return self.uuid(data[start : start + length])
        if length > _MOST_STRING_BYTES:
            cursor.unusual = True
            return None
        return data[start : start + length].decode("utf-8")

    @cython.cfunc
    @cython.returns(cython.bint)
    def _is_null_struct(self, cursor: Cursor) -> cython.bint:
        """Whether nothing follows: a negative byte, or in a tag (``size`` 0) a varint of 0."""
        mark: Int = cursor.number(1)
        if self.size > 0:
            return mark < 0
        if mark < 0:
            cursor.unusual = True
        return mark == 0

    @cython.cfunc
    @cython.returns(object)
    def _items(self, cursor: Cursor, count: Int) -> object:
        element: ValueDecoder = self.parts[0]
        found: list = []
        cursor.elements += count
        if cursor.elements > MAX_ELEMENTS:
            cursor.unusual = True
            return found
        for _ in range(count):
            found.append(element._value(cursor))
            if cursor.unusual:
                break
        return found

    @cython.cfunc
    @cython.returns(object)
    def _fields(self, cursor: Cursor) -> object:
        found: dict = {}
        part: ValueDecoder
        count: Int = len(self.parts)
        untagged: Int = count - len(self.tags)
        for place in range(untagged):
            part = self.parts[place]
            found[self.names[place]] = part._value(cursor)
            if cursor.unusual:
                return None
        if not self.is_flexible:
            return found
        # Fields keep the order of the schema; a default is made where no value comes.
        for place in range(untagged, count):
            found[self.names[place]] = self
        tagged: Int = cursor.number(1)
        if tagged < 0:
            cursor.unusual = True
        for _ in range(tagged):
            tag: Int = cursor.number(1)
            # The declared size means nothing to Kafka where it knows the tag.
            cursor.uvarint()
            known: cython.bint = False
            for place in range(untagged, count):
                if self.tags[place - untagged] == tag and not cursor.unusual:
                    part = self.parts[place]
                    found[self.names[place]] = part._value(cursor)
                    known = True
            if not known:
                cursor.unusual = True
                break
        for place in range(untagged, count):
            if found[self.names[place]] is self:
                found[self.names[place]] = self.defaults[place - untagged]()
        return found
