"""Offsets that went: what else the groups had then, and how old it was, which tells the rule that took them."""

from __future__ import annotations

from collections.abc import Collection

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
        self._removed: list[Removal] = []

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
        self._held.get(removal.offset_key.group_id, {}).pop(removal.offset_key, None)
        self._removed.append(removal)

    def is_due(self, now_ms: int) -> bool:
        """Whether what was lost was lost in an act that is over at ``now_ms``."""
        return bool(self._removed) and now_ms > self._removed[-1].place.timestamp_ms + ONE_ACT_MS

    def settle(self, pending: Collection[OffsetKey]) -> None:
        """Tell the removals how many offsets their groups have left, and the ages of what went and what stayed.

        ``pending`` are the offset keys of open transactions.
        """
        removed, self._removed = self._removed, []
        survivors: dict[str, tuple[int, int | None]] = {}
        for removal in removed:
            now = removal.place.timestamp_ms
            removal.age_ms, removal.expired_ms_ago = _ages(removal.condition, removal.offset_key, removal.value, now)
            group_id = removal.offset_key.group_id
            if group_id not in survivors:
                held = {
                    key: value
                    for key, (value, since) in self._held.get(group_id, {}).items()
                    if since < removal.place.record_offset
                }
                ages = [
                    _ages(removal.condition, key, value, now)[0]
                    for key, value in held.items()
                    if not (self._pending_protects and key in pending)
                ]
                survivors[group_id] = len(held), max((age for age in ages if age is not None), default=None)
            removal.left, removal.survivor_age_ms = survivors[group_id]


def _ages(condition: Condition, key: OffsetKey, value: CommittedOffset, now_ms: int) -> tuple[int | None, int | None]:
    """Age by which an offset expires, and for how long its own expire timestamp has passed; ``None``: it does
    not expire, it has none."""
    if condition.kept is not None or key.topic in condition.subscribed or now_ms < 0:
        return None, None
    if value.expire_timestamp_ms is not None:
        return None, now_ms - value.expire_timestamp_ms
    base = condition.base_timestamp_ms
    return now_ms - (value.commit_timestamp_ms if base is None else base), None
