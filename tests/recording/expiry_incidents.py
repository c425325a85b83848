"""Incidents of time and of the broker: offsets that expire, transactions that hang, coordinators that move.

Groups wait together: of an offset that expires a minute after its commit, all begin before any is looked at. A play is
a generator that stops where it waits, and is resumed once the time has come.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from tests.recording.script import ConsumerMember, settle
from tests.recording.stage import BOTH, ORDERS, Play, Programme, Stage

ALL = [("orders", number) for number in range(4)]
SOUND = "sound-"
RETENTION_SECONDS = 60
WEEK = {"offsets.retention.minutes": "10080", "offsets.retention.check.interval.ms": "86400000"}
_MINUTE = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"}


def in_turns(programme: Programme, stage: Stage, plays: list[tuple[str, Play]]) -> None:
    """Each play up to where it waits, then each a bit further, until all are through."""
    found = []
    for one in programme.incidents:
        for broken in (True, False):
            play = Play(stage, one.group if broken else SOUND + one.group, broken=broken)
            plays.append((one.id, play))
            waiting: Any = one.play(play)
            found.append((play, waiting))
    while found:
        still = []
        for play, waiting in found:
            if next(waiting, "through") != "through":
                still.append((play, waiting))
        found = still


def _gone(play: Play, *offsets: tuple[str, int]) -> None:
    """The sweep has come, and has taken these."""
    play.stage.until_gone(*((play.group, *one) for one in offsets))


def _old(seconds: float, since: float) -> None:
    """Wait for an age, which nothing but time brings."""
    time.sleep(max(0.0, since + seconds - time.monotonic()))


# A retention of one minute, Kafka 4.3.1

MINUTE = Programme()


@MINUTE.add(
    "stopped-for-longer-than-the-retention",
    "offsets-expired",
    like="strimzi-7135",
    cause="expiry",
    records=("offset tombstone",),
    says=("4 committed offsets", "a group without members", "the retention is 1 min", "4 partitions were read again"),
)
def inactive(play: Play) -> Iterator[None]:
    """The group's consumers are stopped for longer than the retention, and begin at the start; of the twin they stay,
    and commit nothing for as long."""
    member = play.joins("billing-1")
    play.reads(member, range(100, 140, 10))
    if play.broken:
        with play.fault("billing-1 leaves, and the retention passes"):
            member.leave()
            yield
            _gone(play, *ALL)
        member = play.joins("billing-2")
    else:
        yield
        assert play.has_offset("orders", 0), "an offset of an active group expired"
    play.reads(member, range(10, 50, 10) if play.broken else range(140, 180, 10))


@MINUTE.add(
    "report-that-ended",
    "offsets-expired",
    like="strimzi-7135",
    cause="expiry",
    records=("offset tombstone",),
    says=("4 committed offsets", "the group became Empty"),
)
def ended(play: Play) -> Iterator[None]:
    """Nobody comes again; the twin's member is back in time."""
    member = play.joins("report")
    play.reads(member, range(100, 140, 10))
    with play.fault("report leaves, and the retention passes"):
        member.leave()
        if play.broken:
            yield
            _gone(play, *ALL)
    if not play.broken:
        play.reads(play.joins("report-2"), range(140, 180, 10))


@MINUTE.add(
    "modern-group-stopped",
    "offsets-expired",
    cause="expiry",
    records=("offset tombstone",),
    says=("1 committed offset", "read again"),
)
def modern(play: Play) -> Iterator[None]:
    """The same of a KIP-848 group."""
    member = ConsumerMember(play.stage, play.group, "modern-1", ["orders"])
    settle(member)
    with play.act("the member commits"):
        member.commit(("orders", 0, 100, ""))
    if play.broken:
        with play.fault("modern-1 leaves, and the retention passes"):
            member.leave()
            yield
            _gone(play, ("orders", 0))
        member = ConsumerMember(play.stage, play.group, "modern-2", ["orders"])
        settle(member)
    with play.act("a member commits"):
        member.commit(("orders", 0, 10 if play.broken else 120, ""))


@MINUTE.add(
    "subscription-dropped",
    "offsets-expired",
    like="subscription-dropped",
    cause="expiry",
    records=("offset tombstone",),
    says=("2 committed offsets", "no member subscribed to payments", "2 partitions were read again"),
)
def dropped(play: Play) -> Iterator[None]:
    """A release does not subscribe to payments for longer than the retention."""
    payments = [("payments", 0), ("payments", 1)]
    member = play.joins("billing-1", BOTH)
    play.reads(member, range(100, 140, 10))
    member.topics = ORDERS if play.broken else BOTH
    with play.fault("the member joins without payments, and the retention passes"):
        member.join()
        yield
        if play.broken:
            _gone(play, *payments)
    member.topics = BOTH
    with play.act("the member joins with both topics"):
        member.join()
    with play.act("the member goes on, in payments from auto.offset.reset"):
        for step in range(0, 40, 10):
            start = 10 if play.broken else 140
            member.commit(*((*one, 140 + step, "") for one in ALL), *((*one, start + step, "") for one in payments))


