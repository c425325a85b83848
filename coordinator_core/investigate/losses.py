"""Committed offsets that are gone: by which rule, whether that was to be expected, and how to put them back."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from coordinator_core.durations import MINUTE_MS, span
from coordinator_core.groups.model import OffsetKey, are_of_other_topics
from coordinator_core.history.lessons import SHORTEST_RETENTION_MS, acts_of
from coordinator_core.history.model import Certainty, ChangeKind, End, EndKind, GroupHistory, Removal, Version
from coordinator_core.history.signs import has_reached, is_left_over
from coordinator_core.history.versions import BORING_STEPS, SMALL_STEP
from coordinator_core.investigate.bugs import BUGS
from coordinator_core.investigate.model import SHOWN, Case, Event, Explanation, changes_around, step
from coordinator_core.investigate.words import (
    by_rest,
    count,
    described,
    from_file,
    moment,
    of_topics,
    one_of,
    restore_plan,
    were,
)
from coordinator_core.releases import Clock
from coordinator_core.rules.model import Severity
from coordinator_core.rules.topics import Topics

REMOVED = frozenset({"offsets-deleted", "offsets-expired", "offsets-expired-while-active", "tombstones-without-a-rule"})
"""Codes of acts that took offsets of topics that are still there."""
TOPIC_DELETED = "topic-deleted"
_WHAT = {
    EndKind.EXPIRY: "expired",
    EndKind.DELETE_GROUPS: "went with a DeleteGroups request",
    EndKind.OFFSET_DELETE: "went with an OffsetDelete request",
    EndKind.TOPIC_DELETION: "went with the deletion of their topic",
    EndKind.NO_RULE: "went, and no rule of this release justifies it",
}

_OF_TOPICS_THAT_STAY = frozenset({EndKind.EXPIRY, EndKind.DELETE_GROUPS, EndKind.OFFSET_DELETE})
_ELSE = {
    EndKind.DELETE_GROUPS: "a DeleteGroups request",
    EndKind.OFFSET_DELETE: "an OffsetDelete request",
    EndKind.TOPIC_DELETION: "the deletion of the topic",
}


def explain_losses(group: GroupHistory, case: Case) -> Iterator[Explanation]:
    """One explanation for each act, and each way in which the group lost offsets by it."""
    missed = _missed(group)
    for act in acts_of(group.removals):
        ways: dict[tuple[object, ...], list[Removal]] = {}
        for removal in act:
            end = removal.end
            assert end is not None
            # A retention of the commit's own says nothing of the others.
            is_explicit = end.kind is EndKind.EXPIRY and removal.expired_ms_ago is not None
            way = end.kind, end.bug, end.certainty, end.others, removal.had_members, is_explicit
            ways.setdefault(way, []).append(removal)
        for removals in ways.values():
            yield _explained(group, case, removals, missed)


def likeliest_end(removals: Sequence[Removal], case: Case) -> End:
    """The common end of removals. A topic that has the same id now was not deleted, and one that has another id was;
    where it is there now, a request that may have removed the groups is likelier than its deletion."""
    end = removals[0].end
    assert end is not None
    kinds = [one for one in (end.kind, *end.others) if one is not EndKind.TOPIC_DELETION]
    if len(kinds) <= len(end.others) and all(_has_id_now(one, case.topics) for one in removals):
        why = f"{end.why}; the topic has the same id now, so it was not deleted"
        sure = end.certainty if len(kinds) > 1 else Certainty.LIKELY
        return replace(
            end, kind=kinds[0] if kinds else EndKind.NO_RULE, certainty=sure, others=tuple(kinds[1:]), why=why
        )
    if EndKind.TOPIC_DELETION in end.others and end.kind in _ELSE and _is_another_now(removals, case.topics):
        why = f"{end.why}; the topic has another id now, so it was deleted and made again"
        return replace(end, kind=EndKind.TOPIC_DELETION, others=tuple(kinds), why=why)
    if EndKind.TOPIC_DELETION in end.others and end.kind is EndKind.OFFSET_DELETE and _are_gone(removals, case.topics):
        why = f"{end.why}; topics.json has the topic no more"
        return replace(end, kind=EndKind.TOPIC_DELETION, others=tuple(kinds), why=why)
    if end.kind is not EndKind.TOPIC_DELETION or EndKind.DELETE_GROUPS not in end.others:
        return end
    if not all(case.bounds(removal.offset_key) for removal in removals):
        return end
    others = (end.kind, *(one for one in end.others if one is not EndKind.DELETE_GROUPS))
    return replace(end, kind=EndKind.DELETE_GROUPS, others=others)


def _has_id_now(removal: Removal, topics: Topics | None) -> bool | None:
    """Whether the topic has the id, after the removal, that the value had; ``None`` where that is not known."""
    if topics is None or 0 <= (topics.captured_at_ms or -1) < removal.place.timestamp_ms:
        return None
    topic_id, now = removal.value.topic_id, topics.id_of(removal.offset_key.topic)
    return None if topic_id is None or now is None else now == topic_id


def _are_gone(removals: Sequence[Removal], topics: Topics | None) -> bool:
    """Whether these are offsets of topics that are not among those of a capture after the removals."""
    if topics is None or 0 <= (topics.captured_at_ms or -1) < max(one.place.timestamp_ms for one in removals):
        return False
    return all(topics.lacks(one.offset_key.topic) for one in removals)


def _is_another_now(removals: Sequence[Removal], topics: Topics | None) -> bool:
    """Whether these are offsets of topics that were made again since: they mean nothing in those of now."""
    return all(_has_id_now(one, topics) is False for one in removals)


def _explained(group: GroupHistory, case: Case, removals: Sequence[Removal], missed: Sequence[Removal]) -> Explanation:
    first, end = removals[0], likeliest_end(removals, case)
    kind, bug, had_members = end.kind, end.bug, first.had_members
    by_age = case.profile.expiry.clock is not Clock.GROUP
    if kind is EndKind.EXPIRY and had_members and by_age and BUGS["KIP-211"].fits(case.profile.release):
        bug = "KIP-211"
    followed = [(removal, after) for removal in removals if (after := _first_after(group, removal)) is not None]
    read_again = [one for one in followed if one[1].first.committed_offset < one[0].value.committed_offset]
    skipped = [one for one in followed if _is_ahead(group, *one)]
    if kind is EndKind.TOPIC_DELETION and (not end.others or _is_another_now(removals, case.topics)):
        read_again, skipped = [], []  # A topic that is made again begins again.
    is_told = bool(read_again or skipped) or kind not in _OF_TOPICS_THAT_STAY
    begun = [] if is_told else [one for one in followed if one[1].had_members]
    severity = Severity.WARNING if read_again or skipped or begun else Severity.INFO
    if bug is not None or kind is EndKind.NO_RULE:
        severity = Severity.CRITICAL
    what = _WHAT[kind] if len(removals) > 1 else _WHAT[kind].replace("their topic", "its topic")
    whose = "an active group" if had_members else "a group that was rebalancing" if bug else "a group without members"
    verdict = (
        f"{count(len(removals), 'committed offset')} of {group.group_id}, {whose}, {what} at "
        f"{moment(first.place.timestamp_ms)}: {end.why}."
    )
    if kind is EndKind.EXPIRY and bug is None and had_members and not any(one.subscribed for one in removals):
        dropped = ", ".join(sorted({one.offset_key.topic for one in removals})[:SHOWN])
        verdict += f" The group lived, but no member subscribed to {dropped} then."
    if bug is not None:
        has_bug = BUGS[bug].fits(case.profile.release)
        release = case.profile.release if has_bug else f"before {BUGS[bug].fixed_in}"
        verdict += f" {BUGS[bug].found_in(release)}"
    if read_again:
        verdict += f" {were(len(read_again), 'partition')} read again from an earlier offset afterwards."
    if kind is EndKind.TOPIC_DELETION:
        verdict += _made_again(group, removals)
    if kind is EndKind.NO_RULE and (moved := _coordinator_moved(group, first)):
        verdict += (
            f" The coordinator moved between the last commit and this (leader epoch {moved[0]} to {moved[1]}): one "
            "that has loaded an older state of the group removes by that."
        )
    if skipped:
        records = sum(after.first.committed_offset - removal.value.committed_offset for removal, after in skipped)
        gone = "the retention of the topic had removed them, " if _may_be_gone(skipped, case) else ""
        verdict += (
            f" {count(len(skipped), 'partition')} began again {count(records, 'record')} further: "
            f"auto.offset.reset=latest skipped them, {gone}or they were read, from the start on with "
            "auto.offset.reset=earliest, before the first commit."
        )
    if kind is EndKind.DELETE_GROUPS and not any(
        change.kind is ChangeKind.DELETED and change.place.record_offset > first.place.record_offset
        for change in group.changes
    ):
        verdict += (
            " The group is gone for the broker; it had no tombstone of its own, so tools that wait for one list it."
        )
    others = one_of([_ELSE[one] for one in end.others if one in _ELSE])
    captured_ms, age_ms = case.captured_retention_ms or 0, first.age_ms or 0
    is_unsure = end.certainty is Certainty.POSSIBLE or captured_ms > age_ms
    is_told_alone = kind is EndKind.TOPIC_DELETION or (kind is EndKind.EXPIRY and is_unsure and first.age_ms is None)
    if kind is EndKind.EXPIRY and is_unsure and first.age_ms is not None and end.others:
        verdict += (
            f" That takes an offsets.retention.minutes of {first.age_ms // MINUTE_MS:,} or less; else it was {others}: "
            "the log does not decide."
        )
    elif kind is EndKind.EXPIRY and first.age_ms is not None and EndKind.TOPIC_DELETION in end.others:
        default = span(case.profile.expiry.default_offsets_retention_ms)
        verdict += (
            f" The default retention, {default}, had passed before: the brokers keep offsets longer, or it was "
            f"{others}; the log does not decide."
        )
    elif others and (is_told_alone or (end is not first.end and EndKind.TOPIC_DELETION in end.others)):
        again = "" if is_told_alone else " (it is there now)"
        verdict += f" Or it was {others}{again}: the log does not decide."
    if may_be_age := _may_be_age(first):
        minutes, now_ms = f"{may_be_age // MINUTE_MS:,} or less", case.captured_retention_ms
        had = f"is {minutes}" if now_ms is None else f"was {minutes} then (it is {span(now_ms)} now)"
        verdict += f" Or it was expiry, if offsets.retention.minutes of the brokers {had}: the log does not decide."
    if begun:
        verdict += _begun_again(begun)
    put_back = {id(one) for one in (*missed, *(removal for removal, _ in skipped))}
    lost = [one for one in removals if id(one) in put_back]
    return Explanation(
        code={
            EndKind.EXPIRY: "offsets-expired" if bug is None else "offsets-expired-while-active",
            EndKind.NO_RULE: "tombstones-without-a-rule",
            EndKind.TOPIC_DELETION: TOPIC_DELETED,
        }.get(kind, "offsets-deleted"),
        severity=severity,
        verdict=verdict,
        at_ms=first.place.timestamp_ms,
        events=_sequence(group, removals, [*read_again, *skipped]),
        evidence=[
            Event(
                removal.place,
                f"tombstone of {removal.offset_key.topic_partition}, which held "
                f"{removal.value.committed_offset} (record {removal.value.record_offset}, committed "
                f"{'at ' if removal.value.commit_timestamp_ms < 0 else ''}{moment(removal.value.commit_timestamp_ms)})",
            )
            for removal in removals[:SHOWN]
        ],
        not_this=_not_this(end, case),
        now=_now(
            group,
            case,
            kind,
            first,
            bug,
            severity,
            can_put_back=bool(lost),
            begun={removal.offset_key for removal, _ in begun},
        ),
        capture=[
            "Copy the offsets topic now: once the cleaner runs, the old values are gone, and tombstones after "
            "delete.retention.ms (a day by default): regroup capture --bootstrap-server HOST:9092 --output DIR",
            f"Keep the brokers' settings: offsets.retention.minutes ({span(case.likely_retention_ms)} is taken here).",
        ],
        restore={one.offset_key: one.value.committed_offset for one in lost},
        ends={one.offset_key: one.place.record_offset for one in lost},
        bug=bug,
    )


def _may_be_gone(skipped: Sequence[tuple[Removal, Version]], case: Case) -> bool:
    """Whether records behind a removed value may not be there any more."""
    starts = [(case.bounds(removal.offset_key), removal.value.committed_offset) for removal, _ in skipped]
    return any(bounds is None or bounds[0] > committed for bounds, committed in starts)


def _made_again(group: GroupHistory, removals: Sequence[Removal]) -> str:
    """What members did that went on while their topic was deleted and made again."""
    for removal in removals:
        versions = group.versions[removal.offset_key]
        at = bisect_right(versions, removal.place.record_offset, key=lambda one: one.place.record_offset)
        if at + 1 < len(versions) and is_left_over(versions, at):
            held, begun = versions[at], versions[at + 1]
            return (
                f" Its members committed their positions in the old topic once more "
                f"({removal.offset_key.topic_partition} at {held.last.committed_offset}, record "
                f"{held.place.record_offset}), and began anew in the one that was made since "
                f"({begun.first.committed_offset}, record {begun.place.record_offset}): nothing was set back."
            )
    return ""


def _begun_again(begun: Sequence[tuple[Removal, Version]]) -> str:
    """That members came back to nothing: where they began is not in the log."""
    removal, after = min(begun, key=lambda one: one[1].place)
    return (
        f" Members came back and began by auto.offset.reset: {removal.offset_key.topic_partition} "
        f"is committed at {after.first.committed_offset} from record {after.place.record_offset} on. With earliest "
        "they read all again, with latest they skipped what came meanwhile: the log does not tell."
    )


def _sequence(
    group: GroupHistory, removals: Sequence[Removal], begun: Sequence[tuple[Removal, Version]]
) -> list[Event]:
    first, last = removals[0].place, removals[-1].place
    key = removals[0].offset_key
    before = [one for one in group.versions[key] if one.valid_from.record_offset < first.record_offset]
    events = [
        Event(one.last_place, f"last commit of {key.topic_partition} before: {one.last.committed_offset}")
        for one in before[-1:]
    ]
    events += [step(one) for one in changes_around(group, first, last) if one.kind is not ChangeKind.DELETED]
    acts = sorted({removal.place.timestamp_ms for removal in removals})
    moments = f", in {count(len(acts), 'moment')}" if first.timestamp_ms >= 0 else ""
    events.append(Event(first, f"{count(len(removals), 'offset')} removed{moments}"))
    events += [
        Event(
            version.place,
            f"{removal.offset_key.topic_partition} is committed again at "
            f"{version.first.committed_offset}, {abs(by):,} " + ("further" if by > 0 else "back"),
        )
        for removal, version in begun[:SHOWN]
        for by in (version.first.committed_offset - removal.value.committed_offset,)
    ]
    return sorted(events, key=lambda event: event.place.record_offset)


def _not_this(end: End, case: Case) -> list[str]:
    found = []
    if end.kind is EndKind.EXPIRY and not end.others:
        found.append("It was no person and no client: no request removes offsets in this way.")
    elif end.kind in _ELSE and EndKind.EXPIRY not in end.others and case.retention_ms is not None:
        told = f"a retention of {span(case.retention_ms)}, as --offsets-retention-ms says"
        found.append(f"It was no expiry: the offsets were too young for {told}, or older ones stayed.")
    elif end.kind in (EndKind.DELETE_GROUPS, EndKind.OFFSET_DELETE) and EndKind.EXPIRY not in end.others:
        found.append("It was no expiry: the offsets were too young, or older ones stayed.")
    if end.others:
        others = ", ".join(other.value for other in end.others)
        found.append(f"The log cannot exclude: {others}, which would leave the same records.")
    if end.certainty is Certainty.POSSIBLE:
        found.append("The log does not decide; ask who used Admin tools at that time.")
    return found


def _now(
    group: GroupHistory,
    case: Case,
    kind: EndKind,
    first: Removal,
    bug: str | None,
    severity: Severity,
    *,
    can_put_back: bool,
    begun: Collection[OffsetKey],
) -> list[str]:
    now = []
    if severity > Severity.INFO and can_put_back and kind is EndKind.TOPIC_DELETION:
        now.append(
            "If the topic was not deleted, stop the consumers of the group and put the offsets back: "
            + from_file(group.group_id)
        )
    elif severity > Severity.INFO and can_put_back:
        now.append(f"Stop the consumers of the group, put the offsets back: {from_file(group.group_id)}")
    elif begun:
        before = f"{group.offsets_partition}:{first.place.record_offset}"
        now.append(
            "If its consumers have auto.offset.reset=latest, stop them and put the offsets back: "
            + restore_plan(group.group_id, *of_topics(begun), "--before-record", before)
        )
    if kind in (EndKind.DELETE_GROUPS, EndKind.OFFSET_DELETE):
        now += by_rest(group.group_id)
    if bug is not None and not BUGS[bug].fits(case.profile.release):
        now.append(f"Make sure that no broker is older than {BUGS[bug].fixed_in}: the others have no such bug.")
    elif bug is not None:
        now.append(BUGS[bug].advice)
    if bug == "KIP-211" and case.profile.expiry.clock is not Clock.GROUP:
        following = _next_due(group, case)
        if following is not None:
            now.append(
                f"Next in line: {following[0].topic}-{following[0].partition}, at {moment(following[1])}; commit "
                "its offset again before that."
            )
    if kind is EndKind.EXPIRY and first.expired_ms_ago is not None and case.profile.expiry.clock is Clock.GROUP:
        now.append(
            "Raising offsets.retention.minutes does not save offsets that carry an expire timestamp (value version 1, "
            "of brokers before 2.1 or of a request with a retention time): commit them again."
        )
    elif kind is EndKind.EXPIRY and not group.changes and case.profile.expiry.clock is Clock.GROUP:
        now.append(
            "No member protects what a consumer with assign() commits: let it commit again well within "
            "offsets.retention.minutes, also what stands still, or raise that above the longest silence of the topic."
        )
    elif kind is EndKind.EXPIRY and severity is Severity.WARNING:
        kept_ms = case.captured_retention_ms or 0
        unsure = "If it was expiry, " if first.end is None or first.end.others else ""
        now.append(
            f"{unsure}offsets.retention.minutes was raised since: it is {span(kept_ms)} now."
            if kept_ms > (first.age_ms or 0)
            else "Raise offsets.retention.minutes above the longest time that the group is stopped."
        )
    if kind is EndKind.NO_RULE:
        now.append("Find out who may write to __consumer_offsets: only brokers should (ACLs of the topic).")
    if not now and _is_gone(group):
        now.append("Nothing, if that was meant: nothing is left of the group.")
    elif not now:
        now.append(f"Nothing, if that was meant. See what is left: {described(group)}")
    if _may_be_age(first) and case.captured_retention_ms is not None:
        now.append(
            "Find out whether offsets.retention.minutes was another one then: with --offsets-retention-ms this command "
            "decides; without --group it compares with the ages at which other groups lost theirs."
        )
    elif _may_be_age(first):
        now.append(
            "Look at offsets.retention.minutes: kafka-configs.sh --bootstrap-server HOST:9092 --describe --all "
            "--entity-type brokers --entity-name ID; with --offsets-retention-ms this command decides; without --group "
            "it compares with the ages at which other groups lost theirs."
        )
    return now


def _is_gone(group: GroupHistory) -> bool:
    """Whether the coordinator has no such group any more, so that no tool describes it."""
    return not group.standing and (not group.changes or group.changes[-1].kind is ChangeKind.DELETED)


def _may_be_age(removal: Removal) -> int | None:
    """Age (ms) at which an offset went that a request removed, or a retention that nobody told of."""
    end, age = removal.end, removal.age_ms
    if end is None or end.kind is EndKind.EXPIRY or EndKind.EXPIRY not in end.others:
        return None
    if age is None or age < SHORTEST_RETENTION_MS:
        # By the bug that lets offsets of a rebalancing group expire, they age from their commits.
        age = removal.place.timestamp_ms - removal.value.commit_timestamp_ms
    return age if age >= SHORTEST_RETENTION_MS else None


def _coordinator_moved(group: GroupHistory, removal: Removal) -> tuple[int, int] | None:
    """Leader epochs of the last commit and of the tombstone, where they differ."""
    committed = [
        one.last_place.leader_epoch
        for one in group.versions[removal.offset_key]
        if one.last.record_offset == removal.value.record_offset
    ]
    epochs = committed[0] if committed else -1, removal.place.leader_epoch
    return epochs if 0 <= epochs[0] < epochs[1] else None


def _next_due(group: GroupHistory, case: Case) -> tuple[OffsetKey, int] | None:
    due = [
        (key, case.due_ms(version.last.commit_timestamp_ms, version.last.expire_timestamp_ms))
        for key, version in group.standing.items()
    ]
    return min((one for one in due if one[1] >= 0), key=lambda item: item[1], default=None)


def _missed(group: GroupHistory) -> list[Removal]:
    """Removals of values that the group has not reached since; of several of a key the first one, which took most."""
    found: dict[OffsetKey, Removal] = {}
    missed = []
    for removal in sorted(group.removals, key=lambda one: one.place.record_offset):
        versions = group.versions[removal.offset_key]
        if has_reached(versions, removal.place.record_offset + 1, removal.value.committed_offset):
            continue
        if removal.end is not None and removal.end.kind is EndKind.TOPIC_DELETION:
            missed.append(removal)  # A topic that is made again begins again.
        elif found.setdefault(removal.offset_key, removal) is removal:
            missed.append(removal)
    return missed


def _is_ahead(group: GroupHistory, removal: Removal, after: Version) -> bool:
    """Whether the first commit after the removal is further ahead than one is after a start from what was removed."""
    usual = max((one.largest_step for one in group.versions[removal.offset_key] if one is not after), default=0)
    return after.first.committed_offset - removal.value.committed_offset > max(SMALL_STEP, BORING_STEPS * usual)


def _first_after(group: GroupHistory, removal: Removal) -> Version | None:
    """The first commit after the removal; a topic that is made again begins again."""
    versions = group.versions[removal.offset_key]
    after = next((one for one in versions if one.place.record_offset > removal.place.record_offset), None)
    return None if after is None or are_of_other_topics(removal.value.topic_id, after.first.topic_id) else after
