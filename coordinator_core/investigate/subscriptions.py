"""What members ask for and the group does not do: subscriptions that bring nothing, assignors that differ."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from coordinator_core.history.model import Change, ChangeKind, GroupHistory, Member
from coordinator_core.history.signs import name_of, rounds_of, settled_of
from coordinator_core.investigate.bugs import BUGS
from coordinator_core.investigate.model import SHOWN, Case, Explanation, step
from coordinator_core.investigate.words import count, described, moment, tool, when
from coordinator_core.records.blobs import CONSUMER_PROTOCOL_TYPE
from coordinator_core.rules.model import THRESHOLDS, Severity

_CHANGES = 3
"""Changes of the assignor from which on it is no upgrade."""
_LONG_MS = THRESHOLDS["stopped_ms"].default


def explain_subscriptions(group: GroupHistory, case: Case) -> Iterator[Explanation]:
    """Subscriptions and assignors of one group."""
    rounds = rounds_of(group)
    yield from _not_applied(group, rounds, case)
    yield from _nothing_assigned(group, case)
    yield from _assignors(group, rounds)


def _not_applied(group: GroupHistory, rounds: Sequence[Change], case: Case) -> Iterator[Explanation]:
    """A static member that came back with other topics, in the same generation: no rebalance, so none was assigned."""
    last = rounds[-1] if rounds else None
    if last is None or last.kind is not ChangeKind.GENERATION:
        return
    owned = {topic for topic, _ in last.owned}
    found: dict[str, tuple[Change, Member]] = {}
    for before, after in itertools.pairwise(rounds):
        if after.generation != last.generation or before.generation != after.generation:
            continue
        old = {member.member_id: member for member in before.members}
        new = {member.member_id: member for member in after.members}
        for gone, came in after.replaced:
            topics = set(new[came].topics or ()) - set(old[gone].topics or ())
            found |= dict.fromkeys(topics - owned, (after, new[came]))
    asked = {topic for member in last.members for topic in member.topics or ()}
    found = {topic: one for topic, one in sorted(found.items()) if topic in asked}
    if not found or any(member.partitions is None for member in last.members):
        return
    change, member = next(iter(found.values()))
    bug = BUGS["KAFKA-12759"]
    known = bug.fits(case.profile.release)
    yield Explanation(
        "subscription-not-applied",
        Severity.WARNING,
        f"{name_of(member)} came back to {group.group_id} at {moment(change.place.timestamp_ms)} with a subscription "
        f"to {', '.join(found)}, too, and nobody owns a partition of it: the group stayed in generation "
        f"{change.generation}. A static member that takes its place again makes no rebalance, and what it subscribes "
        "to is looked at in the next one only." + (f" This is {bug.id}." if known else ""),
        change.place.timestamp_ms,
        evidence=[step(change)],
        not_this=[
            "The new configuration is there: the member's subscription has the topic.",
            "No assignor is at fault.",
        ],
        now=[
            "Force a rebalance: remove the member (removeMembersFromConsumerGroup with instance id "
            f"{member.instance_id}) and start it again, or leave it stopped for longer than session.timeout.ms.",
            "Records of that topic are read from auto.offset.reset on: earliest, or what was written until then is "
            "skipped.",
        ],
        bug=bug.id if known else None,
    )


def owns_nothing(change: Change) -> bool:
    """Whether the group has members, and each was given nothing."""
    return bool(change.members) and all(one.is_idle for one in change.members)


def _nothing_assigned(group: GroupHistory, case: Case) -> Iterator[Explanation]:
    """A group in which no member was given anything."""
    last = settled_of(group)
    if last is None or (last.protocol_type or CONSUMER_PROTOCOL_TYPE) != CONSUMER_PROTOCOL_TYPE:
        return
    if not owns_nothing(last) or case.now_ms - last.place.timestamp_ms < _LONG_MS:
        return
    topics = sorted({topic for one in last.members for topic in one.topics or ()})
    if not topics:
        return
    held = [one for key, one in group.standing.items() if key.topic in topics]
    if any(one.last_place > last.place for one in held):
        return  # Somebody reads them, whatever the assignment says.
    yield Explanation(
        "nothing-assigned",
        Severity.WARNING,
        f"No member of {group.group_id} owns anything since generation {last.generation} at "
        f"{moment(last.place.timestamp_ms)}, although {count(len(last.members), 'member')} "
        f"{'subscribes' if len(last.members) == 1 else 'subscribe'} to {', '.join(topics[:SHOWN])}: "
        + (
            f"nobody reads {count(len(held), 'partition')} that it had committed. "
            if held
            else "it has never read any of it. "
        )
        + "Whoever assigned saw no partitions of these topics: its metadata were incomplete then (brokers that "
        "restarted), there is no such topic, or it may not describe it (ACLs).",
        last.place.timestamp_ms,
        events=[step(one) for one in rounds_of(group)[-3:]],
        evidence=[step(last)],
        not_this=["The group does not hang: this generation was completed.", "No committed offset was lost."],
        now=[
            "Does each topic exist, spelled so, and may the group's user describe it? "
            + tool("kafka-topics", "--describe", "--topic", topics[0]),
            "If it does: restart one member. A consumer that finds the topic later rebalances by itself within "
            "metadata.max.age.ms (5 min).",
            f"See it: {described(group, '--members', '--verbose')}",
        ],
    )


def _assignors(group: GroupHistory, rounds: Sequence[Change]) -> Iterator[Explanation]:
    """Generations with another assignor than the one before."""
    kinds = [one for one in rounds if one.members and one.protocol and one.protocol_type == CONSUMER_PROTOCOL_TYPE]
    turns = [(before, after) for before, after in itertools.pairwise(kinds) if before.protocol != after.protocol]
    if not turns:
        return
    before, after = turns[0]
    often = len(turns) >= _CHANGES
    is_mixed = "cooperative" in f"{before.protocol}{after.protocol}"
    yield Explanation(
        "assignor-changed",
        Severity.WARNING if often else Severity.INFO,
        f"The assignor of {group.group_id} went from {before.protocol} to {after.protocol} in generation "
        f"{after.generation} at {moment(after.place.timestamp_ms)}"
        + (
            f", and changed {len(turns)} times until {moment(turns[-1][1].place.timestamp_ms)}: its members have "
            "different lists (partition.assignment.strategy), and who is there decides."
            if often
            else "."
        )
        + (
            " One of both is cooperative, under which members keep their partitions in a rebalance, and give them up "
            "under the other: members of both at once read partitions twice or leave them, unless all know both."
            if is_mixed
            else ""
        ),
        after.place.timestamp_ms,
        events=[step(one) for turn in turns[:3] for one in turn],
        evidence=[step(one) for _, one in turns[:SHOWN]],
        until_ms=turns[-1][1].place.timestamp_ms,
        not_this=["It is no bug of the broker: it takes an assignor that all members offer."],
        now=[
            "Set partition.assignment.strategy alike in all clients of the group; finish the rolling change, or take "
            "it back.",
            *when(
                is_mixed,
                "Change to cooperative-sticky in two rounds: first [cooperative-sticky, range] everywhere, then "
                "without range.",
            ),
        ],
    )
