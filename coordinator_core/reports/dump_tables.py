"""The tables by which compiled code prints a release's lines, keys and values (``kernels.text``).

Lines come from the templates of :mod:`~coordinator_core.reports.dump_styles`, keys and values from Kafka's
record schemas and the forms of :mod:`~coordinator_core.reports.dump_payloads`.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from coordinator_core.kernels.arrays import dtype, viewed
from coordinator_core.kernels.layout import (
    ESCAPE_BYTES,
    INVALID,
    TEXT_VERSIONS,
    FieldFlag,
    FieldKind,
    Number,
    Text,
    TextField,
)
from coordinator_core.records.blobs import CONSUMER_PROTOCOL_TYPE
from coordinator_core.records.jsontext import (
    CONSUMER_BLOBS,
    GROUP_METADATA_TYPE,
    json_text,
    key_start,
    quote,
    value_start,
)
from coordinator_core.records.schemas import RECORD_TYPES
from coordinator_core.records.types import ArrayOf, Field, FieldType, Primitive, Schema, Struct
from coordinator_core.releases import Release
from coordinator_core.reports.dump_payloads import OFFSET_TYPES, TOMBSTONE, CommitForm, known_types, known_value_schema

Word = str | Number | tuple[Number, tuple[str, ...]]
"""Meanings of a word of a template: text, a number, or one of several texts by a number."""

_KEY, _PAYLOAD = " key: ", " payload: "
_DIGITS = string.ascii_uppercase + string.ascii_lowercase + string.digits
_FIXED = {
    Primitive.INT8: (FieldKind.INT, 1),
    Primitive.INT16: (FieldKind.INT, 2),
    Primitive.UINT16: (FieldKind.INT, 2),
    Primitive.INT32: (FieldKind.INT, 4),
    Primitive.INT64: (FieldKind.INT, 8),
    Primitive.UUID: (FieldKind.UUID, 16),
}
"""Kinds and bytes."""


class Tables(NamedTuple):
    """Arguments of ``kernels.TextWriter``."""

    texts: bytes
    fields: Any
    starts: Any


@dataclass(frozen=True, slots=True)
class _Form:
    """Rows by which a struct is read and printed: as JSON, or without quotes the fields that ``labels`` names."""

    version: int
    is_flexible: bool
    release: Release | None = None
    has_blobs: bool = False
    labels: Mapping[str, str] | None = None

    def prints(self, field: Field) -> bool:
        if self.labels is not None:
            return field.name in self.labels
        return self.release is None or field.added_in is None or field.added_in <= self.release


class TableWriter:
    """Tables in the making."""

    def __init__(self) -> None:
        self._texts = bytearray(f"{_DIGITS}+/{_DIGITS}-_null".encode())
        # Only ASCII is escaped; the bytes of other characters stay.
        ascii_escapes = [quote(chr(code))[1:-1].encode() for code in range(0x80)]
        self._choices([*ascii_escapes, *(bytes((byte,)) for byte in range(0x80, 0x100))], ESCAPE_BYTES)
        self._places: dict[str, tuple[int, int]] = {}
        self._fields: list[TextField] = []
        self._starts = [INVALID] * Text.LENGTH

    def tables(self) -> Tables:
        """All that was written."""
        starts = viewed(np.array(self._starts, np.int64))
        return Tables(bytes(self._texts), _rows(self._fields), starts)

    def line(self, start: Text, template: str, words: Mapping[str, Word]) -> None:
        """A line with words in braces."""
        rows: list[TextField] = []
        text = ""
        for literal, name, _, _ in string.Formatter().parse(template):
            word = "" if name is None else words[name]
            text += literal
            if isinstance(word, str):
                text += word
                continue
            if isinstance(word, Number):
                rows.append(self._row(text, FieldKind.NUMBER, inner=word))
            else:
                number, texts = word
                rows.append(self._row(text, FieldKind.CHOICE, inner=number))
                rows[-1].text_bytes = max(map(len, texts)) + 1
                rows[-1].text = self._choices([each.encode() for each in texts], rows[-1].text_bytes)
            text = ""
        self._starts[start] = self._add([*rows, self._end(text)])

    def json(self, release: Release) -> None:
        """Keys and values of 3.8 and later (``dump_payloads.json_formatter``)."""
        self._tombstone(TOMBSTONE)
        for key_type in known_types(release) & RECORD_TYPES.keys():
            key = self._struct(RECORD_TYPES[key_type].key.struct, _Form(0, False))
            self._starts[Text.KEYS + key_type] = self._object(_KEY + key_start(key_type), key)
            for version in range(TEXT_VERSIONS):
                schema = known_value_schema(key_type, version, release)
                if schema is not None:
                    has_blobs = key_type == GROUP_METADATA_TYPE
                    form = _Form(version, schema.is_flexible(version), release, has_blobs)
                    value = self._struct(schema.struct, form)
                    self._start_value(key_type, version, self._object(_PAYLOAD + value_start(version), value))

    def commits(self, form: CommitForm) -> None:
        """Keys and values of releases before 3.8; of groups no more than keys."""
        for key_type in OFFSET_TYPES:
            self._plain_key(key_type, form.key)
            value = RECORD_TYPES[key_type].value
            labels = _labels(_PAYLOAD + form.value + form.metadata)
            for version in value.versions:
                plain = _Form(version, value.is_flexible(version), labels=labels)
                self._start_value(key_type, version, self._struct(value.struct, plain))
        if form.tombstone is not None:
            self._plain_key(GROUP_METADATA_TYPE, form.group_key)
            self._tombstone(form.tombstone)

    def _tombstone(self, text: str) -> None:
        self._starts[Text.TOMBSTONE] = self._add([self._end(_PAYLOAD + text)])

    def _plain_key(self, key_type: int, template: str) -> None:
        form = _Form(0, False, labels=_labels(_KEY + template))
        self._starts[Text.KEYS + key_type] = self._struct(RECORD_TYPES[key_type].key.struct, form)

    def _start_value(self, key_type: int, version: int, first: int) -> None:
        self._starts[Text.VALUES + key_type * TEXT_VERSIONS + version] = first

    def _object(self, label: str, data: int) -> int:
        """Add the object that has a struct as its data; returns its first row."""
        return self._add([self._row(label, FieldKind.STRUCT, inner=data), self._end("}")])

    def _struct(self, struct: Struct, form: _Form) -> int:
        """Add the fields of a struct; returns the first row."""
        fields = list(struct.fields_in_version(form.version))
        tagged = [each for each in fields if each.tag is not None]
        # They are printed in the order of their tags, and by the formatters in Python in that of the schema.
        assert tagged == sorted(tagged, key=lambda each: each.tag or 0)
        rows: list[TextField] = []
        for each in fields:
            if each.tag is None:
                rows.append(self._field("," if rows else "{", each, form))
        rows.append(self._end("}" if form.labels is None else "", form.is_flexible))
        if form.is_flexible:
            rows += [self._field(",", each, form) for each in tagged]
            rows.append(self._end(""))
        return self._add(rows)

    def _field(self, separator: str, field: Field, form: _Form) -> TextField:
        label = f'{separator}"{field.name}":'
        if form.labels is not None:
            label = form.labels.get(field.name, "")
        row = self._value(label, field.type, form)
        if field.nullable:
            row.flags |= FieldFlag.NULLABLE
        if not form.prints(field):
            row.flags |= FieldFlag.UNPRINTED
        if field.tag is not None:
            default = json_text(field.type, form.version, form.release)(field.default_value(form.version))
            row.flags |= FieldFlag.TAGGED
            row.tag = field.tag
            row.text, row.text_bytes = self._text(default)
        if form.has_blobs and field.name == "protocolType":
            row.kind = FieldKind.PROTOCOL_TYPE
            row.text, row.text_bytes = self._text(quote(CONSUMER_PROTOCOL_TYPE))
        elif form.has_blobs and field.name in CONSUMER_BLOBS:
            row.kind = FieldKind.BLOB
            row.inner = self._versions(CONSUMER_BLOBS[field.name])
            row.last_version = CONSUMER_BLOBS[field.name].last_version
        elif form.labels is not None and field.name == "metadata":
            row.flags |= FieldFlag.OMIT_EMPTY
        return row

    def _value(self, label: str, type_: FieldType, form: _Form) -> TextField:
        flags = FieldFlag.COMPACT if form.is_flexible else 0
        if isinstance(type_, Struct):
            return self._row(label, FieldKind.STRUCT, flags, self._struct(type_, form))
        if isinstance(type_, ArrayOf):
            element = self._add([self._value("", type_.element, form)])
            return self._row(label, FieldKind.ARRAY, flags, element)
        if type_ is Primitive.STRING:
            kind = FieldKind.STRING if form.labels is None else FieldKind.PLAIN_STRING
            return self._row(label, kind, flags)
        if type_ is Primitive.BYTES:
            return self._row(label, FieldKind.BYTES, flags)
        flags |= FieldFlag.UNSIGNED if type_ is Primitive.UINT16 else 0
        kind, size = _FIXED[type_]
        return self._row(label, kind, flags, size)

    def _versions(self, blob: Schema) -> int:
        """Add the structs that a blob can hold, one row a version; returns the first row."""
        structs = [self._struct(blob.struct, _Form(version, False)) for version in blob.versions]
        return self._add([self._row("", FieldKind.STRUCT, inner=struct) for struct in structs])

    def _end(self, label: str, has_tags: bool = False) -> TextField:
        return self._row(label, FieldKind.END, FieldFlag.COMPACT if has_tags else 0)

    def _row(self, label: str, kind: FieldKind, flags: int = 0, inner: int = INVALID) -> TextField:
        at, length = self._text(label)
        return TextField(label=at, label_bytes=length, kind=kind, flags=flags, inner=inner)

    def _choices(self, texts: list[bytes], size: int) -> int:
        """Add texts in ``size`` bytes each; returns the position of the first."""
        at = len(self._texts)
        for text in texts:
            self._texts += bytes((len(text), *text)).ljust(size, b"\0")
        return at

    def _add(self, rows: list[TextField]) -> int:
        """Append rows; returns the first."""
        self._fields += rows
        return len(self._fields) - len(rows)

    def _text(self, text: str) -> tuple[int, int]:
        """Position and size of a text."""
        if text not in self._places:
            self._places[text] = len(self._texts), len(text.encode())
            self._texts += text.encode()
        return self._places[text]


def _rows(rows: list[TextField]) -> Any:
    """The rows as an array; fields that a row does not have are ``INVALID``."""
    kind = dtype("TextField")
    names = kind.names or ()
    return viewed(np.array([tuple(getattr(row, name, INVALID) for name in names) for row in rows], kind))


def _labels(template: str) -> dict[str, str]:
    """The text before each word of a template."""
    return {name: text for text, name, _, _ in string.Formatter().parse(template) if name is not None}
