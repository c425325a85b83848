"""The names of :mod:`coordinator_core.releases`, for ``columnar``, which still imports them from here."""

from coordinator_core.releases import (
    CLASSIC_KEY_TYPES,
    CONSUMER_KEY_TYPES,
    OFFSET_KEY_TYPES,
    PROFILE_RELEASES,
    SHARE_KEY_TYPES,
    STREAMS_KEY_TYPES,
    Loader,
    MergeOffsetRule,
    Profile,
    Release,
    chosen_profile,
    parse_release,
    profile_for,
    profile_for_release,
    profile_from_label,
)

__all__ = [
    "CLASSIC_KEY_TYPES",
    "CONSUMER_KEY_TYPES",
    "OFFSET_KEY_TYPES",
    "PROFILE_RELEASES",
    "SHARE_KEY_TYPES",
    "STREAMS_KEY_TYPES",
    "Loader",
    "MergeOffsetRule",
    "Profile",
    "Release",
    "chosen_profile",
    "parse_release",
    "profile_for",
    "profile_for_release",
    "profile_from_label",
]
