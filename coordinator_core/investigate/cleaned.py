"""Committed offsets that were removed, and whose values the cleaner has taken since: what is left are tombstones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coordinator_core.groups.model import OffsetKey
from coordinator_core.history.model import Bare, GroupHistory, Version
from coordinator_core.history.removals import ONE_ACT_MS
from coordinator_core.investigate.model import Case, Event, Explanation
from coordinator_core.investigate.words import by_rest, moment, were
from coordinator_core.releases import Deleter, Loader
from coordinator_core.rules.model import Severity

_SHOWN = 8
_NAMES = {
    Deleter.EXPIRY: "expiry",
    Deleter.DELETE_GROUPS: "a DeleteGroups request",
    Deleter.OFFSET_DELETE: "an OffsetDelete request",
    Deleter.TOPIC_DELETION: "the deletion of the topic",
}


def explain_cleaned(group: GroupHistory, case: Case) -> Iterator[Explanation]:
    """One explanation for each act of which only tombstones are left."""
    acts: list[list[Bare]] = []
    for one in group.bare:
        if acts and abs(one.place.timestamp_ms - acts[-1][-1].place.timestamp_ms) <= ONE_ACT_MS:
            acts[-1].append(one)
        else:
            acts.append([one])
    for act in acts:
        if any(one.offset_key is not None for one in act):
            yield _explained(group, case, act)


def _explained(group: GroupHistory, case: Case, act: Sequence[Bare]) -> Explanation:
    first = act[0].place
    keys = {one.offset_key: one.place for one in act if one.offset_key is not None}
    with_group = any(one.offset_key is None for one in act)
    *others, last = _causes(case, with_group=with_group)
    causes = f"{', '.join(others)} or {last}" if others else last
    again = sorted((key, found) for key in keys if (found := _first_after(group, key, keys[key].record_offset)))
    verdict = (
        f"{were(len(keys), 'committed offset')} removed from {group.group_id} at {moment(first.timestamp_ms)}"
        f"{', with the group itself' if with_group else ''}. The cleaner has taken the values since, so this log does "
        f"not tell how old they were, nor what took them: {causes}."
    )
    if again:
        key, version = again[0]
        verdict += (
            f" {were(len(again), 'partition')} committed again afterwards, {key.topic}-{key.partition} first at "
            f"{version.first.committed_offset}: whether that is behind or ahead of what was removed, it does not tell."
        )
    return Explanation(
        "removed-offsets-cleaned",
        Severity.WARNING if again else Severity.INFO,
        verdict,
        first.timestamp_ms,
        group.group_id,
        group.offsets_partition,
        evidence=[
            *(Event(place, f"tombstone of {key.topic}-{key.partition}") for key, place in [*keys.items()][:_SHOWN]),
            *(Event(one.place, "tombstone of the group") for one in act if one.offset_key is None),
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


def _causes(case: Case, *, with_group: bool) -> list[str]:
    """What may remove offsets, and the group with them. The Java coordinator deletes no group with a topic."""
    excluded = {Deleter.OFFSET_DELETE} if with_group else set()
    if with_group and case.profile.loader is Loader.JAVA:
        excluded.add(Deleter.TOPIC_DELETION)
    if not with_group and not case.profile.expiry.generation_zero_is_silent:
        excluded.add(Deleter.DELETE_GROUPS)
    return [name for one, name in _NAMES.items() if one in case.profile.deleters and one not in excluded]


def _first_after(group: GroupHistory, key: OffsetKey, record_offset: int) -> Version | None:
    versions = group.versions.get(key, ())
    return next((one for one in versions if one.place.record_offset > record_offset), None)
