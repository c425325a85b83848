"""Steps of committed offsets as an explanation has them: what every kind of step tells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from coordinator_core.durations import HOUR_MS
from coordinator_core.groups.model import OffsetKey
from coordinator_core.history.model import GroupHistory, Version
from coordinator_core.history.signs import Move, has_reached, read_to
from coordinator_core.investigate.model import SHOWN, Event, Explanation, changes_around, step
from coordinator_core.investigate.words import count, from_file
from coordinator_core.rules.model import Severity

COPY_NOW = "Copy the offsets topic now: the cleaner removes all but the newest commit of each partition."


def by_request(moves: Iterable[Move]) -> Iterator[list[Move]]:
    """Moves of one time together, in log order: those of one request have one, and each partition
    once."""
    in_order = sorted(moves, key=lambda move: (_time_of(move), move.after.place.record_offset))
    for _, some in groupby(in_order, _time_of):
        request: dict[OffsetKey, Move] = {}
        for move in some:
            if move.key in request:
                yield [*request.values()]
                request = {}
            request[move.key] = move
        yield [*request.values()]


def by_time(moves: Iterable[Move]) -> list[list[Move]]:
    """Moves that follow each other within an hour, in log order: clocks can step back. The portions come by time."""
    found: list[list[Move]] = []
    last_ms = 0
    for move in sorted(moves, key=_time_of):
        if not found or _time_of(move) - last_ms > HOUR_MS:
            found.append([])
        found[-1].append(move)
        last_ms = _time_of(move)
    return [sorted(some, key=lambda move: move.after.place.record_offset) for some in found]


def partitions_of(moves: Iterable[Move]) -> str:
    """How many partitions moved, once or several times."""
    return count(len({move.key for move in moves}), "partition")


def _time_of(move: Move) -> int:
    return move.after.place.timestamp_ms


def events_of(moves: Sequence[Move]) -> list[Event]:
    return [
        Event(
            move.after.place,
            f"{move.key.topic_partition}: {move.before.last.committed_offset} (record "
            f"{move.before.last.record_offset}) to {move.after.first.committed_offset}"
            + (f", by {who(move.after)}" if move.after.member is not None else ""),
        )
        for move in moves[:SHOWN]
    ]


def who(version: Version) -> str:
    member = version.member
    if member is None:
        return "an unknown client" if version.origin is None else version.origin.kind.value
    name = member.instance_id or member.member_id
    return f"{name} ({member.client_id} on {member.client_host}) in generation {version.generation}"


def sequence_of(group: GroupHistory, moves: Sequence[Move]) -> list[Event]:
    """Changes of the group around the moves, and the moves."""
    first, last = moves[0].after.place, moves[-1].after.place
    changes = map(step, changes_around(group, first, last))
    return sorted([*changes, *events_of(moves)], key=lambda event: event.place.record_offset)


def explanation(
    group: GroupHistory,
    moves: Sequence[Move],
    code: str,
    severity: Severity,
    verdict: str,
    *,
    now: Sequence[str],
    **more: Any,
) -> Explanation:
    # Of several steps of one key the first one: before it the group was as it should be.
    first = {move.key: held for move in reversed(moves) if (held := to_put_back(group, move)) is not None}
    return Explanation(
        code,
        severity,
        verdict,
        moves[0].after.place.timestamp_ms,
        events=sequence_of(group, moves),
        evidence=events_of(moves),
        now=[one for one in now if first or from_file(group.group_id) not in one],
        restore={key: held.last.committed_offset for key, held in first.items()},
        ends={key: held.end.place.record_offset for key, held in first.items() if held.end is not None},
        capture=[COPY_NOW],
        until_ms=max(map(_time_of, moves)),
        **more,
    )


def to_put_back(group: GroupHistory, move: Move) -> Version | None:
    """The version whose last value undoes a step; ``None`` where nothing is to be undone.

    That is a step back behind which the group has been further since, as what was read again is done, or whose next
    commit put it back, or that was put back in the end, or which took back what the group was set ahead; and a step
    forward that was taken back, as nothing is skipped any more.
    """
    versions = group.versions[move.key]
    begin = move.after.place.record_offset
    if move.records >= 0:
        since = (one for one in versions if one.place.record_offset > begin)
        is_back = any(one.first.committed_offset <= move.before.last.committed_offset for one in since)
        return None if is_back else move.before
    held = read_to(versions, move.before)
    value = held.last.committed_offset
    following = next((one for one in versions if one.place.record_offset > begin), None)
    is_back = (following is not None and following.first.committed_offset == value) or _is_put(versions[-1], value)
    is_done = is_back or value <= move.after.first.committed_offset or has_reached(versions, begin, value + 1)
    return None if is_done else held


def _is_put(last: Version, value: int) -> bool:
    """Whether ``value`` stands, and was committed last from outside the group."""
    return last.end is None and not last.had_members and last.last.committed_offset == value
