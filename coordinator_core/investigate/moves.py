"""Committed offsets that went back, or forward further than anybody had read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from coordinator_core.groups.model import OffsetKey
from coordinator_core.history.model import EndKind, GroupHistory, OriginKind, Overtaken, Version
from coordinator_core.investigate.model import Case, Event, Explanation
from coordinator_core.investigate.steps import step
from coordinator_core.investigate.words import consumer_groups, count, from_file, moment, were
from coordinator_core.rules.model import Severity

_SHOWN = 8
_USUAL_COMMITS = 3
_USUAL_STEPS = 50
_SMALL_STEP = 1000


class Move(NamedTuple):
    """A step of an offset key from ``before`` to ``after``; ``earlier`` had committed the same value long before."""

    key: OffsetKey
    before: Version
    after: Version
    earlier: Version | None

    @property
    def records(self) -> int:
        return self.after.first.committed_offset - self.before.last.committed_offset


def explain_moves(group: GroupHistory, case: Case) -> Iterator[Explanation]:
    """Resets, stale commits, jumps: those of one kind and one moment together."""
    moves = [move for key, versions in group.versions.items() for move in _moves(key, versions)]
    back = [move for move in moves if move.records < 0]
    kinds: dict[str, list[Move]] = {}
    for move in back:
        kinds.setdefault(_kind_of(move), []).append(move)
    for kind, found in kinds.items():
        if kind == "reset":
            for _, some in _by_request(found):
                yield _reset(group, some)
        elif kind == "mirror":
            yield _mirror(group, found)
        elif kind == "stale":
            yield _stale(group, found)
        else:
            yield _moved_back(group, found)
    ahead = [move for move in moves if move.records > 0]
    by_admin = [move for move in ahead if _origin(move) is OriginKind.ADMIN]
    for _, some in _by_request(by_admin):
        yield _skipped_by_admin(group, some)
    jumps = [move for move in ahead if _origin(move) is not OriginKind.ADMIN]
    if jumps:
        yield _jumped(group, jumps)
    overtaken = [one for one in group.overtaken if one.held.committed_offset < one.version.last.committed_offset]
    if overtaken:
        yield _overtaken(group, overtaken)


def _overtaken(group: GroupHistory, found: Sequence[Overtaken]) -> Explanation:
    first = found[0]
    key, value, held = first.offset_key, first.version.last, first.held
    return Explanation(
        "commit-overtaken",
        Severity.WARNING,
        f"{count(len(found), 'commit')} of a committed transaction had no effect in {group.group_id}: "
        f"{key.topic}-{key.partition} stays at {held.committed_offset}, not {value.committed_offset}, because record "
        f"{held.record_offset} was written after the transaction's record {value.record_offset}. Age is decided by the "
        "commit, not by the end marker.",
        first.marker.timestamp_ms,
        group.group_id,
        group.offsets_partition,
        evidence=[
            event
            for one in found[:_SHOWN]
            for event in (
                Event(
                    one.version.place,
                    f"{one.offset_key.topic}-{one.offset_key.partition}: {one.version.last.committed_offset} in the "
                    f"transaction of producer {one.version.last.producer_id}",
                ),
                Event(one.marker, f"its COMMIT marker; record {one.held.record_offset} holds and stays"),
            )
        ],
        not_this=["The transaction was not aborted, and no record is lost."],
        now=[
            "Find the second writer: a consumer that commits itself beside the transactional producer "
            "(enable.auto.commit, commitSync), or a reset while a transaction was open.",
            f"If the transaction's value was right, put it back: {from_file(group.group_id)}",
        ],
        restore={one.offset_key: one.version.last.committed_offset for one in found},
    )


def _moves(key: OffsetKey, versions: Sequence[Version]) -> Iterator[Move]:
    for at, after in enumerate(versions[1:], 1):
        before = versions[at - 1]
        if before.end is None or before.end.kind is not EndKind.NEWER_VALUE:
            continue
        ids = before.last.topic_id, after.first.topic_id
        if None not in ids and ids[0] != ids[1]:
            continue  # The topic was made again, and its offsets begin again.
        step = after.first.committed_offset - before.last.committed_offset
        if step < 0:
            value = after.first.committed_offset
            earlier = next((one for one in reversed(versions[: at - 1]) if one.last.committed_offset == value), None)
            yield Move(key, before, after, earlier)
        elif after.missing != before.missing:
            continue  # The cleaner has removed records between, perhaps commits of this key.
        elif before.commits >= _USUAL_COMMITS and step > max(_SMALL_STEP, _USUAL_STEPS * before.largest_step):
            yield Move(key, before, after, None)


def _origin(move: Move) -> OriginKind | None:
    return None if move.after.origin is None else move.after.origin.kind


def _kind_of(move: Move) -> str:
    match _origin(move):
        case OriginKind.ADMIN:
            return "reset"
        case OriginKind.MIRROR:
            return "mirror"
    changed = move.after.generation != move.before.generation
    return "stale" if move.earlier is not None and changed else "back"


def _by_request(moves: Sequence[Move]) -> list[tuple[int, list[Move]]]:
    found: dict[int, list[Move]] = {}
    for move in moves:
        found.setdefault(move.after.place.timestamp_ms, []).append(move)
    return sorted(found.items())


def _events(moves: Sequence[Move]) -> list[Event]:
    return [
        Event(
            move.after.place,
            f"{move.key.topic}-{move.key.partition}: {move.before.last.committed_offset} (record "
            f"{move.before.last.record_offset}) to {move.after.first.committed_offset}"
            + (f", by {_who(move.after)}" if move.after.member is not None else ""),
        )
        for move in moves[:_SHOWN]
    ]


def _who(version: Version) -> str:
    member = version.member
    if member is None:
        return "an unknown client" if version.origin is None else version.origin.kind.value
    name = member.instance_id or member.member_id
    return f"{name} ({member.client_id} on {member.client_host}) in generation {version.generation}"


def _sequence(group: GroupHistory, moves: Sequence[Move]) -> list[Event]:
    """Changes of the group around the moves, and the moves."""
    first, last = moves[0].after.place, moves[-1].after.place
    around = [one for one in group.changes if one.place.record_offset < first.record_offset][-2:]
    around += [one for one in group.changes if one.place.record_offset > last.record_offset][:1]
    return sorted([*map(step, around), *_events(moves)], key=lambda event: event.place.record_offset)


def _restore(moves: Sequence[Move]) -> dict[OffsetKey, int]:
    return {move.key: move.before.last.committed_offset for move in moves}


def _explanation(
    group: GroupHistory, moves: Sequence[Move], code: str, severity: Severity, verdict: str, **more: object
) -> Explanation:
    explained = Explanation(
        code,
        severity,
        verdict,
        moves[0].after.place.timestamp_ms,
        group.group_id,
        group.offsets_partition,
        events=_sequence(group, moves),
        evidence=_events(moves),
        restore=_restore(moves),
        capture=["Copy the offsets topic now: the cleaner removes all but the newest commit of each partition."],
    )
    for name, value in more.items():
        setattr(explained, name, value)
    return explained


def _reset(group: GroupHistory, moves: Sequence[Move]) -> Explanation:
    records = -sum(move.records for move in moves)
    verdict = (
        f"At {moment(moves[0].after.place.timestamp_ms)} {were(len(moves), 'partition')} set back at once in "
        f"{group.group_id}, by an admin client and not by a member: {records:,} records are read again."
    )
    back = consumer_groups(group.group_id, "--describe", "--offsets")
    return _explanation(
        group,
        moves,
        "reset-by-admin",
        Severity.CRITICAL,
        verdict,
        not_this=[
            "It was no deploy, no rebalance and no consumer: the group had no members then.",
            "It was no expiry: the old values were replaced, not removed.",
        ],
        now=[
            f"If it was not meant, stop the consumers and put the offsets back: {from_file(group.group_id)}",
            f"See how far they have come since: {back}",
            "Ask who ran kafka-consumer-groups.sh --reset-offsets, or called alterConsumerGroupOffsets, at that time.",
        ],
    )


def _skipped_by_admin(group: GroupHistory, moves: Sequence[Move]) -> Explanation:
    records = sum(move.records for move in moves)
    verdict = (
        f"At {moment(moves[0].after.place.timestamp_ms)} {were(len(moves), 'partition')} set forward at once in "
        f"{group.group_id}, by an admin client: {records:,} records are skipped."
    )
    return _explanation(
        group,
        moves,
        "skipped-by-admin",
        Severity.WARNING,
        verdict,
        not_this=["No member committed this: the group had none."],
        now=[f"If it was not meant, stop the consumers and put the offsets back: {from_file(group.group_id)}"],
    )


def _stale(group: GroupHistory, moves: Sequence[Move]) -> Explanation:
    first = moves[0]
    assert first.earlier is not None
    verdict = (
        f"{count(len(moves), 'partition')} of {group.group_id} went back right after a rebalance to a value that a "
        f"member had committed in its earlier ownership: {first.key.topic}-{first.key.partition} from "
        f"{first.before.last.committed_offset} to {first.after.first.committed_offset}, committed before at record "
        f"{first.earlier.last.record_offset} in generation {first.earlier.generation}."
    )
    return _explanation(
        group,
        moves,
        "stale-commit",
        Severity.CRITICAL,
        verdict,
        bug="librdkafka-3774",
        not_this=[
            "It was no reset: a member committed it, in its own generation.",
            "It was not auto.offset.reset: the value is one that was committed before.",
        ],
        now=[
            f"Upgrade the client {_who(first.after)}: librdkafka below 1.9.0 does this.",
            f"Put the offsets back while the consumers are stopped: {from_file(group.group_id)}",
        ],
    )


def _mirror(group: GroupHistory, moves: Sequence[Move]) -> Explanation:
    verdict = (
        f"Offsets of {group.group_id} that somebody outside the group writes, as MirrorMaker does, go back "
        f"({count(len(moves), 'time')}, first at {moment(moves[0].after.place.timestamp_ms)}): a mirror translates "
        "wrongly."
    )
    return _explanation(
        group,
        moves,
        "mirror-translates-back",
        Severity.WARNING,
        verdict,
        bug="KAFKA-12468",
        not_this=["No consumer of this cluster committed them: the group has no members."],
        now=[
            "Do not fail this group over; upgrade MirrorMaker to 3.5.0 or later and let it sync again.",
            "Compare with the source: regroup describe of a capture of both clusters.",
        ],
    )


def _moved_back(group: GroupHistory, moves: Sequence[Move]) -> Explanation:
    first = moves[0]
    records = -sum(move.records for move in moves)
    verdict = (
        f"{count(len(moves), 'partition')} of {group.group_id} went back by {records:,} records from "
        f"{moment(first.after.place.timestamp_ms)} on, committed by {_who(first.after)}: "
        "its consumer was sought back, was reset by auto.offset.reset, or committed late."
    )
    return _explanation(
        group,
        moves,
        "moved-back",
        Severity.WARNING,
        verdict,
        not_this=["It was no reset by an admin client: those need a group without members."],
        now=[
            "Look at that client's log for 'Resetting offset' and for seeks at that time.",
            f"If it was not meant, stop the consumers and put the offsets back: {from_file(group.group_id)}",
        ],
    )


def _jumped(group: GroupHistory, moves: Sequence[Move]) -> Explanation:
    first = moves[0]
    records = sum(move.records for move in moves)
    epochs = first.before.last.leader_epoch, first.after.last.leader_epoch
    verdict = (
        f"{count(len(moves), 'partition')} of {group.group_id} jumped forward: "
        f"{first.key.topic}-{first.key.partition} from "
        f"{first.before.last.committed_offset} to {first.after.first.committed_offset} at "
        f"{moment(first.after.place.timestamp_ms)}; {records:,} records were never committed one by one."
    )
    if None not in epochs and epochs[0] != epochs[1]:
        verdict += f" The leader epoch of the topic's partition went from {epochs[0]} to {epochs[1]} with it."
    return _explanation(
        group,
        moves,
        "jumped-forward",
        Severity.CRITICAL,
        verdict,
        not_this=["It was no reset by an admin client: a member committed it."],
        now=[
            "Look at that client's log for OFFSET_OUT_OF_RANGE: auto.offset.reset=latest skips to the end.",
            f"To read the skipped records, stop the consumers and set them back: {from_file(group.group_id)}",
        ],
    )
