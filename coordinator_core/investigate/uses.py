"""Uses of a group: commits that never come, are aborted or come from outside, and types of groups."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from coordinator_core.durations import HOUR_MS, MINUTE_MS, are_close, elapsed, span
from coordinator_core.groups.model import GroupType, OffsetKey
from coordinator_core.history.model import (
    TOPICS_CHANGED,
    Change,
    ChangeKind,
    EndKind,
    GroupHistory,
    OriginKind,
    Place,
    Version,
)
from coordinator_core.history.signs import name_of, rounds_of, settled_of
from coordinator_core.investigate.hanging import NO_REBALANCE_ENDED, hanging_steps
from coordinator_core.investigate.model import SHOWN, USUAL, Case, Event, Explanation, is_overdue, step
from coordinator_core.investigate.subscriptions import owns_nothing
from coordinator_core.investigate.successors import birth_of
from coordinator_core.investigate.tenures import POLL_LIMIT_REMEDY, told_by_poll_limit
from coordinator_core.investigate.words import count, described, moment, reset_offsets, to_datetime, tool, when
from coordinator_core.records.blobs import CONSUMER_PROTOCOL_TYPE
from coordinator_core.rules.model import THRESHOLDS, Severity

OUTSIDE = "commits-without-members"
_CAPTURE_TOPICS = "Capture the topics, too (regroup capture): with their ends this command says whether records wait."
_ABORTED = 5
_REGULAR = 3
_AT_LEAST_TWO = 2
_EPOCHS = 6
"""Epochs of a producer within an hour."""
_STARTS = 5
"""Starts of a whole group without progress: a deployment is one or two."""
_TYPES = 3
"""Changes of the type from which on it is no migration: that is one, or one there and back."""


def explain_uses(group: GroupHistory, case: Case) -> Iterator[Explanation]:
    """Explanations of what no broker and no expiry is to blame for."""
    rounds = rounds_of(group)
    yield from _aborted(group)
    yield from _fenced(group, case)
    if rounds and rounds[-1].group_type is GroupType.SHARE:
        yield _share(group, rounds[-1])
        yield from _share_acts(group)
    elif rounds:
        yield from _never_committed(group, rounds, case)
        yield from list(_silent(group, rounds, case)) or _silent_member(group, rounds, case)
        yield from _crash_loop(group, rounds, case)
    yield from _from_outside(group, rounds, case)
    yield from _changed_type(group)
    yield from _protocols(group, rounds)
    yield from _long_metadata(group, case)


def _aborted(group: GroupHistory) -> Iterator[Explanation]:
    """A loop that reads, processes and aborts: the group does not move, and no error shows in it."""
    aborts = group.aborts
    if aborts is None or aborts.transactions < _ABORTED:
        return
    key, standing = aborts.key, group.standing.get(aborts.key)
    name = key.topic_partition
    held = "has no committed offset" if standing is None else f"stays at {standing.last.committed_offset}"
    yield Explanation(
        "transactions-aborted",
        Severity.WARNING,
        f"All {count(aborts.transactions, 'transaction')} with commits of {group.group_id} since "
        f"{moment(aborts.first.timestamp_ms)} (record {aborts.first.record_offset}) were aborted: {name} {held}; the "
        f"newest of them, of producer {aborts.value.producer_id}, was to commit {aborts.value.committed_offset}.",
        aborts.first.timestamp_ms,
        evidence=[
            Event(aborts.first, "first commit of them"),
            Event(aborts.last, "newest end marker: ABORT"),
        ],
        not_this=["The group is not idle: it reads, processes, and takes it back each time."],
        now=[
            "Look at the application's log for what comes before abortTransaction(): a record that fails each time, "
            "a transaction longer than transaction.timeout.ms, or a producer that is fenced by another one.",
            f"Move the record that fails to a dead letter topic, or past it: {_past(key)}",
        ],
    )


def _fenced(group: GroupHistory, case: Case) -> Iterator[Explanation]:
    """A transactional id that is initialised again and again: each time what was under way is aborted."""
    if case.profile.bumps_transaction_epochs:
        return
    for producer_id, epochs in group.producers.items():
        close = next(
            (
                epochs[at : at + _EPOCHS]
                for at in range(len(epochs) - _EPOCHS + 1)
                if are_close(epochs[at][1].timestamp_ms, epochs[at + _EPOCHS - 1][1].timestamp_ms, HOUR_MS)
            ),
            None,
        )
        if close is None:
            continue
        (first_epoch, first), (last_epoch, last) = epochs[0], epochs[-1]
        name = case.transactional_ids.get(producer_id)
        named = f"Producer {producer_id}" if name is None else f"Transactional id {name} (producer {producer_id})"
        yield Explanation(
            "producer-begins-again",
            Severity.WARNING,
            f"{named}, which commits for {group.group_id}, began again {count(len(epochs) - 1, 'time')} from "
            f"{moment(first.timestamp_ms)} to {moment(last.timestamp_ms)} (producer epoch {first_epoch} to "
            f"{last_epoch}): two processes use one transactional.id and fence each other, or one restarts again and "
            f"again; {count(group.dropped, 'commit')} of aborted transactions had no effect.",
            first.timestamp_ms,
            evidence=[Event(place, f"first commit with producer epoch {epoch}") for epoch, place in close],
            not_this=["The coordinator of the group is not at fault: the transaction coordinator hands out epochs."],
            now=[
                "Give each process a transactional.id of its own (Kafka Streams and Spring derive it: look for two "
                "with one application.id or prefix and the same instance number); the fenced one logs "
                "ProducerFencedException or InvalidProducerEpochException.",
                "See who holds it: kafka-transactions.sh --bootstrap-server HOST:9092 describe --transactional-id ID",
            ],
        )


def _never_committed(group: GroupHistory, rounds: list[Change], case: Case) -> Iterator[Explanation]:
    first = next((one for one in rounds if one.members), None)
    if first is None or not rounds[-1].members or group.versions or group.removals or group.aborts is not None:
        return
    if any(one.offset_key is not None for one in group.bare):
        return  # It had some, of which only tombstones are left.
    is_whole = not group.cleaned_to and birth_of(group) is not None
    if owns_nothing(rounds[-1]) or _has_nothing_to_read(rounds[-1], case):
        return  # There was nothing to commit.
    is_consumer = first.group_type is GroupType.CONSUMER or first.protocol_type == CONSUMER_PROTOCOL_TYPE
    since = elapsed(first.place.timestamp_ms, case.now_ms)
    if not is_consumer or since < HOUR_MS:
        return
    yield Explanation(
        "never-committed",
        Severity.WARNING,
        f"{group.group_id} has members since generation {first.generation} at {moment(first.place.timestamp_ms)}, "
        f"{span(since)} before the newest record of this log, and nobody has ever committed"
        f"{'' if is_whole else ', as far as this log still tells'}: each start of a consumer "
        "and each rebalance begins at auto.offset.reset.",
        first.place.timestamp_ms,
        events=[step(one) for one in rounds[-SHOWN:]],
        evidence=[step(first)],
        not_this=[
            "No offset expired and none was deleted: there is no commit and no tombstone of one.",
        ]
        if is_whole
        else [],
        now=[
            f"Let {name_of(rounds[-1].members[0])} commit: enable.auto.commit=true, or commitSync() after its work.",
            "If the application keeps offsets elsewhere (a database, checkpoints), this is as it should be.",
        ],
    )


def _has_nothing_to_read(last: Change, case: Case) -> bool:
    """Whether the topics tell that no owned partition has ever had a record."""
    if case.topics is None or not last.owned:
        return False
    return all((bounds := case.topics.bounds(*one)) is not None and bounds[1] == 0 for one in last.owned)


def _silent(group: GroupHistory, rounds: list[Change], case: Case) -> Iterator[Explanation]:
    """Members that committed regularly and do not any more, where no topics say whether there is anything to read."""
    held = group.standing.values()
    if not held or not rounds[-1].members or case.topics is not None or group.changes[-1] is not rounds[-1]:
        return
    if owns_nothing(rounds[-1]):
        return
    newest = max(held, key=lambda one: one.last_place.record_offset)
    at, usual = newest.last_place.timestamp_ms, newest.usual_ms
    quiet = min(elapsed(time, case.now_ms) for time in (at, rounds[-1].place.timestamp_ms))
    if newest.commits < USUAL or not is_overdue(usual, quiet):
        return
    yield Explanation(
        "group-silent",
        Severity.INFO,
        f"{group.group_id} has members and committed every {span(usual)} until {moment(at)} (record "
        f"{newest.last_place.record_offset}); since then nobody has, {span(quiet)} before the newest record of this "
        "log. A client that commits by itself (enable.auto.commit) commits also what stands still: it is stuck, cut "
        "off, or waits in a rebalance that hangs; one that commits after its work may have nothing to read.",
        at,
        events=[step(one) for one in rounds[-3:]],
        evidence=[Event(newest.last_place, "newest commit of the group")],
        not_this=[NO_REBALANCE_ENDED],
        now=[
            _CAPTURE_TOPICS,
            *hanging_steps(group, rounds[-1], case),
            f"If it is Stable, take a thread dump of {name_of(rounds[-1].members[0])}.",
        ],
    )


def _silent_member(group: GroupHistory, rounds: list[Change], case: Case) -> Iterator[Explanation]:
    """A member whose partitions are not committed any more, while those of others are; nothing tells what waits."""
    last = settled_of(group)
    if last is None or case.topics is not None or len(last.members) < _AT_LEAST_TWO:
        return
    owners = {owned: one for one in last.members for owned in one.partitions or ()}
    newest: dict[str, Version] = {}
    for key, version in group.standing.items():
        owner = owners.get((key.topic, key.partition))
        if owner is not None:
            known = newest.get(owner.member_id)
            if known is None or known.last_place < version.last_place:
                newest[owner.member_id] = version
    latest_ms = max((one.last_place.timestamp_ms for one in newest.values()), default=-1)
    for member in last.members:
        silent = newest.get(member.member_id)
        if silent is None or silent.commits < USUAL:
            continue
        at, usual = silent.last_place.timestamp_ms, silent.usual_ms
        quiet = min(elapsed(time, latest_ms) for time in (at, last.place.timestamp_ms))
        if not is_overdue(usual, quiet):
            continue
        yield Explanation(
            "member-silent",
            Severity.INFO,
            f"{name_of(member)} is a member of {group.group_id}, committed every {span(usual)} until {moment(at)} "
            f"(record {silent.last_place.record_offset}), and has not since, while other members went on for "
            f"{span(quiet)}: it hangs, or its partitions have no new records.",
            at,
            events=[step(one) for one in rounds[-3:]],
            evidence=[Event(silent.last_place, f"newest commit of {name_of(member)}")],
            not_this=["It is no rebalance: no generation came after the last one."],
            now=[
                _CAPTURE_TOPICS,
                f"Take a thread dump of {member.client_id} on {member.client_host}.",
            ],
        )


def _crash_loop(group: GroupHistory, rounds: list[Change], case: Case) -> Iterator[Explanation]:
    """All members come and go, and nothing is read on: each start fails at the same record."""
    newest = max(
        (one.still or one.place for versions in group.versions.values() for one in versions[-1:]),
        key=lambda place: place.record_offset,
        default=None,
    )
    since = -1 if newest is None else newest.record_offset
    # A member that takes the place of one with the same instance id has not started because that one crashed.
    starts = [one for one in rounds if one.joined and len(one.joined) == len(one.members) and not one.replaced]
    loop = [one for one in starts if one.place.record_offset > since]
    if len(loop) < _STARTS or (newest is not None and _at_ends(group, case)):
        return
    first, last = loop[0].place, loop[-1].place
    poll_limit = told_by_poll_limit(group, name_of(loop[-1].members[0]))
    if newest is None:
        if poll_limit and not group.removals and group.aborts is None:
            yield _never_in_time(group, loop, poll_limit)
        return
    waiting = {key: one for key, one in group.standing.items() if not _is_at_end(key, one, case)}
    newest_of = waiting or {key: versions[-1] for key, versions in group.versions.items()}
    key, stood = max(newest_of.items(), key=lambda one: one[1].last_place)
    since_place = stood.still or stood.place
    more = len(newest_of) - 1
    others = f", and {count(more, 'other partition')} where {'they are' if more > 1 else 'it is'}" if more else ""
    changed = _topics_changed(group, rounds, newest)
    yield Explanation(
        "restarts-without-progress",
        Severity.INFO if case.topics is None else Severity.WARNING,
        f"{group.group_id} was started {len(loop)} times from {moment(first.timestamp_ms)} to "
        f"{moment(last.timestamp_ms)}, and has read nothing since {moment(newest.timestamp_ms)}: {key.topic_partition} "
        f"stays at {stood.last.committed_offset} (record {since_place.record_offset}){others}. Each time all of its "
        f"members, {name_of(loop[-1].members[0])} first, had left before"
        + (
            f". Its topics or their partitions changed at {moment(changed.place.timestamp_ms)}: a Streams application "
            "ends itself where an internal topic has another number of partitions than its sources."
            if changed is not None
            else f".{poll_limit}"
            if poll_limit
            else ": they crash, or are killed, at what comes next."
        ),
        first.timestamp_ms,
        events=[*([] if changed is None else [step(changed)]), *(step(one) for one in loop[:SHOWN])],
        evidence=[Event(since_place, f"{key.topic_partition}: {stood.last.committed_offset}"), step(loop[0])],
        not_this=["It is no rebalance among members: nobody stays.", "No offset was lost: the last one stands."],
        now=[
            f"See whether it is NotReady, and compare partitions: {described(group, '--state')}",
            "If so, stop it and reset it together with its internal topics, whose state is made anew: "
            "kafka-streams-groups.sh --reset-offsets --delete-all-internal-topics.",
        ]
        if changed is not None
        else [
            *when(poll_limit, POLL_LIMIT_REMEDY),
            "Look at the end of the application's log before each restart, and at who ends it (out of memory, a probe "
            "that fails): the record behind that offset is the first suspect"
            + (", or the one behind where another partition stands." if more else "."),
            f"Past it, with the group stopped: {_past(key)}",
        ],
    )


def _never_in_time(group: GroupHistory, loop: Sequence[Change], poll_limit: str) -> Explanation:
    """Members whose first batch takes longer than they may take, at each start."""
    return Explanation(
        "restarts-without-progress",
        Severity.WARNING,
        f"{group.group_id} began {len(loop)} times from {moment(loop[0].place.timestamp_ms)} to "
        f"{moment(loop[-1].place.timestamp_ms)}, and has never committed.{poll_limit} The next start reads the same.",
        loop[0].place.timestamp_ms,
        events=[step(one) for one in loop[:SHOWN]],
        evidence=[step(loop[0]), step(loop[-1])],
        not_this=["No offset was lost: there is no commit and no tombstone of one."],
        now=[POLL_LIMIT_REMEDY],
        until_ms=loop[-1].place.timestamp_ms,
    )


def _topics_changed(group: GroupHistory, rounds: list[Change], newest: Place) -> Change | None:
    """The change of a streams group's topics that its progress ended with."""
    found = (one for one in reversed(rounds) if one.kind is ChangeKind.EPOCH and one.cause == TOPICS_CHANGED)
    change = next(found, None) if group.is_streams else None
    is_near = change is not None and are_close(change.place.timestamp_ms, newest.timestamp_ms, MINUTE_MS)
    return change if is_near else None