@MINUTE.add(
    "standalone-stopped",
    "offsets-expired",
    cause="expiry",
    records=("offset tombstone",),
    says=("4 committed offsets", "committed 1 min before", "read again"),
)
def standalone(play: Play) -> Iterator[None]:
    """Offsets of a consumer with assign() age from their commits."""
    for value in (100, 120, 140):
        with play.act(f"a standalone consumer commits {value}"):
            play.commits(*((*one, value, "") for one in ALL), leader_epoch=0)
    if play.broken:
        with play.fault("nobody commits, and the retention passes"):
            yield
            _gone(play, *ALL)
    with play.act("it begins anew"):
        play.commits(*((*one, 5 if play.broken else 160, "") for one in ALL), leader_epoch=0)


@MINUTE.add(
    "retention-of-the-request",
    "offsets-expired",
    cause="expiry",
    records=("offset tombstone",),
    says=("2 committed offsets", "its own expire timestamp"),
)
def explicit(play: Play) -> Iterator[None]:
    """An old client asks for a retention of its own, of two seconds."""
    with play.act("commits of payments, with the retention of the broker"):
        play.commits(("payments", 0, 7, ""), ("payments", 1, 7, ""))
    retention_ms = 2000 if play.broken else 3_600_000
    with play.fault("commits of orders, with a retention of the request"):
        play.stage.commit(
            play.group, ("orders", 0, 100, ""), ("orders", 1, 100, ""), version=4, retention_ms=retention_ms
        )
        if play.broken:
            _gone(play, ("orders", 0), ("orders", 1))
    yield from ()


@MINUTE.add(
    "deleted-during-sweeps",
    "offsets-deleted",
    cause="DeleteGroups",
    records=("offset tombstone",),
    says=("4 committed offsets", "DeleteGroups"),
)
def deleted(play: Play) -> Iterator[None]:
    """A group is deleted in the seconds in which offsets of others expire; its own are too young."""
    yield
    member = play.joins("billing-1")
    play.reads(member, range(100, 140, 10))
    if play.broken:
        play.leaves(member)
        with play.fault("DeleteGroups"):
            play.stage._delete_groups(play.group)


# Kafka 1.0.2, where offsets of active groups expire (KIP-211)

BEFORE_KIP_211 = Programme()


@BEFORE_KIP_211.add(
    "quiet-topic",
    "offsets-expired-while-active",
    like="sixt-missing-offsets",
    cause="expiry",
    records=("offset tombstone",),
    says=("4 committed", "active group", "KIP-211", "read again"),
    bug="KIP-211",
)
def quiet(play: Play) -> Iterator[None]:
    """The member stays and commits nothing, as its topic is quiet; the twin commits what it has again."""
    member = play.joins("billing-1")
    with play.act("billing-1 commits 5000"):
        member.goes_to(5000)
    if play.broken:
        with play.fault("the member stays, and the retention passes"):
            yield
            _gone(play, *ALL)
        with play.act("billing-1 is restarted"):
            member.leave()
            member.comes_again()
            member.join()
        play.reads(member, range(12, 60, 12))
        return
    began = time.monotonic()
    while time.monotonic() < began + RETENTION_SECONDS + 20:
        with play.act("billing-1 commits what it has"):
            member.goes_to(5000)
        _old(10, time.monotonic())
    yield from ()


# Kafka 2.8.1

REBALANCE = Programme()


@REBALANCE.add(
    "hanging-transaction",
    "hanging-transaction",
    like="KAFKA-9144",
    records=("transactional commit",),
    says=("1 committed offset of hanging-transaction",),
)
def hanging(play: Play) -> Iterator[None]:
    """Offsets come into a transaction whose coordinator does not know of it: no marker is ever written. Brokers before
    3.6 do not verify that (KIP-890)."""
    stage, group = play.stage, play.group
    stage.find_coordinator(group, 1)
    session = stage.session
    found = session.ask("InitProducerId", {"transactionalId": group, "transactionTimeoutMs": 60_000}, 1)
    producer = {"transactionalId": group, "producerId": found["producerId"], "producerEpoch": found["producerEpoch"]}
    row = {"partitionIndex": 0, "committedOffset": 100, "committedMetadata": ""}
    with play.fault("TxnOffsetCommit without AddOffsetsToTxn"):
        if not play.broken:
            session.ask("AddOffsetsToTxn", {**producer, "groupId": group}, 1)
        body = {**producer, "groupId": group, "topics": [{"name": "orders", "partitions": [row]}]}
        session.ask("TxnOffsetCommit", body, 2)
        if not play.broken:
            session.ask("EndTxn", {**producer, "committed": True}, 1)
    began = time.monotonic()
    yield
    yield
    if play.broken:
        # transaction.max.timeout.ms, a quarter of an hour, and a bit.
        _old(920, began)
    with play.act("another commit, later"):
        play.commits(("payments", 0, 1, ""))


