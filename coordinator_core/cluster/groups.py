"""Answers of the coordinators about their groups: ``groups.json``, for comparison with the replayed log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kafka.protocol.admin import DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.consumer import OffsetFetchRequest

from coordinator_core.cluster.client import (
    RETRIABLE,
    Client,
    by_broker,
    check_answered,
    error_name,
)
from coordinator_core.cluster.errors import ClusterError, MissingAclError
from coordinator_core.coordinator.errors import Errors
from coordinator_core.drill.canaries import canaries
from coordinator_core.durations import clock_ms
from coordinator_core.groups.hashing import partition_for
from coordinator_core.groups.model import GroupState
from coordinator_core.log.types import OFFSETS_TOPIC
from coordinator_core.topology import TopicInfo

Json = dict[str, Any]
OffsetKeys = Mapping[str, Sequence[tuple[str, int]]]
"""Topics and partitions by group id."""

GROUPS_PER_REQUEST = 100
NO_OFFSET = -1
"""``OffsetFetchResponse.INVALID_OFFSET``; other committed offsets below 0 are answered as they are."""
_BATCHED_VERSION = 8
OFFSET_FETCH_VERSION = 9
_STABLE_VERSION = 7
_DESCRIBE_VERSION = 5
_STATES = {state.lower(): state.value for state in GroupState}
"""The new coordinator of 3.7 answers in lower case."""
_BEHIND = (
    "; if it leads the partition, it has not loaded it (regroup capture and regroup rescue tell why), its log is not"
    " replicated, or it has not heard of that since an election: then a commit of any group in this partition helps"
)
"""A coordinator of Kafka 4 answers a fetch of stable offsets once all that it has loaded and written is below the high
watermark (``CoordinatorRuntime.scheduleWriteOperation``), and after ``offsets.commit.timeout.ms`` with NOT_COORDINATOR
(``GroupCoordinatorService.handleOffsetFetchException``). One that the high watermark reached just before it listened
(``CoordinatorContext.transitionTo``) is not told again until the next write; so were 2 of 600 that were elected."""


def ask_groups(client: Client, info: TopicInfo, expected: OffsetKeys, *, only_expected: bool = False) -> Json:
    """Every group that the coordinators list or that is ``expected``, with state, members and offsets.

    ``expected`` are the offset keys that the replayed log has: they are asked for by name, because
    coordinators leave out of lists what the principal may not see. ``MissingAclError`` names the group or topic.
    """
    at = clock_ms()
    offsets: dict[str, list[Json]] = {}

    def ask_offsets(broker: int, part: list[str]) -> dict[str, int]:
        return _offsets(client, broker, part, offsets, expected)

    # First those that are expected: once a coordinator answers it has loaded, and lists them. Lists leave out the
    # groups of other coordinators without an error.
    info = ask_coordinators(client, info, sorted(expected), ask_offsets)
    listed = _listed(client)
    groups: dict[str, Json] = {}
    for group_id in sorted({*expected} if only_expected else {*listed, *expected}):
        groups[group_id] = {
            "group_id": group_id,
            "type": None,
            "protocol_type": None,
            "state": None,
            "listed": group_id in listed,
            "members": None,
            **listed.get(group_id, {}),
        }
    classic = [group_id for group_id, group in groups.items() if group["type"] in (None, "classic")]
    info = ask_coordinators(client, info, classic, lambda broker, part: _describe(client, broker, part, groups))
    ask_coordinators(client, info, [group_id for group_id in groups if group_id not in expected], ask_offsets)
    for group_id, group in groups.items():
        group["offsets"] = sorted(offsets[group_id], key=lambda row: (row["topic"], row["partition"]))
    return {"captured_at_ms": at, "finished_at_ms": clock_ms(), "groups": list(groups.values())}


def require_loaded(client: Client, info: TopicInfo) -> None:
    """Wait until each offsets partition has a coordinator that has loaded it: only then lists have all groups.

    Asked are groups that are not there. Where they may not be described nothing is known. ``ClusterError`` names the
    partition.
    """
    made_up = canaries("none", [each.partition for each in info.partitions], len(info.partitions))

    def ask(broker: int, part: list[str]) -> dict[str, int]:
        answer = client.ask(lambda: DescribeGroupsRequest(groups=part, max_version=_DESCRIBE_VERSION), broker)
        return {found.group_id: found.error_code for found in answer.groups if found.error_code in RETRIABLE}

    try:
        ask_coordinators(client, info, [each.group_id for each in made_up], ask)
    except ClusterError as error:
        raise ClusterError(f"not all groups can be listed, name some (--group): {error}") from None


def _listed(client: Client) -> dict[str, Json]:
    """Groups of every broker that is alive; asked again while one of them is loading."""
    found: dict[str, Json] = {}

    def one(broker: int, _: list[int]) -> None:
        def attempt() -> bool | None:
            answer = client.ask(lambda: ListGroupsRequest(states_filter=[], types_filter=[], max_version=5), broker)
            if answer.error_code in RETRIABLE:
                return None
            if answer.error_code:
                raise ClusterError(f"broker {broker}: listing groups: {error_name(answer.error_code)}")
            for group in answer.groups:
                found[group.group_id] = {
                    "type": (group.group_type or "").lower() or None,
                    "protocol_type": group.protocol_type,
                    "state": _state(group.group_state),
                }
            return True

        client.until_settled(attempt, f"groups of broker {broker}")

    nodes, _ = client.brokers()
    by_broker({node.broker_id: node.broker_id for node in nodes}, one)
    return found


def _state(told: str | None) -> str | None:
    """The state of a group by the name that Kafka's tools print; ``None`` where the release lists none."""
    return _STATES.get(told.lower(), told) if told else None