def _past(key: OffsetKey) -> str:
    """The command that passes one record of a partition."""
    topic = f"{key.topic}:{key.partition}"
    return reset_offsets(key.group_id, "--shift-by", 1, "--topic", topic)


def _at_ends(group: GroupHistory, case: Case) -> bool:
    """Whether nothing is left to read, as far as topics tell."""
    if case.topics is None:
        return False
    return all(_is_at_end(key, version, case) for key, version in group.standing.items())


def _is_at_end(key: OffsetKey, version: Version, case: Case) -> bool:
    """Whether nothing is left to read of a partition, or it is not known."""
    bounds = case.bounds(key)
    return bounds is None or version.last.committed_offset >= bounds[1]


def is_left_to_outsiders(group: GroupHistory, rounds: Sequence[Change]) -> bool:
    """Whether the group has offsets and no members at the end of the log, and was not deleted."""
    return bool(group.standing) and (not rounds or (not rounds[-1].members and group.changes[-1] is rounds[-1]))


def _from_outside(group: GroupHistory, rounds: list[Change], case: Case) -> Iterator[Explanation]:
    """Somebody commits for a group that has no members."""
    if not is_left_to_outsiders(group, rounds):
        return
    held = group.standing
    since = rounds[-1].place.record_offset if rounds else -1
    commits = max(
        sum(one.commits for one in versions if one.place.record_offset > since) for versions in group.versions.values()
    )
    newest = max(held.values(), key=lambda one: one.last_place.record_offset)
    origin = newest.origin
    if commits < _REGULAR or origin is None or origin.kind in (OriginKind.ADMIN, OriginKind.MEMBER):
        return
    its = "Without another one its" if case.ages_from(group) is None else "Its"
    yield Explanation(
        OUTSIDE,
        Severity.INFO,
        f"{group.group_id} has no members, and its offsets went on: {count(commits, 'commit')} from outside, by "
        f"{origin.kind.value} ({origin.certainty.value}: {origin.why}), the newest at "
        f"{moment(newest.last_place.timestamp_ms)}. {its} {case.told_stay(group, held)}.",
        newest.last_place.timestamp_ms,
        evidence=[Event(newest.last_place, "newest commit")],
        not_this=["The group is not dead, although tools say that it has no active members."],
        now=[
            "Nothing, where its offsets are to be mirrored (sync.group.offsets.enabled): MirrorMaker leaves the group "
            "alone once it has members here. Else it reads with assign(), as Flink and Spark do."
            if origin.kind is OriginKind.MIRROR
            else "Nothing: who reads with assign(), as Flink and Spark do, joins no group and shows as 'no active "
            "members'.",
            "Watch its lag by offsets, not by members; a reset by an Admin client is not refused while it runs.",
        ],
    )


