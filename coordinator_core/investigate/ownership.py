"""Shares of the partitions among the members of a group: two owners of one, guests, topics that nobody reads."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from coordinator_core.durations import elapsed, is_or_are, span
from coordinator_core.groups.model import ConsumerGroup, ConsumerMember, GroupState, GroupType, MemberState, OffsetKey
from coordinator_core.history.model import Change, ChangeKind, GroupHistory, Member, PartitionHistory, Place, Version
from coordinator_core.history.signs import name_of, pattern_of, rounds_of
from coordinator_core.investigate.model import SHOWN, Case, Event, Explanation, newest_commit, step
from coordinator_core.investigate.words import consumer_groups, count, described, from_file, moment, were, when
from coordinator_core.records.blobs import CONSUMER_PROTOCOL_TYPE
from coordinator_core.releases import Deleter
from coordinator_core.rules.model import Severity

_RECONCILED_MS = 600_000
"""A member that polls gives up partitions within seconds."""
_WORD = re.compile(r"[^\W\d_]{3,}")
_RANDOM = re.compile(r"(?<![^\W_])(?=[a-f]*\d)[\da-f]{4,}(?![^\W_])", re.IGNORECASE)
"""A container's id, or a part of a UUID."""


def explain_ownership(group: GroupHistory, case: Case) -> Iterator[Explanation]:
    """Everything about who owned which partition of one group."""
    rounds = rounds_of(group)
    yield from _two_owners(group, rounds)
    yield from _moved_at_once(group, rounds)
    yield from _guests(group, rounds)
    if rounds and rounds[-1].members and group.changes[-1].kind is not ChangeKind.DELETED:
        yield from _unsubscribed(group, rounds, case)


def _two_owners(group: GroupHistory, rounds: Sequence[Change]) -> Iterator[Explanation]:
    """A generation in which a partition was given to two members: both read it, and both commit it."""
    shares = [(change, _shared(change)) for change in rounds]
    found = [(change, shared) for change, shared in shares if shared]
    if not found:
        return
    change, shared = found[0]
    (topic, partition), owners = next(iter(shared.items()))
    after = next((one for one, several in shares if one.place > change.place and not several), None)
    verdict = (
        f"{were(len(shared), 'partition')} given to two members at once in generation {change.generation} of "
        f"{group.group_id}, at {moment(change.place.timestamp_ms)}: {topic}-{partition} to "
        f"{' and '.join(map(name_of, owners))}. Both read it, each record is processed twice, and its committed offset "
        "is that of whoever came last"
        + (
            f"; generation {after.generation} put an end to it at {moment(after.place.timestamp_ms)}."
            if after is not None
            else "; it is so to the end of this log."
        )
    )
    yield Explanation(
        "two-owners",
        Severity.INFO if after is not None else Severity.CRITICAL,
        verdict,
        change.place.timestamp_ms,
        events=[step(one) for one in rounds if one.place <= change.place][-3:],
        evidence=[step(one) for one, _ in found[:SHOWN]],
        not_this=[
            "It is no zombie: both are members of that generation.",
            "It is no bug of the broker: the leader of the group gave the partitions out, by the members' assignor.",
        ],
        now=[
            "Restart all members at once, so that none claims what it had before.",
            "Upgrade the clients: sticky assignors have done this when two members claimed one partition (KAFKA-7026, "
            "KAFKA-12984). An assignor of your own: let it give each partition out once.",
            f"See it: {described(group, '--members', '--verbose')}",
        ],
        until_ms=found[-1][0].place.timestamp_ms,
    )


def _moved_at_once(group: GroupHistory, rounds: Sequence[Change]) -> Iterator[Explanation]:
    """Generations of a cooperative assignor in which a partition went from one member straight to another."""
    found = [(before, after, moved) for before, after in itertools.pairwise(rounds) if (moved := _taken(before, after))]
    if not found:
        return
    before, change, moved = found[0]
    (topic, partition), old, new = moved[0]
    yield Explanation(
        "partitions-moved-in-one-rebalance",
        Severity.INFO,
        f"{were(sum(len(some) for _, _, some in found), 'partition')} taken from a member of {group.group_id} and "
        f"given to another one in one rebalance, although its assignor is {change.protocol}: {topic}-{partition} from "
        f"{name_of(old)} to {name_of(new)} in generation {change.generation} at {moment(change.place.timestamp_ms)}. "
        "A cooperative member reads on while it rebalances, so records of that moment are processed by both, and its "
        "last commit may be refused.",
        change.place.timestamp_ms,
        events=[step(before), step(change)],
        evidence=[step(one) for _, one, _ in found[:SHOWN]],
        not_this=[
            "It is no zombie: both are members of that generation.",
            "It is as it should be where the old owner had lost its partitions before (onPartitionsLost in its log).",
        ],
        now=[
            "Upgrade the Java clients to 3.5.0 or later: CooperativeStickyAssignor has done this when a member missed "
            "a generation (KAFKA-14639).",
            "Look at both members for 'Lost previously assigned partitions', and for max.poll.interval.ms: a member "
            "that misses no rebalance does not get there.",
        ],
        until_ms=found[-1][1].place.timestamp_ms,
    )


