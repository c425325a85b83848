"""Committed offsets that a client or a mirror set back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from coordinator_core.durations import HOUR_MS, elapsed, span
from coordinator_core.history.model import GroupHistory, OriginKind
from coordinator_core.history.signs import Move, MoveKind, name_of, pace_of
from coordinator_core.history.versions import SMALL_STEP
from coordinator_core.investigate.model import Explanation
from coordinator_core.investigate.shifts import (
    by_request,
    by_time,
    events_of,
    explanation,
    partitions_of,
    sequence_of,
    who,
)
from coordinator_core.investigate.words import count, from_file, moment, tool, when
from coordinator_core.rules.model import Severity

_AGAIN = 3
"""Times from which on it is no accident."""
_NEAR = 3
"""Times the largest step that an offset is from 0 where a partition begins."""
_REGULAR = 20
"""Commits that tell a pace."""


def explain_back(group: GroupHistory, moves: dict[MoveKind, list[Move]]) -> Iterator[Explanation]:
    """Steps back but resets: those of one kind together, of some kinds by time."""
    back = moves.get(MoveKind.BACK, [])
    if disordered := _out_of_order(back):
        yield _disorder(group, disordered)
        known = {id(move) for move in disordered}
        back = [move for move in back if id(move) not in known]
    for kind, explain in _TOGETHER.items():
        if some := moves.get(kind):
            yield explain(group, some)
    for some in by_time(moves.get(MoveKind.STALE, ())):
        yield _stale(group, some)
    for some in [back] if len(_starts_of(back)) >= _AGAIN else by_time(back):
        yield _moved_back(group, some)


def _starts_of(moves: Sequence[Move]) -> set[int]:
    """Times of the moves with which a generation began."""
    return {move.after.place.timestamp_ms for move in moves if move.after.generation != move.before.generation}


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
    times = Counter(move.key for move in little if move.after.last.committed_offset >= _before(move))
    found = [move for move in own if move.after.second is not None and move.after.second >= _before(move)]
    found += [move for move in little if times[move.key] >= _AGAIN]
    return sorted({id(move): move for move in found}.values(), key=lambda move: move.after.place)


def _before(move: Move) -> int:
    return move.before.last.committed_offset


def _disorder(group: GroupHistory, moves: Sequence[Move]) -> Explanation:
    first = moves[0]
    stands = [
        move
        for move in {move.key: move for move in moves}.values()
        if group.versions[move.key][-1].last.committed_offset < _before(move)
    ]
    second = first.after.second
    is_unsure = second is not None and second - first.after.first.committed_offset <= first.before.largest_step
    often = len(list(by_request(moves)))
    of_former = _former(group, moves)
    return Explanation(
        "commits-out-of-order",
        Severity.WARNING if stands or often >= _AGAIN else Severity.INFO,
        f"Commits of {group.group_id} come out of order: {count(often, 'time')} from "
        f"{moment(first.after.place.timestamp_ms)} on a member committed less than it had before, and then more again, "
        f"in the same generation: first {first.key.topic_partition} {first.before.last.committed_offset}, "
        f"then {first.after.first.committed_offset} (record {first.after.place.record_offset}), by {who(first.after)}"
        f"; by {count(-min(move.records for move in moves), 'record')} at most."
        + (" Or it was sought back by so little that it had caught up by its next commit." if is_unsure else "")
        + of_former,
        first.after.place.timestamp_ms,
        events=sequence_of(group, moves),
        evidence=events_of(moves),
        not_this=[
            "Nobody reset the group: the next commits go on.",
            *when(not is_unsure, "Nothing is read again by it, unless the member stops right then."),
        ],
        now=[
            *when(of_former, "Let the client commit what it owns only: drop stored offsets in onPartitionsRevoked."),
            "Let one thread commit, and only what all before it is done: commitAsync() that is tried again, or several "
            "workers that commit each their own record, overtake each other.",
            "Commit once more with commitSync() in onPartitionsRevoked and before close.",
        ],
        until_ms=moves[-1].after.place.timestamp_ms,
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


def _stale(group: GroupHistory, moves: Sequence[Move]) -> Explanation:
    first = moves[0]
    assert first.earlier is not None
    verdict = (
        f"{partitions_of(moves)} of {group.group_id} went back right after a rebalance to a value that a "
        f"member had committed in its earlier ownership: {first.key.topic_partition} from "
        f"{first.before.last.committed_offset} to {first.after.first.committed_offset}, committed before at record "
        f"{first.earlier.last.record_offset} in generation {first.earlier.generation}."
    )
    return explanation(
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
            f"Upgrade the client {who(first.after)}: librdkafka below 1.9.0 does this.",
            f"Put the offsets back while the consumers are stopped: {from_file(group.group_id)}",
        ],
    )


def _mirror(group: GroupHistory, moves: Sequence[Move]) -> Explanation:
    verdict = (
        f"Offsets of {group.group_id} that somebody outside the group writes, as MirrorMaker does, go back "
        f"({count(len(moves), 'time')}, first at {moment(moves[0].after.place.timestamp_ms)}): a mirror translates "
        "wrongly."
    )
    return explanation(
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
    return explanation(
        group,
        moves,
        "negative-offset-committed",
        Severity.WARNING,
        f"{who(first.after)} committed {value} for {first.key.topic_partition} of {group.group_id} at "
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
    starts = _starts_of(moves)
    is_tool = first.before.had_members and not first.after.had_members
    is_job = first.origin in (OriginKind.FLINK, OriginKind.SPARK) and not first.after.had_members
    verdict = (
        f"{partitions_of(moves)} of {group.group_id} went back by {count(records, 'record')} "
        f"from {moment(first.after.place.timestamp_ms)} on, "
    ) + (
        f"committed by {who(first.after)}: its job was started from an older checkpoint or savepoint, which has "
        "offsets of its own."
        if is_job
        else "while the group had no members: somebody set it, as resets "
        "(kafka-consumer-groups.sh --reset-offsets), kafka-streams-application-reset and reset scripts do, or "
        "read with assign()."
        if is_tool
        else f"committed by {who(first.after)}: its consumer was sought back, was reset by auto.offset.reset, or "
        "committed late."
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
            f"nothing is to be put back: {tool('kafka-get-offsets', '--topic', anew[0].key.topic)}",
            *now,
        ]
    epochs = first.topic_epochs
    if epochs and epochs[0] < epochs[1] and first.before.generation == first.after.generation and not is_tool:
        verdict += (
            f" The leader epoch of {first.key.topic_partition} went from {epochs[0]} to {epochs[1]} "
            "with it: the new leader may not have had what the old one had (an unclean election), and the consumer was "
            "set to where they part."
        )
        now += [
            f"Look at the controller's log for an election of {first.key.topic_partition} at that time, "
            "and at unclean.leader.election.enable of the topic."
        ]
    if epochs := first.coordinator_epochs:
        verdict += (
            f" The coordinator moved in between (leader epoch {epochs[0]} to {epochs[1]}): the member may have begun "
            "from an older commit, or its last commits were lost."
        )
    return explanation(
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
            *when(not is_tool, "Look at that client's log for 'Resetting offset' and for seeks at that time."),
            *when(
                first.after.member is not None and _has_others(group, first),
                "If there is nothing, look at those of the other members: the log tells the owner of the partition, "
                "and a coordinator takes its offset from any member.",
            ),
            f"If it was not meant, stop the consumers and put the offsets back: {from_file(group.group_id)}",
        ],
    )


def _has_others(group: GroupHistory, move: Move) -> bool:
    """Whether the group had several members at the step."""
    before = [one for one in group.changes if one.place < move.after.place]
    return bool(before) and len(before[-1].members) > 1


def _beside(group: GroupHistory, moves: Sequence[Move]) -> tuple[str, list[str]]:
    """What the other partitions of that member, the commit before and the ones after say; with steps."""
    first = moves[0]
    name = first.key.topic_partition
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
    quiet_ms = elapsed(last.place.timestamp_ms, newest.timestamp_ms)
    if last is first.after and last.commits == 1 and quiet_ms >= HOUR_MS:
        told += f" {name} was not committed again in the {span(quiet_ms)} since."
    return told, steps


def _topics_anew(group: GroupHistory, moves: Sequence[Move]) -> list[Move]:
    """Steps back to near 0 of all partitions of a topic without a rebalance."""
    found = []
    of_topic: dict[str, list[Move]] = {}
    for move in moves:
        of_topic.setdefault(move.key.topic, []).append(move)
    standing = group.standing
    held = Counter(key.topic for key in standing)
    for topic, some in sorted(of_topic.items()):
        moved = {move.key for move in some} & standing.keys()
        is_whole = 1 < held[topic] == len(moved)
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
    if 0 < after <= 2 * before and min(first.before.commits, first.after.commits) >= _REGULAR:
        told += (
            f" They go on at the pace of before ({after:,.0f} records an hour in {first.key.topic_partition}): whoever "
            f"reads again what is there is faster, so this speaks for a new topic."
        )
    return told


_TOGETHER = {
    MoveKind.NEGATIVE: _negative,
    MoveKind.MIRROR: _mirror,
}
