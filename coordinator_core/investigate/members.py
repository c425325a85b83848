"""Trouble among the members of a group: storms, wrong subscriptions, partitions that nobody owns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from coordinator_core.durations import elapsed, has_or_have
from coordinator_core.groups.model import GroupType, OffsetKey
from coordinator_core.history.model import Change, ChangeKind, GroupHistory, Member
from coordinator_core.history.signs import (
    Replaced,
    Storm,
    disagree,
    flapping_of,
    name_of,
    replaced_of,
    rounds_of,
    settled_of,
    storm_of,
)
from coordinator_core.investigate.bugs import BUGS
from coordinator_core.investigate.model import IS_EMPTY, SHOWN, Case, Event, Explanation, newest_commit, step
from coordinator_core.investigate.tenures import POLL_LIMIT_REMEDY, told_by_poll_limit
from coordinator_core.investigate.words import consumer_groups, count, described, moment, tool, when
from coordinator_core.rules.model import THRESHOLDS, Severity

_STREAMS = "stream"
"""The assignor of Kafka Streams, which is cooperative."""


def explain_members(group: GroupHistory, case: Case) -> Iterator[Explanation]:
    """Everything about the members of one group."""
    rounds = rounds_of(group)
    storm = storm_of(group)
    replaced = replaced_of(group)
    if storm is not None:
        yield _storm(group, storm)
    elif not replaced:
        yield from _flapping(group)
    yield from (_duplicate_instance(group, one) for one in replaced)
    if rounds and rounds[-1].members and group.changes[-1].kind is not ChangeKind.DELETED:
        last = settled_of(group)
        mixed = list(_mixed(group, last or rounds[-1], case))
        yield from mixed
        if last is not None and not mixed:
            unowned = list(_without_owner(group, last, case)) or list(_left_out(group, rounds, last, case))
            yield from unowned or _idle(group, last, case)
    yield from _reused_id(group, case)
    yield from _connector(group, rounds, case)
    yield from _left_empty(group, rounds, case)


def _storm(group: GroupHistory, storm: Storm) -> Explanation:
    """The hour with most rebalances, and who came and went in it."""
    best, often = storm.rounds, storm.joins.most_common(1)
    begin, end = best[0].place, best[-1].place
    verdict = (
        f"{group.group_id} rebalanced {len(best)} times from {moment(begin.timestamp_ms)} to {moment(end.timestamp_ms)}"
    )
    if often and often[0][1] >= len(best) // 8:
        verdict += f"; {often[0][0]} joined {often[0][1]} times"
    kept = [one for one in best if not (one.joined or one.left or one.cause.startswith("member "))]
    if 2 * len(kept) > len(best):
        verdict += f"; in {len(kept)} of them nobody joined or left: " + (
            Counter(one.cause for one in kept).most_common(1)[0][0]
            if kept[0].cause
            else "its members asked for it themselves, as they do when the topics that they subscribe to (a pattern), "
            "or their partitions, change"
        )
    is_connect = best[-1].protocol_type == "connect"
    starts = [one for one in best if one.members and len(one.joined) == len(one.members)]
    # Each start of the whole group is followed by its end; commits come between.
    is_job = 2 * len(starts) >= len(best) - 1 and storm.quiet <= len(best) - len(starts)
    # Share groups commit elsewhere.
    if storm.quiet and not is_connect and not is_job and best[-1].group_type is not GroupType.SHARE:
        verdict += f"; {count(storm.quiet, 'generation')} passed without a commit"
    poll_limit = told_by_poll_limit(group, often[0][0]) if often else ""
    verdict += "." + poll_limit
    if is_job and not poll_limit:
        verdict += (
            f" {len(starts)} of them are starts of the whole group, which commits and stops again: a consumer that is "
            "made for each batch or request, as a job, a function or a REST proxy does, and not one that is put out."
        )
    return Explanation(
        "rebalance-storm",
        Severity.WARNING,
        verdict,
        begin.timestamp_ms,
        events=[step(change) for change in best[:SHOWN]],
        evidence=[step(best[0]), step(best[-1])],
        not_this=["The coordinator did not move: it would not rebalance a group."]
        if begin.leader_epoch == end.leader_epoch
        else [],
        now=[
            *when(
                2 * len(kept) > len(best),
                "Look for topics that are made or deleted all the time and match a subscribed pattern; narrow it.",
            ),
            *when(poll_limit, POLL_LIMIT_REMEDY),
            *when(
                is_job and not poll_limit,
                "Keep the consumer open between batches: each start waits for group.initial.rebalance.delay.ms (3 s).",
            ),
            "Look at the members that come and go: max.poll.interval.ms against their slowest batch, crashes, "
            "restarts.",
            *_static_membership(best[-1]),
            *when(
                is_connect,
                "Of Connect: a worker that is back within scheduled.rebalance.max.delay.ms (5 min) keeps its tasks "
                "(connect.protocol=sessioned).",
            ),
            f"See them: {described(group, '--members', '--verbose')}",
        ],
        capture=["Copy the offsets topic: old generations go with the next cleaning."],
    )


def _static_membership(last: Change) -> Sequence[str]:
    """Advice for groups that may have static members (KIP-345): share and streams groups have none."""
    return when(
        last.group_type not in (GroupType.SHARE, GroupType.STREAMS),
        "Give members a group.instance.id, so that a restart within session.timeout.ms is no rebalance.",
    )


def _flapping(group: GroupHistory) -> Iterator[Explanation]:
    """A client that comes and goes, too seldom to be a storm."""
    often = {one.name for one in flapping_of(group)}
    for one in flapping_of(group, few=True):
        begin, end = one.joins[0].place, one.joins[-1].place
        ids = {member.member_id for change in one.joins for member in change.joined if name_of(member) == one.name}
        lives = len(ids) == 1
        yield Explanation(
            "flapping-member",
            Severity.WARNING if one.name in often else Severity.INFO,
            f"{one.name} joined {group.group_id} {len(one.joins)} times from {moment(begin.timestamp_ms)} to "
            f"{moment(end.timestamp_ms)}: it comes and goes, and each time "
            + (
                "partitions move to it and away."
                if one.joins[-1].kind is ChangeKind.EPOCH
                else "all members give up their partitions."
            )
            + (" It kept its member id: the process lived, and was put out or left by itself." if lives else "")
            + told_by_poll_limit(group, one.name),
            begin.timestamp_ms,
            events=[step(change) for change in one.joins[:SHOWN]],
            evidence=[step(change) for change in one.joins[:SHOWN]],
            until_ms=end.timestamp_ms,
            not_this=["It was no deployment: the other members stayed."],
            now=[
                *when(told_by_poll_limit(group, one.name), POLL_LIMIT_REMEDY),
                "Look at that client: max.poll.interval.ms against its slowest batch, session.timeout.ms against its "
                f"pauses{'' if lives else ', restarts by its supervisor'}.",
                *when(not lives, *_static_membership(one.joins[-1])),
            ],
        )


def _duplicate_instance(group: GroupHistory, found: Replaced) -> Explanation:
    """Two processes with one group instance id put each other out, again and again."""
    verdict = (
        f"The member behind group instance id {found.instance_id} of {group.group_id} was replaced "
        f"{len(found.changes)} times, from {', '.join(sorted(found.hosts))}: "
        + (
            "it restarts, each time under another address, as a pod does that is made anew."
            if found.moves_on
            else "two processes use the same id."
            if len(found.hosts) > 1
            else "it restarts, or two processes use the same id."
        )
    )
    return Explanation(
        "duplicate-instance-id",
        Severity.WARNING,
        verdict,
        found.close[0].place.timestamp_ms,
        events=[step(one) for one in found.changes[:SHOWN]],
        evidence=[step(found.close[0])],
        now=[
            "Look at why that process ends: its log before each restart, probes that fail, out of memory."
            if found.moves_on
            else "Give each process a group.instance.id of its own; the fenced one logs FencedInstanceIdException."
        ],
    )


def _mixed(group: GroupHistory, change: Change, case: Case) -> Iterator[Explanation]:
    """Members with subscriptions that have no topic in common: two applications in one group."""
    classes: dict[tuple[str, ...], list[Member]] = {}
    for member in change.members:
        if member.topics:
            classes.setdefault(member.topics, []).append(member)
    kinds = sorted(classes, key=lambda topics: (-len(classes[topics]), topics))
    if not disagree([frozenset(topics) for topics in kinds]):
        return
    told = " and ".join(
        f"{', '.join(topics)} "
        f"({', '.join(sorted({f'{one.client_id} on {one.client_host}' for one in classes[topics]}))})"
        for topics in kinds
    )
    idle = sorted(_unowned(group, change, {topic for topics in kinds for topic in topics}, case))
    verdict = f"Members of {group.group_id} fall into {len(kinds)} classes with different topics: {told}."
    if idle:
        names = ", ".join(f"{topic}-{partition}" for topic, partition in idle[:SHOWN])
        verdict += f" {count(len(idle), 'partition')} {has_or_have(len(idle))} no owner: {names}."
    yield Explanation(
        "mixed-subscriptions",
        Severity.WARNING,
        verdict,
        change.place.timestamp_ms,
        events=[step(one) for one in group.changes[-SHOWN:] if one.members],
        evidence=[step(change)],
        not_this=["It is no bug of the broker: the members' own assignor gave the partitions out."]
        if change.kind is ChangeKind.GENERATION
        else ["It is no bug of the broker: each member was given partitions of the topics that it named."],
        now=["Give each application a group id of its own."],
    )


def _without_owner(group: GroupHistory, change: Change, case: Case) -> Iterator[Explanation]:
    """Partitions that nobody owns, while a member that subscribes to them has nothing."""
    idle = [member for member in change.members if member.topics and member.is_idle]
    # A partition is on its way from one member to another between two epochs of a KIP-848 group, or two generations of
    # a cooperative one, of which a log may end after the first.
    quiet = elapsed(change.place.timestamp_ms, case.now_ms)
    is_in_steps = change.kind is ChangeKind.EPOCH or "cooperative" in (change.protocol or "")
    is_in_steps |= change.protocol == _STREAMS
    is_moving = is_in_steps and quiet < THRESHOLDS["stopped_ms"].default
    if not idle or is_moving or not any(member.partitions for member in change.members):
        return
    unowned = sorted(_unowned(group, change, {topic for member in idle for topic in member.topics or ()}, case))
    if not unowned:
        return
    bug = BUGS["KAFKA-9801"]
    static = [member for member in idle if member.instance_id is not None]
    known = bool(static) and bug.fits(case.profile.release)
    who = (static or idle)[0]
    verdict = (
        f"{group.group_id} is Stable, but nobody owns {', '.join(f'{t}-{p}' for t, p in unowned[:SHOWN])}: "
        f"{name_of(who)} subscribes to it and was given nothing in generation {change.generation}."
    )
    if known:
        verdict += f" This is {bug.id}: a static member joined while the rebalance was being completed."
    yield Explanation(
        "partitions-without-owner",
        Severity.CRITICAL,
        verdict,
        change.place.timestamp_ms,
        events=[step(one) for one in group.changes[-4:]],
        evidence=[step(change)],
        not_this=["There are not too few partitions: some have no owner."],
        now=[
            "Force a rebalance: restart that member, or remove it: "
            + (
                f"removeMembersFromConsumerGroup with instance id {who.instance_id}."
                if who.instance_id is not None
                else "removeMembersFromConsumerGroup."
            ),
            *when(known, bug.remedy),
        ],
        bug=bug.id if known else None,
    )


def _left_out(group: GroupHistory, rounds: Sequence[Change], change: Change, case: Case) -> Iterator[Explanation]:
    """Partitions that were owned before and are not any more, although everybody has something, and subscribes."""
    quiet = elapsed(change.place.timestamp_ms, case.now_ms)
    if case.topics is not None or quiet < THRESHOLDS["stopped_ms"].default:
        return
    if any(member.topics is None or not member.partitions for member in change.members):
        return
    subscribed = {topic for member in change.members for topic in member.topics or ()}
    held = _unowned(group, change, subscribed & {topic for topic, _ in change.owned}, case)
    before = next((one for one in reversed(rounds) if one.place < change.place and one.owned & held), None)
    if before is None:
        return
    lost = sorted(before.owned & held)
    newest = max(group.versions[OffsetKey(group.group_id, *one)][-1].last_place for one in lost)
    if newest > change.place:
        return  # Somebody commits them, from outside.
    names = ", ".join(f"{topic}-{partition}" for topic, partition in lost[:SHOWN])
    yield Explanation(
        "partitions-left-out",
        Severity.WARNING,
        f"Nobody in {group.group_id} owns {names} since generation {change.generation} at "
        f"{moment(change.place.timestamp_ms)}, although its members subscribe to the topic and own others of it; in "
        f"generation {before.generation} somebody did. Whoever assigned did not see them: its metadata were incomplete "
        "then (brokers that restarted), or the topic was made again with fewer partitions.",
        change.place.timestamp_ms,
        events=[step(before), step(change)],
        evidence=[step(change), Event(newest, "newest commit of them")],
        not_this=["There is no lack of members: each may own several partitions.", "No committed offset was lost."],
        now=[
            f"Does the topic have them? {tool('kafka-topics', '--describe', '--topic', lost[0][0])}",
            "If it does, let the group rebalance: restart one member. They go on from their committed offsets.",
            f"See it: {described(group, '--members', '--verbose')}",
        ],
    )


def _idle(group: GroupHistory, change: Change, case: Case) -> Iterator[Explanation]:
    """Members that have nothing to do: there are too few partitions, or they were handed out unevenly."""
    idle = [one for one in change.members if one.is_idle]
    owned = change.owned
    if not idle or not owned or any(one.partitions is None for one in change.members):
        return
    if _unowned(group, change, {topic for one in change.members for topic in one.topics or ()}, case):
        return
    enough = len(owned) >= len(change.members)
    most = max(change.members, key=lambda one: len(one.partitions or ()))
    assignor = "partition.assignment.strategy: range, the default, hands"
    if change.kind is ChangeKind.EPOCH:
        assignor = "group.remote.assignor=uniform: range hands"
    remedy = (
        f"Let the members use a round robin, sticky or uniform assignor ({assignor} out each topic by itself, so that "
        "the first members get the few partitions of every topic)."
        if enough
        else "Keep them as spares, or give the topics more partitions; a group has no more readers than those."
    )
    yield Explanation(
        "members-without-partitions",
        Severity.INFO,
        f"{len(idle)} of {count(len(change.members), 'member')} of {group.group_id} have nothing to read since "
        f"{moment(change.place.timestamp_ms)}: its topics have {count(len(owned), 'partition')}, and "
        + (
            f"the assignor gave {len(most.partitions or ())} of them to {name_of(most)}."
            if enough
            else "each partition has one owner."
        )
        + f" Idle: {', '.join(map(name_of, idle[:3]))}.",
        change.place.timestamp_ms,
        evidence=[step(change)],
        not_this=["No partition is without an owner: nothing is left unread by it."],
        now=[remedy],
    )


def _unowned(group: GroupHistory, change: Change, topics: Collection[str], case: Case) -> set[tuple[str, int]]:
    """Partitions with committed offsets of these topics that no member owns; none where assignments are unknown, nor
    those that the cluster does not have (any more)."""
    if any(member.partitions is None for member in change.members):
        return set()
    held = {(key.topic, key.partition) for key in group.standing if key.topic in topics} - change.owned
    return {one for one in held if case.topics is None or case.topics.bounds(*one) is not None}


def _reused_id(group: GroupHistory, case: Case) -> Iterator[Explanation]:
    bug = BUGS["KAFKA-4704"]
    if not bug.fits(case.profile.release):
        return
    for change in group.changes:
        if change.kind is not ChangeKind.DELETED:
            continue
        plain = [one.place for _, one in group.all_versions() if one.place > change.place and not one.had_members]
        if plain:
            first = min(plain)
            yield Explanation(
                "group-id-reused",
                Severity.CRITICAL,
                f"{case.profile.release} may stop loading offsets partition {group.offsets_partition} at record "
                f"{change.place.record_offset}: {group.group_id} was removed there, and its id is used for plain "
                "offsets "
                f"afterwards (record {first.record_offset}); offsets behind it are missing after a failover. "
                f"This is {bug.id}.",
                change.place.timestamp_ms,
                evidence=[step(change), Event(first, "commit of the same id")],
                now=[bug.advice],
                bug=bug.id,
            )
            return


def _connector(group: GroupHistory, rounds: Sequence[Change], case: Case) -> Iterator[Explanation]:
    """The group of a sink connector that is not running: where it would start again, and until when."""
    held = group.standing
    if not group.group_id.startswith("connect-") or not held or (rounds and rounds[-1].members):
        return
    name = group.group_id.removeprefix("connect-")
    since = rounds[-1].place.timestamp_ms if rounds else max(one.last.commit_timestamp_ms for one in held.values())
    starts = ", ".join(
        f"{key.topic_partition} at {one.last.committed_offset}" for key, one in sorted(held.items())[:SHOWN]
    )
    yield Explanation(
        "connector-offsets-stay",
        Severity.INFO,
        f"A sink connector named {name}, also one that is created anew, starts from offsets committed before: "
        f"{starts}; the {case.told_stay(group, held)}.",
        since,
        evidence=[newest_commit(key, one) for key, one in held.items()][:SHOWN],
        now=[f"To start from the beginning, remove them: {consumer_groups(group.group_id, '--delete')}"],
    )


def _left_empty(group: GroupHistory, rounds: Sequence[Change], case: Case) -> Iterator[Explanation]:
    """A group that nobody is in any more: who left last, and until when its offsets stay."""
    held = group.standing
    if not held or not rounds or rounds[-1].members or group.changes[-1] is not rounds[-1]:
        return
    last = rounds[-1]
    who = f"; last to leave: {', '.join(name_of(one) for one in last.left[:3])}" if last.left else ""
    base = last.place.timestamp_ms
    if max(one.last_place.record_offset for one in held.values()) > last.place.record_offset:
        return  # Somebody outside goes on.
    yield Explanation(
        IS_EMPTY,
        Severity.INFO,
        f"{group.group_id} has no members since {moment(base)}{who}. Its {case.told_stay(group, held)}; then "
        "a consumer starts from auto.offset.reset.",
        base,
        events=[step(one) for one in rounds[-3:]],
        evidence=[step(last)],
        now=[
            "Start its consumers before that, or commit the offsets again: that starts the time anew."
            if case.ages_from(group) is None
            else "Start its consumers before that. A commit from outside (--reset-offsets, regroup restore) does not "
            "start the time anew: it counts from when the group became empty."
        ],
    )
