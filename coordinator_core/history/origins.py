"""Origins of commits: a member of the group; while it had none, a standalone consumer or an Admin client.

A coordinator takes commits from outside only while the group has no members, so the state of the group at the commit
decides between the two. Which client it was is told from client ids, group ids and the form of its commits.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from coordinator_core.durations import numbered
from coordinator_core.groups.model import OffsetKey
from coordinator_core.history.model import Certainty, GroupHistory, Member, Origin, OriginKind, Version

REGULAR = 3
"""Commits in a row from which an outsider that goes on commits by itself, and is no person's command."""
_MIRROR_PARTITIONS = 2
WITH_EPOCHS = 3
"""Value version from which commits can carry leader epochs."""
_CLIENTS = (
    ("connector-consumer-", OriginKind.CONNECT),
    ("-StreamThread-", OriginKind.STREAMS),
    ("spark-", OriginKind.SPARK),
    ("flink", OriginKind.FLINK),
)
_GROUPS = (
    ("connect-", OriginKind.CONNECT),
    ("spark-kafka-", OriginKind.SPARK),
    ("spark-executor-", OriginKind.SPARK),
    ("flink", OriginKind.FLINK),
)


def settle_origins(groups: Iterable[GroupHistory], transactional_ids: Mapping[int, str] | None = None) -> None:
    """Set the origin of every version; ``transactional_ids`` by producer id."""
    for group in groups:
        _settle(group)
        if not transactional_ids:
            continue
        for _, version in group.all_versions():
            origin = version.origin
            if origin is None or origin.producer_id is None:
                continue
            name = transactional_ids.get(origin.producer_id)
            if name is not None:
                why = origin.why.replace(f"producer {origin.producer_id}", f"transactional id {name}")
                version.origin = replace(origin, why=why, transactional_id=name)


def _settle(group: GroupHistory) -> None:
    for _, version in group.all_versions():
        if not version.had_members and group.changes and version.last_place.record_offset < group.cleaned_to:
            version.origin = cleaned(version.last.producer_id)
        elif version.had_members:
            version.origin = insider(group, version.generation, version.member, version.last.producer_id)
    bursts = _bursts(one for one in group.all_versions() if one[1].origin is None)
    for at, burst in enumerate(bursts):
        origin = _outsider(group, burst, bursts[max(at - REGULAR, 0) : at], len(bursts))
        for version in burst:
            version.origin = origin


def cleaned(producer_id: int | None = None) -> Origin:
    """Origin of a commit before the end of what the cleaner has removed, for a group that has had members."""
    why = "the cleaner has removed records of that time, perhaps those of the group's members"
    return Origin(OriginKind.MEMBER, Certainty.POSSIBLE, why, producer_id=producer_id)


def insider(
    group: GroupHistory, generation: int | None, member: Member | None, producer_id: int | None = None
) -> Origin:
    """Origin of a commit while the group had members; ``member`` was the only one, or owned the partition."""
    if member is None:
        why = "the group had members, and no assignment in the log names the partition's owner"
        return Origin(OriginKind.MEMBER, Certainty.LIKELY, why, producer_id=producer_id)
    kind = next((kind for part, kind in _CLIENTS if part in member.client_id.lower() or part in member.client_id), None)
    if kind is None and group.is_streams:
        kind = OriginKind.STREAMS
    why = f"member of generation {generation}: its only one, or the partition's owner"
    if producer_id is not None:
        why += f", in a transaction of producer {producer_id}"
    return Origin(
        kind or kind_of_group(group.group_id) or OriginKind.MEMBER, Certainty.LIKELY, why, member, producer_id
    )


def kind_of_group(group_id: str) -> OriginKind | None:
    """The client whose groups have such ids; ``None`` for no known one."""
    return next((kind for start, kind in _GROUPS if group_id.startswith(start)), None)


