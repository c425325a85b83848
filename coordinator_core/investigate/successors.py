"""Groups that begin where another one stopped: the same application under another group id."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from statistics import median_low

from coordinator_core.durations import HOUR_MS, elapsed
from coordinator_core.groups.model import OffsetKey
from coordinator_core.history.model import Change, ChangeKind, GroupHistory, PartitionHistory, Version
from coordinator_core.history.signs import pattern_of, rounds_of
from coordinator_core.investigate.model import Event, Explanation, step
from coordinator_core.investigate.words import count, from_file, moment
from coordinator_core.rules.model import Severity

_OVERLAP_MS = HOUR_MS // 6
_GAP_MS = 24 * HOUR_MS
_STEPS = 3
"""Times its usual step that a group is quiet which has stopped."""
_SEPARATORS = "-_.:"
_VERSION = re.compile(r"[-_.:]?v?\d+$", re.IGNORECASE)
_MOST = 100
"""Most groups with the same topics: of more, nothing tells which one took over from which."""


def explain_successors(histories: Sequence[PartitionHistory]) -> Iterator[Explanation]:
    """New groups that read again what another group, which stopped then, had read."""
    groups = [group for history in histories for group in history.groups.values() if group.versions]
    end_ms = max((history.last_ms for history in histories), default=-1)
    by_topics: dict[frozenset[str], list[GroupHistory]] = {}
    for group in groups:
        by_topics.setdefault(frozenset(key.topic for key in group.versions), []).append(group)
    for alike in by_topics.values():
        for new in alike if 1 < len(alike) <= _MOST else ():
            birth = birth_of(new)
            if birth is None:
                continue
            olds = (old for old in alike if old is not new and _has_stopped(old, end_ms))
            found = [(again, old) for old in olds if (again := _read_again(old, new, birth))]
            if found:
                again, old = max(found, key=lambda one: (sum(one[0].values()), one[1].group_id))
                yield _took_over(old, new, birth, again)


def explain_new_groups(histories: Sequence[PartitionHistory]) -> Iterator[Explanation]:
    """Groups that were asked for and are younger than the log: before, nobody had committed anything under this id."""
    for history in histories:
        for group in history.groups.values():
            birth = birth_of(group)
            first = sorted((key, versions[0]) for key, versions in group.versions.items() if versions)
            if birth is None or not first or group.bare:
                continue
            if elapsed(history.first_ms, birth.place.timestamp_ms) < HOUR_MS:
                continue
            if any(one.place < birth.place for _, one in first):
                continue  # Somebody gave it offsets before it began, or a consumer without membership used its id.
            # What the cleaner has removed may have been of an earlier group of this id.
            is_whole = not history.missing and not history.first_offset
            so_far = "" if is_whole else ", as far as this log still tells"
            began = ", ".join(f"{key.topic_partition} at {one.first.committed_offset}" for key, one in first[:4])
            yield Explanation(
                "group-is-new",
                Severity.INFO,
                f"{group.group_id} is new{so_far}: its first generation is of {moment(birth.place.timestamp_ms)} "
                f"(record {birth.place.record_offset}), and the log goes back to {moment(history.first_ms)}. Its "
                f"consumers began at auto.offset.reset; first commits: {began}.",
                birth.place.timestamp_ms,
                group.group_id,
                group.offsets_partition,
                evidence=[step(birth), *(Event(one.place, "first commit") for _, one in first[:1])],
                not_this=["No committed offset was lost: there was none under this group id."] if is_whole else [],
                now=[
                    "If the application ran under another id before (group.id, application.id, a connector's name), "
                    "see without --group which one stopped then.",
                ],
            )


def birth_of(group: GroupHistory) -> Change | None:
    """The first generation or epoch of a group that has one; a group whose first ones were cleaned away has none."""
    first = group.changes[0] if group.changes else None
    is_first = first is not None and first.generation == 1 and first.kind in (ChangeKind.GENERATION, ChangeKind.EPOCH)
    return first if is_first else None


def _read_again(old: GroupHistory, new: GroupHistory, birth: Change) -> dict[OffsetKey, int]:
    """Records by offset key of ``old`` that ``new`` reads again, if it may be the same application."""
    at, stopped = birth.place.timestamp_ms, _newest(old).last_place.timestamp_ms
    is_then = min(at, stopped) >= 0 and at - _GAP_MS <= stopped <= at + _OVERLAP_MS
    if not is_then or not _is_alike(old.group_id, new.group_id):
        return {}
    found = {}
    # Deletion and expiry are explained elsewhere.
    for key, version in old.standing.items():
        mine = new.versions.get(OffsetKey(new.group_id, key.topic, key.partition))
        if mine:
            found[key] = version.last.committed_offset - mine[0].first.committed_offset
    return {key: records for key, records in found.items() if records > 0}


def _newest(group: GroupHistory) -> Version:
    return max((versions[-1] for versions in group.versions.values()), key=lambda one: one.last_place.record_offset)


def _has_stopped(old: GroupHistory, end_ms: int) -> bool:
    """Whether a group is quiet for longer than it usually is: one that commits by the hour, or a job, may go on."""
    newest = _newest(old)
    pauses = [
        elapsed(one.place.timestamp_ms, after.place.timestamp_ms)
        for one, after in itertools.pairwise(rounds_of(old))
        if one.kind is ChangeKind.EMPTY
    ]
    usual = max(newest.usual_ms, median_low(pauses) if pauses else 0)
    return elapsed(newest.last_place.timestamp_ms, end_ms) >= max(_OVERLAP_MS, _STEPS * usual)


def _is_alike(old: str, new: str) -> bool:
    """Whether two group ids may be of one application: the same up to a version, capital letters or spaces around it,
    or one is the other with a suffix; not two of a family that gets a new one each time."""
    if pattern_of(old) == pattern_of(new):
        return False
    if old.strip().casefold() == new.strip().casefold():
        return True
    short, long = sorted((old, new), key=len)
    return _VERSION.sub("", old) == _VERSION.sub("", new) != "" or (
        long.startswith(short) and long[len(short)] in _SEPARATORS
    )


def _took_over(old: GroupHistory, new: GroupHistory, birth: Change, again: dict[OffsetKey, int]) -> Explanation:
    key = min(again)
    stood = old.versions[key][-1]
    mine = new.versions[OffsetKey(new.group_id, key.topic, key.partition)][0]
    return Explanation(
        "group-took-over",
        Severity.WARNING,
        f"{new.group_id} is a new group since {moment(birth.place.timestamp_ms)}, and reads what {old.group_id} read "
        f"until {moment(stood.last_place.timestamp_ms)}: it began at {key.topic_partition} with "
        f"{mine.first.committed_offset}, where {old.group_id} had come to {stood.last.committed_offset}; "
        f"{count(sum(again.values()), 'record')} of {count(len(again), 'partition')} are read again.",
        birth.place.timestamp_ms,
        new.group_id,
        new.offsets_partition,
        events=[*([step(old.changes[-1])] if old.changes else []), step(birth)],
        evidence=[
            Event(stood.last_place, f"last commit of {old.group_id}: {stood.last.committed_offset}"),
            Event(mine.place, f"first commit of {new.group_id}: {mine.first.committed_offset}"),
        ],
        not_this=[
            f"No offset was lost: those of {old.group_id} stand. Offsets belong to a group id; another application.id "
            "or connector name is another group."
        ],
        now=[
            f"If it is the same application, stop it and give it the offsets of {old.group_id}: "
            f"{from_file(new.group_id)}",
            f"Or go back to {old.group_id} before its offsets expire.",
        ],
        restore={
            OffsetKey(new.group_id, one.topic, one.partition): old.versions[one][-1].last.committed_offset
            for one in sorted(again)
        },
    )
