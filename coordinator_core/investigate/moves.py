"""Committed offsets that were reset, went forward further than anybody had read, or have two writers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from coordinator_core.durations import elapsed, span
from coordinator_core.history.model import Change, GroupHistory, OriginKind, Overtaken, Place, Version
from coordinator_core.history.signs import (
    Move,
    MoveKind,
    Rivals,
    has_reached,
    is_pause,
    moves_of,
    name_of,
    read_to,
    rivals_of,
    stop_between,
    with_steps_beside,
)
from coordinator_core.history.takeovers import is_taken_back, takeovers_of
from coordinator_core.investigate.backwards import explain_back
from coordinator_core.investigate.model import OVERTAKEN, SHOWN, Case, Event, Explanation
from coordinator_core.investigate.shifts import (
    COPY_NOW,
    by_request,
    by_time,
    events_of,
    explanation,
    partitions_of,
    sequence_of,
    to_put_back,
    who,
)
from coordinator_core.investigate.syncs import ONE_WAY, TWO_SYNCS, explain_takeovers, of_two_syncs
from coordinator_core.investigate.words import are, by_rest, count, described, from_file, moment, tool_of, were, when
from coordinator_core.rules.model import Severity


def explain_moves(group: GroupHistory, case: Case) -> Iterator[Explanation]:
    """Resets, stale commits, jumps: those of one kind and one moment together."""
    taken = takeovers_of(group)
    yield from explain_takeovers(group, taken)
    rivals = rivals_of(group)
    moves = {
        kind: left
        for kind, some in moves_of(group, rivals).items()
        if (left := [move for move in some if id(move.after) not in taken.puts])
    }
    resets = moves.pop(MoveKind.RESET, [])
    after = {id(one): two for versions in group.versions.values() for one, two in pairwise(versions)} if resets else {}
    ignored = [
        some
        for some in by_request(move for move in resets if _is_overwritten(move, after.get(id(move.after))))
        if any(after[id(move.after)].first.committed_offset > move.before.last.committed_offset for move in some)
    ]
    overwritten = {id(move) for some in ignored for move in some}
    for some in by_request(move for move in resets if id(move) not in overwritten):
        yield _reset(group, some, after)
    for some in ignored:
        yield _reset_overwritten(group, some, after[id(some[0].after)])
    yield from explain_back(group, moves)
    jumped = moves.get(MoveKind.JUMPED, ())
    stops = {id(move): stop for move in jumped if (stop := stop_between(group, move)) is not None}
    for some in by_time(move for move in jumped if move.coordinator_epochs and id(move) not in stops):
        yield _after_failover(group, some)
    others = [move for move in jumped if not move.coordinator_epochs or id(move) in stops]
    for some in by_time(move for move in others if _is_pause(move, case) and id(move) not in stops):
        yield _paused(group, some)
    for some in by_time(move for move in others if _is_pause(move, case) and id(move) in stops):
        yield _caught_up(group, some, stops[id(some[0])])
    for some in by_time(move for move in others if not _is_pause(move, case)):
        yield _jumped(group, some, case)
    skipped = with_steps_beside(group, moves.get(MoveKind.SKIPPED, ()))
    for some in by_request(move for move in skipped if id(move.after) not in taken.puts):
        yield _skipped_by_admin(group, some)
    if shared := [one for one in rivals if one.key not in taken.keys]:
        yield _rivals(group, shared)
    if group.trespasses:
        yield _trespass(group)
    overtaken = [one for one in group.overtaken if one.held.committed_offset < one.version.last.committed_offset]
    if overtaken:
        yield _overtaken(group, overtaken)


def _overtaken(group: GroupHistory, found: Sequence[Overtaken]) -> Explanation:
    first = found[0]
    key, value, held = first.offset_key, first.version.last, first.held
    left = [one for one in found if not _is_caught_up(group, one)]
    since = "" if left else " The group has come that far since."
    return Explanation(
        OVERTAKEN,
        Severity.WARNING,
        f"{count(len(found), 'commit')} of a committed transaction had no effect in {group.group_id}: "
        f"{key.topic_partition} stays at {held.committed_offset}, not {value.committed_offset}, because record "
        f"{held.record_offset} was written after the transaction's record {value.record_offset}. Age is decided by the "
        f"commit, not by the end marker.{since}",
        first.marker.timestamp_ms,
        evidence=[
            event
            for one in found[:SHOWN]
            for event in (
                Event(
                    one.version.place,
                    f"{one.offset_key.topic_partition}: {one.version.last.committed_offset} in the "
                    f"transaction of producer {one.version.last.producer_id}",
                ),
                Event(one.marker, f"its COMMIT marker; record {one.held.record_offset} holds and stays"),
            )
        ],
        not_this=["The transaction was not aborted, and no record is lost."],
        now=[
            "Find the second writer: a consumer that commits itself beside the transactional producer "
            "(enable.auto.commit, commitSync), or a reset while a transaction was open.",
            *when(left, f"If the transaction's value was right, put it back: {from_file(group.group_id)}"),
        ],
        restore={one.offset_key: one.version.last.committed_offset for one in left},
        until_ms=found[-1].marker.timestamp_ms,
    )


def _is_caught_up(group: GroupHistory, one: Overtaken) -> bool:
    """Whether the group has reached what the transaction committed since it was overtaken."""
    versions = group.versions[one.offset_key]
    return has_reached(versions, one.held.record_offset, one.version.last.committed_offset)


def _reset(group: GroupHistory, moves: Sequence[Move], following: Mapping[int, Version]) -> Explanation:
    """``following`` are the versions after those of the moves, by their ids."""
    read = [read_to(group.versions[move.key], move.before).last.committed_offset for move in moves]
    put = [_put_back(group.versions[move.key], move, at) for at, move in zip(read, moves, strict=True)]
    until = [at if back is None else back[0].last.committed_offset for at, back in zip(read, put, strict=True)]
    records = sum(max(0, at - move.after.first.committed_offset) for at, move in zip(until, moves, strict=True))
    again_at = [_put_again(move, following.get(id(move.after))) for move in moves]
    is_back, reset, again = None not in again_at, moves[0].after.place, again_at[0]
    last = max(move.after.place for move in moves)
    came = [one.place for one in group.changes if one.place > reset]
    came += [versions[-1].last_place for versions in group.versions.values() if versions[-1].last_place > last]
    nobody_came = not any(place < again for place in came) if is_back and again is not None else not came
    read_again = (
        f"{count(records, 'record')} to be read again" if nobody_came else f"{are(records, 'record')} read again"
    )
    topics = len({move.key.topic for move in moves})
    of_topics = f", of {topics} topics" if topics > 1 else ""
    verdict = (
        f"At {moment(moves[0].after.place.timestamp_ms)} {were(len(moves), 'partition')} set back at once in "
        f"{group.group_id}{of_topics}, by an admin client and not by a member: {read_again}."
    )
    if any(at != move.before.last.committed_offset for at, move in zip(read, moves, strict=True)):
        verdict += " They had been set forward before, and nobody has read on from there."
    if again is not None and is_back:
        verdict += (
            f" At {moment(again.timestamp_ms)} (record {again.record_offset}) the same values as before were committed "
            "again: somebody put them back, or a client that is no member was there all the time."
        )
    elif backs := [back for _, back in filter(None, put)]:
        verdict += (
            f" That is how far they had come when somebody put {count(len(backs), 'partition')} back, from "
            f"{moment(backs[0].place.timestamp_ms)} on (record {backs[0].place.record_offset})."
        )
    is_undone = is_back or (any(put) and all(to_put_back(group, move) is None for move in moves))
    back = described(group, "--offsets")
    # The tool of consumer groups resets groups of any type.
    tools = " or ".join(f"{name}.sh" for name in dict.fromkeys((tool_of(group), "kafka-consumer-groups")))
    return explanation(
        group,
        moves,
        "reset-by-admin",
        Severity.INFO if not records else Severity.WARNING if is_undone else Severity.CRITICAL,
        verdict,
        not_this=[
            "It was no deploy, no rebalance and no consumer: the group had no members then.",
            "It was no expiry: the old values were replaced, not removed.",
        ],
        now=[
            f"If it was not meant, stop the consumers and put the offsets back: {from_file(group.group_id)}",
            f"See how far they have come since: {back}",
            *by_rest(group.group_id),
            f"Ask who ran {tools} --reset-offsets or kafka-streams-application-reset.sh, or called "
            "alterConsumerGroupOffsets, at that time.",
        ],
    )


def _put_again(move: Move, following: Version | None) -> Place | None:
    """Where what stood before a reset was committed again, before anybody else committed."""
    if move.after.commits > 1 and is_taken_back(move.before, move.after):
        return move.after.last_place
    return following.place if following is not None and _is_overwritten(move, following) else None


def _put_back(versions: Sequence[Version], move: Move, value: int) -> tuple[Version, Version] | None:
    """The commit from outside with which an offset came to ``value`` again, and the version before it; ``None`` where
    the group read that far itself, has not come there, or committed nothing in between."""
    since = versions[next(at for at, one in enumerate(versions) if one is move.after) :]
    for held, put in pairwise(since):
        if held.last.committed_offset >= value:
            return None
        if put.first.committed_offset >= value:
            return None if put.had_members or held is move.after else (held, put)
    return None


def _is_overwritten(move: Move, following: Version | None) -> bool:
    """Whether the next commit goes on where the group had been before the reset: who wrote it had never stopped."""
    return (
        following is not None
        and not following.had_members
        and move.after.commits == 1
        and following.origin is not None
        and following.origin.kind not in (OriginKind.ADMIN, OriginKind.MIRROR)
        and following.first.committed_offset >= move.before.last.committed_offset
    )


def _reset_overwritten(group: GroupHistory, moves: Sequence[Move], following: Version) -> Explanation:
    first = moves[0]
    put = first.after.place
    return Explanation(
        "reset-without-effect",
        Severity.WARNING,
        f"A reset of {group.group_id} at {moment(put.timestamp_ms)} had no effect: "
        f"{first.key.topic_partition} was set from {first.before.last.committed_offset} to "
        f"{first.after.first.committed_offset} (record {put.record_offset}), and "
        f"{span(elapsed(put.timestamp_ms, following.place.timestamp_ms))} later {who(following)} committed "
        f"{following.first.committed_offset} (record {following.place.record_offset}): it was running all the time. "
        f"It is no member of the group, so the coordinator did not refuse the reset. {count(len(moves), 'partition')}.",
        put.timestamp_ms,
        events=sequence_of(group, moves),
        evidence=[*events_of(moves), Event(following.place, f"{following.first.committed_offset}, {who(following)}")],
        not_this=["Nothing was read again: a running consumer does not look at committed offsets."],
        now=[
            "Stop that client (assign(), Flink, Spark: tools show no active members), then reset once more: "
            + from_file(group.group_id),
            "Of a job with checkpoints of its own (Flink, Spark): start it without them, or it is ignored again.",
        ],
        restore={move.key: move.after.first.committed_offset for move in moves},
    )


def _skipped_by_admin(group: GroupHistory, moves: Sequence[Move]) -> Explanation:
    records = sum(move.records for move in moves)
    verdict = (
        f"At {moment(moves[0].after.place.timestamp_ms)} {were(len(moves), 'partition')} set forward at once in "
        f"{group.group_id}, by an admin client: {are(records, 'record')} skipped."
    )
    if all(to_put_back(group, move) is None for move in moves):
        verdict += " They were set back since."
    return explanation(
        group,
        moves,
        "skipped-by-admin",
        Severity.WARNING,
        verdict,
        not_this=["No member committed this: the group had none."],
        now=[f"If it was not meant, stop the consumers and put the offsets back: {from_file(group.group_id)}"],
    )


def _after_failover(group: GroupHistory, moves: Sequence[Move]) -> Explanation:
    """Members that went on reading while no commit of theirs came into the log, or stayed in it."""
    first = moves[0]
    before, after = first.before.last_place, first.after.place
    go = "goes" if len({move.key for move in moves}) == 1 else "go"
    return explanation(
        group,
        moves,
        "commits-missing-at-failover",
        Severity.WARNING,
        f"No commit of {group.group_id} is in the log between {moment(before.timestamp_ms)} and "
        f"{moment(after.timestamp_ms)}, when the coordinator moved (leader epoch {before.leader_epoch} to "
        f"{after.leader_epoch} of offsets partition {group.offsets_partition}): {partitions_of(moves)} "
        f"{go} on {count(sum(move.records for move in moves), 'record')} further, "
        f"{first.key.topic_partition} from {first.before.last.committed_offset} to "
        f"{first.after.first.committed_offset}. Commits of that time failed, or were lost with a leader that nobody "
        "had copied (an unclean election); the members went on reading, unless they were restarted.",
        not_this=[
            "It was no reset by an admin client: a member committed it.",
            "It need be no skipped data: the members read on without a coordinator.",
        ],
        now=[
            "Look at the controller's log for an election of that partition of __consumer_offsets at that time; keep "
            "unclean.leader.election.enable=false for it, replication factor 3 and min.insync.replicas 2.",
            "Other groups of this offsets partition lack the same time: regroup investigate without --group.",
            "If a member was restarted then with auto.offset.reset=latest, records were skipped; stop the consumers "
            f"and set them back: {from_file(group.group_id)}",
        ],
    )


def _is_pause(move: Move, case: Case) -> bool:
    """Whether the step is no larger than what is usual in that time, and much time passed without a commit."""
    bounds = case.bounds(move.key)
    has_lost = bounds is not None and bounds[0] > move.before.last.committed_offset
    return not has_lost and is_pause(move)


def _paused(group: GroupHistory, moves: Sequence[Move]) -> Explanation:
    """Members that went on reading while none of their commits came into the log."""
    first = moves[0]
    before, after = first.before.last_place, first.after.place
    quiet_ms = elapsed(before.timestamp_ms, after.timestamp_ms)
    return explanation(
        group,
        moves,
        "commits-paused",
        Severity.WARNING,
        f"No commit of {group.group_id} is in the log for {span(quiet_ms)} from {moment(before.timestamp_ms)} on, "
        f"where one came every {span(first.before.usual_ms)}; then {first.key.topic_partition} goes on from "
        f"{first.before.last.committed_offset} to {first.after.first.committed_offset}, as far as it reads in that "
        f"time ({partitions_of(moves)}). Its members read on and could not commit, or were stopped and have caught up.",
        not_this=[
            "The coordinator did not move: its leader epoch is the same.",
            "It is no jump to the end of the log: the values go on at the usual pace.",
        ],
        now=[
            "Look at the consumers' log for commits that failed at that time (NOT_ENOUGH_REPLICAS, timeouts, "
            "COORDINATOR_NOT_AVAILABLE), and at the replicas of __consumer_offsets: fewer in sync than "
            "min.insync.replicas refuse every commit of a partition.",
            "Other groups of this offsets partition lack the same time, if it was the broker: regroup investigate "
            "without --group.",
            "Whoever was restarted in that time read again from the last commit before it.",
        ],
    )


def _caught_up(group: GroupHistory, moves: Sequence[Move], stop: Change) -> Explanation:
    """Members that came back to what had been written in the time without them."""
    first = moves[0]
    at = first.after.place
    return Explanation(
        "commits-paused",
        Severity.INFO,
        f"{group.group_id} had no members from {moment(stop.place.timestamp_ms)} on; its first commit after that, at "
        f"{moment(at.timestamp_ms)}, goes on from {first.before.last.committed_offset} to "
        f"{first.after.first.committed_offset} of {first.key.topic_partition}, as far as it reads in that "
        f"time ({partitions_of(moves)}). It was stopped, and has caught up.",
        at.timestamp_ms,
        events=sequence_of(group, moves),
        evidence=events_of(moves),
        not_this=["No commit of that time is missing: nobody was there to commit."],
        now=["Nothing, unless its clients seek to the end when they start: then the records between were skipped."],
        until_ms=max(move.after.place.timestamp_ms for move in moves),
    )


def _jumped(group: GroupHistory, moves: Sequence[Move], case: Case) -> Explanation:
    first = moves[0]
    records = sum(move.records for move in moves)
    verdict = (
        f"{partitions_of(moves)} of {group.group_id} jumped forward: {first.key.topic_partition} from "
        f"{first.before.last.committed_offset} to {first.after.first.committed_offset} at "
        f"{moment(first.after.place.timestamp_ms)}; {were(records, 'record')} never committed one by one."
    )
    if epochs := first.topic_epochs:
        verdict += f" The leader epoch of the topic's partition went from {epochs[0]} to {epochs[1]} with it."
    elif first.before.generation != first.after.generation and first.after.had_members:
        verdict += (
            f" It is the first commit of its owner in generation {first.after.generation}: that member did not begin "
            "at the committed offset. Either it could not fetch it and went to auto.offset.reset=latest, as some "
            "clients do, or it sought by itself."
        )
    now = [
        "Look at that client's log for OFFSET_OUT_OF_RANGE, and for an OffsetFetch that failed: "
        "auto.offset.reset=latest skips to the end."
    ]
    bounds = case.bounds(first.key)
    if bounds is not None and bounds[0] > first.before.last.committed_offset:
        verdict += (
            f" The log of that partition begins at {bounds[0]} now: retention removes what the group had still to read."
        )
        now = [
            "Raise retention.ms (or retention.bytes) of the topic above the time that the group is behind, or add "
            "consumers: what is below the log start cannot be read any more."
        ]
    found = explanation(
        group,
        moves,
        "jumped-forward",
        Severity.CRITICAL,
        verdict,
        not_this=["It was no reset by an admin client: a member committed it."],
        now=[
            *now,
            f"To read the skipped records, stop the consumers and set them back: {from_file(group.group_id)}",
        ],
    )
    left = {move.key for move in moves if not _is_gone(move, case)}
    put_back = {key: offset for key, offset in found.restore.items() if key in left}
    if not put_back:
        found.now = now
    found.ends = {key: end for key, end in found.ends.items() if key in left}
    found.restore = put_back
    return found


def _is_gone(move: Move, case: Case) -> bool:
    """Whether none of the records that a step forward skipped is there any more."""
    bounds = case.bounds(move.key)
    return bounds is not None and bounds[0] >= move.after.first.committed_offset


def _rivals(group: GroupHistory, found: Sequence[Rivals]) -> Explanation:
    key, turns = found[0]
    first, second = turns[0], turns[1]
    writers = dict.fromkeys(who(turn.version) for turn in turns)
    are_syncs = of_two_syncs(found, group)
    return Explanation(
        "two-writers",
        Severity.WARNING,
        f"Two clients commit in turn for {count(len(found), 'partition')} of {group.group_id}: {key.topic_partition} "
        f"goes to and fro between about {first.committed} and {second.committed}, {len(turns)} times from "
        f"{moment(first.place.timestamp_ms)} on, by {' and '.join(writers)}." + (TWO_SYNCS if are_syncs else ""),
        first.place.timestamp_ms,
        events=[
            Event(turn.place, f"{key.topic_partition}: {turn.committed}, by {who(turn.version)}")
            for turn in turns[:SHOWN]
        ],
        evidence=[Event(turn.place, f"{key.topic_partition}: {turn.committed}") for turn in turns[:2]],
        not_this=["It is no reset and no reprocessing: both sequences go on where they were."],
        now=[
            *when(are_syncs, ONE_WAY),
            "Find the second client of this group id: one that uses assign(), runs in another environment, or was "
            "left behind by a deployment; give it a group id of its own.",
            "Until then a restart may begin at either of both offsets.",
        ],
        capture=[COPY_NOW],
        until_ms=max(turns[-1].place.timestamp_ms for _, turns in found),
    )


def _trespass(group: GroupHistory) -> Explanation:
    first = group.trespasses[0]
    key = first.key
    back = [one for one in group.trespasses if one.held is not None and one.committed < one.held]
    verdict = (
        f"{name_of(first.by)} committed {key.topic_partition} of {group.group_id} in generation "
        f"{first.generation}, in which it belongs to {name_of(first.owner)}: it had the partition in generation "
        f"{first.before}, and lost it ({count(len(group.trespasses), 'such commit')})."
    )
    if back:
        key = back[0].key
        verdict += f" {key.topic_partition} went back from {back[0].held} to {back[0].committed} by it."
    # The owner may have gone on: what it has committed since is right.
    behind = {
        one.key: one.held
        for one in back
        if one.held is not None and group.versions[one.key][-1].last.committed_offset < one.held
    }
    return Explanation(
        "commit-after-losing-partition",
        Severity.WARNING,
        verdict,
        first.place.timestamp_ms,
        evidence=[
            Event(
                one.place,
                f"{one.key.topic_partition}: {one.committed}, in one request with what {one.by.member_id} owns",
            )
            for one in group.trespasses[:SHOWN]
        ],
        not_this=["It was no zombie of an old generation: the coordinator refuses those."],
        now=[
            "Let the client commit what it still owns only: drop stored offsets in onPartitionsRevoked, and do not "
            "commit a map of all partitions that it ever read.",
            *when(behind, f"Put the offsets back while the consumers are stopped: {from_file(group.group_id)}"),
        ],
        restore=behind,
        until_ms=group.trespasses[-1].place.timestamp_ms,
    )
