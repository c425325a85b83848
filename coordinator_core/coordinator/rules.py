"""The facts in which the two coordinators differ; code asks for the fact, never for the release."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from coordinator_core.coordinator.maps import JavaHashMap, ScalaHashMap, java_set_order, scala_trie_order
from coordinator_core.releases import profile_for_release
from coordinator_core.releases.requests import RequestRules


@dataclass(frozen=True, slots=True)
class ReleaseRules(RequestRules):
    """The :class:`RequestRules` of a release, with its coordinator's kinds of hash maps."""

    @classmethod
    def of(cls, release: str, coordinator: str) -> ReleaseRules:
        """Rules of a modelled release, with its ``classic`` or ``new`` coordinator."""
        rules = profile_for_release(release, coordinator).requests
        assert rules is not None
        return cls(**{field.name: getattr(rules, field.name) for field in fields(rules)})

    @property
    def member_map(self) -> type[dict[str, Any]]:
        """Map of a classic group's members. Its first member leads after a leader has gone."""
        return ScalaHashMap if self.scala_maps else JavaHashMap

    def vote_order(self, votes: Iterable[str]) -> list[str]:
        """Order in which protocols with equally many votes are tried; the first wins."""
        return scala_trie_order(votes) if self.scala_maps else java_set_order(votes)


SCALA = ReleaseRules.of("3.9.2", "classic")
JAVA = ReleaseRules.of("4.3.1", "new")
