"""What the compiled dump prints, as programs for :func:`coordinator_core.columnar.text.write_text`.

Lines come from templates, keys and values from Kafka's record schemas; the texts are those of
:mod:`coordinator_core.reports.dump_payloads`, which prints what no program covers.
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from coordinator_core.columnar.tables import Bytes, Int64s
from coordinator_core.columnar.text import (
    LITERAL_PADDING,
    MAX_CHOICE_BYTES,
    VALUE_VERSIONS,
    Flag,
    Number,
    Op,
    Start,
    Step,
)
from coordinator_core.records.blobs import CONSUMER_ASSIGNMENT, CONSUMER_PROTOCOL_TYPE, CONSUMER_SUBSCRIPTION
from coordinator_core.records.jsontext import GROUP_METADATA_TYPE
from coordinator_core.records.schemas import RECORD_TYPES
from coordinator_core.records.types import ArrayOf, Field, FieldType, Primitive, Schema, Struct
from coordinator_core.releases import Release
from coordinator_core.reports.dump_payloads import (
    OFFSET_TYPES,
    TOMBSTONE,
    known_types,
    known_value_schema,
)

Word = str | Number | tuple[Number, tuple[str, ...]]
"""What a word of a template stands for: fixed text, a number, or one of several texts by a number."""

_INT_BYTES = {Primitive.INT8: 1, Primitive.INT16: 2, Primitive.INT32: 4, Primitive.INT64: 8}
_BLOBS = {"subscription": CONSUMER_SUBSCRIPTION, "assignment": CONSUMER_ASSIGNMENT}


@dataclass(frozen=True)
class Programs:
    """The tables of one release, as the kernel takes them."""

    program: Int64s
    literals: Bytes
    starts: Int64s


@dataclass(frozen=True)
class _Form:
    """How values are written: ``blobs`` names the bytes that are objects, with their programs."""

    version: int
    is_flexible: bool
    release: Release | None = None
    blobs: Mapping[str, int] = field(default_factory=dict)

    def flags(self, nullable: bool = False) -> int:
        return (Flag.COMPACT if self.is_flexible else 0) | (Flag.NULLABLE if nullable else 0)


class ProgramWriter:
    """Programs in the making. Text is kept until the next step, whose literal it becomes."""

    def __init__(self) -> None:
        self._steps: list[list[int]] = []
        self._literals = bytearray()
        self._places: dict[bytes, int] = {}
        self._starts = [-1] * Start.SIZE
        self._text = ""
        self._common_flags = 0

    def programs(self) -> Programs:
        """The tables of all that was written."""
        literals = np.frombuffer(bytes(self._literals) + bytes(LITERAL_PADDING), np.uint8)
        return Programs(np.array(self._steps, np.int64), literals, np.array(self._starts, np.int64))

    def start(self, which: int) -> None:
        """What follows, up to an ``END``, is the program ``starts[which]``."""
        self._starts[which] = self._next()

    def text(self, text: str) -> None:
        self._text += text

    def step(self, op: Op, *, argument: int = 0, flags: int = 0, target: int = 0) -> int:
        """A step behind the text so far; returns where it is, for :meth:`come_here`."""
        literal, self._text = self._text.encode(), ""
        return self._append(op, literal, argument, flags, target)

    def come_here(self, *steps: int) -> None:
        """Make the next step the target of ``steps``."""
        for step in steps:
            self._steps[step][Step.TARGET] = self._next()

    @contextmanager
    def silence(self, *, unless: bool = False) -> Iterator[None]:
        """Within, everything is read and nothing printed."""
        before = self._common_flags
        self._common_flags = before if unless else Flag.SILENT
        yield
        self._common_flags = before

    def template(self, which: Start, template: str, words: Mapping[str, Word]) -> None:
        """The program of a line with words in braces."""
        self.start(which)
        choices: list[tuple[int, tuple[str, ...]]] = []
        for text, name, _, _ in string.Formatter().parse(template):
            self.text(text)
            word = words[name] if name is not None else ""
            if isinstance(word, str):
                self.text(word)
            elif isinstance(word, Number):
                self.step(Op.NUMBER, argument=word)
            else:
                choices.append((self.step(Op.CHOICE, argument=word[0]), word[1]))
        self.step(Op.END)
        for step, texts in choices:
            self.come_here(step)
            for text in texts:
                assert len(text) <= MAX_CHOICE_BYTES
                self.text(text)
                self.step(Op.END)

    def key(self, key_type: int) -> None:
        """The program of a key as JSON."""
        self.start(Start.KEYS + key_type)
        self.text(f' key: {{"type":"{key_type}","data":')
        self._struct(RECORD_TYPES[key_type].key.struct, _Form(0, False))
        self.text("}")
        self.step(Op.END)

    def value(self, key_type: int, schema: Schema, version: int, release: Release) -> None:
        """The program of a value as JSON."""
        form = _Form(version, schema.is_flexible(version), release)
        if key_type != GROUP_METADATA_TYPE:
            self.start_value(key_type, version)
            self._payload(schema, form)
            return
        blobs = {name: self._blob_programs(blob) for name, blob in _BLOBS.items()}
        name = CONSUMER_PROTOCOL_TYPE.encode()
        length = bytes([len(name) + 1]) if form.is_flexible else len(name).to_bytes(2, "big")
        self.start_value(key_type, version)
        match = self._append(Op.MATCH, length + name)
        self._payload(schema, replace(form, blobs=blobs))
        self.come_here(match)
        self._payload(schema, form)

    def start_value(self, key_type: int, version: int) -> None:
        self.start(Start.VALUES + key_type * VALUE_VERSIONS + version)

    def tags(self, struct: Struct, version: int, release: Release | None = None) -> None:
        """The tag section of a struct; tags that ``release`` does not know are not printed."""
        fields = [each for each in struct.fields_in_version(version) if each.tag is not None]
        assert not any(each.type in (Primitive.STRING, Primitive.BYTES) for each in fields)
        ends = [self.step(Op.TAGS)]
        for each in sorted(fields, key=lambda each: each.tag or 0):
            assert each.tag is not None
            block = self.step(Op.TAG, argument=each.tag)
            with self.silence(unless=release is None or each.added_in is None or each.added_in <= release):
                self.text(f',"{each.name}":')
                self._field(each, _Form(version, True, release), checked=True)
            ends.append(self.step(Op.TAG_END))
            self.come_here(block)
        self.come_here(*ends)
        self.step(Op.TAGS_END)

    def _next(self) -> int:
        assert not self._text, "text cannot be kept where programs meet"
        return len(self._steps)

    def _append(self, op: Op, literal: bytes, argument: int = 0, flags: int = 0, target: int = 0) -> int:
        place = self._places.get(literal)
        if place is None:
            place = self._places[literal] = len(self._literals)
            self._literals += literal
        self._steps.append([op, place, len(literal), argument, flags | self._common_flags, target])
        return len(self._steps) - 1

    def _payload(self, schema: Schema, form: _Form) -> None:
        self.text(f' payload: {{"version":"{form.version}","data":')
        self._struct(schema.struct, form)
        self.text("}")
        self.step(Op.END)

    def _struct(self, struct: Struct, form: _Form, *, checked: bool = False) -> None:
        separator = "{"
        for each in struct.fields_in_version(form.version):
            if each.tag is None:
                self.text(f'{separator}"{each.name}":')
                self._field(each, form, checked=checked)
                separator, checked = ",", False
        if form.is_flexible:
            self.tags(struct, form.version, form.release)
        self.text("}")

    def _field(self, each: Field, form: _Form, *, checked: bool = False) -> None:
        """``checked`` refuses a default (of a struct, in its first field): tags that have it are left out."""
        flags = form.flags(each.nullable) | (Flag.NOT_DEFAULT if checked else 0)
        default = each.default_value(form.version)
        if each.name in form.blobs:
            newest = _BLOBS[each.name].last_version
            self.step(Op.BLOB, argument=newest, flags=flags, target=form.blobs[each.name])
        elif isinstance(each.type, Struct) and each.nullable:
            assert each.tag is None or default is not None
            optional = self.step(Op.OPTIONAL, flags=0 if each.tag is None else Flag.COMPACT)
            self._struct(each.type, form, checked=checked)
            self.come_here(self.step(Op.JUMP), optional)
        else:
            self._value(each.type, form, flags, default if isinstance(default, int) else 0)

    def _value(self, type_: FieldType, form: _Form, flags: int, default: int = 0) -> None:
        if isinstance(type_, Struct):
            self._struct(type_, form)
        elif isinstance(type_, ArrayOf):
            array = self.step(Op.ARRAY, flags=flags)
            first = self._next()
            self._value(type_.element, form, form.flags())
            self.step(Op.NEXT, target=first)
            self.come_here(array)
        elif type_ is Primitive.STRING:
            self.step(Op.STRING, flags=flags | Flag.QUOTED)
        elif type_ is Primitive.BYTES:
            self.step(Op.BYTES, flags=flags)
        elif type_ is Primitive.UUID:
            self.step(Op.UUID, flags=flags)
        elif type_ is Primitive.UINT16:
            self.step(Op.UINT16)
        else:
            self.step(Op.INT, argument=_INT_BYTES[type_], flags=flags, target=default)

    def _blob_programs(self, blob: Schema) -> int:
        """Programs for every version of a blob; returns the first of the steps that lead there."""
        first = self._next()
        jumps = [self.step(Op.JUMP) for _ in blob.versions]
        for version, jump in zip(blob.versions, jumps, strict=True):
            self.come_here(jump)
            self._struct(blob.struct, _Form(version, False))
            self.step(Op.RETURN)
        return first


def json_programs(writer: ProgramWriter, release: Release) -> None:
    """3.8 and later: see :func:`coordinator_core.reports.dump_payloads.json_formatter`."""
    _tombstones(writer)
    for key_type in known_types(release) & RECORD_TYPES.keys():
        writer.key(key_type)
        for version in range(VALUE_VERSIONS):
            schema = known_value_schema(key_type, version, release)
            if schema is not None:
                writer.value(key_type, schema, version, release)


def named_programs(writer: ProgramWriter) -> None:
    """2.4 to 3.7: see :func:`coordinator_core.reports.dump_payloads.named_texts`."""
    _tombstones(writer)
    writer.start(Start.KEYS + GROUP_METADATA_TYPE)
    writer.text(" key: group_metadata::group=")
    writer.step(Op.STRING)
    writer.step(Op.END)
    _commits(
        writer, ("offset_commit::group=", ",partition=", "-"), {"offset": "offset=", "metadata": ",metadata="}
    )


def colon_programs(writer: ProgramWriter) -> None:
    """0.9 to 2.3: see :func:`coordinator_core.reports.dump_payloads.plain_texts`."""
    _commits(writer, ("offset::", ":", ":"), {"offset": "", "metadata": ":"})


def _tombstones(writer: ProgramWriter) -> None:
    writer.start(Start.TOMBSTONE)
    writer.text(f" payload: {TOMBSTONE}")
    writer.step(Op.END)


def _commits(writer: ProgramWriter, key_labels: tuple[str, str, str], labels: Mapping[str, str]) -> None:
    """Commits with labels before group, topic and partition, and those of the value that are printed."""
    group, topic, partition = key_labels
    for key_type in OFFSET_TYPES:
        writer.start(Start.KEYS + key_type)
        writer.text(f" key: {group}")
        writer.step(Op.STRING)
        writer.text(topic)
        writer.step(Op.STRING)
        writer.text(partition)
        writer.step(Op.INT, argument=4)
        writer.step(Op.END)
        schema = RECORD_TYPES[key_type].value
        for version in schema.versions:
            writer.start_value(key_type, version)
            writer.text(" payload: ")
            compact = Flag.COMPACT if schema.is_flexible(version) else 0
            for each in schema.struct.fields_in_version(version):
                label = labels.get(each.name)
                writer.text(label or "")
                if each.type is Primitive.STRING:
                    writer.step(Op.STRING, flags=compact | Flag.OMIT_EMPTY)
                elif each.tag is None:
                    assert isinstance(each.type, Primitive)
                    silent = Flag.SILENT if label is None else 0
                    writer.step(Op.INT, argument=_INT_BYTES[each.type], flags=silent)
            if compact:
                with writer.silence():
                    writer.tags(schema.struct, version)
            writer.step(Op.END)
