"""Points of the log at which a group held what is to be put back."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator_core.groups.model import OffsetKey
from coordinator_core.history.model import GroupHistory, Place, Version
from coordinator_core.investigate.model import Explanation


def find_points(group: GroupHistory, one: Explanation) -> None:
    """Set ``ends`` and ``held_before`` of an explanation of the group. Of a key without a known end the newest value
    that equals the wanted one counts."""
    ended: dict[OffsetKey, tuple[Version, Place]] = {}
    for key, offset in one.restore.items():
        found = _ended(group.versions.get(key, ()), offset, one.ends.get(key))
        if found is None:
            one.ends = {}
            return
        ended[key] = found
    one.ends = {key: end.record_offset for key, (_, end) in ended.items()}
    if ended:
        point = min((end for _, end in ended.values()), key=lambda place: place.record_offset)
        is_whole = all(_is_held(version, end, point) for version, end in ended.values())
        one.held_before = point.record_offset if is_whole else None


def _ended(versions: Sequence[Version], offset: int, at: int | None) -> tuple[Version, Place] | None:
    """The newest version of this value that ended, at record offset ``at`` where that is known, and its end."""
    for one in reversed(versions):
        if one.end is not None and one.last.committed_offset == offset and at in (None, one.end.place.record_offset):
            return one, one.end.place
    return None


def _is_held(version: Version, end: Place, point: Place) -> bool:
    """Whether the last value of ``version``, which ends at ``end``, was committed before ``point``."""
    if version.last.producer_id is None:
        return version.last_place.record_offset < point.record_offset
    # Only the first of several transactions has a known end marker; none lies within the batch that ends them.
    is_known = version.commits == 1 and version.valid_from.record_offset < point.record_offset
    return is_known or (end.segment, end.byte_position) == (point.segment, point.byte_position)
