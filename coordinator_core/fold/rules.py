"""Rules of a fold. Apart from its columns, so that the first segment is folded while Arrow is loaded."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator_core.releases import Loader, MergeOffsetRule, Profile


@dataclass(frozen=True, slots=True)
class FoldRules:
    """Facts of a profile that decide how a segment folds; profiles with the same facts share their folds.

    ``pending_by_producer``: a producer id makes a commit pending, else the transactional bit (Java, Scala).
    ``max_*_version``: newest value versions that are read under key types 0 and 1.
    ``reads_unknown_versions``: others are read as the nearest of these.
    """

    pending_by_producer: bool
    tombstone_drops_pending: bool
    ordering_offset_rule: MergeOffsetRule
    max_legacy_offset_value_version: int
    max_offset_value_version: int
    reads_unknown_versions: bool = False

    @classmethod
    def of(cls, profile: Profile) -> FoldRules:
        return cls(
            profile.loader is Loader.JAVA,
            profile.tombstone_drops_pending,
            profile.ordering_offset_rule,
            profile.max_legacy_offset_value_version,
            profile.max_offset_value_version,
            profile.reads_unknown_versions,
        )
