"""Who the members of a group are: clients of two kinds, instance ids that do not last, an id that nobody chose."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from statistics import median_low

from coordinator_core.durations import HOUR_MS, elapsed, span
from coordinator_core.history.model import Change, GroupHistory, Member
from coordinator_core.history.signs import name_of, rounds_of, settled_of
from coordinator_core.investigate.model import SHOWN, Explanation, step
from coordinator_core.investigate.words import consumer_groups, count, described, from_file, moment
from coordinator_core.rules.model import Severity

_STARTS = 3
"""Starts with new instance ids: one may be the change to such ids, or from them."""
_TWO = 2
_BYTES = 4
"""Numbers of an IPv4 address."""
_UNFILLED = re.compile(r"\$\{[^}]*\}|\$\([^)]*\)|\{\{.*\}\}|%\(\w+\)s|<[^<>]+>|#\{[^}]*\}|\$[A-Z][A-Z0-9_]*$")
_NOTHING = frozenset({"", "null", "undefined", "None", "nil", "NaN", "[object Object]"})


def explain_fleets(group: GroupHistory) -> Iterator[Explanation]:
    """The members of one group as clients that somebody deployed."""
    yield from _two_kinds(group)
    yield from _new_instances(group)
    yield from _unfilled_id(group)


def _two_kinds(group: GroupHistory) -> Iterator[Explanation]:
    """Two deployments in one group, for longer than one replaces the other."""
    last = settled_of(group)
    if last is None:
        return
    kinds: dict[str, list[Member]] = {}
    for member in last.members:
        kinds.setdefault(_network(member.client_host), []).append(member)
    if len(kinds) != _TWO or "" in kinds:
        return
    rounds = [one for one in rounds_of(group) if one.place <= last.place]
    came = {network: first for network in kinds if (first := _first_of(rounds, network)) is not None}
    # A static member of a KIP-848 group comes back without a rebalance.
    if len(came) != _TWO:
        return
    (old, first), (new, second) = sorted(came.items(), key=lambda one: one[1].place)
    since = second.place
    newest = max((versions[-1].last_place.timestamp_ms for versions in group.versions.values()), default=-1)
    until = max(newest, last.place.timestamp_ms)
    if first.place == since or elapsed(since.timestamp_ms, until) < HOUR_MS:
        return
    families = {network: {_family(one.client_id) for one in members} for network, members in kinds.items()}
    # Networks of one private range may be zones of one deployment; clients of other names are another one.
    if _range(old) == _range(new) and not families[old].isdisjoint(families[new]):
        return
    told = " and ".join(
        f"{count(len(kinds[network]), 'member')} of {', '.join(sorted(families[network])[:3])} on {network}"
        for network in (old, new)
    )
    owned = sorted({one for member in kinds[new] for one in member.partitions or ()})
    names = ", ".join(f"{topic}-{number}" for topic, number in owned[:SHOWN])
    yield Explanation(
        "members-of-two-kinds",
        Severity.INFO,
        f"{group.group_id} has members from two networks since {moment(since.timestamp_ms)}: {told}; the latter came "
        f"in generation {second.generation}, and the former stayed. If these are two environments (staging and "
        "production) or two applications, each is given a part of the partitions and never sees the rest"
        + (f": {names} go to the latter." if owned else "."),
        since.timestamp_ms,
        events=[step(first), step(second)],
        evidence=[step(second), step(last)],
        not_this=[
            "It was no deployment: those of before did not leave.",
            "No record and no committed offset was lost: what one of them does not read, the other one does.",
        ],
        now=[
            "Are both of one application and one environment (a second zone, a scale-up)? Then nothing is wrong.",
            "Else give each environment and each application a group.id of its own, and let the newcomer begin where "
            "it should: --reset-offsets of its new group.",
            f"See who owns what: {described(group, '--members', '--verbose')}",
        ],
    )


def _first_of(rounds: Sequence[Change], network: str) -> Change | None:
    """The first rebalance with a member of the network."""
    return next((one for one in rounds if any(_network(member.client_host) == network for member in one.members)), None)


def _network(host: str) -> str:
    """The first half of an IPv4 address, ``10.0.*.*``; empty for other hosts."""
    parts = host.removeprefix("/").split(".")
    if len(parts) == _BYTES and all(part.isdigit() for part in parts):
        return f"{parts[0]}.{parts[1]}.*.*"
    return ""


def _range(network: str) -> str:
    return network.partition(".")[0]


def _family(client_id: str) -> str:
    """A client id with stars for its numbers."""
    return re.sub(r"\d+", "*", client_id)


def new_instances_of(group: GroupHistory) -> list[Change]:
    """Starts at which members came with group instance ids that were never there, beside as many that are never there
    again; nothing where these are few."""
    rounds = [one for one in rounds_of(group) if one.members]
    last_seen = {
        member.instance_id: at for at, one in enumerate(rounds) for member in one.members if member.instance_id
    }
    seen: set[str] = set()
    starts = []
    for at, change in enumerate(rounds):
        there = {member.instance_id for member in change.members if member.instance_id}
        new = there - seen
        gone_soon = [
            one for one in there & seen if last_seen[one] <= at + len(new) and last_seen[one] < len(rounds) - 1
        ]
        if seen and new and len(gone_soon) >= len(new):
            starts.append(change)
        seen |= there
    usual = median_low(sum(1 for member in one.members if member.instance_id) for one in rounds) if starts else 0
    # One deployment under other ids brings as many again.
    return starts if len(starts) >= _STARTS and len(seen) >= _STARTS * usual else []


def _new_instances(group: GroupHistory) -> Iterator[Explanation]:
    starts = new_instances_of(group)
    if not starts:
        return
    rounds = [one for one in rounds_of(group) if one.members]
    ids = {member.instance_id for one in rounds for member in one.members if member.instance_id}
    fewest = min(len(one.members) for one in rounds)
    first, last = starts[0], starts[-1]
    new = next(member for member in first.joined if member.instance_id)
    ghosts = [
        (before, after, member)
        for before, after in itertools.pairwise(rounds)
        if before in starts
        for member in after.left
        if member.instance_id
    ]
    stood = [elapsed(before.place.timestamp_ms, after.place.timestamp_ms) for before, after, _ in ghosts]
    unread = sorted({one for *_, member in ghosts for one in member.partitions or ()})
    verdict = (
        f"{group.group_id} has had {len(ids)} group instance ids for {count(fewest, 'member')}: {len(starts)} times "
        f"from {moment(first.place.timestamp_ms)} to {moment(last.place.timestamp_ms)} members came under new ones, "
        f"first {name_of(new)}, while those of before were still there. Whoever comes back under another id is another "
        "member; the old one keeps its partitions until session.timeout.ms has passed"
    )
    if unread:
        names = ", ".join(f"{topic}-{number}" for topic, number in unread[:SHOWN])
        here = f", up to {span(max(stood))} here" if max(stood) >= 0 else ""
        verdict += f"{here}, and nobody reads them ({names})"
    yield Explanation(
        "instance-ids-do-not-last",
        Severity.WARNING,
        verdict + ".",
        first.place.timestamp_ms,
        events=[step(one) for one in starts[:SHOWN]],
        evidence=[step(one) for one in starts[:SHOWN]],
        until_ms=last.place.timestamp_ms,
        not_this=[
            "It is no autoscaler: the members that leave are those of the start before.",
            "Static membership saves no rebalance here: there are two at each start.",
        ],
        now=[
            "Derive group.instance.id from what a restart keeps (the ordinal of a StatefulSet, a slot number), not "
            "from the name of a Deployment's pod, a process id or a random number; or leave it out.",
            "Until then lower session.timeout.ms, or remove the old members at each start: "
            f"removeMembersFromConsumerGroup with instance id {new.instance_id}.",
        ],
    )


def _unfilled_id(group: GroupHistory) -> Iterator[Explanation]:
    """A group id that is what stands in a template, or a language's nothing."""
    group_id = group.group_id
    if group_id not in _NOTHING and not _UNFILLED.search(group_id):
        return
    rounds = [one for one in rounds_of(group) if one.members]
    members = {name_of(one): one for change in rounds for one in change.members}
    places = [one.place for _, one in group.all_versions()] + [one.place for one in rounds]
    if not places:
        return
    first = min(places, key=lambda place: place.record_offset)
    evidence = [step(rounds[0])] if rounds else []
    yield Explanation(
        "group-id-not-filled-in",
        Severity.WARNING,
        f"The group id {group_id!r} is "
        + ("no name" if group_id in _NOTHING else "a placeholder that nobody filled in")
        + (f"; {count(len(members), 'client')} used it, first {next(iter(members))}" if members else "")
        + ". Every application that is deployed so is in this group: they share partitions and committed offsets, and "
        "once the setting is mended each begins under a new id, without offsets.",
        first.timestamp_ms,
        evidence=evidence,
        not_this=["It is no group of Kafka's own: its tools choose names like console-consumer-12345."],
        now=[
            "Look where group.id of these clients comes from: a variable that is not set, a template that was not "
            "rendered.",
            "With the consumers stopped, write the offsets of this group to a file: "
            + consumer_groups(group_id, "--reset-offsets", "--all-topics", "--to-current", "--export", "--dry-run")
            + " > offsets.csv",
            "Give them to the new group before its first start: " + from_file("NEW"),
        ],
    )