@REBALANCE.add(
    "sweep-in-a-rebalance",
    "offsets-expired-while-active",
    like="KAFKA-13636",
    cause="expiry",
    records=("offset tombstone",),
    says=("4 committed", "rebalancing", "KAFKA-13636", "read again"),
    bug="KAFKA-13636",
)
def sweep_in_rebalance(play: Play) -> Iterator[None]:
    """The group is Empty for a moment only, when its commits are older than the retention already; the twin's are
    younger."""
    member = play.joins("billing-1")
    play.reads(member, range(100, 140, 10))
    began = time.monotonic()
    yield
    _old(RETENTION_SECONDS + 5, began)
    if not play.broken:
        play.reads(member, range(140, 150, 10))
    play.leaves(member)
    again = play.member("billing-2")
    with play.fault("billing-2 joins; the coordinator waits for more members, and sweeps"):
        again.join()
    assert play.has_offset("orders", 0) != play.broken
    play.reads(again, range(10, 50, 10) if play.broken else range(150, 190, 10))


@REBALANCE.add(
    "assign-only-deleted",
    "offsets-deleted",
    group="assigned",
    like="burrow-818",
    cause="DeleteGroups",
    records=("offset tombstone",),
    says=("gone for the broker", "no tombstone of its own"),
)
def assign_only(play: Play) -> Iterator[None]:
    """The Scala coordinator writes no tombstone for a group that never had a member."""
    for value in range(100, 150, 10):
        with play.act(f"a standalone consumer commits {value}"):
            play.commits(*((*one, value, "") for one in ALL), leader_epoch=0)
    if play.broken:
        with play.fault("DeleteGroups"):
            play.stage._delete_groups(play.group)
    yield from ()


# A broker that restarts again and again, Kafka 4.3.1

RESTARTS = Programme()
_RESTARTS = 7
_PARTITIONS_AFTER = 7


@RESTARTS.add(
    "unsteady-broker",
    "coordinator-moves",
    group="orders-service",
    like="unsteady-coordinator",
    records=("commit",),
    says=("7 times", "leader epoch 0 to"),
)
def unsteady(play: Play) -> Iterator[None]:
    """The broker dies again and again; the twin's offsets partition is written to before and after all that only."""
    with play.act("a commit before"):
        play.commits(*((*one, 100, "") for one in ALL), leader_epoch=0)
    yield
    if not play.broken:
        for _ in range(_RESTARTS - 1):
            yield
    with play.fault("a commit after each restart"):
        for turn in range(_RESTARTS if play.broken else 1):
            play.commits(*((*one, 110 + turn, "") for one in ALL), leader_epoch=0)
            if play.broken and turn < _RESTARTS - 1:
                yield


@RESTARTS.add(
    "offsets-topic-grows",
    "group-in-two-partitions",
    group="shipping",
    like="KIP-895",
    records=("commit",),
    says=("KIP-895", "has the newest records"),
)
def split(play: Play) -> Iterator[None]:
    """The twin's group id has the same partition of five as of seven."""
    with play.fault("a commit before __consumer_offsets gets more partitions, and one after"):
        play.commits(*((*one, 4000, "") for one in ALL), leader_epoch=0)
        for _ in range(_RESTARTS):
            yield
        play.commits(*((*one, 10 if play.broken else 4100, "") for one in ALL), leader_epoch=0)


_TWINS = {"orders-service": "catalog", "shipping": "mail"}
"""Each alone in its offsets partitions, and all but shipping in the same one of five and of seven."""


def restarting(programme: Programme, stage: Stage, plays: list[tuple[str, Play]]) -> None:
    """All plays, between each two turns a restart; before the last one the offsets topic gets more partitions."""
    found: list[Any] = []
    for one in programme.incidents:
        for broken in (True, False):
            group = one.group if broken else _TWINS[one.group]
            play = Play(stage, group, broken=broken)
            plays.append((one.id, play))
            found.append(one.play(play))
    for turn in range(_RESTARTS + 1):
        for each in found:
            next(each, None)
        if turn < _RESTARTS:
            if turn == _RESTARTS - 1:
                _add_partitions(stage)
            stage.broker.kill()
            stage.broker.start()
            stage.again()


def _add_partitions(stage: Stage) -> None:
    words = ("--alter", "--topic", "__consumer_offsets", "--partitions", str(_PARTITIONS_AFTER))
    stage.tool("org.apache.kafka.tools.TopicCommand", *words)


_SLOWLY = {
    **_MINUTE,
    # A group that somebody is about to join is not swept, and one that waits for members is.
    "offsets.retention.check.interval.ms": "4000",
    "group.initial.rebalance.delay.ms": "9000",
    "connections.max.idle.ms": "3600000",
}
LOGS: Sequence[tuple[Any, ...]] = (
    ("expiry-4.3.1", "4.3.1", MINUTE, in_turns, _MINUTE),
    ("expiry-1.0.2", "1.0.2", BEFORE_KIP_211, in_turns, _MINUTE, False),
    ("rebalance-2.8.1", "2.8.1", REBALANCE, in_turns, _SLOWLY, False),
    ("restarts-4.3.1", "4.3.1", RESTARTS, restarting, WEEK),
)
"""Arguments of :class:`tests.recording.incidents.LogOf`."""
