"""Offsets that went: what else the groups had then, and how old it was, which tells the rule that took them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from heapq import heappop, heappush

from coordinator_core.groups.model import CommittedOffset, OffsetKey
from coordinator_core.history.model import Removal, Version
from coordinator_core.lifecycle.expiry import Condition

ONE_ACT_MS = 25
"""The Scala coordinator writes a batch for each group; those of one sweep or request are this close together."""


class Removals:
    """Offsets that groups have, and those that they have just lost."""

    def __init__(self, *, pending_protects: bool) -> None:
        """``pending_protects``: a sweep leaves an offset alone while an open transaction commits it."""
        self._pending_protects = pending_protects
        self._held: dict[str, dict[OffsetKey, tuple[CommittedOffset, int]]] = {}
        self._removed: dict[str, list[Removal]] = {}
        self._ends: list[tuple[int, str]] = []
        """A heap of times (epoch ms) and groups; the time of a group's last removal is there, and earlier ones."""

    def hold(self, key: OffsetKey, version: Version) -> None:
        """The group has this value now."""
        of_group = self._held.get(key.group_id)
        if of_group is None:
            of_group = self._held[key.group_id] = {}
        held = of_group.get(key)
        of_group[key] = version.last, version.valid_from.record_offset if held is None else held[1]

    def count(self, group_id: str) -> int:
        """How many offsets the group has."""
        return len(self._held.get(group_id, ()))

    def remove(self, removal: Removal) -> None:
        """The group has lost an offset."""
        group_id, now = removal.offset_key.group_id, removal.place.timestamp_ms
        self._held.get(group_id, {}).pop(removal.offset_key, None)
        removed = self._removed.setdefault(group_id, [])
        if not removed or removed[-1].place.timestamp_ms != now:
            heappush(self._ends, (now, group_id))
        removed.append(removal)

    def settle(self, now_ms: int | None, pending: Callable[[str], Collection[OffsetKey]]) -> None:
        """Tell the removals of each group whose last act is over at ``now_ms`` (``None``: of all) how many offsets the
        group has left, and the ages of what went and what stayed.

        Other groups make no difference, so that a group reads the same alone. ``pending`` gives the offset keys of a
        group in open transactions.
        """
        while self._ends and (now_ms is None or now_ms > self._ends[0][0] + ONE_ACT_MS):
            last_ms, group_id = heappop(self._ends)
            removed = self._removed.get(group_id)
            if removed is not None and removed[-1].place.timestamp_ms == last_ms:
                del self._removed[group_id]
                self._settle(removed, pending(group_id))

    def _settle(self, removed: list[Removal], pending: Collection[OffsetKey]) -> None:
        """``removed`` are all removals of one group since the last call for it."""
        first = removed[0]
        held = {
            key: value
            for key, (value, since) in self._held.get(first.offset_key.group_id, {}).items()
            if since < first.place.record_offset
        }
        ages = [
            _ages(first.condition, key, value, first.place.timestamp_ms)[0]
            for key, value in held.items()
            if not (self._pending_protects and key in pending)
        ]
        survivor_age = max((age for age in ages if age is not None), default=None)
        for removal in removed:
            now = removal.place.timestamp_ms
            removal.age_ms, removal.expired_ms_ago = _ages(removal.condition, removal.offset_key, removal.value, now)
            removal.left, removal.survivor_age_ms = len(held), survivor_age
            removal.had_pending = bool(pending)


def _ages(condition: Condition, key: OffsetKey, value: CommittedOffset, now_ms: int) -> tuple[int | None, int | None]:
    """Age by which an offset expires, and for how long its own expire timestamp has passed; ``None``: it does
    not expire, it has none."""
    if condition.kept is not None or key.topic in condition.subscribed or now_ms < 0:
        return None, None
    if value.expire_timestamp_ms is not None:
        return None, now_ms - value.expire_timestamp_ms
    base = condition.base_timestamp_ms
    return now_ms - (value.commit_timestamp_ms if base is None else base), None
