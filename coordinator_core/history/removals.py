"""Offsets that went: what else the groups had then, and how old it was, which tells the rule that took them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from heapq import heappop, heappush

from coordinator_core.groups.model import CommittedOffset, OffsetKey
from coordinator_core.history.model import GroupHistory, Removal, Version
from coordinator_core.lifecycle.expiry import Condition

ONE_ACT_MS = 25
"""The Scala coordinator writes a batch for each group; those of one sweep or request are this close together."""


class Removals:
    """Offsets that groups have just lost."""

    def __init__(self, groups: Mapping[str, GroupHistory], *, pending_protects: bool) -> None:
        """``groups`` are the histories as far as they are read, by id. ``pending_protects``: a sweep leaves an offset
        alone while an open transaction commits it."""
        self._groups = groups
        self._pending_protects = pending_protects
        self._removed: dict[str, list[Removal]] = {}
        self._ends: list[tuple[int, str]] = []
        """A heap of times (epoch ms) and groups; the time of a group's last removal is there, and earlier ones."""

    def remove(self, removal: Removal) -> None:
        """The group has lost an offset."""
        group_id, now = removal.offset_key.group_id, removal.place.timestamp_ms
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
            key: versions[-1].last
            for key, versions in self._groups[first.offset_key.group_id].versions.items()
            if _stood(versions, first.place.record_offset)
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


def _stood(versions: Sequence[Version], record_offset: int) -> bool:
    """Whether the offset stands, and did before that record."""
    if versions[-1].end is not None:
        return False
    for version in reversed(versions):
        if version.gone_ms is not None:
            return False
        if version.valid_from.record_offset < record_offset:
            return True
    return False


def _ages(condition: Condition, key: OffsetKey, value: CommittedOffset, now_ms: int) -> tuple[int | None, int | None]:
    """Age by which an offset expires, and for how long its own expire timestamp has passed; ``None``: it does
    not expire, it has none."""
    if condition.kept is not None or key.topic in condition.subscribed or now_ms < 0:
        return None, None
    if value.expire_timestamp_ms is not None:
        return None, now_ms - value.expire_timestamp_ms
    base = condition.base_timestamp_ms
    return now_ms - (value.commit_timestamp_ms if base is None else base), None
