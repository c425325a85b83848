"""Coordinator rules by Kafka release: what a broker of that release makes of the same bytes.

A :class:`Profile` is a bundle of facts, each true of a range of releases; replay code asks for the fact,
never for the release. Sources: Kafka's ``GroupMetadataManager`` (Scala, up to 4.0) and the Java group
coordinator (3.7 on), and real brokers where those disagree with the reading (``tests/corpus``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from coordinator_core.errors import UsageError

OFFSET_KEY_TYPES = frozenset({0, 1})
CLASSIC_KEY_TYPES = frozenset({0, 1, 2})
CONSUMER_KEY_TYPES = frozenset({3, 4, 5, 6, 7, 8, 16})
SHARE_KEY_TYPES = frozenset({10, 11, 12, 13, 14, 15})
STREAMS_KEY_TYPES = frozenset({17, 19, 20, 21, 22, 23})

Release = tuple[int, ...]

NEWEST_RELEASE: Release = (4, 5)


class Loader(StrEnum):
    """The two coordinator implementations."""

    SCALA = "scala"
    JAVA = "java"


class MergeOffsetRule(StrEnum):
    """Which offset decides whether a committed transaction's value is newer than the slot's."""

    RECORD = "record"
    """The record's own offset (Java, 3.8 on)."""

    BATCH_FIRST_RECORD = "batch_first_record"
    """Offset of the first record left in the record's batch (Scala, 1.0 on)."""

    BATCH_HEADER = "batch_header"
    """Base offset in the batch header, even when that record is gone (Scala, 0.11)."""

    NONE = "none"
    """Not compared: the marker always wins (Java, 3.7)."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Rules of the coordinator of one release.

    ``name`` is the family (S0 … J4); ``release`` the release asked for. ``known_key_types`` are those
    whose records the loader interprets; others are skipped, or abort the load (``unknown_key_aborts``).
    ``max_offset_value_version`` applies to key type 1, ``max_legacy_offset_value_version`` to key type 0.
    """

    name: str
    release: str
    loader: Loader
    merge_offset_rule: MergeOffsetRule
    known_key_types: frozenset[int]
    unknown_key_aborts: bool
    max_legacy_offset_value_version: int
    max_offset_value_version: int
    max_group_value_version: int
    keeps_offsets_only_groups: bool
    """Offsets without a group record make a group (an Empty one; without any state in 0.8.2)."""

    has_group_state: bool
    """Coordinators before 0.9 keep offsets only."""

    empty_group_keeps_protocol_type: bool
    """Releases before 1.1 forget the protocol type of a group without members (KAFKA-6287)."""

    state_timestamp_versions: frozenset[int]
    """GroupMetadataValue versions whose state timestamp is read; 2.3.0 to 2.6.0 miss v3 (KAFKA-10401)."""

    minus_one_expires: bool
    """2.1.0 and 2.1.1 take an expire timestamp of -1 for a time (KAFKA-8069)."""

    tombstone_drops_pending: bool
    """A tombstone also removes the slot from open transactions (Java, 3.8 on)."""

    tolerates_missing_groups: bool
    """Tombstones of unknown KIP-848 groups and members are ignored (KAFKA-17306, 4.0 on)."""

    consumer_replaces_simple: bool
    """A KIP-848 record replaces a simple classic group (4.0 on)."""

    streams_replaces_simple: bool
    """A streams record replaces a simple classic group (KAFKA-20254, 4.2 on)."""

    initial_epoch: int
    """Group and assignment epoch before any record sets them: 1 from 4.3 (KAFKA-20268)."""

    describes_pending_revocation: bool
    """ConsumerGroupDescribe counts partitions still to be revoked as assigned (KAFKA-20431, 4.3 on)."""

    @property
    def label(self) -> str:
        """The form that is printed and stored: family, release, coordinator."""
        return f"{self.name} ({self.release}, {self.coordinator} coordinator)"

    @property
    def coordinator(self) -> str:
        """``classic`` or ``new``, as the command line names them."""
        return "classic" if self.loader is Loader.SCALA else "new"


PROFILE_RELEASES: dict[str, tuple[str, str]] = {
    "S0": ("0.8.2.2", "classic"),
    "S1": ("2.0.1", "classic"),
    "S2": ("2.3.1", "classic"),
    "S3": ("3.3.2", "classic"),
    "S4": ("3.9.2", "classic"),
    "J0": ("3.7.2", "new"),
    "J1": ("4.0.1", "new"),
    "J2": ("4.1.1", "new"),
    "J3": ("4.3.1", "new"),
    "J4": ("4.4.0", "new"),
}
"""A representative release of every family, for ``--profile S2`` without a release."""


def parse_release(text: str) -> Release:
    """``"4.3.1"`` to ``(4, 3, 1)``; :class:`UsageError` for anything that is no Kafka release."""
    if not re.fullmatch(r"\d+(\.\d+){1,3}", text):
        raise UsageError(f"not a Kafka release: {text!r} (expected for example 3.9.2)")
    release = tuple(int(part) for part in text.split("."))
    if release < (0, 8, 2) or release[:2] > NEWEST_RELEASE:
        raise UsageError(
            f"no rules for Kafka {text}: releases 0.8.2 to {'.'.join(map(str, NEWEST_RELEASE))} are known"
        )
    return release


def profile_for(name: str) -> Profile:
    """Profile of a family (``S0`` … ``J4``), by its representative release."""
    try:
        release, coordinator = PROFILE_RELEASES[name]
    except KeyError:
        known = ", ".join(PROFILE_RELEASES)
        raise UsageError(f"unknown profile {name!r} (one of: auto, {known})") from None
    return profile_for_release(release, coordinator)