def _taken(before: Change, after: Change) -> list[tuple[tuple[str, int], Member, Member]]:
    """Partitions with their old and their new owner, both of which are members in the second generation."""
    kind = ChangeKind.GENERATION
    if not before.kind is after.kind is kind or "cooperative" not in (after.protocol or ""):
        return []
    if before.protocol != after.protocol or (before.generation or 0) + 1 != after.generation:
        return []
    stay = {member.member_id for member in after.members}
    old = {owned: one for one in before.members if one.member_id in stay for owned in one.partitions or ()}
    return sorted(
        (
            (owned, old[owned], one)
            for one in after.members
            for owned in one.partitions or ()
            if owned in old and old[owned].member_id != one.member_id
        ),
        key=lambda found: found[0],
    )


def _shared(change: Change) -> dict[tuple[str, int], list[Member]]:
    """Owners of each partition that has several in a generation of consumers, by partition."""
    # Assignments of a KIP-848 group are on their way from one member to another at an epoch.
    if change.kind is not ChangeKind.GENERATION or change.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return {}
    owners: dict[tuple[str, int], list[Member]] = {}
    for member in change.members:
        for owned in member.partitions or ():
            owners.setdefault(owned, []).append(member)
    return {owned: members for owned, members in sorted(owners.items()) if len(members) > 1}


@lru_cache(1 << 12)
def _application(client_id: str) -> str:
    """The first word of a client id, of three letters or more; nothing where there is none to tell it by."""
    found = _WORD.search(_RANDOM.sub("", pattern_of(client_id)))
    return "" if found is None else found.group().lower()


def _guests(group: GroupHistory, rounds: Sequence[Change]) -> Iterator[Explanation]:
    """Another application that was a member for a while, owned partitions and committed in them, and left."""
    present: dict[str, list[int]] = {}
    for at, change in enumerate(rounds):
        for name in {_application(member.client_id) for member in change.members}:
            present.setdefault(name, []).append(at)
    for name, places in present.items():
        first, last = places[0], places[-1]
        hosts = [present[other] for other in present if other not in ("", name)]
        stayed = any({first - 1, last + 1} <= set(other) for other in hosts)
        if not name or "" in present or not stayed or last - first + 1 != len(places):
            continue
        guests = {member.member_id: member for at in places for member in rounds[at].members}
        guests = {key: member for key, member in guests.items() if _application(member.client_id) == name}
        committed = [
            (key, version)
            for key, version in group.all_versions()
            if version.member is not None and version.member.member_id in guests
        ]
        if committed:
            yield _guest(group, rounds[first], rounds[last + 1], guests, committed)


def _guest(
    group: GroupHistory,
    joined: Change,
    left: Change,
    guests: dict[str, Member],
    committed: Sequence[tuple[OffsetKey, Version]],
) -> Explanation:
    key, version = committed[0]
    keys = list(dict.fromkeys(key for key, _ in committed))
    before = {key: _held_before(group, key, joined) for key in keys}
    restore = {owned: held for owned, held in before.items() if held is not None}
    read = sum(
        max(one.last.committed_offset for key, one in committed if key == owned) - held
        for owned, held in restore.items()
    )
    # Where nothing was committed before, nothing tells where it began.
    records = f", {count(read, 'record')}," if len(restore) == len(before) else ""
    who = " and ".join(dict.fromkeys(name_of(member) for member in guests.values()))
    took = elapsed(joined.place.timestamp_ms, left.place.timestamp_ms)
    return Explanation(
        "guest-in-group",
        Severity.WARNING,
        f"{who} was a member of {group.group_id} from {moment(joined.place.timestamp_ms)} to "
        f"{moment(left.place.timestamp_ms)}{f' ({span(took)})' if took >= 0 else ''}, beside the "
        f"group's own application, and committed {count(len(keys), 'partition')} there: {key.topic_partition} at "
        f"{version.last.committed_offset}. What it read{records} the group's application did not.",
        joined.place.timestamp_ms,
        events=[step(joined), step(left)],
        evidence=[
            Event(one.place, f"{owned.topic}-{owned.partition}: {one.last.committed_offset}, by {who}")
            for owned, one in committed[:SHOWN]
        ],
        not_this=["It was no deployment: the other members were there before it, and stayed."],
        now=[
            "Ask who runs that client: a console consumer, a test or another environment with this group id; give it "
            "an id of its own.",
            *when(
                restore,
                f"To read its records again, stop the consumers and set them back: {from_file(group.group_id)}",
            ),
            "Let only the application use the group: an ACL for READ on Group:" + group.group_id,
        ],
        restore=restore,
    )


def _held_before(group: GroupHistory, key: OffsetKey, change: Change) -> int | None:
    """The committed offset at that moment."""
    held = None
    for version in group.versions[key]:
        if version.last_place.record_offset < change.place.record_offset:
            held = version.last.committed_offset
    return held


