"""One record as the loader of a profile understands it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from coordinator_core.durations import numbered
from coordinator_core.groups.loaders import LoadedRecord
from coordinator_core.groups.model import CarriedRecord, CommittedOffset, OffsetKey
from coordinator_core.groups.offsets import OffsetRules
from coordinator_core.records.codec import (
    CURRENT,
    PREVIEW_3_7,
    SHARE_4_0,
    Layouts,
    RecordDecodeError,
    decode_key,
    decode_record,
    decode_value,
)
from coordinator_core.records.ordinary import OrdinaryDecode, ordinary_decoder
from coordinator_core.records.schemas import RECORD_TYPES
from coordinator_core.records.types import ZERO_UUID
from coordinator_core.records.wire import TooManyElementsError
from coordinator_core.releases import OFFSET_KEY_TYPES, Loader, MergeOffsetRule, Profile, ValueLayout

_LAYOUTS: Final = {ValueLayout.CURRENT: CURRENT, ValueLayout.PREVIEW_3_7: PREVIEW_3_7, ValueLayout.SHARE_4_0: SHARE_4_0}


_COMMON_STRUCTS: Final = frozenset({2, 8})
"""Types whose values have ``commonStructs``: generated classes of these do not look at the version, nor do those of
values, but those of structs that a field declares do."""


class OffsetRecord(NamedTuple):
    """A commit (``value`` set) or the tombstone of a committed offset."""

    key_type: int
    version: int | None
    offset_key: OffsetKey
    value: dict[str, Any] | None


class GroupRecord(NamedTuple):
    """A record of key type 2 or above; ``value`` is None for a tombstone."""

    key_type: int
    version: int | None
    key: dict[str, Any]
    value: dict[str, Any] | None

    def at(self, record_offset: int) -> LoadedRecord:
        """The record as loaders take it."""
        return LoadedRecord(record_offset, self.key_type, self.key, self.version or 0, self.value)


@dataclass(frozen=True, slots=True)
class UninterpretedRecord:
    """A record that is carried as it is; ``failure`` says that the real loader would stop at it."""

    carried: CarriedRecord
    failure: bool


Interpreted = OffsetRecord | GroupRecord | UninterpretedRecord


def interpret(record_offset: int, key: bytes | None, value: bytes | None, profile: Profile) -> Interpreted:
    """Meaning of the record at ``record_offset`` to the loader of ``profile``.

    Raises for no content but one with too many elements (:class:`TooManyElementsError`).
    """
    if key is None:
        return _carry(record_offset, None, None, "null key", failure=True)
    ordinary = None if value is None else decode_record(key, value)
    if ordinary is not None:
        key_type, version, names, data = ordinary
        if _is_current(key_type, version, profile):
            return _interpreted(key_type, version, names, data)
    try:
        decoded_key = decode_key(key)
    except RecordDecodeError as error:
        return _carry(record_offset, None, None, f"key: {error}", failure=True)
    key_type = decoded_key.type
    if decoded_key.data is None or key_type not in profile.known_key_types:
        detail = f"key type {key_type} is unknown to Kafka {profile.release}"
        return _carry(record_offset, key_type, None, detail, failure=profile.unknown_key_aborts)
    if value is None:
        return _interpreted(key_type, None, decoded_key.data, None)
    if len(value) < 2:
        return _carry(record_offset, key_type, None, f"value of {numbered(len(value), 'byte')}", failure=True)
    version = int.from_bytes(value[:2], "big", signed=True)
    newest = max_value_version(key_type, profile)
    read_as, unknown = version, f"value version {version} of key type {key_type} is unknown to Kafka {profile.release}"
    if not 0 <= version <= newest:
        if not profile.reads_unknown_versions:
            return _carry(record_offset, key_type, version, unknown, failure=True)
        read_as = min(max(version, 0), newest)
        value = read_as.to_bytes(2, "big") + value[2:]
    try:
        fields = decode_value(key_type, value, value_layouts(key_type, profile)).data
    except RecordDecodeError as error:
        unread = f"value of key type {key_type}, version {version}, is not as Kafka {profile.release} reads it: {error}"
        detail = unread if read_as == version else f"{unknown}, which reads it as {read_as}: {error}"
        return _carry(record_offset, key_type, version, detail, failure=True)
    except TooManyElementsError:
        raise TooManyElementsError(record_offset) from None
    if version > newest and key_type not in _COMMON_STRUCTS and _has_structs(fields):
        return _carry(record_offset, key_type, version, unknown, failure=True)
    return _interpreted(key_type, read_as, decoded_key.data, fields)


def _has_structs(fields: dict[str, Any] | None) -> bool:
    """Whether a struct, or an array of structs that is not empty, is among the fields."""
    inner = [each[0] if isinstance(each, list) and each else each for each in (fields or {}).values()]
    return any(isinstance(each, dict) for each in inner)


def current_values(profile: Profile) -> frozenset[tuple[int, int]]:
    """Key types and value versions that the loader reads, and reads in the current layout."""
    pairs = (
        (key_type, version)
        for key_type in profile.known_key_types
        for version in range(max_value_version(key_type, profile) + 1)
    )
    return frozenset(pair for pair in pairs if _is_current(*pair, profile))


def commit_decoders(profile: Profile) -> dict[int, dict[bytes, tuple[int, OrdinaryDecode]]]:
    """Of commits that the loader reads, by key type and the two bytes of a value's version: that, and the decoder of
    the fields behind it."""
    found: dict[int, dict[bytes, tuple[int, OrdinaryDecode]]] = {key_type: {} for key_type in OFFSET_KEY_TYPES}
    for key_type, version in current_values(profile):
        if key_type in OFFSET_KEY_TYPES:
            schema = RECORD_TYPES[key_type].value
            decode = ordinary_decoder(schema.struct, version, schema.is_flexible(version))
            found[key_type][version.to_bytes(2, "big")] = version, decode
    return found


def _is_current(key_type: int, version: int, profile: Profile) -> bool:
    return (
        key_type in profile.known_key_types
        and version <= max_value_version(key_type, profile)
        and value_layouts(key_type, profile) is CURRENT
    )


def value_layouts(key_type: int, profile: Profile) -> Layouts:
    """The layout in which the loader reads values of a type."""
    other = profile.value_layout in RECORD_TYPES[key_type].other_layouts
    return _LAYOUTS[profile.value_layout] if other else CURRENT


def _interpreted(
    key_type: int, version: int | None, key: dict[str, Any], value: dict[str, Any] | None
) -> OffsetRecord | GroupRecord:
    if key_type in OFFSET_KEY_TYPES:
        return OffsetRecord(key_type, version, OffsetKey(key["group"], key["topic"], key["partition"]), value)
    return GroupRecord(key_type, version, key, value)


def unreadable_marker(record_offset: int, key: bytes | None) -> UninterpretedRecord:
    """A record of a control batch whose ``key`` is no control key: the load ends there."""
    size = "no" if key is None else f"a {len(key)}-byte"
    return _carry(record_offset, None, None, f"control record with {size} key", failure=True)


def _carry(
    record_offset: int, key_type: int | None, version: int | None, detail: str, *, failure: bool
) -> UninterpretedRecord:
    return UninterpretedRecord(CarriedRecord(record_offset, key_type, version, detail), failure)


def max_value_version(key_type: int, profile: Profile) -> int:
    """Newest value version of ``key_type`` that the profile's loader reads."""
    if key_type == 0:
        return profile.max_legacy_offset_value_version
    if key_type == 1:
        return profile.max_offset_value_version
    if key_type == 2:
        return profile.max_group_value_version
    return 0


