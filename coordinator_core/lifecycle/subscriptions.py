"""Topics to which a group's members subscribe, as far as the coordinator knows it from the log."""

from __future__ import annotations

from typing import Any

from coordinator_core.groups.model import ClassicGroup, ConsumerGroup, Group, StreamsGroup
from coordinator_core.records.blobs import CONSUMER_PROTOCOL_TYPE, decode_consumer_subscription
from coordinator_core.records.codec import RecordDecodeError

_VERSION_0 = b"\x00\x00"


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """Topics that the group's members subscribe to; ``None`` where the coordinator does not know.

    It knows them of classic groups of protocol type ``consumer`` whose subscriptions it can read
    (``computeSubscribedTopics``), of consumer groups (names, and all resolved regular expressions), and of
    streams groups (source and repartition source topics of the topology). A topic that no name and no
    resolved expression gives counts as not subscribed. Share groups are not asked.
    """
    match group:
        case ClassicGroup():
            return _of_classic_group(group)
        case ConsumerGroup():
            names = {topic for member in group.members.values() for topic in member.subscribed_topics}
            return frozenset(names.union(*(regex.topics for regex in group.regexes.values())))
        case StreamsGroup():
            # An Empty group subscribes to nothing, even with a topology left.
            return frozenset(_source_topics(group.topology) if group.members and group.topology else ())
        case _:
            return None


def _of_classic_group(group: ClassicGroup) -> frozenset[str] | None:
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    if group.members and group.protocol is None:
        return None
    try:
        return frozenset(topic for member in group.members for topic in known_topics(member.subscription))
    except RecordDecodeError:
        return None


def known_topics(subscription: bytes) -> list[str]:
    """Topics of the subscription of a ``consumer`` member; ``RecordDecodeError`` for one that cannot be read.

    The coordinator reads every version of a subscription as version 0. Later versions only append fields.
    """
    if len(subscription) < len(_VERSION_0):
        raise RecordDecodeError(0, "a subscription begins with its version")
    topics: list[str] = decode_consumer_subscription(_VERSION_0 + subscription[2:])["topics"]
    return topics


def _source_topics(topology: dict[str, Any]) -> list[str]:
    """``StreamsTopology.computeSourceTopicMap``."""
    return [
        topic
        for subtopology in topology["subtopologies"]
        for topic in (*subtopology["sourceTopics"], *(info["name"] for info in subtopology["repartitionSourceTopics"]))
    ]
