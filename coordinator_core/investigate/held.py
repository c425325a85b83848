"""The point of the log at which a group held what is to be put back."""

from __future__ import annotations

from collections.abc import Mapping

from coordinator_core.groups.model import OffsetKey
from coordinator_core.history.model import GroupHistory, Place, Version


def held_before(group: GroupHistory, wanted: Mapping[OffsetKey, int]) -> int | None:
    """The last record offset before which the group held all of ``wanted``; ``None`` where nothing is wanted, and
    where it is not known to have held all of it at one time."""
    ended = []
    for key, offset in wanted.items():
        versions = reversed(group.versions.get(key, ()))
        found = next((one for one in versions if one.end is not None and one.last.committed_offset == offset), None)
        if found is None or found.end is None:
            return None
        ended.append((found, found.end.place))
    if not ended:
        return None
    point = min((end for _, end in ended), key=lambda place: place.record_offset)
    return point.record_offset if all(_is_held(one, end, point) for one, end in ended) else None


def _is_held(version: Version, end: Place, point: Place) -> bool:
    """Whether the last value of ``version``, which ends at ``end``, was committed before ``point``."""
    if version.last.producer_id is None:
        return version.last_place.record_offset < point.record_offset
    # Only the first of several transactions has a known end marker; none lies within the batch that ends them.
    is_known = version.commits == 1 and version.valid_from.record_offset < point.record_offset
    return is_known or (end.segment, end.byte_position) == (point.segment, point.byte_position)
