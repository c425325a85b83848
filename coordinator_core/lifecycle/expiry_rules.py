"""What expires, by Kafka release: the facts that :mod:`coordinator_core.lifecycle.expiry` asks for.

Sources: ``OffsetManager.compact`` (0.8.2), ``GroupMetadataManager.deleteExpiredOffsets`` (0.9, 0.10.0),
``GroupMetadata.removeExpiredOffsets`` and ``GroupMetadataManager.cleanupGroupMetadata`` (Scala, 0.10.1 on),
``OffsetMetadataManager.cleanupExpiredOffsets``, ``GroupCoordinatorShard.cleanupGroupMetadata`` and the
groups' ``offsetExpirationCondition``, ``createGroupTombstoneRecords`` (Java); KIP-211, KIP-496.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from coordinator_core.replay.profiles import Loader, Profile, Release, parse_release

_MINUTE_MS = 60_000


class Clock(StrEnum):
    """From when the retention of an offset counts, and what a value's own expire timestamp means."""

    COMMIT = "commit"
    """From the commit; there are no expire timestamps (0.8.2)."""

    VALUE = "value"
    """Each value has an expire timestamp, its own or commit plus retention; the group's state is not asked
    (0.9 to 2.0)."""

    GROUP = "group"
    """The group decides whether and from when; a value's own expire timestamp replaces only the time
    (KIP-211, 2.1 on)."""


class PendingHold(StrEnum):
    """How commits of open transactions keep an Empty group from being deleted."""

    NONE = "none"
    """Not at all (up to 0.10.2 there are none; Java 3.7)."""

    SLOT = "slot"
    """A pending commit does (Scala 0.11 on, Java 4.0.1 on)."""

    TRANSACTION_BESIDE_OFFSETS = "transaction_beside_offsets"
    """An open transaction that ever had a commit of the group does, also when a tombstone has removed that
    commit since, but only while the group has committed offsets: the sweep after the one that expires the
    last of them deletes the group (Java 3.8 to 4.0.0; KAFKA-19163)."""


class ShareSweep(StrEnum):
    """What a sweep does with share groups; it fails as a whole where it asks one for an expiry condition."""

    LEAVES = "leaves"
    """Passes over them (4.1 to 4.3; KAFKA-19016)."""

    FAILS_ON_OFFSETS = "fails_on_offsets"
    """Cleans offsets of every group first, and a share group with committed offsets has no rule (4.4 on)."""

    DELETES = "deletes"
    """Deletes an Empty one without offsets; fails on one with offsets (4.0)."""


@dataclass(frozen=True, slots=True)
class ExpiryRules:
    """Expiry of one release and coordinator."""

    clock: Clock
    default_offsets_retention_ms: int
    """What ``offsets.retention.minutes`` is when nobody sets it (KIP-186)."""

    offset_key_type: int
    """Key type of an offset's tombstone."""

    needs_group: bool
    """A sweep goes from group to group, and misses offsets whose group is gone."""

    deletes_groups: bool
    """A sweep deletes Empty groups that have nothing left (0.10.1 on)."""

    generation_zero_is_silent: bool
    """A group of generation 0 goes without a tombstone (Scala)."""

    expires_unsubscribed: bool
    """Offsets of a live group expire when nobody in it subscribes to their topic (KIP-496, 2.4 on)."""

    rebalance_protects: bool
    """Nothing expires of a classic group that rebalances (KAFKA-13636: 2.8.2, 3.0.1, 3.1.1, 3.2 on)."""

    pending_protects_slot: bool
    """A commit in an open transaction keeps the committed offset of the same slot (Java, 3.8 on)."""

    pending_hold: PendingHold
    share_sweep: ShareSweep


def expiry_rules(profile: Profile) -> ExpiryRules:
    """The rules of the release and coordinator that ``profile`` stands for."""
    release = parse_release(profile.release)
    java = profile.loader is Loader.JAVA
    return ExpiryRules(
        clock=Clock.COMMIT if release < (0, 9) else Clock.VALUE if release < (2, 1) else Clock.GROUP,
        default_offsets_retention_ms=(1440 if release < (2, 0) else 10_080) * _MINUTE_MS,
        offset_key_type=0 if release < (0, 9) else 1,
        needs_group=release >= (0, 10, 1),
        deletes_groups=release >= (0, 10, 1),
        generation_zero_is_silent=not java,
        expires_unsubscribed=release >= (2, 4),
        rebalance_protects=_has_kafka_13636(release),
        pending_protects_slot=java and release >= (3, 8),
        pending_hold=_pending_hold(release, java),
        share_sweep=_share_sweep(release),
    )


_KAFKA_13636_BACKPORTS: dict[Release, int] = {(2, 8): 2, (3, 0): 1, (3, 1): 1}


def _has_kafka_13636(release: Release) -> bool:
    first_fixed = _KAFKA_13636_BACKPORTS.get(release[:2])
    return release >= (3, 2) if first_fixed is None else release >= (*release[:2], first_fixed)


def _pending_hold(release: Release, java: bool) -> PendingHold:
    if not java:
        return PendingHold.SLOT if release >= (0, 11) else PendingHold.NONE
    if release < (3, 8):
        return PendingHold.NONE
    return PendingHold.SLOT if release >= (4, 0, 1) else PendingHold.TRANSACTION_BESIDE_OFFSETS


def _share_sweep(release: Release) -> ShareSweep:
    if release < (4, 1):
        return ShareSweep.DELETES
    return ShareSweep.LEAVES if release < (4, 4) else ShareSweep.FAILS_ON_OFFSETS