def ask_coordinators(
    client: Client, info: TopicInfo, group_ids: Sequence[str], ask: Callable[[int, list[str]], Mapping[str, int]]
) -> TopicInfo:
    """Send groups to the brokers that lead their offsets partitions, again when those move or load.

    ``ask(broker, its groups)`` returns the groups to be asked for again, with the error code of each. Returns the
    offsets topic as it was last. ``ClusterError`` names a group without an answer, and the error of its coordinator.
    """
    left = list(group_ids)
    unanswered = ""

    def attempt() -> bool | None:
        nonlocal left, unanswered, info
        leaders = {each.partition: each.leader for each in info.partitions}
        brokers = {group_id: leaders[partition_for(group_id, len(leaders))] for group_id in left}
        again = {group_id: int(Errors.LEADER_NOT_AVAILABLE) for group_id, broker in brokers.items() if broker < 0}

        def one(broker: int, part: list[str]) -> None:
            for first in range(0, len(part), GROUPS_PER_REQUEST):
                again.update(ask(broker, part[first : first + GROUPS_PER_REQUEST]))

        by_broker(brokers, one)
        left = list(again)
        if not left:
            return True
        more = f" (and {len(left) - 1} more)" if len(left) > 1 else ""
        place = f"{OFFSETS_TOPIC}-{partition_for(left[0], len(leaders))}, broker {brokers[left[0]]}"
        unanswered = f"group {left[0]!r} ({place}): {waiting_text(again[left[0]])}{more}"
        info = client.topic(OFFSETS_TOPIC)
        return None

    client.until_settled(attempt, "answers of the coordinators", lambda: unanswered)
    return info


def waiting_text(code: int) -> str:
    """The answer of a coordinator that is to be asked again, and a remedy."""
    return error_name(code) + (_BEHIND if code == Errors.NOT_COORDINATOR else "")


def _describe(client: Client, broker: int, group_ids: list[str], groups: dict[str, Json]) -> dict[str, int]:
    again = {}
    answer = client.ask(lambda: DescribeGroupsRequest(groups=group_ids, max_version=_DESCRIBE_VERSION), broker)
    check_answered(broker, "groups", group_ids, [found.group_id for found in answer.groups])
    for found in answer.groups:
        group = groups[found.group_id]
        if found.error_code in RETRIABLE:
            again[found.group_id] = found.error_code
        elif found.error_code == Errors.GROUP_AUTHORIZATION_FAILED:
            raise _missing_group(found.group_id)
        elif found.error_code not in (0, Errors.GROUP_ID_NOT_FOUND):
            raise ClusterError(f"describing group {found.group_id!r}: {error_name(found.error_code)}")
        elif (state := _state(found.group_state)) != GroupState.DEAD and not found.error_code:
            group["state"] = group["state"] or state
            group["protocol_type"] = found.protocol_type
            group["members"] = len(found.members)
    return again


def _offsets(
    client: Client, broker: int, group_ids: list[str], offsets: dict[str, list[Json]], expected: OffsetKeys
) -> dict[str, int]:
    """Committed offsets: all that a group has, and those expected; which of them are unstable."""
    again: dict[str, int] = {}
    rows: dict[str, dict[tuple[str, int], Json]] = {group_id: {} for group_id in group_ids}
    version = client.max_version(OffsetFetchRequest(max_version=OFFSET_FETCH_VERSION))
    for everything in (True, False):
        asked: OffsetKeys = {group_id: () if everything else expected.get(group_id, ()) for group_id in group_ids}
        for group_id, code, topics in fetched_offsets(client, broker, asked, everything, version):
            if code in RETRIABLE:
                again[group_id] = code
            elif code == Errors.GROUP_AUTHORIZATION_FAILED:
                raise _missing_group(group_id)
            elif code not in (0, Errors.GROUP_ID_NOT_FOUND):
                raise ClusterError(f"offsets of group {group_id!r}: {error_name(code)}")
            for topic in topics:
                for partition in topic.partitions:
                    offset_key = topic.name, partition.partition_index
                    _note(rows[group_id], offset_key, partition, again, group_id)
    for group_id in group_ids:
        if group_id not in again:
            offsets[group_id] = [
                row for row in rows[group_id].values() if row["committed_offset"] is not None or row["pending"]
            ]
    return again


