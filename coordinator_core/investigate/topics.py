"""Facts that need the topics: offsets outside of their partitions, partitions that nobody reads on, replicas."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from coordinator_core.durations import HOUR_MS, elapsed, has_or_have, is_or_are, span, was_or_were
from coordinator_core.groups.model import OffsetKey, are_of_other_topics
from coordinator_core.history.model import Certainty, EndKind, GroupHistory, Member, PartitionHistory, Version
from coordinator_core.history.signs import name_of, pace_of, rounds_of, settled_of
from coordinator_core.investigate.hanging import NO_REBALANCE_ENDED, hanging_steps
from coordinator_core.investigate.model import SHOWN, Case, Event, Explanation, newest_commit, step
from coordinator_core.investigate.words import (
    consumer_groups,
    count,
    described,
    from_file,
    moment,
    of_topics,
    records,
    reset_offsets,
    some_of,
    were,
    when,
)
from coordinator_core.log.types import OFFSETS_TOPIC
from coordinator_core.rules.model import THRESHOLDS, Severity
from coordinator_core.rules.topics import UNKNOWN, Topics, lag_between

_SEVERAL = 2


class _Held(NamedTuple):
    """A committed offset that stands, and the bounds of its partition."""

    key: OffsetKey
    version: Version
    start: int
    end: int

    @property
    def committed(self) -> int:
        return self.version.last.committed_offset

    @property
    def name(self) -> str:
        return self.key.topic_partition

    @property
    def since_ms(self) -> int:
        """Time at which this value was committed first."""
        still = self.version.still
        last = self.version.last.commit_timestamp_ms
        return last if still is None or not self.version.stood else min(last, still.timestamp_ms)

    @property
    def lag(self) -> int:
        return int(lag_between(*(np.array([one]) for one in (self.committed, self.start, self.end)))[0])

    @property
    def pace(self) -> float:
        """Records an hour in the newest commits; 0 where they tell none."""
        return pace_of(self.version)

    def event(self, text: str) -> Event:
        return Event(self.version.last_place, f"{self.name}: {text}")


def explain_topics(group: GroupHistory, case: Case) -> Iterator[Explanation]:
    """Committed offsets of one group against the ends of their partitions, where those are known."""
    held = list(_held(group, case))
    yield from _below_start(group, [one for one in held if 0 <= one.committed < one.start])
    beyond = [one for one in held if one.committed > one.end]
    carried = {one.key: old for one in beyond if (old := _carried_over(group.versions[one.key])) is not None}
    yield from _committed_over(group, [one for one in beyond if one.key in carried], carried)
    yield from _beyond_end(group, [one for one in beyond if one.key not in carried])
    within = [one for one in held if one.start <= one.committed <= one.end]
    yield from list(_stopped(group, within, case)) or _behind(group, within)
    yield from _one_behind(group, within, case)
    yield from _unassigned(group, case)
    yield from _without_commit(group, case)
    yield from _recreated(group, case)
    yield from _missing(group, case)


def _held(group: GroupHistory, case: Case) -> Iterator[_Held]:
    topics = case.topics
    if topics is None:
        return
    for key, version in group.standing.items():
        bounds = topics.bounds(key.topic, key.partition)
        if bounds is not None and bounds[1] != UNKNOWN and not _is_of_another(key, version, topics):
            start, end = bounds
            if topics.captured_at_ms is not None and version.last.commit_timestamp_ms > topics.captured_at_ms:
                # The partition went on after its end was noted.
                end = max(end, version.last.committed_offset)
            yield _Held(key, version, start, end)


def _is_of_another(key: OffsetKey, version: Version, topics: Topics) -> bool:
    """Whether the offset was committed for another topic of that name, as ids tell."""
    return are_of_other_topics(version.last.topic_id, topics.id_of(key.topic))


def _newest_ms(held: Sequence[_Held]) -> int:
    return max(one.version.last_place.timestamp_ms for one in held)


def _below_start(group: GroupHistory, held: Sequence[_Held]) -> Iterator[Explanation]:
    if not held:
        return
    unread, lag = sum(one.start - one.committed for one in held), sum(one.lag for one in held)
    first, below = held[0], [one.key for one in held]
    yield Explanation(
        "committed-below-log-start",
        Severity.WARNING,
        f"{count(len(held), 'committed offset')} of {group.group_id} {'lies' if len(held) == 1 else 'lie'} below the "
        f"log start: {first.name} at {first.committed}, where the log begins at {first.start}. Retention removed "
        f"{count(unread, 'record')} that the group has not read; its real lag there is {lag:,}, not {lag + unread:,} "
        "as tools say that only look at the end.",
        _newest_ms(held),
        evidence=[
            one.event(f"{one.committed} committed, log from {one.start} to {one.end}, lag {one.lag}")
            for one in held[:SHOWN]
        ],
        not_this=[
            "It is no backlog: what is counted below the log start cannot be read any more.",
            *when(not lag, "The consumer is not stuck: there is nothing to read, so it commits nothing."),
        ],
        now=[
            "Commit the log start, so that lag is counted from there (the group must have no members): "
            + reset_offsets(group.group_id, "--to-earliest", *of_topics(below)),
            "If the records were needed: raise retention.ms of the topic above the longest time that the group is "
            "stopped.",
        ],
    )


def _one_too_many(group: GroupHistory, held: Sequence[_Held]) -> Explanation:
    """A lost tail is of another length in each partition."""
    first = held[0]
    return Explanation(
        "committed-one-too-many",
        Severity.WARNING,
        f"{group.group_id} has committed one more than there is in {count(len(held), 'partition')}: {first.name} at "
        f"{first.committed}, where the log ends at {first.end}. Its client commits one too many (the position plus "
        "one, or the offset of the last record plus two): a consumer that starts from there skips the next record of "
        "each partition, or is out of range until there is one.",
        _newest_ms(held),
        evidence=[one.event(f"{one.committed} committed, log from {one.start} to {one.end}") for one in held[:SHOWN]],
        not_this=[
            "The partitions lost no records: what is lost is not one record in each.",
            "No other process reset the group: its own commits say so.",
        ],
        now=[
            "Commit the offset of the last record plus one, or position() as it is, which is that already.",
            "Until then each rebalance skips a record; go one back while the consumers are stopped: "
            + reset_offsets(group.group_id, "--shift-by", -1, "--all-topics"),
        ],
        restore={one.key: one.end for one in held},
    )


def _beyond_end(group: GroupHistory, held: Sequence[_Held]) -> Iterator[Explanation]:
    if not held:
        return
    first = held[0]
    if len(held) >= _SEVERAL and all(one.committed == one.end + 1 for one in held):
        yield _one_too_many(group, held)
        return
    skipped = sum(one.committed - one.end for one in held)
    epoch = first.version.last.leader_epoch
    since = "without a leader epoch" if epoch is None else f"in leader epoch {epoch}"
    yield Explanation(
        "committed-beyond-log-end",
        Severity.CRITICAL,
        f"{count(len(held), 'committed offset')} of {group.group_id} {'lies' if len(held) == 1 else 'lie'} beyond the "
        f"log end: {first.name} at {first.committed}, committed {since} at "
        f"{moment(first.version.last.commit_timestamp_ms)}, where the log ends at {first.end}. The partition lost "
        f"records or was made again; the next {skipped:,} records would be skipped, or lag is shown as negative "
        "until then.",
        _newest_ms(held),
        evidence=[
            one.event(
                f"{one.committed} committed, log from {one.start} to {one.end}, leader epoch "
                f"{'-' if one.version.last.leader_epoch is None else one.version.last.leader_epoch}"
            )
            for one in held[:SHOWN]
        ],
        not_this=["The group is not ahead of its producers: no client can read what the log does not have."],
        now=[
            "Look for an unclean leader election, a truncation or a new topic of the same name at that time.",
            "Stop the consumers, set the offsets to the log end (a running client does not go back by itself): "
            + from_file(group.group_id),
        ],
        restore={one.key: one.end for one in held},
    )


def _carried_over(versions: Sequence[Version]) -> Version | None:
    """The newest value of a topic that was deleted, from which the one that stands goes on in the topic of its name."""
    if len(versions) < _SEVERAL:
        return None
    old, new = versions[-2:]
    end = old.end
    is_deleted = end is not None and end.kind is EndKind.TOPIC_DELETION and end.certainty is not Certainty.POSSIBLE
    is_another = are_of_other_topics(old.last.topic_id, new.first.topic_id)
    goes_on = new.first.committed_offset >= old.last.committed_offset
    return old if (is_deleted or is_another) and goes_on else None


def _committed_over(
    group: GroupHistory, held: Sequence[_Held], carried: Mapping[OffsetKey, Version]
) -> Iterator[Explanation]:
    """Where a client was in a topic that is gone, committed for the one of its name: it has read nothing of it."""
    if not held:
        return
    first = held[0]
    old = carried[first.key]
    unread = sum(one.end - one.start for one in held)
    yield Explanation(
        "topic-recreated",
        Severity.CRITICAL,
        f"{count(len(held), 'committed offset')} of {group.group_id} {was_or_were(len(held))} carried "
        f"over from a topic that was deleted and made again: {first.name} at {first.committed}, where the log ends at "
        f"{first.end}. The client had come to {old.last.committed_offset} in the old topic, and committed that for the "
        f"new one at {moment(first.version.place.timestamp_ms)}. The {unread:,} records that the new topic has are "
        "unread, and lag is shown as negative.",
        _newest_ms(held),
        evidence=[
            event
            for one in held[:SHOWN]
            for event in (
                Event(carried[one.key].last_place, f"{one.name}: {carried[one.key].last.committed_offset}, before"),
                one.event(f"{one.committed} committed, log from {one.start} to {one.end}"),
            )
        ],
        not_this=["The partition lost no records: it is another one."],
        now=[
            "Stop the consumers, set the offsets to the log start (a running client does not go back by itself): "
            + from_file(group.group_id),
        ],
        restore={one.key: one.start for one in held},
    )


def _stopped(group: GroupHistory, held: Sequence[_Held], case: Case) -> Iterator[Explanation]:
    """Partitions with records to read whose commits stopped while their owner went on with others, or all of them."""
    last = settled_of(group)
    if last is None:
        return
    since = last.place.timestamp_ms
    owners = {partition: one for one in last.members for partition in one.partitions or ()}
    owned = [(one, owners[one.key[1:]]) for one in held if one.key[1:] in owners]
    newest: dict[str, int] = {}
    for one, member in owned:
        newest[member.member_id] = max(newest.get(member.member_id, since), one.since_ms)
    least_ms, least_lag = (THRESHOLDS[name].default for name in ("stopped_ms", "stopped_lag"))

    def stands(one: _Held, until_ms: int) -> bool:
        stood_ms = min(elapsed(one.since_ms, until_ms), elapsed(since, until_ms))
        return stood_ms >= least_ms and one.lag >= least_lag

    if owned and all(stands(one, case.now_ms) for one, _ in owned):
        yield _all_stopped(group, [one for one, _ in owned], case)
        return
    hung = {member.member_id for _, member in owned} - {
        member.member_id for one, member in owned if not stands(one, case.now_ms)
    }
    for member_id in sorted(hung):
        yield _member_stopped(group, [one for one, member in owned if member.member_id == member_id], owners, since)
    stopped = [one for one, member in owned if member.member_id not in hung and stands(one, newest[member.member_id])]
    if not stopped:
        return
    first = min(stopped, key=lambda one: one.since_ms)
    member = owners[first.key[1:]]
    quiet = elapsed(first.since_ms, newest[member.member_id])
    again = f", was committed again {count(first.version.stood, 'time')}" if first.version.stood else ""
    yield Explanation(
        "partition-stopped",
        Severity.WARNING,
        f"{count(len(stopped), 'partition')} did not go on in {group.group_id} while their owner goes on with "
        f"others: {first.name} stays at {first.committed} since {moment(first.since_ms)}, "
        f"{span(quiet)} before the newest progress of {member.client_id} on {member.client_host}{again}, and is "
        f"{first.lag:,} behind."
        if again
        else f"{were(len(stopped), 'partition')} not committed any more in {group.group_id} while their owner goes on "
        f"with others: {first.name} stays at {first.committed} since {moment(first.since_ms)}, {span(quiet)} before "
        f"the newest commit of {member.client_id} on {member.client_host}, and is {first.lag:,} behind.",
        _newest_ms(stopped),
        evidence=[one.event(f"{one.committed}, lag {one.lag}") for one in stopped[:SHOWN]],
        not_this=["It is no dead consumer and no rebalance: its owner commits other partitions."],
        now=[
            "Look at that client for a paused partition, a record that fails again and again, or a worker that hangs; "
            "a transaction that hangs in the topic holds read_committed consumers: kafka-transactions.sh find-hanging.",
            f"See it: {described(group, '--members', '--verbose')}",
        ],
    )


def _member_stopped(
    group: GroupHistory, held: Sequence[_Held], owners: Mapping[tuple[str, int], Member], since_ms: int
) -> Explanation:
    """A member none of whose partitions goes on, while others of the group do."""
    last = max(held, key=lambda one: one.since_ms)
    member = owners[last.key[1:]]
    return Explanation(
        "member-stopped",
        Severity.WARNING,
        f"{name_of(member)} is a member of {group.group_id} and goes on with none of its "
        f"{count(len(held), 'partition')} since {moment(max(last.since_ms, since_ms))}, while other members go on: "
        f"{last.name} stays at {last.committed}, {sum(one.lag for one in held):,} records wait.",
        _newest_ms(held),
        evidence=[one.event(f"{one.committed}, lag {one.lag}") for one in held[:SHOWN]],
        events=[step(one) for one in rounds_of(group)[-3:]],
        not_this=[
            "It is no rebalance: no generation came after the last one.",
            "Its partitions are not without an owner, and the rest of the group is sound.",
        ],
        now=[
            f"Take a thread dump of {member.client_id} on {member.client_host}: it heartbeats and does not poll, or "
            "hangs in a batch; then restart it.",
            *when(
                member.instance_id is not None,
                "A static member that is gone stays in the group, and its partitions unread, until session.timeout.ms "
                f"has passed: start {member.instance_id} again, or removeMembersFromConsumerGroup with that id.",
            ),
            f"See it: {described(group, '--members', '--verbose')}",
        ],
    )


def _missing(group: GroupHistory, case: Case) -> Iterator[Explanation]:
    """Committed offsets of topics, or partitions, that the cluster does not have."""
    topics = case.topics
    if topics is None:
        return
    gone = {key: one for key, one in group.standing.items() if topics.bounds(key.topic, key.partition) is None}
    if not gone:
        return
    key, version = min(gone.items())
    fewer = topics.bounds(key.topic, 0) is not None
    yield Explanation(
        "committed-for-missing-topic",
        Severity.INFO,
        f"{count(len(gone), 'committed offset')} of {group.group_id} {is_or_are(len(gone))} for what the "
        f"cluster does not have: {key.topic_partition} at {version.last.committed_offset}; "
        + (
            "the topic has fewer partitions: it was deleted and made again. "
            if fewer
            else "there is no such topic (any more). "
        )
        + f"Tools show {'it' if len(gone) == 1 else 'them'} without an end or a lag; the "
        f"{case.told_stay(group, gone)}, and if the topic is made again, consumers begin there.",
        version.last_place.timestamp_ms,
        evidence=[newest_commit(key, one) for key, one in sorted(gone.items())[:SHOWN]],
        not_this=["No consumer is stuck there: there is nothing to read."],
        now=[
            "Leave it: brokers refuse --delete-offsets of what they do not have (UNKNOWN_TOPIC_OR_PARTITION).",
            "Or delete the group with all of its offsets, once it is empty: "
            + consumer_groups(group.group_id, "--delete"),
        ],
    )


def _behind(group: GroupHistory, held: Sequence[_Held]) -> Iterator[Explanation]:
    """Partitions that go on, and have more to read than they will have read within an hour."""
    behind = [one for one in held if one.lag >= THRESHOLDS["stopped_lag"].default and 0 < one.pace < one.lag]
    if not behind:
        return
    most = max(behind, key=lambda one: one.lag)
    lag = sum(one.lag for one in behind)
    others = [one for one in held if one not in behind and one.pace > 0]
    verdict = (
        f"{group.group_id} goes on and is {lag:,} records behind in {count(len(behind), 'partition')}, {most.name} "
        f"most: {most.lag:,}, at {most.pace:,.0f} records an hour. What is there now takes it "
        f"{span(most.lag / most.pace * HOUR_MS)}."
    )
    if others:
        verdict += f" {were(len(others), 'partition')} read to within an hour: it is not the group that is slow."
    yield Explanation(
        "group-behind",
        Severity.INFO,
        verdict,
        _newest_ms(behind),
        evidence=[
            one.event(f"{one.committed} of {one.end}, {one.pace:,.0f} records an hour") for one in behind[:SHOWN]
        ],
        not_this=["No consumer is stuck: each of these partitions is committed on."],
        now=[
            "Look at the keys of that partition (one key may have most records), and at what its owner does with them."
            if others
            else "Add consumers, up to the number of partitions, or make the work of each record shorter.",
            "Compare retention.ms of the topic with that time: what retention overtakes is never read.",
        ],
    )


def _one_behind(group: GroupHistory, held: Sequence[_Held], case: Case) -> Iterator[Explanation]:
    """A group that stays one record behind in every partition of a topic, and has nothing to read."""
    for topic in sorted({one.key.topic for one in held}):
        some = [one for one in held if one.key.topic == topic]
        stay = all(one.lag == 1 and elapsed(one.since_ms, case.now_ms) >= HOUR_MS for one in some)
        if not stay or len(some) < _SEVERAL:
            continue
        first = some[0]
        yield Explanation(
            "lag-of-one",
            Severity.INFO,
            f"{group.group_id} stays one behind in each of {count(len(some), 'partition')} of {topic}: {first.name} at "
            f"{first.committed} of {first.end} since {moment(first.since_ms)}. Nothing waits there. Either the topic "
            "is written in transactions, and the last offset of each partition is an end marker, which no consumer is "
            "given; or the client commits the offset of the last record and not the next one, and reads that record "
            "again at each start.",
            _newest_ms(some),
            evidence=[one.event(f"{one.committed} of {one.end}") for one in some[:SHOWN]],
            not_this=["No consumer is stuck, and no record is lost: the lag would grow."],
            now=[
                f"See which it is: {records(first.key, first.committed, 1, '--timeout-ms', 10_000)}. If it prints a "
                "record, the client must commit that record's offset plus 1 (Sarama: MarkMessage, or MarkOffset with "
                "the next offset); if it prints none, this is an end marker, and nothing is to be done.",
                "Let alarms ring for a lag that grows, or from 2 on, for topics that are written in transactions.",
            ],
        )


def _all_stopped(group: GroupHistory, held: Sequence[_Held], case: Case) -> Explanation:
    last = max(held, key=lambda one: one.since_ms)
    at = last.since_ms
    quiet_ms = elapsed(at, case.now_ms)
    done = "has come further" if last.version.stood else "has committed"
    return Explanation(
        "group-stopped",
        Severity.WARNING,
        f"{group.group_id} has members and {count(sum(one.lag for one in held), 'record')} to read, and nobody {done} "
        f"since {moment(at)} (record {last.version.last_place.record_offset}), {span(quiet_ms)} before the "
        "newest record of this log.",
        at,
        evidence=[last.event("newest commit of the group")],
        events=[step(one) for one in rounds_of(group)[-3:]],
        not_this=[NO_REBALANCE_ENDED, "The topics are not quiet."],
        now=[
            "Take a thread dump of a member: it heartbeats and does not poll, or processes one batch for ever; commits "
            "that fail are in its log (CommitFailedException, REBALANCE_IN_PROGRESS).",
            *hanging_steps(group, rounds_of(group)[-1], case),
        ],
    )


def _unassigned(group: GroupHistory, case: Case) -> Iterator[Explanation]:
    """Partitions of subscribed topics that no member owns, and that have records."""
    last, topics = settled_of(group), case.topics
    if topics is None or last is None:
        return
    members = last.members
    if any(one.partitions is None or one.topics is None for one in members):
        return
    owned = last.owned
    unowned = []
    for topic in sorted({topic for one in members for topic in one.topics or ()} & {name for name, _ in owned}):
        for partition in itertools.count():
            bounds = topics.bounds(topic, partition)
            if bounds is None:
                break
            if (topic, partition) not in owned and bounds[1] > max(bounds[0], 0):
                unowned.append((topic, partition, bounds))
    # KIP-848 groups and cooperative ones pass through generations in which a partition is between two owners.
    quiet = elapsed(last.place.timestamp_ms, case.now_ms)
    if not unowned or quiet < THRESHOLDS["stopped_ms"].default:
        return
    most = max(partition for topic, partition in owned if topic == unowned[0][0])
    grown = all(
        partition > most and OffsetKey(group.group_id, topic, partition) not in group.versions
        for topic, partition, _ in unowned
        if topic == unowned[0][0]
    )
    names = ", ".join(f"{topic}-{partition}" for topic, partition, _ in unowned[:SHOWN])
    yield Explanation(
        "partitions-unassigned",
        Severity.WARNING,
        f"Nobody in {group.group_id} owns {names}, although its members subscribe to the topic, since generation "
        f"{last.generation} at {moment(last.place.timestamp_ms)}"
        + (": the topic has got more partitions since." if grown else "."),
        last.place.timestamp_ms,
        evidence=[step(last)],
        not_this=["There is no lack of members: each may own several partitions."],
        now=[
            "Let the group rebalance: restart one member. The leader sees new partitions after metadata.max.age.ms.",
            "What is in these partitions is read from auto.offset.reset on: earliest, or it is skipped.",
        ],
    )


def _without_commit(group: GroupHistory, case: Case) -> Iterator[Explanation]:
    """Partitions with records whose owner commits others, and never these."""
    last, topics = settled_of(group), case.topics
    if topics is None or last is None or not group.versions:
        return
    if elapsed(last.place.timestamp_ms, case.now_ms) < THRESHOLDS["stopped_ms"].default:
        return
    least = THRESHOLDS["stopped_lag"].default
    found = []
    for member in last.members:
        owned = sorted(member.partitions or ())
        committed = [one for one in owned if OffsetKey(group.group_id, *one) in group.versions]
        for topic, partition in owned if committed else ():
            bounds = topics.bounds(topic, partition)
            is_new = OffsetKey(group.group_id, topic, partition) not in group.versions
            if is_new and bounds is not None and bounds[1] - max(bounds[0], 0) >= least:
                found.append((topic, partition, bounds, member))
    if not found:
        return
    topic, partition, bounds, member = found[0]
    yield Explanation(
        "partition-never-committed",
        Severity.WARNING,
        f"{name_of(member)} owns {topic}-{partition} in {group.group_id} since generation {last.generation} at "
        f"{moment(last.place.timestamp_ms)} and commits others, but never this one, which has "
        f"{count(bounds[1] - max(bounds[0], 0), 'record')}, up to {bounds[1]}. {count(len(found), 'such partition')}.",
        last.place.timestamp_ms,
        evidence=[step(last)],
        not_this=["No offset was lost: there is no commit of it and no tombstone."],
        now=[
            "Look at that client for a first record that fails again and again, or a partition that is paused; with "
            "auto.offset.reset=latest nothing is committed until a new record comes.",
            f"See it: {described(group, '--offsets')} (CURRENT-OFFSET is -)",
        ],
    )


def _recreated(group: GroupHistory, case: Case) -> Iterator[Explanation]:
    """Offsets that were committed for a topic of the same name that is gone."""
    topics = case.topics
    if topics is None:
        return
    old = [(key, version) for key, version in group.standing.items() if _is_of_another(key, version, topics)]
    if old:
        key, version = old[0]
        yield Explanation(
            "topic-recreated",
            Severity.CRITICAL,
            f"{count(len(old), 'committed offset')} of {group.group_id} {is_or_are(len(old))} of a topic that was "
            f"deleted and made again: {key.topic_partition} at {version.last.committed_offset} of topic id "
            f"{version.last.topic_id}; now it is {topics.id_of(key.topic)}.",
            version.last_place.timestamp_ms,
            evidence=[newest_commit(key, one) for key, one in old[:SHOWN]],
            not_this=["The offset is not wrong by itself: it means nothing in the new topic."],
            now=[
                "Stop the consumers and remove these offsets, or set them: "
                + consumer_groups(group.group_id, "--delete-offsets", "--topic", key.topic)
            ],
        )


def explain_replicas(histories: Sequence[PartitionHistory], case: Case) -> Iterator[Explanation]:
    """Partitions of the offsets topic with one replica: what stops with each broker."""
    topics = case.topics
    infos = () if topics is None else topics.offsets_topic.partitions
    if not infos and case.topology is not None:
        infos = case.topology.offsets_partitions or ()
    brokers = {one for info in infos for one in info.replicas}
    if case.topology is not None:
        brokers |= case.topology.brokers.keys()
    alone = {info.partition: info.replicas[0] for info in infos if len(info.replicas) == 1}
    if not alone or len(brokers) < 2:
        return
    groups: dict[int, list[str]] = {}
    for history in histories:
        assert history.state is not None
        if history.offsets_partition in alone:
            live = history.state.groups.keys() | {key.group_id for key in history.state.offsets}
            groups.setdefault(alone[history.offsets_partition], []).extend(sorted(live))
    each = "; ".join(
        f"broker {broker}: {some_of(sorted(names), SHOWN)}" for broker, names in sorted(groups.items()) if names
    )
    yield Explanation(
        "offsets-topic-without-replicas",
        Severity.CRITICAL,
        f"{count(len(alone), 'partition')} of {OFFSETS_TOPIC} {has_or_have(len(alone))} one replica, in a cluster of "
        f"{len(brokers)} brokers: when that broker is down, its groups can neither join nor commit, and if its disk "
        "is lost their offsets are. "
        f"{each[:1].upper()}{each[1:]}.",
        max((history.last_ms for history in histories), default=-1),
        not_this=["The replication factor of the consumed topics does not help: groups live in the offsets topic."],
        now=[
            "Write a reassignment with three replicas for each partition, then: kafka-reassign-partitions.sh "
            "--bootstrap-server HOST:9092 --reassignment-json-file offsets.json --execute",
            "Set offsets.topic.replication.factor=3 for topics yet to be made; it does not change this one.",
        ],
    )