def chosen_profile(name: str, release: str | None, coordinator: str | None) -> Profile | None:
    """The profile that ``--profile``, ``--kafka-version`` and ``--coordinator`` ask for.

    ``None`` for ``auto``: the one that the records tell.
    """
    if release is not None:
        if name != "auto":
            raise UsageError("--profile and --kafka-version exclude each other")
        return profile_for_release(release, coordinator)
    if coordinator is not None:
        raise UsageError("--coordinator goes with --kafka-version")
    return None if name == "auto" else profile_for(name)


_LABEL = re.compile(r"\w+ \((?P<release>[\d.]+), (?P<coordinator>classic|new) coordinator\)")


def profile_from_label(label: str) -> Profile:
    """The profile that :attr:`Profile.label` was printed from, as manifests keep it."""
    found = _LABEL.fullmatch(label)
    if found is None:
        raise UsageError(f"not a profile: {label!r}")
    return profile_for_release(found["release"], found["coordinator"])


def profile_for_release(release_text: str, coordinator: str | None = None) -> Profile:
    """Profile of a release; ``coordinator`` (``classic`` or ``new``) where that release has both."""
    release = parse_release(release_text)
    loader = _loader(release, release_text, coordinator)
    if loader is Loader.SCALA:
        return _scala_profile(release, release_text)
    return _java_profile(release, release_text)


def _loader(release: Release, text: str, coordinator: str | None) -> Loader:
    if coordinator not in (None, "classic", "new"):
        raise UsageError(f"unknown coordinator {coordinator!r} (classic or new)")
    if coordinator == "new" and release < (3, 7):
        raise UsageError(f"Kafka {text} has only the classic coordinator")
    if coordinator == "classic" and release >= (4, 1):
        raise UsageError(f"Kafka {text} has only the new coordinator")
    if coordinator is None:
        return Loader.SCALA if release < (4, 0) else Loader.JAVA
    return Loader.SCALA if coordinator == "classic" else Loader.JAVA


_KIP_915_BACKPORTS: dict[Release, int] = {(3, 0): 3, (3, 1): 3, (3, 2): 4, (3, 3): 3, (3, 4): 1}


def _reads_kip_915(release: Release) -> bool:
    first_fixed = _KIP_915_BACKPORTS.get(release[:2])
    return release >= (3, 5) if first_fixed is None else release >= (*release[:2], first_fixed)


def _scala_profile(release: Release, text: str) -> Profile:
    kip_915 = _reads_kip_915(release)
    if release < (0, 9):
        name, offset_version, group_version = "S0", 1, -1
    elif release < (2, 1):
        name, offset_version, group_version = "S1", 1, 0 if release < (0, 10, 1) else 1
    elif release < (2, 4):
        name, offset_version, group_version = "S2", 3, 2 if release < (2, 3) else 3
    else:
        name = "S4" if kip_915 else "S3"
        offset_version, group_version = (4, 4) if kip_915 else (3, 3)
    return Profile(
        name=name,
        release=text,
        loader=Loader.SCALA,
        merge_offset_rule=(
            MergeOffsetRule.BATCH_HEADER if release < (1, 0) else MergeOffsetRule.BATCH_FIRST_RECORD
        ),
        known_key_types=CLASSIC_KEY_TYPES if release >= (0, 9) else OFFSET_KEY_TYPES,
        unknown_key_aborts=not kip_915,
        max_legacy_offset_value_version=offset_version,
        max_offset_value_version=offset_version,
        max_group_value_version=group_version,
        keeps_offsets_only_groups=release < (0, 9) or release >= (0, 10, 1),
        has_group_state=release >= (0, 9),
        empty_group_keeps_protocol_type=release >= (1, 1),
        state_timestamp_versions=frozenset({2} if (2, 3) <= release < (2, 6, 1) else {2, 3, 4}),
        minus_one_expires=(2, 1) <= release < (2, 2),
        tombstone_drops_pending=False,
        tolerates_missing_groups=True,
        consumer_replaces_simple=True,
        streams_replaces_simple=True,
        initial_epoch=0,
        describes_pending_revocation=False,
    )


def _java_profile(release: Release, text: str) -> Profile:
    if release < (3, 8):
        name = "J0"
    elif release < (4, 1):
        name = "J1"
    elif release < (4, 2):
        name = "J2"
    else:
        name = "J3" if release < (4, 4) else "J4"
    key_types = CLASSIC_KEY_TYPES | CONSUMER_KEY_TYPES
    if release < (4, 0):
        key_types -= {16}
    if release >= (4, 0):
        key_types |= SHARE_KEY_TYPES
    if release >= (4, 1):
        key_types |= STREAMS_KEY_TYPES
    return Profile(
        name=name,
        release=text,
        loader=Loader.JAVA,
        merge_offset_rule=MergeOffsetRule.NONE if release < (3, 8) else MergeOffsetRule.RECORD,
        known_key_types=key_types,
        unknown_key_aborts=False,
        max_legacy_offset_value_version=4 if release < (4, 1) else 0,
        max_offset_value_version=4,
        max_group_value_version=4,
        keeps_offsets_only_groups=True,
        has_group_state=True,
        empty_group_keeps_protocol_type=True,
        state_timestamp_versions=frozenset({2, 3, 4}),
        minus_one_expires=False,
        tombstone_drops_pending=release >= (3, 8),
        tolerates_missing_groups=release >= (4, 0),
        consumer_replaces_simple=release >= (4, 0),
        streams_replaces_simple=release >= (4, 2),
        initial_epoch=1 if release >= (4, 3) else 0,
        describes_pending_revocation=release >= (4, 3),
    )