def _share(group: GroupHistory, last: Change) -> Explanation:
    newest = group.changes[-1]
    if newest.kind is ChangeKind.DELETED:
        how = "a DeleteGroups request: share groups do not expire. Its progress in __share_group_state went with it."
        if newest.end is not None and newest.end.kind is EndKind.EXPIRY:
            how = "a sweep, which in this release takes Empty share groups (KAFKA-19016), or by a DeleteGroups request."
        return Explanation(
            "share-group",
            Severity.INFO,
            f"{group.group_id} was a share group (KIP-932), and was deleted at {moment(newest.place.timestamp_ms)} by "
            f"{how}",
            newest.place.timestamp_ms,
            events=[step(last)],
            evidence=[step(newest)],
            now=[
                "Nothing, if that was meant. A group of that name that is made again begins at its "
                "share.auto.offset.reset.",
                "Ask who ran kafka-share-groups.sh --delete, or a clean-up job, at that time.",
            ],
        )
    return Explanation(
        "share-group",
        Severity.INFO,
        f"{group.group_id} is a share group (KIP-932) with {count(len(last.members), 'member')}: its records are "
        "acknowledged one by one, and its progress is in __share_group_state, not here; no committed offset is "
        "missing.",
        last.place.timestamp_ms,
        evidence=[step(last)],
        now=[
            f"See how far it is: {tool('kafka-share-groups', '--describe', '--group', group.group_id)}",
        ],
    )


