"""Incidents of releases whose coordinators stumble over what they have written, and of mirrors that go back."""

from __future__ import annotations

from tests.recording.script import ConsumerMember, StreamsMember, settle
from tests.recording.stage import Play, Programme

ALL = [("orders", number) for number in range(4)]

# Kafka 4.2.0

STREAMS = Programme()


@STREAMS.add(
    "streams-over-simple",
    "load-at-risk",
    like="KAFKA-20254",
    records=("streams member",),
    says=("not a streams group", "At rest the log is sound", "4.2.1"),
    bug="KAFKA-20254",
)
def streams_over_simple(play: Play) -> None:
    """A group id with commits of a client without a group becomes that of a Streams application."""
    with play.fault("commits without members, then members of a streams group"):
        if play.broken:
            play.commits(*((*key, 4, "") for key in ALL))
        settle(StreamsMember(play.stage, play.group, "streams-a"))


# Kafka 4.0.1

HANDOVER = Programme()


@HANDOVER.add(
    "partitions-change-hands",
    "load-at-risk",
    like="KAFKA-19862",
    records=("current assignment",),
    says=("the cleaner runs", "At rest the log is sound"),
    bug="KAFKA-19862",
)
def handover(play: Play) -> None:
    """Partitions go to another member, and the record by which the first one gave them up is replaced later."""
    with play.fault("a second member takes partitions of the first one, and a third one comes"):
        first = ConsumerMember(play.stage, play.group, "first", ["orders"])
        settle(first)
        if play.broken:
            second = ConsumerMember(play.stage, play.group, "second", ["orders"])
            settle(first, second)
            third = ConsumerMember(play.stage, play.group, "third", ["orders"])
            settle(first, second, third)


# Kafka 2.4.1

MIRROR = Programme()


@MIRROR.add(
    "mirror-goes-back",
    "mirror-translates-back",
    like="KAFKA-12468",
    records=("commit",),
    says=("MirrorMaker", "go back"),
    bug="KAFKA-12468",
)
def mirror(play: Play) -> None:
    """A sync of group offsets translates them, and after its restart to older ones."""
    for value in range(1000, 1120, 10):
        play.commits(*((*key, value, "") for key in ALL))
    with play.fault("the sync was restarted"):
        for value in range(400, 520, 10) if play.broken else range(1120, 1240, 10):
            play.commits(*((*key, value, "") for key in ALL))