def _unsubscribed(group: GroupHistory, rounds: Sequence[Change], case: Case) -> Iterator[Explanation]:
    """Committed offsets of topics that members read once, and none subscribes to any more."""
    last = rounds[-1]
    if last.group_type is GroupType.STREAMS or any(member.topics is None for member in last.members):
        return
    read = {topic for change in rounds for member in change.members for topic in member.topics or ()}
    standing = group.standing
    for topic in sorted(topic for topic in read if not _reads(last, topic)):
        since = _left_at(rounds, topic)
        held = {key: one for key, one in standing.items() if key.topic == topic}
        if not held or max(one.last_place for one in held.values()) > since.place:
            continue
        yield Explanation(
            "topic-unsubscribed",
            Severity.INFO,
            f"{count(len(held), 'committed offset')} of {group.group_id} {is_or_are(len(held))} for "
            f"{topic}, to which no member subscribes since generation {since.generation} at "
            f"{moment(since.place.timestamp_ms)}: what tools show as its lag there grows, and nobody is to read it. "
            f"The {case.told_stay(group, held)}.",
            since.place.timestamp_ms,
            events=[step(one) for one in (*rounds[: rounds.index(since)][-1:], since)],
            evidence=[newest_commit(key, one) for key, one in held.items()][:SHOWN],
            not_this=["No consumer is stuck: none is to read that topic."],
            now=[
                *when(
                    Deleter.OFFSET_DELETE in case.profile.deleters,
                    "Remove what is left of it, if the topic was left on purpose: "
                    + consumer_groups(group.group_id, "--delete-offsets", "--topic", topic),
                ),
                "If it was not: look at what the members were deployed with at that time (topic list or pattern).",
            ],
        )


def without_waiting(found: Iterable[Explanation], histories: Iterable[PartitionHistory]) -> list[Explanation]:
    """The explanations without those of members that own nothing until others have released what is theirs: the target
    assignment says who is to have it."""
    groups = {one.offsets_partition: one.state.groups for one in histories if one.state is not None}

    def waits(one: Explanation) -> bool:
        group = groups.get(-1 if one.offsets_partition is None else one.offsets_partition, {}).get(one.group_id or "")
        return (
            one.code == "members-without-partitions"
            and isinstance(group, ConsumerGroup)
            and group.state is GroupState.RECONCILING
        )

    return [one for one in found if not waits(one)]


def explain_reconciling(history: PartitionHistory, case: Case) -> Iterator[Explanation]:
    """KIP-848 groups of one offsets partition in which a member keeps what another one waits for."""
    for group_id, known in history.groups.items():
        group = None if history.state is None else history.state.groups.get(group_id)
        epochs = [one for one in known.changes if one.kind is ChangeKind.EPOCH]
        if not isinstance(group, ConsumerGroup) or not epochs or group.state is not GroupState.RECONCILING:
            continue
        since = epochs[-1].place
        holders = [member for member in group.members.values() if member.pending_revocation]
        if not holders or elapsed(since.timestamp_ms, case.now_ms) < _RECONCILED_MS:
            continue
        names = {**({} if case.topics is None else case.topics.names_by_id), **group.topic_names}
        kept = ", ".join(
            f"{names.get(topic_id, topic_id)}-{partition}"
            for member in holders
            for topic_id, partitions in member.pending_revocation.items()
            for partition in partitions
        )
        first = holders[0]
        waiting = sum(one.state is MemberState.UNRELEASED_PARTITIONS for one in group.members.values())
        yield Explanation(
            "partitions-not-released",
            Severity.WARNING,
            f"{first.client_id} on {first.client_host} has not given up {kept} of {group_id}, which the assignment of "
            f"epoch {group.assignment_epoch} gives to others, since {moment(since.timestamp_ms)}: "
            f"{count(waiting, 'member')} {'waits' if waiting == 1 else 'wait'} for it, and the group is Reconciling. "
            f"The coordinator removes that member after its rebalance timeout ({span(first.rebalance_timeout_ms)}).",
            since.timestamp_ms,
            group_id,
            history.offsets_partition,
            events=[step(one) for one in epochs[-3:]],
            evidence=[Event(since, f"group epoch {group.group_epoch}"), *_at(history, first)],
            not_this=["The coordinator is not at fault: it waits for the member's next heartbeat."],
            now=[
                f"Look at {first.client_id}: it does not poll, or its rebalance listener hangs in "
                "onPartitionsRevoked; max.poll.interval.ms is its rebalance timeout.",
                f"See it: {consumer_groups(group_id, '--describe', '--members', '--verbose')}",
            ],
        )


def _at(history: PartitionHistory, member: ConsumerMember) -> list[Event]:
    """The record of a member's current assignment; only its offset is known of it."""
    place = Place(history.offsets_partition, member.assignment_record_offset, -1, "", 0, -1)
    return [Event(place, f"current assignment of {member.member_id}: partitions to be revoked")]


def _left_at(rounds: Sequence[Change], topic: str) -> Change:
    """The first of the rounds at the end in which nobody subscribes to the topic."""
    return list(itertools.takewhile(lambda one: not _reads(one, topic), reversed(rounds)))[-1]


def _reads(change: Change, topic: str) -> bool:
    """Whether a member subscribes to the topic, or may: of some the log does not tell."""
    return any(member.topics is None or topic in member.topics for member in change.members)