def _bursts(versions: Iterable[tuple[OffsetKey, Version]]) -> list[list[Version]]:
    """Commits by request: those of one have one time, or none (:func:`untimed_requests`)."""
    in_order = sorted(versions, key=lambda one: one[1].place.record_offset)
    numbers = untimed_requests(
        (version.place.record_offset, key) for key, version in in_order if version.place.timestamp_ms < 0
    )
    bursts: dict[tuple[int, int], list[Version]] = {}
    for _, version in in_order:
        time = version.place.timestamp_ms
        bursts.setdefault((time, next(numbers) if time < 0 else 0), []).append(version)
    return list(bursts.values())


def untimed_requests(commits: Iterable[tuple[int, Hashable]]) -> Iterator[int]:
    """The number of the request of each commit without a time, given as record offset and offset key in log order.

    Records of one request follow each other, and are of different offset keys.
    """
    number, following = -1, -1
    keys: set[Hashable] = set()
    for record_offset, key in commits:
        if record_offset != following or key in keys:
            number += 1
            keys.clear()
        keys.add(key)
        following = record_offset + 1
        yield number


class Request(NamedTuple):
    """Commits in one request for a group without members, outside transactions: what tells who made them.

    ``has_epochs``: some carry leader epochs; ``could_have``: all have a version that can. ``goes_on``: values of one
    of them are followed by more, or requests came at even distances before; ``is_followed``: some value is followed by
    another one of this writer. ``is_alone``: nothing else is known of the group.
    """

    partitions: int
    has_epochs: bool
    could_have: bool
    goes_on: bool
    is_followed: bool
    is_alone: bool


def outsider(known: OriginKind | None, request: Request) -> Origin:
    """Origin of a request; ``known`` is the kind that the group id tells of (:func:`kind_of_group`)."""
    if request.has_epochs:
        why = "the group had no members; the commits carry leader epochs, which a consumer learns by reading"
        return Origin(known or OriginKind.STANDALONE, Certainty.LIKELY, why)
    if known is not None and request.goes_on:
        return Origin(known, Certainty.POSSIBLE, f"the group had no members; its id begins as those of {known.value}")
    if request.goes_on and request.partitions >= _MIRROR_PARTITIONS and request.could_have:
        why = "the group had no members; several partitions at once, again and again, without leader epochs"
        return Origin(OriginKind.MIRROR, Certainty.POSSIBLE, why)
    if request.goes_on or request.is_followed:
        why = "the group had no members; commits that go on by themselves, without leader epochs"
        return Origin(OriginKind.STANDALONE, Certainty.LIKELY, why)
    sure = Certainty.LIKELY if not request.is_alone or request.partitions > 1 else Certainty.POSSIBLE
    at_once = numbered(request.partitions, "partition")
    why = f"the group had no members; {at_once} at once, without leader epochs, and not again"
    return Origin(OriginKind.ADMIN, sure, why)


def _outsider(group: GroupHistory, burst: Sequence[Version], before: Sequence[Sequence[Version]], total: int) -> Origin:
    known, producer_id = kind_of_group(group.group_id), burst[0].last.producer_id
    if producer_id is not None:
        why = f"the group had no members; transaction of producer {producer_id}"
        return Origin(known or OriginKind.STANDALONE, Certainty.LIKELY, why, producer_id=producer_id)
    most = max(version.commits for version in burst)
    return outsider(
        known,
        Request(
            len(burst),
            any(version.last.leader_epoch is not None for version in burst),
            all(version.last.value_version >= WITH_EPOCHS for version in burst),
            most >= REGULAR or _is_regular(before, burst),
            most > 1,
            not group.changes and not before and total == 1,
        ),
    )


def _is_regular(before: Sequence[Sequence[Version]], burst: Sequence[Version]) -> bool:
    """Whether the last requests came at even distances, and moved nothing back."""
    times = [one[0].place.timestamp_ms for one in before[-REGULAR:]] + [burst[0].place.timestamp_ms]
    if len(times) <= REGULAR or times[0] < 0:
        return False
    steps = [after - earlier for earlier, after in itertools.pairwise(times)]
    return not (min(steps) <= 0 or max(steps) > 2 * min(steps))
