"""Keys and payloads of dumped records, in the words of each release's ``OffsetsMessageParser``.

A formatter takes a record and gives the texts behind ``key:`` and ``payload:``, ``None`` where the tool
prints nothing.  Where a release's tool would die, the key's text says why, as 3.8 and later do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Any

from coordinator_core.log.types import Record
from coordinator_core.records.blobs import CONSUMER_PROTOCOL_TYPE, decode_consumer_assignment
from coordinator_core.records.codec import CURRENT, SHARE_4_0, Key, Layouts, decode_key, decode_value
from coordinator_core.records.jsontext import key_json, quote, value_json
from coordinator_core.records.schemas import RECORD_TYPES
from coordinator_core.records.types import Schema
from coordinator_core.records.wire import RecordDecodeError, decode_utf8
from coordinator_core.releases import Loader, Profile, Release, ValueLayout, profile_for_release
from coordinator_core.releases.table import TABLE
from coordinator_core.reports.scala_maps import MapOrder, scala_2_12_order, scala_2_13_order

Texts = tuple[str | None, str | None]
Formatter = Callable[[Record], Texts]

TOMBSTONE = "<DELETE>"
OFFSET_TYPES = (0, 1)
_GROUP_TYPE = 2


class _SkippedRecordError(Exception):
    """The record cannot be shown; its text stands in for the key."""


def raw_texts(record: Record) -> Texts:
    """0.8.2, which has no offsets decoder: the bytes as text."""
    key = None if record.key is None else decode_utf8(record.key)
    return key, "null" if record.value is None else decode_utf8(record.value)


@dataclass(frozen=True, slots=True)
class CommitForm:
    """Templates of releases before 3.8, in which a word in braces is a field of the key or value.

    ``metadata`` stands behind ``value`` unless the field is empty, ``unknown`` in place of the key of a type
    that the tool does not know. Without ``tombstone``, the payload of tombstones, nothing is printed of them.
    """

    key: str
    value: str
    metadata: str
    group_key: str
    unknown: str
    tombstone: str | None


_UNKNOWN_TYPE = "Unknown record type {type} at offset {offset}, skipping."

COLON_FORM = CommitForm(
    key="offset::{group}:{topic}:{partition}",
    value="{offset}",
    metadata=":{metadata}",
    group_key="metadata::{group}",
    unknown=_UNKNOWN_TYPE,
    tombstone=None,
)
"""0.9 to 2.3."""

NAMED_FORM = CommitForm(
    key="offset_commit::group={group},partition={topic}-{partition}",
    value="offset={offset}",
    metadata=",metadata={metadata}",
    group_key="group_metadata::group={group}",
    unknown="unknown::version={type}",
    tombstone=TOMBSTONE,
)
"""2.4 to 3.7."""


def plain_texts(record: Record) -> Texts:
    """0.9 and 0.10.0: ``metadata::G`` and ``type:protocol:generation:assignment`` for groups."""
    return _commit_texts(record, COLON_FORM, _plain_group)


def plain_texts_without_empty_type(record: Record) -> Texts:
    """0.10.1 to 0.11, which lose the protocol type of a group without members."""
    return _commit_texts(record, COLON_FORM, partial(_plain_group, empty_has_type=False))


def plain_json_texts(record: Record) -> Texts:
    """1.0 to 2.3: like 0.9, with JSON for groups."""
    return _commit_texts(record, COLON_FORM, partial(_json_group, '{{"metadata":{quoted}}}', scala_2_12_order))


def named_texts(record: Record) -> Texts:
    """2.4 to 3.7: like 1.0, with names before the fields of commits."""
    return _commit_texts(record, NAMED_FORM, partial(_json_group, NAMED_FORM.group_key, scala_2_13_order))


def _commit_texts(record: Record, form: CommitForm, group: Callable[[str, Any], Texts]) -> Texts:
    """The texts of a record, those of a group by ``group`` from its name and its value's data."""
    if record.value is None and form.tombstone is None:
        return None, None
    try:
        key = _read_key(record, range(3), form.unknown)
        data = None if record.value is None else _read_value(record, key, CURRENT).data
    except _SkippedRecordError as error:
        return str(error), None
    assert key.data is not None
    if key.type == _GROUP_TYPE:
        return group(key.data["group"], data)
    payload = form.tombstone
    if data is not None:
        payload = form.value.format_map(data) + (form.metadata.format_map(data) if data["metadata"] else "")
    return form.key.format_map(key.data), payload


def _plain_group(group: str, data: dict[str, Any], *, empty_has_type: bool = True) -> Texts:
    protocol_type = data["protocolType"] if data["members"] or empty_has_type else ""
    protocol = "null" if data["protocol"] is None else data["protocol"]
    assignments = _assignments(data, scala_2_12_order)
    name = COLON_FORM.group_key.format(group=group)
    return name, f"{protocol_type}:{protocol}:{data['generation']}:{assignments}"