def _note(
    rows: dict[tuple[str, int], Json], offset_key: tuple[str, int], answer: Any, again: dict[str, int], group_id: str
) -> None:
    code = answer.error_code
    row = rows.setdefault(
        offset_key,
        {
            "topic": offset_key[0],
            "partition": offset_key[1],
            "committed_offset": None,
            "leader_epoch": None,
            "metadata": None,
            "pending": False,
        },
    )
    if code == Errors.TOPIC_AUTHORIZATION_FAILED:
        raise MissingAclError("Describe", f"Topic:{offset_key[0]}", f"reading the offsets of group {group_id!r}")
    if code == Errors.UNSTABLE_OFFSET_COMMIT:
        row["pending"] = True
    elif code in RETRIABLE and code != Errors.UNKNOWN_TOPIC_OR_PARTITION:
        again[group_id] = code
    elif code not in (0, Errors.UNKNOWN_TOPIC_OR_PARTITION):
        raise ClusterError(f"offset of group {group_id!r}, {offset_key[0]}-{offset_key[1]}: {error_name(code)}")
    elif not code and answer.committed_offset != NO_OFFSET:
        epoch = answer.committed_leader_epoch
        row["committed_offset"] = answer.committed_offset
        row["leader_epoch"] = epoch if epoch is not None and epoch >= 0 else None
        row["metadata"] = answer.metadata


def fetched_offsets(
    client: Client, broker: int, asked: OffsetKeys, everything: bool, version: int, *, patience: float | None = None
) -> Iterable[tuple[str, int, Any]]:
    """Group id, error code and topics of groups that are all asked of one broker.

    Everything is asked as it stands, offset keys by name must be stable. ``version`` is that of OffsetFetch,
    ``patience`` as in :meth:`Client.ask`. ``ClusterError`` for an answer that is not about what was asked.
    """
    asked = {group_id: offset_keys for group_id, offset_keys in asked.items() if everything or offset_keys}
    if not asked:
        return
    stable = not everything
    if version >= _BATCHED_VERSION:
        kind = OffsetFetchRequest.OffsetFetchRequestGroup
        groups = [
            kind(group_id=group_id, topics=None if everything else _topics(kind.OffsetFetchRequestTopics, offset_keys))
            for group_id, offset_keys in asked.items()
        ]
        answer = client.ask(
            lambda: OffsetFetchRequest(groups=groups, require_stable=stable, max_version=OFFSET_FETCH_VERSION),
            broker,
            patience=patience,
        )
        check_answered(broker, "offsets of groups", asked, [group.group_id for group in answer.groups])
        for group in answer.groups:
            if not everything and not group.error_code:
                _check_offsets(broker, group.group_id, asked[group.group_id], group.topics)
            yield group.group_id, group.error_code, group.topics
        return
    for group_id, offset_keys in asked.items():
        topics = None if everything else _topics(OffsetFetchRequest.OffsetFetchRequestTopic, offset_keys)
        extra = {"require_stable": stable} if version >= _STABLE_VERSION else {}
        answer = client.ask(
            lambda group_id=group_id, topics=topics, extra=extra: OffsetFetchRequest(  # type: ignore[misc]
                group_id=group_id, topics=topics, max_version=version, **extra
            ),
            broker,
            patience=patience,
        )
        if not everything and not answer.error_code:
            _check_offsets(broker, group_id, offset_keys, answer.topics)
        yield group_id, answer.error_code, answer.topics


def _check_offsets(broker: int, group_id: str, asked: Iterable[tuple[str, int]], topics: Iterable[Any]) -> None:
    answered = {(topic.name, each.partition_index) for topic in topics for each in topic.partitions}
    check_answered(broker, f"offsets of group {group_id!r}", set(asked), answered)


def _topics(kind: Any, offset_keys: Iterable[tuple[str, int]]) -> list[Any]:
    found: dict[str, list[int]] = {}
    for topic, partition in offset_keys:
        found.setdefault(topic, []).append(partition)
    return [kind(name=topic, partition_indexes=partitions) for topic, partitions in found.items()]


def _missing_group(group_id: str) -> MissingAclError:
    return MissingAclError("Describe", f"Group:{group_id}", "reading the group and its offsets")