def offset_rules(profile: Profile) -> OffsetRules:
    """The profile's rules of committed offsets."""
    return OffsetRules(
        tombstones_apply_at_once=profile.loader is Loader.JAVA,
        tombstone_drops_pending=profile.tombstone_drops_pending,
        marker_always_wins=profile.ordering_offset_rule is MergeOffsetRule.NONE,
    )


def committed_offset(
    value: dict[str, Any],
    version: int,
    profile: Profile,
    *,
    record_offset: int,
    ordering_offset: int,
    producer_id: int | None,
    producer_epoch: int | None,
) -> CommittedOffset:
    """An OffsetCommitValue as the coordinator keeps it (``OffsetAndMetadata.fromRecord``)."""
    leader_epoch = value.get("leaderEpoch", -1)
    expire_timestamp = value.get("expireTimestamp")
    if expire_timestamp == -1 and not profile.minus_one_expires:
        expire_timestamp = None
    topic_id = value.get("topicId")
    # By position, in the order of the fields: names take twice the time, and this is done for each commit of a log.
    return CommittedOffset(
        value["offset"],
        None if leader_epoch == -1 else leader_epoch,
        value["metadata"],
        value["commitTimestamp"],
        expire_timestamp,
        None if topic_id == ZERO_UUID else topic_id,
        record_offset,
        version,
        producer_id,
        producer_epoch,
        ordering_offset,
    )