def _json_group(key: str, order: MapOrder, group: str, data: dict[str, Any] | None) -> Texts:
    name = key.format(group=group, quoted=quote(group))
    if data is None:
        return name, TOMBSTONE
    protocol = "null" if data["protocol"] is None else quote(data["protocol"])
    return name, (
        f'{{"protocolType":{quote(data["protocolType"])},"protocol":{protocol},'
        f'"generationId":{data["generation"]},"assignment":{quote(_assignments(data, order))}}}'
    )


def json_formatter(release: Release) -> Formatter:
    """3.8 and later: JSON objects, in which ``release`` knows its own record types and tags."""
    return partial(_json_texts, release, known_types(release))


def known_types(release: Release) -> frozenset[int]:
    """The record types that the tool of ``release`` can print, 3.8 or later."""
    return TABLE.tools(release).dumped_key_types


def known_value_schema(key_type: int, version: int, release: Release) -> Schema | None:
    """By which schema the tool of ``release`` reads values of a type and version, ``None`` if by none."""
    if not _knows_version(key_type, version, release):
        return None
    record_type = RECORD_TYPES[key_type]
    for layout in _layouts(release).names:
        schema = record_type.other_layouts.get(layout)
        if schema is not None and version in schema.versions:
            return schema
    return record_type.value if version in record_type.value.versions else None


def _layouts(release: Release) -> Layouts:
    return SHARE_4_0 if _profile(release).value_layout is ValueLayout.SHARE_4_0 else CURRENT


def _knows_version(key_type: int, version: int, release: Release | None) -> bool:
    """Since 4.1 values of type 0 have a schema of their own, with one version."""
    if key_type != 0 or release is None:
        return True
    return version <= _profile(release).max_legacy_offset_value_version


@cache
def _profile(release: Release) -> Profile:
    return profile_for_release(release, Loader.JAVA.coordinator)


def _json_texts(release: Release, types: frozenset[int], record: Record) -> Texts:
    try:
        key = _read_key(record, types)
        assert record.key is not None
        if record.value is None:
            return _key_text(record.key), TOMBSTONE
        value = _read_value(record, key, _layouts(release), release)
    except _SkippedRecordError as error:
        return str(error), None
    return _key_text(record.key), value_json(key.type, value, release)


# A log has few keys and many records.
@lru_cache(maxsize=1 << 14)
def _decode_key(key: bytes) -> Key:
    return decode_key(key)


@lru_cache(maxsize=1 << 14)
def _key_text(key: bytes) -> str:
    return key_json(_decode_key(key))


def _read_key(record: Record, known_types: Collection[int], unknown: str = _UNKNOWN_TYPE) -> Key:
    if record.key is None:
        raise _error(record, "Failed to decode message: it has no key")
    try:
        key = _decode_key(record.key)
    except RecordDecodeError as error:
        raise _error(record, _wrapped(error, record.key, "key")) from error
    if key.type not in known_types or key.data is None:
        raise _SkippedRecordError(unknown.format(type=key.type, offset=record.offset))
    return key


def _read_value(record: Record, key: Key, layouts: Layouts, release: Release | None = None) -> Any:
    assert record.value is not None
    try:
        value = decode_value(key.type, record.value, layouts)
    except RecordDecodeError as error:
        raise _error(record, _wrapped(error, record.value, "value")) from error
    if value.data is None or not _knows_version(key.type, value.version, release):
        raise _error(record, f"Found an unknown record version {value.version} for {key.type} type")
    return value


def _error(record: Record, message: str) -> _SkippedRecordError:
    return _SkippedRecordError(f"Error at offset {record.offset}, skipping. {message}")


def _wrapped(error: RecordDecodeError, data: bytes, name: str) -> str:
    """Message of ``CoordinatorRecordSerde`` about a body that it cannot read."""
    if len(data) < 2:
        return error.detail
    version = int.from_bytes(data[:2], "big", signed=True)
    cause = "null" if error.java_message is None else error.java_message
    return f"Could not read record with version {version} from {name}'s buffer due to: {cause}."


def _assignments(data: dict[str, Any], order: MapOrder) -> str:
    is_consumer = data["protocolType"] == CONSUMER_PROTOCOL_TYPE
    members = {member["memberId"]: member for member in data["members"]}
    return "{" + ",".join(_assignment(members[name], is_consumer) for name in order(members)) + "}"


def _assignment(member: dict[str, Any], is_consumer: bool) -> str:
    blob: bytes = member["assignment"]
    if is_consumer:
        try:
            assignment = decode_consumer_assignment(blob)
        except RecordDecodeError:
            pass
        else:
            partitions = ", ".join(
                f"{topic['topic']}-{partition}"
                for topic in assignment["assignedPartitions"]
                for partition in topic["partitions"]
            )
            user_data = _hex(assignment["userData"] or b"")
            return f"{member['memberId']}=[{partitions}]" + (f":{user_data}" if user_data else "")
    return f"{member['memberId']}={_hex(blob)}"


def _hex(data: bytes) -> str:
    """The bytes as one number in hexadecimal, so without leading zeros, as Scala's ``BigInt`` prints it."""
    return f"{int.from_bytes(data, 'big'):X}" if data else ""
