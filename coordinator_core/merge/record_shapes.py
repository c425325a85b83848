"""Schemas of group records as shapes (:mod:`coordinator_core.kernels.shapes`)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np

from coordinator_core.kernels import arrays
from coordinator_core.kernels.layout import SHAPE_VERSIONS, MarkedField, Prefix, ShapeKind
from coordinator_core.records.schemas import CURRENT_LAYOUT, PREVIEW_3_7_LAYOUT, RECORD_TYPES
from coordinator_core.records.types import ArrayOf, Field, FieldType, Primitive, Struct
from coordinator_core.records.wire import MAX_STRING_BYTES
from coordinator_core.releases import Profile
from coordinator_core.replay.interpret import value_layouts

KEY_TYPES = max(RECORD_TYPES) + 1

_NO_LIMIT = 1 << 31
_FIXED_BYTES = {
    Primitive.INT8: 1,
    Primitive.INT16: 2,
    Primitive.UINT16: 2,
    Primitive.INT32: 4,
    Primitive.INT64: 8,
    Primitive.UUID: 16,
}

_OWNED = {
    "memberEpoch": MarkedField.EPOCH,
    "assignedPartitions": MarkedField.OWNED,
    "partitionsPendingRevocation": MarkedField.OWNED,
    "topicId": MarkedField.TOPIC_ID,
    "partitions": MarkedField.PARTITIONS,
}
_EPOCH_ONLY = {"memberEpoch": MarkedField.EPOCH}
_TARGET = {"assignmentEpoch": MarkedField.EPOCH}
MARKED: dict[int, dict[str, MarkedField]] = {
    2: {
        "protocolType": MarkedField.PROTOCOL_TYPE,
        "members": MarkedField.MEMBERS,
        "groupInstanceId": MarkedField.INSTANCE_ID,
        "subscription": MarkedField.SUBSCRIPTION,
    },
    6: _TARGET,
    8: _OWNED,
    12: _TARGET,
    14: _EPOCH_ONLY,
    20: _TARGET,
    22: _EPOCH_ONLY,
}
"""By key type, the fields that :class:`~coordinator_core.kernels.group_records.GroupRecords` asks for."""


class Step(NamedTuple):
    """A ``layout.ShapeStep``; ``body`` are the steps that belong to it."""

    kind: ShapeKind
    size: int = 0
    prefix: Prefix = Prefix.INT8
    is_nullable: bool = False
    mark: MarkedField = MarkedField.NONE
    body: tuple[Step, ...] = ()


@cache
def value_shapes(profile: Profile) -> tuple[arrays.Array, arrays.Array]:
    """Rows of ``ShapeStep``, and of ``ValueShape`` by key type and version (``SHAPE_VERSIONS`` a key type).

    Shapes are those of the layouts that the loader of ``profile`` tries first: where such a layout takes all
    bytes, no other is tried.
    """
    rows: list[tuple[int, ...]] = []
    ranges = np.zeros(KEY_TYPES * SHAPE_VERSIONS, arrays.dtype("ValueShape"))
    for key_type, record_type in RECORD_TYPES.items():
        if key_type < 2:
            continue
        layout = value_layouts(key_type, profile).names[0]
        if layout == PREVIEW_3_7_LAYOUT:
            # Its member assignments have other fields for owned partitions; without a shape every record is replayed.
            continue
        value = record_type.value if layout == CURRENT_LAYOUT else record_type.other_layouts[layout]
        for version in value.versions:
            first = len(rows)
            flexible = value.is_flexible(version)
            for step in _struct(value.struct, version, flexible, MARKED.get(key_type, {})):
                _append(step, rows)
            ranges[key_type * SHAPE_VERSIONS + version] = first, len(rows)
    return np.array(rows, arrays.dtype("ShapeStep")), ranges


def _append(step: Step, rows: list[tuple[int, ...]]) -> None:
    row = len(rows)
    rows.append(())
    for inner in step.body:
        _append(inner, rows)
    rows[row] = step.kind, step.prefix, step.is_nullable, step.mark, step.size, len(rows)


def _struct(struct: Struct, version: int, flexible: bool, marked: dict[str, MarkedField]) -> tuple[Step, ...]:
    """Fields that take so many bytes in any case are one step, but for marked ones."""
    steps: list[Step] = []
    fields = [*struct.fields_in_version(version)]
    for field in fields:
        if field.tag is None:
            step = _field(field, field.type, version, flexible, marked)
            if steps and _is_plain(step) and _is_plain(steps[-1]):
                step = Step(ShapeKind.FIXED, steps.pop().size + step.size)
            steps.append(step)
    if flexible:
        steps.append(Step(ShapeKind.TAGS, body=tuple(_tags(fields, version, marked))))
    return tuple(steps)


def _is_plain(step: Step) -> bool:
    return step.kind is ShapeKind.FIXED and step.mark is MarkedField.NONE


def _tags(fields: list[Field], version: int, marked: dict[str, MarkedField]) -> Iterator[Step]:
    for field in fields:
        if field.tag is not None:
            body = _field(field, field.type, version, True, marked)
            if body.kind is ShapeKind.OPTIONAL:
                # A nullable struct in a tag has its sign as a varint, elsewhere as an int8.
                body = body._replace(prefix=Prefix.COMPACT)
            yield Step(ShapeKind.TAG, field.tag, body=(body,))


def _field(field: Field, kind: FieldType, version: int, flexible: bool, marked: dict[str, MarkedField]) -> Step:
    mark = marked.get(field.name, MarkedField.NONE)
    if isinstance(kind, Struct):
        body = _struct(kind, version, flexible, marked)
        if not field.nullable:
            raise TypeError(f"field {field.name}: a struct that cannot be null")
        return Step(ShapeKind.OPTIONAL, body=body)
    if isinstance(kind, ArrayOf):
        prefix = Prefix.COMPACT if flexible else Prefix.INT32
        element = kind.element
        if isinstance(element, Struct):
            elements = _struct(element, version, flexible, marked)
        else:
            elements = (_field(Field("element", element), element, version, flexible, {}),)
        return Step(ShapeKind.ARRAY, _NO_LIMIT, prefix, field.nullable, mark, elements)
    if kind in _FIXED_BYTES:
        return Step(ShapeKind.FIXED, _FIXED_BYTES[kind], mark=mark)
    plain, limit = (Prefix.INT16, MAX_STRING_BYTES) if kind is Primitive.STRING else (Prefix.INT32, _NO_LIMIT)
    prefix = Prefix.COMPACT if flexible else plain
    return Step(ShapeKind.SIZED, limit, prefix, field.nullable, mark)
