"""The facts in which the two coordinators differ; code asks for the fact, never for the release."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from coordinator_core.coordinator.maps import JavaHashMap, ScalaHashMap, java_set_order, scala_trie_order
from coordinator_core.releases import Loader, Profile, SubscriptionReading, profile_for_release
from coordinator_core.releases.requests import RequestRules

SCALA_PROFILE = profile_for_release("3.9.2", "classic")
JAVA_PROFILE = profile_for_release("4.3.1", "new")
"""The releases that stand for those that are not modelled."""


def modelled(profile: Profile) -> Profile:
    """The profile, or for a release without rules for requests the one that stands for it."""
    if profile.requests is not None:
        return profile
    return JAVA_PROFILE if profile.loader is Loader.JAVA else SCALA_PROFILE


@dataclass(frozen=True, slots=True)
class ReleaseRules(RequestRules):
    """The :class:`RequestRules` of a release, with its coordinator's kinds of hash maps."""

    subscription_reading: SubscriptionReading = SubscriptionReading.VALIDATED
    """``Profile.subscription_reading``."""

    @classmethod
    def of(cls, profile: Profile) -> ReleaseRules:
        """Rules of a modelled release."""
        rules = profile.requests
        assert rules is not None
        of_requests = {field.name: getattr(rules, field.name) for field in fields(rules)}
        return cls(**of_requests, subscription_reading=profile.subscription_reading)

    @property
    def member_map(self) -> type[dict[str, Any]]:
        """Map of a classic group's members. Its first member leads after a leader has gone."""
        return ScalaHashMap if self.scala_maps else JavaHashMap

    def vote_order(self, votes: Iterable[str]) -> list[str]:
        """Order in which protocols with equally many votes are tried; the first wins."""
        return scala_trie_order(votes) if self.scala_maps else java_set_order(votes)


SCALA = ReleaseRules.of(SCALA_PROFILE)