def _share_acts(group: GroupHistory) -> Iterator[Explanation]:
    for act in group.share_acts:
        after = next((one for one in group.changes if one.place > act.place), None)
        if act.deletes and after is not None and after.kind is ChangeKind.DELETED:
            continue  # It goes with the group.
        at, topics = act.place, ", ".join(act.topics[:SHOWN])
        yield Explanation(
            "share-offsets-deleted" if act.deletes else "share-offsets-set",
            Severity.WARNING,
            f"Progress of {group.group_id}, a share group, in {topics} was "
            + (
                f"deleted at {moment(at.timestamp_ms)} by an admin client: it begins there at its "
                "share.auto.offset.reset."
                if act.deletes
                else f"set at {moment(at.timestamp_ms)} by an admin client: records are delivered again, or skipped. "
                "How many is in __share_group_state, not here."
            ),
            at.timestamp_ms,
            evidence=[Event(at, f"{topics}: progress is {'deleted' if act.deletes else 'initialized anew'}")],
            not_this=["No member and no retention did it: it takes a group without members, and a request."],
            now=[
                f"See where it is: {tool('kafka-share-groups', '--describe', '--offsets', '--group', group.group_id)}",
                "Ask who ran kafka-share-groups.sh --reset-offsets or --delete-offsets at that time.",
                "To set it by time, its members stopped: "
                + reset_offsets(
                    group.group_id,
                    *("--topic", act.topics[0], *to_datetime(at.timestamp_ms)),
                    name="kafka-share-groups",
                ),
            ],
        )


