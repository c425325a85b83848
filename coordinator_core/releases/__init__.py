"""Differences between Kafka releases: one table, a row a release line, a column a fact.

Start with ``lines.py``, the table; ``facts.py`` says what each column means and where it comes from. Code
asks a :class:`Profile` (a release with one of its coordinators) or ``table.py`` for a fact, and never
compares releases itself. The package imports only ``coordinator_core.errors``. Adding a release is one row:
see CONTRIBUTING.md.
"""

from coordinator_core.releases.facts import (
    CLASSIC_KEY_TYPES,
    CONSUMER_KEY_TYPES,
    EPOCH_KEY_TYPES,
    FACTS_BESIDE_LOADING,
    OFFSET_KEY_TYPES,
    SHARE_KEY_TYPES,
    STREAMS_KEY_TYPES,
    Clock,
    Deleter,
    ExpiryRules,
    Loader,
    MergeOffsetRule,
    PendingHold,
    Profile,
    ShareSweep,
    SubscriptionReading,
    ValueLayout,
)
from coordinator_core.releases.number import Release
from coordinator_core.releases.profiles import (
    PROFILE_RELEASES,
    chosen_profile,
    every_profile,
    how_inferred,
    parse_release,
    profile_for,
    profile_for_release,
    profile_from_label,
    profile_names,
    profiles_of_release,
)

__all__ = [
    "CLASSIC_KEY_TYPES",
    "CONSUMER_KEY_TYPES",
    "EPOCH_KEY_TYPES",
    "FACTS_BESIDE_LOADING",
    "OFFSET_KEY_TYPES",
    "PROFILE_RELEASES",
    "SHARE_KEY_TYPES",
    "STREAMS_KEY_TYPES",
    "Clock",
    "Deleter",
    "ExpiryRules",
    "Loader",
    "MergeOffsetRule",
    "PendingHold",
    "Profile",
    "Release",
    "ShareSweep",
    "SubscriptionReading",
    "ValueLayout",
    "chosen_profile",
    "every_profile",
    "how_inferred",
    "parse_release",
    "profile_for",
    "profile_for_release",
    "profile_from_label",
    "profile_names",
    "profiles_of_release",
]
