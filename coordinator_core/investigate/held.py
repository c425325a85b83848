"""Points of the log at which a group held what is to be put back."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator_core.groups.model import OffsetKey
from coordinator_core.history.model import GroupHistory, Place, Version
from coordinator_core.investigate.model import Case, Explanation
from coordinator_core.investigate.words import from_file


def leave_out_lost(one: Explanation, case: Case) -> None:
    """Take out of ``restore`` what lies beyond the log end of its partition: those records are gone, or are of a topic
    that was made again since."""
    topics = case.topics
    if topics is None or not one.restore or 0 <= (topics.captured_at_ms or -1) < one.newest_ms:
        return
    ends = {key: bounds[1] for key in one.restore if (bounds := topics.bounds(key.topic, key.partition)) is not None}
    lost = [key for key, offset in sorted(one.restore.items()) if 0 <= ends.get(key, -1) < offset]
    if not lost:
        return
    key, more = lost[0], f", and {len(lost) - 1} more alike" if len(lost) > 1 else ""
    one.verdict += (
        f" {key.topic_partition} ends at {ends[key]} now, before {one.restore[key]}{more}: the partition lost "
        "records, or the topic was made again, so that offset is not to be put back."
    )
    one.restore = {key: offset for key, offset in one.restore.items() if key not in lost}
    one.ends = {key: end for key, end in one.ends.items() if key not in lost}
    if not one.restore and one.group_id is not None:
        command = from_file(one.group_id)
        one.now = [step for step in one.now if command not in step]


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