def _changed_type(group: GroupHistory) -> Iterator[Explanation]:
    """From the classic protocol to KIP-848, or back: nothing is lost by it."""
    changes = [one for one in group.changes if one.kind is not ChangeKind.REFUSED]
    found = [
        (change, after)
        for change, after in itertools.pairwise(changes)
        if change.end is not None
        and change.end.kind is EndKind.MIGRATION
        and change.kind is ChangeKind.DELETED
        and None not in (change.group_type, after.group_type)
        and change.group_type is not after.group_type
    ]
    if len(found) >= _TYPES:
        yield _types_in_turn(group, found)
        return
    for change, after in found:
        yield Explanation(
            "group-changed-type",
            Severity.INFO,
            f"{group.group_id} went from a {change.group_type} group to a {after.group_type} group at "
            f"{moment(change.place.timestamp_ms)}: its {count(len(group.versions), 'offset')} stayed.",
            change.place.timestamp_ms,
            evidence=[step(change), step(after)],
            not_this=["The group was not deleted: its tombstone and the new records are of one moment."],
            now=["Nothing, if clients were moved: group.protocol of the members decides (consumer or classic)."],
        )


def _types_in_turn(group: GroupHistory, found: Sequence[tuple[Change, Change]]) -> Explanation:
    (first, to), (last, _) = found[0], found[-1]
    members = [name_of(one.members[0]) for one in (to, found[1][1]) if one.members]
    return Explanation(
        "group-type-goes-to-and-fro",
        Severity.WARNING,
        f"{group.group_id} changed its type {len(found)} times from {moment(first.place.timestamp_ms)} to "
        f"{moment(last.place.timestamp_ms)}, first from a {first.group_type} group to a {to.group_type} group: it has "
        "clients of both protocols (group.protocol), and those who come when the others have gone change it"
        + (f"; the first of each: {' and '.join(members)}." if members else ".")
        + f" Its {count(len(group.versions), 'offset')} stayed.",
        last.place.timestamp_ms,
        events=[step(one) for pair in found[:SHOWN] for one in pair],
        evidence=[step(first), step(to)],
        not_this=["The group was not deleted: its tombstones and the new records are of one moment."],
        now=[
            "Set group.protocol alike in all clients of the group; finish the rolling change, or take it back.",
            "See whether each release loads what is left of it (KAFKA-21117): regroup loads SNAPSHOT",
        ],
    )


