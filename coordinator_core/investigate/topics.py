"""What shows only beside the topics: offsets outside of their partitions, partitions that nobody reads on, replicas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from coordinator_core.groups.model import OffsetKey
from coordinator_core.history.model import GroupHistory, PartitionHistory, Version
from coordinator_core.investigate.model import Case, Event, Explanation
from coordinator_core.investigate.words import consumer_groups, count, from_file, moment, span, were
from coordinator_core.log.types import OFFSETS_TOPIC
from coordinator_core.rules.model import THRESHOLDS, Severity
from coordinator_core.rules.topics import UNKNOWN, lag_between

_SHOWN = 8


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
        return f"{self.key.topic}-{self.key.partition}"

    @property
    def lag(self) -> int:
        return int(lag_between(*(np.array([one]) for one in (self.committed, self.start, self.end)))[0])

    def event(self, text: str) -> Event:
        return Event(self.version.last_place, f"{self.name}: {text}")


def explain_topics(group: GroupHistory, case: Case) -> Iterator[Explanation]:
    """Committed offsets of one group against the ends of their partitions, where those are known."""
    held = list(_held(group, case))
    yield from _below_start(group, [one for one in held if 0 <= one.committed < one.start])
    yield from _beyond_end(group, [one for one in held if one.committed > one.end])
    yield from _stopped(group, [one for one in held if one.start <= one.committed <= one.end])


def _held(group: GroupHistory, case: Case) -> Iterator[_Held]:
    topics = case.topics
    if topics is None:
        return
    ids = {name: topic_id for topic_id, name in topics.names_by_id.items()}
    for key, versions in group.versions.items():
        bounds = topics.bounds(key.topic, key.partition)
        last = versions[-1]
        of_another = None not in (last.last.topic_id, ids.get(key.topic)) and last.last.topic_id != ids[key.topic]
        if last.end is None and bounds is not None and bounds[1] != UNKNOWN and not of_another:
            yield _Held(key, last, *bounds)


def _explanation(
    group: GroupHistory, held: Sequence[_Held], code: str, severity: Severity, verdict: str
) -> Explanation:
    newest = max(one.version.last_place.timestamp_ms for one in held)
    return Explanation(code, severity, verdict, newest, group.group_id, group.offsets_partition)


def _below_start(group: GroupHistory, held: Sequence[_Held]) -> Iterator[Explanation]:
    if not held:
        return
    unread, lag = sum(one.start - one.committed for one in held), sum(one.lag for one in held)
    first = held[0]
    found = _explanation(
        group,
        held,
        "committed-below-log-start",
        Severity.WARNING,
        f"{count(len(held), 'committed offset')} of {group.group_id} lie below the log start: {first.name} at "
        f"{first.committed}, where the log begins at {first.start}. Retention removed {unread:,} records that the "
        f"group has not read; its real lag there is {lag:,}, not {lag + unread:,} as tools say that only look at "
        "the end.",
    )
    found.evidence = [
        one.event(f"{one.committed} committed, log from {one.start} to {one.end}, lag {one.lag}")
        for one in held[:_SHOWN]
    ]
    found.not_this = ["It is no backlog: what is counted below the log start cannot be read any more."]
    if not lag:
        found.not_this.append("The consumer is not stuck: there is nothing to read, so it commits nothing.")
    found.now = [
        "Commit the log start, so that lag is counted from there (the group must have no members): "
        + consumer_groups(group.group_id, "--reset-offsets", "--to-earliest", "--topic", first.key.topic, "--execute"),
        "If the records were needed: raise retention.ms of the topic above the longest time that the group is stopped.",
    ]
    yield found


def _beyond_end(group: GroupHistory, held: Sequence[_Held]) -> Iterator[Explanation]:
    if not held:
        return
    first = held[0]
    skipped = sum(one.committed - one.end for one in held)
    epoch = first.version.last.leader_epoch
    since = "without a leader epoch" if epoch is None else f"in leader epoch {epoch}"
    found = _explanation(
        group,
        held,
        "committed-beyond-log-end",
        Severity.CRITICAL,
        f"{count(len(held), 'committed offset')} of {group.group_id} lie beyond the log end: {first.name} at "
        f"{first.committed}, committed {since} at {moment(first.version.last.commit_timestamp_ms)}, where the log ends "
        f"at {first.end}. The partition lost records or was made again; the next {skipped:,} records would be skipped, "
        "or lag is shown as negative until then.",
    )
    found.evidence = [
        one.event(
            f"{one.committed} committed, log from {one.start} to {one.end}, leader epoch "
            f"{'-' if one.version.last.leader_epoch is None else one.version.last.leader_epoch}"
        )
        for one in held[:_SHOWN]
    ]
    found.not_this = ["The group is not ahead of its producers: no client can read what the log does not have."]
    found.now = [
        "Look for an unclean leader election, a truncation or a new topic of the same name at that time.",
        f"Stop the consumers, set the offsets to the log end (a running client does not go back by itself): "
        f"{from_file(group.group_id)}",
    ]
    found.restore = {one.key: one.end for one in held}
    yield found


def _stopped(group: GroupHistory, held: Sequence[_Held]) -> Iterator[Explanation]:
    """Partitions with records to read whose commits stopped while the same member went on with others."""
    newest: dict[str, int] = {}
    for one in held:
        member = one.version.member
        if member is not None:
            newest[member.member_id] = max(newest.get(member.member_id, -1), one.version.last.commit_timestamp_ms)
    least_ms, least_lag = (THRESHOLDS[name].default for name in ("stopped_ms", "stopped_lag"))
    members = {member.member_id: member for member in (group.changes[-1].members if group.changes else ())}
    stopped = [
        one
        for one in held
        if one.version.member is not None
        and (now := members.get(one.version.member.member_id)) is not None
        and (one.key.topic, one.key.partition) in (now.partitions or ())
        and newest[now.member_id] - one.version.last.commit_timestamp_ms >= least_ms
        and one.lag >= least_lag
    ]
    if not stopped:
        return
    first = min(stopped, key=lambda one: one.version.last.commit_timestamp_ms)
    member = first.version.member
    assert member is not None
    quiet = newest[member.member_id] - first.version.last.commit_timestamp_ms
    found = _explanation(
        group,
        stopped,
        "partition-stopped",
        Severity.WARNING,
        f"{were(len(stopped), 'partition')} not committed any more in {group.group_id} while their owner goes on with "
        f"others: {first.name} stays at {first.committed} since {moment(first.version.last.commit_timestamp_ms)}, "
        f"{span(quiet)} before the newest commit of {member.client_id} on {member.client_host}, and is "
        f"{first.lag:,} behind.",
    )
    found.evidence = [one.event(f"{one.committed}, lag {one.lag}") for one in stopped[:_SHOWN]]
    found.not_this = ["It is no dead consumer and no rebalance: its owner commits other partitions."]
    found.now = [
        "Look at that client for a paused partition, a record that fails again and again, or a worker that hangs; a "
        "transaction that hangs in the topic holds read_committed consumers: kafka-transactions.sh find-hanging.",
        f"See it: {consumer_groups(group.group_id, '--describe', '--members', '--verbose')}",
    ]
    yield found


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
        f"broker {broker}: {', '.join(sorted(names)[:_SHOWN])}"
        + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
        for broker, names in sorted(groups.items())
        if names
    )
    found = Explanation(
        "offsets-topic-without-replicas",
        Severity.CRITICAL,
        f"{count(len(alone), 'partition')} of {OFFSETS_TOPIC} have one replica, in a cluster of {len(brokers)} "
        "brokers: when that broker is down, its groups can neither join nor commit, and if its disk is lost their "
        "offsets are. "
        f"{each[:1].upper()}{each[1:]}.",
        max((history.last_ms for history in histories), default=-1),
    )
    found.not_this = ["The replication factor of the consumed topics does not help: groups live in the offsets topic."]
    found.now = [
        "Write a reassignment with three replicas for each partition, then: kafka-reassign-partitions.sh "
        "--bootstrap-server HOST:9092 --reassignment-json-file offsets.json --execute",
        "Set offsets.topic.replication.factor=3 for topics yet to be made; it does not change this one.",
    ]
    yield found
