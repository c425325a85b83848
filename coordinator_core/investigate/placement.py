"""Groups in offsets partitions that their coordinator does not read."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from coordinator_core.groups.hashing import partition_for
from coordinator_core.history.model import GroupHistory, PartitionHistory
from coordinator_core.investigate.model import (
    AT_END,
    SHOWN,
    Case,
    Event,
    Explanation,
    first_place,
    last_place,
    newest_commit,
)
from coordinator_core.investigate.words import are, count, moment, restore_plan, when
from coordinator_core.releases import Loader
from coordinator_core.rules.model import Severity
from coordinator_core.untrusted import shell_words

MIXED = (
    "The classic coordinator of a broker that leads both partitions mixes what they have: it may answer with old "
    "values after newer commits."
)


class Placement:
    """Groups that live at the end of offsets partitions, against the partition that their coordinator reads.

    ``case``: its topology tells the number of offsets partitions.
    """

    def __init__(self, histories: Sequence[PartitionHistory], case: Case) -> None:
        self._homes = _homes(histories)
        self._mixes = case.profile.loader is Loader.SCALA
        # 0 where it is not known.
        self._number = len(case.topology.offsets_partitions or ()) if case.topology is not None else 0
        alone = [groups[0] for _, groups in sorted(self._homes.items()) if len(groups) == 1 and self._number]
        self._strays = [one for one in alone if one.offsets_partition != partition_for(one.group_id, self._number)]

    def explain(self) -> Iterator[Explanation]:
        """Groups that several offsets partitions have, and groups whose coordinator reads another one."""
        split = {group_id: groups for group_id, groups in self._homes.items() if len(groups) > 1}
        yield from _split(split, mixes=self._mixes)
        yield from _out_of_reach(self._strays, self._number, mixes=self._mixes, can_compact=not split)

    def without_stale(self, explanations: Iterable[Explanation]) -> list[Explanation]:
        """Leave out what holds at the end of the log of groups in offsets partitions that their coordinator does not
        read."""
        stale = {(one.group_id, one.offsets_partition) for one in self._strays}
        for group_id, groups in self._homes.items():
            older = sorted(groups, key=lambda one: last_place(one).timestamp_ms)[:-1] if _are_timed(groups) else []
            stale |= {(group_id, group.offsets_partition) for group in older}
        return [
            one for one in explanations if one.code not in AT_END or (one.group_id, one.offsets_partition) not in stale
        ]


def _are_timed(groups: Iterable[GroupHistory]) -> bool:
    """Whether the log tells which of them has the newest records; those without a time are of older formats."""
    return any(last_place(group).timestamp_ms >= 0 for group in groups)


def _homes(histories: Sequence[PartitionHistory]) -> dict[str, list[GroupHistory]]:
    """Groups that live at the end of offsets partitions, by group id."""
    homes: dict[str, list[GroupHistory]] = {}
    for history in histories:
        assert history.state is not None
        live = {key.group_id for key in history.state.offsets} | history.state.groups.keys()
        for group_id in live & history.groups.keys():
            group = history.groups[group_id]
            # Commits of open transactions, or members before their first epoch, tell no place.
            if group.versions or group.changes:
                homes.setdefault(group_id, []).append(group)
    return homes


def _split(split: Mapping[str, Sequence[GroupHistory]], *, mixes: bool) -> Iterator[Explanation]:
    if copied := {group_id: groups for group_id, groups in split.items() if _is_scattered(groups)}:
        yield _copied(copied)
        split = {group_id: groups for group_id, groups in split.items() if group_id not in copied}
    for group_id, groups in list(split.items())[:SHOWN]:
        by_time = sorted(groups, key=lambda group: last_place(group).timestamp_ms)
        places = [last_place(group) for group in by_time]
        newest, old = places[-1], by_time[-2]
        is_timed = _are_timed(groups)
        begun, events = _begun_anew(old, by_time[-1]) if is_timed else ("", [])
        yield Explanation(
            "group-in-two-partitions",
            Severity.CRITICAL,
            f"{group_id} is in offsets partitions {', '.join(str(place.offsets_partition) for place in places)}: "
            + (
                f"the number of partitions of __consumer_offsets was changed (KIP-895); {newest.offsets_partition} has "
                f"the newest records, of {moment(newest.timestamp_ms)}.{begun}"
                if is_timed
                else "the number of partitions of __consumer_offsets was changed (KIP-895), or somebody wrote into it. "
                "The log does not tell which of its records are the newest: they have no times."
            )
            + f" {count(len(split), 'group')} in all.",
            newest.timestamp_ms,
            group_id,
            newest.offsets_partition,
            events=events,
            evidence=[Event(place, "newest record there") for place in places],
            not_this=["No offset expired: the broker looks in another partition than the one that holds them."],
            now=[
                f"Which of them its coordinator reads: regroup find-coordinator {shell_words([group_id])}"
                if not is_timed
                else f"{_why_back(old, by_time[-1])} what offsets partition {old.offsets_partition} has of it: "
                + restore_plan(group_id, "--before-record", f"{old.offsets_partition}:{places[-2].record_offset + 1}"),
                f"{MIXED} Let two brokers lead them."
                if mixes
                else "Leave what the others have of it: no coordinator answers with it."
                if not is_timed
                else f"Leave what offsets partition {old.offsets_partition} has of it: no coordinator answers with it.",
                "Put other groups out of reach back, too: regroup compact --offsets-partitions refuses a log in "
                "which two partitions have a group.",
            ],
        )


def _begun_anew(old: GroupHistory, new: GroupHistory) -> tuple[str, list[Event]]:
    """Where a group began in its new offsets partition, and what it had left in the old one."""
    begun = [
        (abs(versions[0].first.committed_offset - old.standing[key].last.committed_offset), key, versions[0])
        for key, versions in sorted(new.versions.items())
        if key in old.standing
    ]
    if not begun:
        return "", []
    _, key, first = max(begun, key=lambda one: one[0])
    left = old.standing[key]
    name = key.topic_partition
    return (
        f" It began anew there, without its offsets: {name} is committed at {first.first.committed_offset} from record "
        f"{first.place.record_offset} on, and stood at {left.last.committed_offset} in {old.offsets_partition}.",
        [
            Event(left.last_place, f"{name}: {left.last.committed_offset}, left behind"),
            Event(first.place, f"{name}: {first.first.committed_offset}, first commit there"),
        ],
    )


def _why_back(old: GroupHistory, new: GroupHistory) -> str:
    left = {key: one.last.committed_offset for key, one in old.standing.items()}
    if any(key in left and one.last.committed_offset < left[key] for key, one in new.standing.items()):
        return "Stop its consumers, and put back"
    return "If it began at the end (auto.offset.reset=latest) and skipped records, stop its consumers, and put back"


def _out_of_reach(
    strays: Sequence[GroupHistory], number: int, *, mixes: bool, can_compact: bool
) -> Iterator[Explanation]:
    for group in strays[:SHOWN]:
        newest, held = last_place(group), group.standing
        yield Explanation(
            "group-out-of-reach",
            Severity.CRITICAL,
            f"{group.group_id} is in offsets partition {group.offsets_partition}, and belongs to "
            f"{partition_for(group.group_id, number)}: __consumer_offsets has {number} partitions now (KIP-895). "
            "Brokers count them when they start; from then on they know neither the group nor its "
            f"{count(len(held), 'committed offset')}, and its consumers begin by auto.offset.reset. "
            + (f"{MIXED} " if mixes else "")
            + f"{count(len(strays), 'group')} in all.",
            newest.timestamp_ms,
            group.group_id,
            group.offsets_partition,
            evidence=[newest_commit(key, one) for key, one in sorted(held.items())[:SHOWN]]
            or [Event(newest, "newest record of the group")],
            not_this=["No offset expired: the broker looks in another partition than the one that holds them."],
            now=[
                "Restart no broker alone: those that have not started since find the group yet.",
                *when(
                    held,
                    "When all have started, and before its consumers do, put its offsets back: "
                    + restore_plan(group.group_id),
                ),
                *when(
                    can_compact,
                    "Or bring all groups to their partitions, all brokers stopped: regroup compact SNAPSHOT "
                    f"--offsets-partitions {number} --output DIR",
                ),
            ],
        )


def _is_scattered(groups: Sequence[GroupHistory]) -> bool:
    """Whether each offset key of a group has an offsets partition of its own, and several go on at the same time: a
    coordinator writes a group into one partition, a producer places each key by itself."""
    keys = Counter(key for group in groups for key in group.versions)
    spans = sorted((first_place(group).timestamp_ms, last_place(group).timestamp_ms) for group in groups)
    overlap = any(after < until for (_, until), (after, _) in itertools.pairwise(spans))
    return len(keys) > 1 and max(keys.values()) == 1 and overlap


def _copied(scattered: Mapping[str, Sequence[GroupHistory]]) -> Explanation:
    """Records of the offsets topic that somebody produced into it."""
    group_id, groups = min(scattered.items(), key=lambda one: (-len(one[1]), one[0]))
    by_partition = sorted(groups, key=lambda group: group.offsets_partition)
    places = [last_place(group) for group in by_partition]
    newest = max(places, key=lambda place: place.timestamp_ms)
    examples = ", ".join(
        f"{key.topic_partition} in {group.offsets_partition}"
        for group in by_partition[:3]
        for key in list(group.versions)[:1]
    )
    return Explanation(
        "offsets-topic-copied",
        Severity.CRITICAL,
        f"{are(len(scattered), 'group')} in several partitions of "
        f"__consumer_offsets at the same time, {group_id} in {', '.join(str(one.offsets_partition) for one in places)}:"
        f" its offset keys lie apart ({examples}), as a producer places them by their hash. A coordinator keeps a "
        "group in one partition, so a client wrote them: MirrorMaker, Replicator or a restore that copied "
        "__consumer_offsets of another cluster as if it were any topic.",
        newest.timestamp_ms,
        group_id,
        newest.offsets_partition,
        evidence=[Event(place, "newest record there") for place in places][:SHOWN],
        not_this=[
            "The number of offsets partitions was not changed (KIP-895): then a group goes on in its new partition "
            "only, with the same offset keys.",
            "No offset expired: those of this cluster are in the group's own partition, if it has any.",
        ],
        now=[
            "Take internal topics out of the copy: --exclude '__.*' (--blacklist of old releases) of MirrorMaker 1, "
            "topics.exclude of MirrorMaker 2, and deny producers WRITE on __consumer_offsets (ACLs).",
            "Copied values are offsets of the other cluster; do not start a consumer from them. Use "
            "sync.group.offsets.enabled of MirrorMaker 2, which translates them.",
            "What each broker would load of it: regroup loads SNAPSHOT",
        ],
    )
