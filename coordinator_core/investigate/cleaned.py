"""Committed offsets that were removed, and whose values are gone from the log: what is left are tombstones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coordinator_core.groups.model import OffsetKey
from coordinator_core.history.lessons import acts_of
from coordinator_core.history.model import Bare, ChangeKind, EndKind, GroupHistory, Place, Removal, Version
from coordinator_core.history.removals import ONE_ACT_MS
from coordinator_core.investigate.model import SHOWN, Case, Event, Explanation
from coordinator_core.investigate.words import by_rest, count, moment, one_of, were
from coordinator_core.releases import Deleter, Loader
from coordinator_core.rules.model import Severity

_NAMES = {
    Deleter.EXPIRY: "expiry",
    Deleter.DELETE_GROUPS: "a DeleteGroups request",
    Deleter.OFFSET_DELETE: "an OffsetDelete request",
    Deleter.TOPIC_DELETION: "the deletion of the topic",
}
_DELETERS = {EndKind[one.name]: one for one in _NAMES}


def explain_cleaned(group: GroupHistory, case: Case) -> Iterator[Explanation]:
    """One explanation for each act of which only tombstones are left."""
    for act in acts_of(group.bare):
        if any(one.offset_key is not None for one in act):
            yield _explained(group, case, act)


def _explained(group: GroupHistory, case: Case, act: Sequence[Bare]) -> Explanation:
    first = act[0].place
    keys = {one.offset_key: one.place for one in act if one.offset_key is not None}
    ends = _ends_in(group, act)
    # Offsets that went in the same act, and whose values the log has.
    beside = [one for one in group.removals if _in_act(one.place, act)]
    deleters = _deleters(beside, {key.topic for key in keys})
    causes = one_of([_NAMES[one] for one in deleters or _possible(case, with_group=bool(ends))])
    again = sorted((key, found) for key in keys if (found := _first_after(group, key, keys[key].record_offset)))
    with_group = ends and first.timestamp_ms >= 0
    verdict = (
        f"{were(len(keys), 'committed offset')} removed from {group.group_id} at {moment(first.timestamp_ms)}"
        f"{', with the group itself' if with_group else ''}. The values are gone from this log (the cleaner has taken "
        "them, or they lay before its start), so it does not tell how old they were"
    )
    verdict += (
        f". They went with {count(len(beside), 'committed offset')} that it has, by {causes}."
        if deleters
        else f", nor what took them: {causes}."
    )
    if again:
        key, version = again[0]
        verdict += (
            f" {were(len(again), 'partition')} committed again afterwards, {key.topic_partition} first at "
            f"{version.first.committed_offset}: whether that is behind or ahead of what was removed, it does not tell."
        )
    return Explanation(
        "removed-offsets-cleaned",
        Severity.WARNING if again else Severity.INFO,
        verdict,
        first.timestamp_ms,
        evidence=[
            *(Event(place, f"tombstone of {key.topic_partition}") for key, place in [*keys.items()][:SHOWN]),
            *(Event(place, "tombstone of the group") for place in ends),
            *(Event(version.place, "committed again") for _, version in again[:1]),
        ],
        now=[
            "Look into other copies of this offsets partition: an earlier capture or backup, and its other replicas, "
            "each of which is cleaned for itself.",
            *by_rest(group.group_id),
        ],
        capture=[
            "Copy the offsets topic now: tombstones go after delete.retention.ms (a day by default): "
            "regroup capture --bootstrap-server HOST:9092 --output DIR"
        ],
    )


def _in_act(place: Place, act: Sequence[Bare]) -> bool:
    begin_ms, end_ms = act[0].place.timestamp_ms, act[-1].place.timestamp_ms
    return begin_ms >= 0 and begin_ms - ONE_ACT_MS <= place.timestamp_ms <= end_ms + ONE_ACT_MS


def _ends_in(group: GroupHistory, act: Sequence[Bare]) -> list[Place]:
    """Tombstones of the group itself in the act, whether the log has its record or not."""
    known = [one.place for one in group.changes if one.kind is ChangeKind.DELETED and _in_act(one.place, act)]
    return [*(one.place for one in act if one.offset_key is None), *known]


def _deleters(removals: Sequence[Removal], topics: set[str]) -> list[Deleter]:
    """What took ``removals``, the judged cause first, and so offsets of ``topics`` with them; empty where nothing
    tells."""
    kinds = dict.fromkeys(kind for one in removals if one.end is not None for kind in (one.end.kind, *one.end.others))
    is_of_other_topics = not topics <= {one.offset_key.topic for one in removals}
    if not kinds.keys() <= _DELETERS.keys() or (EndKind.TOPIC_DELETION in kinds and is_of_other_topics):
        return []
    return [_DELETERS[kind] for kind in kinds]


def _possible(case: Case, *, with_group: bool) -> list[Deleter]:
    """What may remove offsets, and the group with them. The Java coordinator deletes no group with a topic."""
    excluded = {Deleter.OFFSET_DELETE} if with_group else set()
    if with_group and case.profile.loader is Loader.JAVA:
        excluded.add(Deleter.TOPIC_DELETION)
    if not with_group and not case.profile.expiry.generation_zero_is_silent:
        excluded.add(Deleter.DELETE_GROUPS)
    return [one for one in _NAMES if one in case.profile.deleters and one not in excluded]


def _first_after(group: GroupHistory, key: OffsetKey, record_offset: int) -> Version | None:
    versions = group.versions.get(key, ())
    return next((one for one in versions if one.place.record_offset > record_offset), None)
