"""Committed offsets that went back, or forward further than anybody had read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from coordinator_core.durations import HOUR_MS, span
from coordinator_core.history.model import GroupHistory, OriginKind, Overtaken, Version
from coordinator_core.history.signs import Move, MoveKind, Rivals, moves_of, name_of, pace_of, rivals_of
from coordinator_core.history.takeovers import takeovers_of
from coordinator_core.history.versions import SMALL_STEP
from coordinator_core.investigate.model import OVERTAKEN, Case, Event, Explanation
from coordinator_core.investigate.steps import step
from coordinator_core.investigate.syncs import ONE_WAY, TWO_SYNCS, explain_takeovers, of_two_syncs
from coordinator_core.investigate.words import by_rest, consumer_groups, count, from_file, moment, were
from coordinator_core.rules.model import Severity

_SHOWN = 8
_AGAIN = 3
"""Times from which on it is no accident."""
_NEAR = 3
"""Times the largest step that an offset is from 0 where a partition begins."""
_PAUSED = 20
"""Times the usual distance of commits without one."""


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
    for _, some in _by_request(move for move in resets if not _is_overwritten(move, after.get(id(move.after)))):
        yield _reset(group, some)
    for _, some in _by_request(move for move in resets if _is_overwritten(move, after.get(id(move.after)))):
        yield _reset_overwritten(group, some, after[id(some[0].after)])
    if disordered := _out_of_order(moves.get(MoveKind.BACK, ())):
        yield _disorder(group, disordered)
        known = {id(move) for move in disordered}
        moves[MoveKind.BACK] = [move for move in moves[MoveKind.BACK] if id(move) not in known]
    for kind, explain in _TOGETHER.items():
        if moves.get(kind):
            yield explain(group, moves[kind])
    jumped = moves.get(MoveKind.JUMPED, ())
    if after_failover := [move for move in jumped if move.coordinator_epochs]:
        yield _after_failover(group, after_failover)
    others = [move for move in jumped if not move.coordinator_epochs]
    if paused := [move for move in others if _is_pause(move, case)]:
        yield _paused(group, paused)
    if others := [move for move in others if not _is_pause(move, case)]:
        yield _jumped(group, others, case)
    for _, some in _by_request(moves.get(MoveKind.SKIPPED, ())):
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
    return Explanation(
        OVERTAKEN,
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


def _by_request(moves: Iterable[Move]) -> list[tuple[int, list[Move]]]:
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


def _explanation(
    group: GroupHistory, moves: Sequence[Move], code: str, severity: Severity, verdict: str, **more: Any
) -> Explanation:
    return Explanation(
        code,
        severity,
        verdict,
        moves[0].after.place.timestamp_ms,
        group.group_id,
        group.offsets_partition,
        events=_sequence(group, moves),
        evidence=_events(moves),
        # Of several steps of one key the first one: before it the group was as it should be.
        restore={move.key: move.before.last.committed_offset for move in reversed(moves)},
        capture=["Copy the offsets topic now: the cleaner removes all but the newest commit of each partition."],
        **more,
    )


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
            *by_rest(group.group_id),
            "Ask who ran kafka-consumer-groups.sh --reset-offsets, or called alterConsumerGroupOffsets, at that time.",
        ],
    )


def _is_overwritten(move: Move, following: Version | None) -> bool:
    """Whether the next commit goes on where the group had been before the reset: who wrote it had never stopped."""
    return (
        following is not None
        and not following.had_members
        and move.after.commits == 1
        and following.origin is not None
        and following.origin.kind not in (OriginKind.ADMIN, OriginKind.MIRROR)
        and following.first.committed_offset >= _before(move)
    )


def _reset_overwritten(group: GroupHistory, moves: Sequence[Move], following: Version) -> Explanation:
    first = moves[0]
    put = first.after.place
    return Explanation(
        "reset-without-effect",
        Severity.WARNING,
        f"A reset of {group.group_id} at {moment(put.timestamp_ms)} had no effect: {first.key.topic}-"
        f"{first.key.partition} was set from {first.before.last.committed_offset} to "
        f"{first.after.first.committed_offset} (record {put.record_offset}), and "
        f"{span(following.place.timestamp_ms - put.timestamp_ms)} later {_who(following)} committed "
        f"{following.first.committed_offset} (record {following.place.record_offset}): it was running all the time. "
        f"It is no member of the group, so the coordinator did not refuse the reset. {count(len(moves), 'partition')}.",
        put.timestamp_ms,
        group.group_id,
        group.offsets_partition,
        events=_sequence(group, moves),
        evidence=[*_events(moves), Event(following.place, f"{following.first.committed_offset}, {_who(following)}")],
        not_this=["Nothing was read again: a running consumer does not look at committed offsets."],
        now=[
            "Stop that client (assign(), Flink, Spark: tools show no active members), then reset once more: "
            + from_file(group.group_id),
            "Of a job with checkpoints of its own (Flink, Spark): start it without them, or it is ignored again.",
        ],
        restore={move.key: move.after.first.committed_offset for move in moves},
    )


def _out_of_order(moves: Sequence[Move]) -> list[Move]:
    """Commits of a member that came after a later one of its own: the next one goes on, or it happens again and
    again by little."""
    own = [
        move
        for move in moves
        if move.after.generation == move.before.generation
        and move.after.had_members
        and move.after.member is not None
        and move.topic_epochs is None
        and move.coordinator_epochs is None
    ]
    little = [move for move in own if -move.records <= SMALL_STEP]
    times = Counter(move.key for move in little if _is_regained(move))
    found = [move for move in own if move.after.second is not None and move.after.second >= _before(move)]
    found += [move for move in little if times[move.key] >= _AGAIN]
    return sorted({id(move): move for move in found}.values(), key=lambda move: move.after.place)


def _before(move: Move) -> int:
    return move.before.last.committed_offset


def _is_regained(move: Move) -> bool:
    return move.after.last.committed_offset >= _before(move)


def _disorder(group: GroupHistory, moves: Sequence[Move]) -> Explanation:
    first = moves[0]
    stands = [
        move
        for move in {move.key: move for move in moves}.values()
        if group.versions[move.key][-1].last.committed_offset < _before(move)
    ]
    second = first.after.second
    is_unsure = second is not None and second - first.after.first.committed_offset <= first.before.largest_step
    often = len({move.after.place.timestamp_ms for move in moves})
    of_former = _former(group, moves)
    return Explanation(
        "commits-out-of-order",
        Severity.WARNING if stands or often >= _AGAIN else Severity.INFO,
        f"Commits of {group.group_id} come out of order: {count(often, 'time')} from "
        f"{moment(first.after.place.timestamp_ms)} on a member committed less than it had before, and then more again, "
        f"in the same generation: first {first.key.topic}-{first.key.partition} {first.before.last.committed_offset}, "
        f"then {first.after.first.committed_offset} (record {first.after.place.record_offset}), by {_who(first.after)}"
        f"; by {-min(move.records for move in moves):,} records at most."
        + (" Or it was sought back by so little that it had caught up by its next commit." if is_unsure else "")
        + of_former,
        first.after.place.timestamp_ms,
        group.group_id,
        group.offsets_partition,
        events=_sequence(group, moves),
        evidence=_events(moves),
        not_this=[
            "Nobody reset the group: the next commits go on.",
            *([] if is_unsure else ["Nothing is read again by it, unless the member stops right then."]),
        ],
        now=[
            *(
                ["Let the client commit what it owns only: drop stored offsets in onPartitionsRevoked."]
                if of_former
                else []
            ),
            "Let one thread commit, and only what all before it is done: commitAsync() that is tried again, or several "
            "workers that commit each their own record, overtake each other.",
            "Commit once more with commitSync() in onPartitionsRevoked and before close.",
        ],
    )


def _former(group: GroupHistory, moves: Sequence[Move]) -> str:
    """What it says if the lesser values are all what the owner of before had committed last."""
    told = ""
    for key in dict.fromkeys(move.key for move in moves):
        values = {move.after.first.committed_offset for move in moves if move.key == key}
        generation = next(move.before.generation for move in moves if move.key == key)
        earlier = [one for one in group.versions[key] if one.member is not None and one.generation != generation]
        last = earlier[-1] if earlier else None
        if last is None or last.member is None or values != {last.last.committed_offset}:
            return ""
        told = told or (
            f" These values are what {name_of(last.member)} had committed last as the owner, up to generation "
            f"{last.generation} (record {last.last_place.record_offset}): then it is that one who commits on for what "
            "it has lost, and the coordinator takes it from any member of the generation."
        )
    return told


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


def _negative(group: GroupHistory, moves: Sequence[Move]) -> Explanation:
    first = moves[0]
    value = first.after.first.committed_offset
    return _explanation(
        group,
        moves,
        "negative-offset-committed",
        Severity.WARNING,
        f"{_who(first.after)} committed {value} for {first.key.topic}-{first.key.partition} of {group.group_id} at "
        f"{moment(first.after.place.timestamp_ms)}, after {first.before.last.committed_offset} "
        f"({count(len(moves), 'such step')}): a coordinator takes any number, and a consumer that is given -1 has no "
        "committed offset and starts from auto.offset.reset.",
        not_this=["It was no expiry and no deletion: the value was replaced, by a commit."],
        now=[
            "Look at how that client tells what to commit: a position that it did not know yet (-1, or the -1001 of "
            "librdkafka) must not be committed.",
            f"Stop the consumers and put the offsets back: {from_file(group.group_id)}",
        ],
    )


def _moved_back(group: GroupHistory, moves: Sequence[Move]) -> Explanation:
    first = moves[0]
    records = -sum(move.records for move in moves)
    starts = {move.after.place.timestamp_ms for move in moves if move.after.generation != move.before.generation}
    is_tool = first.before.had_members and not first.after.had_members
    is_job = first.origin in (OriginKind.FLINK, OriginKind.SPARK) and not first.after.had_members
    verdict = (
        f"{count(len({move.key for move in moves}), 'partition')} of {group.group_id} went back by {records:,} records "
        f"from {moment(first.after.place.timestamp_ms)} on, committed by {_who(first.after)}: "
    ) + (
        "its job was started from an older checkpoint or savepoint, which has offsets of its own."
        if is_job
        else "while the group had no members somebody set it, as a reset of single partitions "
        "(kafka-consumer-groups.sh --topic TOPIC:PARTITION), kafka-streams-application-reset and reset scripts do, or "
        "read with assign()."
        if is_tool
        else "its consumer was sought back, was reset by auto.offset.reset, or committed late."
    )
    now = []
    if is_job:
        now = [
            "Start the job from the checkpoint that was its newest: what is committed does not move a job that has one."
        ]
    elif is_tool:
        now = ["Ask who ran a reset of the application, or used the group id with assign(), at that time."]
    elif len(starts) >= _AGAIN:
        verdict += (
            f" It is so at {len(starts)} starts, each in a new generation: the application seeks by itself when it is "
            "given partitions (seekToBeginning, a timestamp, offsets of its own), whatever is committed."
        )
        now = ["Look for a seek in onPartitionsAssigned (Spring: ConsumerSeekAware), or offsets kept elsewhere."]
    told, steps = _beside(group, moves) if first.after.member is not None else ("", [])
    verdict += told
    now += steps
    if anew := [] if is_tool else _topics_anew(group, moves):
        verdict += _anew(anew)
        now = [
            f"Does the topic end before {first.before.last.committed_offset}? Then it is another one of that name, and "
            "nothing is to be put back: kafka-get-offsets.sh --bootstrap-server HOST:9092 --topic "
            f"{anew[0].key.topic}",
            *now,
        ]
    epochs = first.topic_epochs
    if epochs and epochs[0] < epochs[1] and first.before.generation == first.after.generation and not is_tool:
        verdict += (
            f" The leader epoch of {first.key.topic}-{first.key.partition} went from {epochs[0]} to {epochs[1]} "
            "with it: the new leader may not have had what the old one had (an unclean election), and the consumer was "
            "set to where they part."
        )
        now += [
            f"Look at the controller's log for an election of {first.key.topic}-{first.key.partition} at that time, "
            "and at unclean.leader.election.enable of the topic."
        ]
    if epochs := first.coordinator_epochs:
        verdict += (
            f" The coordinator moved in between (leader epoch {epochs[0]} to {epochs[1]}): the member may have begun "
            "from an older commit, or its last commits were lost."
        )
    return _explanation(
        group,
        moves,
        "moved-back",
        Severity.WARNING,
        verdict,
        not_this=[
            "No member committed it: the group had none then."
            if is_tool
            else "It was no reset by an admin client: those need a group without members."
            if first.after.had_members
            else "It was no member: the group has none."
        ],
        now=[
            *now,
            *([] if is_tool else ["Look at that client's log for 'Resetting offset' and for seeks at that time."]),
            f"If it was not meant, stop the consumers and put the offsets back: {from_file(group.group_id)}",
        ],
    )


def _beside(group: GroupHistory, moves: Sequence[Move]) -> tuple[str, list[str]]:
    """What the other partitions of that member, the commit before and the ones after say; with steps."""
    first = moves[0]
    name = f"{first.key.topic}-{first.key.partition}"
    told, steps = "", []
    back = {move.key for move in moves}
    member = first.after.member
    others = [
        one
        for key, one in group.all_versions()
        if key not in back
        and member is not None
        and one.member is not None
        and one.member.member_id == member.member_id
        and one.place < first.after.place < one.last_place
    ]
    if others and first.before.generation == first.after.generation:
        told += (
            f" It went on with {count(len(others), 'other partition')} meanwhile, so the application did not begin "
            f"anew: so does a fetch of {name} that is out of range (its leader moved, or lost records), with "
            "auto.offset.reset=earliest."
        )
        steps.append(f"Look for OFFSET_OUT_OF_RANGE of {name} in its log, and at the leader of that partition then.")
    if first.before.last.leader_epoch is None and first.after.first.leader_epoch is not None:
        told += (
            f" The commit before (record {first.before.last.record_offset}) has no leader epoch, although the client "
            "knows it: a consumer that begins there cannot tell that the log was truncated, and is out of range "
            "(KAFKA-19902)."
        )
        steps.append("Commit with a leader epoch (OffsetAndMetadata), as commitSync() without a map does.")
    last = group.versions[first.key][-1]
    newest = max(versions[-1].last_place for versions in group.versions.values())
    if last is first.after and last.commits == 1 and newest.timestamp_ms - last.place.timestamp_ms >= HOUR_MS:
        told += f" {name} was not committed again in the {span(newest.timestamp_ms - last.place.timestamp_ms)} since."
    return told, steps


def _topics_anew(group: GroupHistory, moves: Sequence[Move]) -> list[Move]:
    """Steps back to near 0 of all partitions of a topic without a rebalance."""
    found = []
    for topic in sorted({move.key.topic for move in moves}):
        some = [move for move in moves if move.key.topic == topic]
        held = {key for key, versions in group.versions.items() if key.topic == topic and versions[-1].end is None}
        is_whole = len(held) > 1 and {move.key for move in some} >= held
        if is_whole and all(_is_anew(move) for move in some):
            found += some
    return found


def _is_anew(move: Move) -> bool:
    began = move.after.first.committed_offset
    usual = max(move.before.largest_step, move.after.largest_step)
    return began <= _NEAR * usual and 2 * began <= _before(move) and move.before.generation == move.after.generation


def _anew(moves: Sequence[Move]) -> str:
    first = moves[0]
    told = (
        f" All {len({move.key for move in moves})} partitions of {first.key.topic} begin again near 0 without a "
        "rebalance: they are read from the beginning, or the topic was deleted and made again while the members went "
        "on; then nothing is read twice."
    )
    before, after = pace_of(first.before), pace_of(first.after)
    if 0 < after <= 2 * before and min(first.before.commits, first.after.commits) >= _PAUSED:
        told += (
            f" They go on at the pace of before ({after:,.0f} records an hour in {first.key.topic}-"
            f"{first.key.partition}): whoever reads again what is there is faster, so this speaks for a new topic."
        )
    return told


def _after_failover(group: GroupHistory, moves: Sequence[Move]) -> Explanation:
    """Members that went on reading while no commit of theirs came into the log, or stayed in it."""
    first = moves[0]
    before, after = first.before.last_place, first.after.place
    return _explanation(
        group,
        moves,
        "commits-missing-at-failover",
        Severity.WARNING,
        f"No commit of {group.group_id} is in the log between {moment(before.timestamp_ms)} and "
        f"{moment(after.timestamp_ms)}, when the coordinator moved (leader epoch {before.leader_epoch} to "
        f"{after.leader_epoch} of offsets partition {group.offsets_partition}): {count(len(moves), 'partition')} "
        f"{'goes' if len(moves) == 1 else 'go'} on {sum(move.records for move in moves):,} records further, "
        f"{first.key.topic}-{first.key.partition} from {first.before.last.committed_offset} to "
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
    before = move.before
    bounds = None if case.topics is None else case.topics.bounds(move.key.topic, move.key.partition)
    if bounds is not None and bounds[0] > before.last.committed_offset:
        return False
    took = before.last_place.timestamp_ms - before.place.timestamp_ms
    quiet = move.after.place.timestamp_ms - before.last_place.timestamp_ms
    read = before.last.committed_offset - before.first.committed_offset
    return took > 0 and quiet >= _PAUSED * took / (before.commits - 1) and move.records * took <= 2 * read * quiet


def _paused(group: GroupHistory, moves: Sequence[Move]) -> Explanation:
    """Members that went on reading while none of their commits came into the log."""
    first = moves[0]
    before, after = first.before.last_place, first.after.place
    usual = (before.timestamp_ms - first.before.place.timestamp_ms) / max(1, first.before.commits - 1)
    return _explanation(
        group,
        moves,
        "commits-paused",
        Severity.WARNING,
        f"No commit of {group.group_id} is in the log for {span(after.timestamp_ms - before.timestamp_ms)} from "
        f"{moment(before.timestamp_ms)} on, where one came every {span(usual)}; then {first.key.topic}-"
        f"{first.key.partition} goes on from {first.before.last.committed_offset} to "
        f"{first.after.first.committed_offset}, as far as it reads in that time ({count(len(moves), 'partition')}). "
        "Its members read on and could not commit, or were stopped and have caught up.",
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


def _jumped(group: GroupHistory, moves: Sequence[Move], case: Case) -> Explanation:
    first = moves[0]
    records = sum(move.records for move in moves)
    verdict = (
        f"{count(len(moves), 'partition')} of {group.group_id} jumped forward: "
        f"{first.key.topic}-{first.key.partition} from "
        f"{first.before.last.committed_offset} to {first.after.first.committed_offset} at "
        f"{moment(first.after.place.timestamp_ms)}; {records:,} records were never committed one by one."
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
    bounds = None if case.topics is None else case.topics.bounds(first.key.topic, first.key.partition)
    if bounds is not None and bounds[0] > first.before.last.committed_offset:
        verdict += (
            f" The log of that partition begins at {bounds[0]} now: retention removes what the group had still to read."
        )
        now = [
            "Raise retention.ms (or retention.bytes) of the topic above the time that the group is behind, or add "
            "consumers: what is below the log start cannot be read any more."
        ]
    return _explanation(
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


def _rivals(group: GroupHistory, found: Sequence[Rivals]) -> Explanation:
    key, turns = found[0]
    first, second = turns[0], turns[1]
    who = dict.fromkeys(_who(turn.version) for turn in turns)
    are_syncs = of_two_syncs(found, group)
    return Explanation(
        "two-writers",
        Severity.WARNING,
        f"Two clients commit in turn for {count(len(found), 'partition')} of {group.group_id}: {key.topic}-"
        f"{key.partition} goes to and fro between about {first.committed} and {second.committed}, {len(turns)} times "
        f"from {moment(first.place.timestamp_ms)} on, by {' and '.join(who)}." + (TWO_SYNCS if are_syncs else ""),
        first.place.timestamp_ms,
        group.group_id,
        group.offsets_partition,
        events=[
            Event(turn.place, f"{key.topic}-{key.partition}: {turn.committed}, by {_who(turn.version)}")
            for turn in turns[:_SHOWN]
        ],
        evidence=[Event(turn.place, f"{key.topic}-{key.partition}: {turn.committed}") for turn in turns[:2]],
        not_this=["It is no reset and no reprocessing: both sequences go on where they were."],
        now=[
            *([ONE_WAY] if are_syncs else []),
            "Find the second client of this group id: one that uses assign(), runs in another environment, or was "
            "left behind by a deployment; give it a group id of its own.",
            "Until then a restart may begin at either of both offsets.",
        ],
        capture=["Copy the offsets topic now: the cleaner removes all but the newest commit of each partition."],
    )


def _trespass(group: GroupHistory) -> Explanation:
    first = group.trespasses[0]
    key = first.key
    back = [one for one in group.trespasses if one.held is not None and one.committed < one.held]
    verdict = (
        f"{name_of(first.by)} committed {key.topic}-{key.partition} of {group.group_id} in generation "
        f"{first.generation}, in which it belongs to {name_of(first.owner)}: it had the partition in generation "
        f"{first.before}, and lost it ({count(len(group.trespasses), 'such commit')})."
    )
    if back:
        key = back[0].key
        verdict += f" {key.topic}-{key.partition} went back from {back[0].held} to {back[0].committed} by it."
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
        group.group_id,
        group.offsets_partition,
        evidence=[
            Event(
                one.place,
                f"{one.key.topic}-{one.key.partition}: {one.committed}, in one request with what {one.by.member_id} "
                "owns",
            )
            for one in group.trespasses[:_SHOWN]
        ],
        not_this=["It was no zombie of an old generation: the coordinator refuses those."],
        now=[
            "Let the client commit what it still owns only: drop stored offsets in onPartitionsRevoked, and do not "
            "commit a map of all partitions that it ever read.",
            *([f"Put the offsets back while the consumers are stopped: {from_file(group.group_id)}"] if behind else []),
        ],
        restore=behind,
    )


_TOGETHER = {
    MoveKind.NEGATIVE: _negative,
    MoveKind.MIRROR: _mirror,
    MoveKind.STALE: _stale,
    MoveKind.BACK: _moved_back,
}
