"""The schemas against the tables of record types and versions (facts: 22 live types, of which 18 is none)."""

from __future__ import annotations

import pytest

from coordinator_core.records.codec import AUTO, CURRENT, PREVIEW_3_7, SHARE_4_0, Layouts
from coordinator_core.records.schemas import RECORD_TYPES
from coordinator_core.records.types import ArrayOf, Primitive, Schema, Struct
from tests.records.layouts import SHARE_3_9

_OFFSET_KEY = ["group", "topic", "partition"]
_NAMES = {
    0: ("LegacyOffsetCommit", _OFFSET_KEY),
    1: ("OffsetCommit", _OFFSET_KEY),
    2: ("GroupMetadata", ["group"]),
    3: ("ConsumerGroupMetadata", ["groupId"]),
    4: ("ConsumerGroupPartitionMetadata", ["groupId"]),
    5: ("ConsumerGroupMemberMetadata", ["groupId", "memberId"]),
    6: ("ConsumerGroupTargetAssignmentMetadata", ["groupId"]),
    7: ("ConsumerGroupTargetAssignmentMember", ["groupId", "memberId"]),
    8: ("ConsumerGroupCurrentMemberAssignment", ["groupId", "memberId"]),
    9: ("ShareGroupPartitionMetadata", ["groupId"]),
    10: ("ShareGroupMemberMetadata", ["groupId", "memberId"]),
    11: ("ShareGroupMetadata", ["groupId"]),
    12: ("ShareGroupTargetAssignmentMetadata", ["groupId"]),
    13: ("ShareGroupTargetAssignmentMember", ["groupId", "memberId"]),
    14: ("ShareGroupCurrentMemberAssignment", ["groupId", "memberId"]),
    15: ("ShareGroupStatePartitionMetadata", ["groupId"]),
    16: ("ConsumerGroupRegularExpression", ["groupId", "regularExpression"]),
    17: ("StreamsGroupMetadata", ["groupId"]),
    19: ("StreamsGroupMemberMetadata", ["groupId", "memberId"]),
    20: ("StreamsGroupTargetAssignmentMetadata", ["groupId"]),
    21: ("StreamsGroupTargetAssignmentMember", ["groupId", "memberId"]),
    22: ("StreamsGroupCurrentMemberAssignment", ["groupId", "memberId"]),
    23: ("StreamsGroupTopology", ["groupId"]),
}


def test_record_types() -> None:
    assert list(RECORD_TYPES) == [*range(18), *range(19, 24)]
    described = {
        number: (record_type.name, [field.name for field in record_type.key.struct.fields])
        for number, record_type in RECORD_TYPES.items()
    }
    assert described == _NAMES


def test_versions() -> None:
    last = {number: record_type.value.last_version for number, record_type in RECORD_TYPES.items()}
    assert last == {number: 4 if number < 3 else 0 for number in _NAMES}
    flexible_since = {number: record_type.value.flexible_since for number, record_type in RECORD_TYPES.items()}
    assert flexible_since == {number: 4 if number < 3 else 0 for number in _NAMES}
    assert not any(record_type.key.is_flexible(0) for record_type in RECORD_TYPES.values())


def test_other_layouts() -> None:
    layouts = {number: set(t.other_layouts) for number, t in RECORD_TYPES.items() if t.other_layouts}
    preview, early_share, share = {"preview-3.7"}, {"share-3.9"}, {"share-4.0"}
    assert layouts == {4: preview, 5: preview, 7: preview, 8: preview, 9: early_share, 11: share, 15: share}


@pytest.mark.parametrize("layouts", [CURRENT, PREVIEW_3_7, SHARE_3_9, SHARE_4_0, AUTO], ids=lambda it: it.name)
def test_layouts_name_declared_layouts(layouts: Layouts) -> None:
    declared = {"current"} | {name for t in RECORD_TYPES.values() for name in t.other_layouts}
    assert set(layouts.names) <= declared


def _schemas() -> dict[str, Schema]:
    return {
        f"{record_type.name}-{layout}": schema
        for record_type in RECORD_TYPES.values()
        for layout, schema in {
            "key": record_type.key,
            "current": record_type.value,
            **record_type.other_layouts,
        }.items()
    }


@pytest.mark.parametrize("schema", _schemas().values(), ids=_schemas())
def test_schema_is_well_formed(schema: Schema) -> None:
    _check(schema.struct, schema)


def _check(struct: Struct, schema: Schema) -> None:
    for version in schema.versions:
        fields = list(struct.fields_in_version(version))
        assert len({field.name for field in fields}) == len(fields)
        tags = [field.tag for field in fields if field.tag is not None]
        assert sorted(tags) == list(range(len(tags)))
        assert schema.is_flexible(version) or not tags
    for field in struct.fields:
        assert field.name[0].islower()
        # The first layout of share groups was early access.
        is_early = struct.name == "ShareGroupMetadataValue"
        assert field.tag is not None or field.added_in is None or is_early, "only tags can be added"
        inner = field.type.element if isinstance(field.type, ArrayOf) else field.type
        if isinstance(inner, Struct):
            _check(inner, schema)
        else:
            assert isinstance(inner, Primitive)
        if field.nullable:
            assert isinstance(field.type, ArrayOf | Struct) or field.type in (
                Primitive.STRING,
                Primitive.BYTES,
            )


def test_defaults_are_fresh() -> None:
    field = next(f for f in RECORD_TYPES[5].value.struct.fields if f.name == "classicMemberMetadata")
    default = field.default_value(0)
    assert default == {"sessionTimeoutMs": 0, "supportedProtocols": []}
    default["supportedProtocols"].append(1)
    assert field.default_value(0) == {"sessionTimeoutMs": 0, "supportedProtocols": []}