def _protocols(group: GroupHistory, rounds: list[Change]) -> Iterator[Explanation]:
    """One group id, used by members of different kinds in turn: those of one are refused while the other is there."""
    kinds = [one for one in rounds if one.members and one.protocol_type]
    turns = [
        (before, after) for before, after in itertools.pairwise(kinds) if before.protocol_type != after.protocol_type
    ]
    if not turns:
        return
    before, after = turns[0]
    yield Explanation(
        "protocol-type-changed",
        Severity.WARNING,
        f"Group id {group.group_id} is used for two things: its members were of protocol type {before.protocol_type} "
        f"({name_of(before.members[0])}) up to generation {before.generation}, and of {after.protocol_type} "
        f"({name_of(after.members[0])}) in generation {after.generation} at {moment(after.place.timestamp_ms)}; "
        f"{count(len(turns), 'such change')}. While one is there the other is refused (INCONSISTENT_GROUP_PROTOCOL).",
        after.place.timestamp_ms,
        events=[step(one) for turn in turns[:3] for one in turn],
        evidence=[step(before), step(after)],
        not_this=["It is no change of the assignor or of group.protocol: workers of Connect are no consumers."],
        now=["Give one of them a group id of its own: group.id of the Connect workers, or that of the consumers."],
    )


def _long_metadata(group: GroupHistory, case: Case) -> Iterator[Explanation]:
    """Commits whose metadata is about to be refused, and with it the commit."""
    known = {} if case.topics is None else case.topics.offsets_topic.thresholds
    limit = known.get("offset_metadata_max_bytes", THRESHOLDS["offset_metadata_max_bytes"].default)
    place = group.longest_place
    if place is None or group.longest_metadata < THRESHOLDS["metadata_share"].default * limit:
        return
    yield Explanation(
        "metadata-near-limit",
        Severity.WARNING,
        f"A commit of {group.group_id} has metadata of {group.longest_metadata:,} characters (record "
        f"{place.record_offset}), and offset.metadata.max.bytes of the brokers is {limit:,.0f}"
        + ("" if "offset_metadata_max_bytes" in known else " by default")
        + ": a commit with more is refused with OFFSET_METADATA_TOO_LARGE, and its partition stays where it is.",
        place.timestamp_ms,
        evidence=[Event(place, f"metadata of {group.longest_metadata:,} characters")],
        not_this=["The offset itself does not matter: the broker refuses what its client writes beside it."],
        now=[
            "Let the client write less into the metadata, which grow with what it has in flight (acknowledged "
            "records out of order, positions of its own).",
            f"Set offset.metadata.max.bytes={4 * int(limit)} for all brokers, and restart them: they refuse to take "
            "it at run time.",
        ],
    )
