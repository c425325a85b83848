"""Input of a server-side assignor, the view of a group (``GroupSpec``), and its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from coordinator_core.coordinator.maps import Partitions, TopicId

Assignment = dict[str, Partitions]
"""By member id."""


@dataclass(frozen=True, slots=True)
class Spec:
    """Assignor's view of a member: its topics that exist, its instance, its target so far."""

    topic_ids: tuple[TopicId, ...]
    instance_id: str | None
    assignment: Partitions


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """Members in the order of their map; ``partitions`` counts those of each topic."""

    members: Mapping[str, Spec]
    partitions: Mapping[TopicId, int]
    homogeneous: bool
    is_assigned: Callable[[TopicId, int], bool]
