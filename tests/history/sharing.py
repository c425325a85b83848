"""Incidents of who owned and committed what: of kinds that people ask about, each with a clean twin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.history.further import TOPIC_ID
from tests.history.incidents import GROUP, ORDERS, Incident, member, reads, topics
from tests.history.logs import HOUR, MINUTE, Client, Log

FIRST, SECOND = ORDERS[:2], ORDERS[2:]
PAYMENTS = (("payments", 0), ("payments", 1))


def guest(directory: Path, broken: bool) -> Path:
    """Somebody runs kafka-console-consumer with the group id of production, for six minutes."""
    client, host = ("console-consumer", "/192.168.7.31") if broken else ("consumer-2", "/10.0.0.2")
    log = reads(Log().generation(GROUP, 1, member()), GROUP, range(100, 400, 10))
    log.wait(1000).generation(GROUP, 2, member(*FIRST), member(*SECOND, member="x-1", client_id=client, host=host))
    for value in range(6):
        log.wait(MINUTE).commit(GROUP, dict.fromkeys(FIRST, 400 + value))
        log.commit(GROUP, dict.fromkeys(SECOND, 500 + 100 * value))
    log.wait(MINUTE).generation(GROUP, 3, member())
    for value in range(30):
        log.wait(MINUTE).commit(GROUP, dict.fromkeys(FIRST, 410 + value)).commit(
            GROUP, dict.fromkeys(SECOND, 1010 + 10 * value)
        )
    return log.write(directory)


def two_owners(directory: Path, broken: bool) -> Path:
    """A sticky assignor gives a partition to two members that both claim it."""
    a, b = {"member": "a-1", "host": "/10.0.0.1"}, {"member": "b-1", "host": "/10.0.0.2"}
    log = Log().generation(GROUP, 1, member(*FIRST, **a), member(*SECOND, **b))
    reads(log, GROUP, range(100, 110))
    second = ORDERS[1:] if broken else SECOND
    log.generation(GROUP, 2, member(*FIRST, **a), member(*second, **b))
    for value in range(30):
        log.wait(MINUTE).commit(GROUP, dict.fromkeys(FIRST, 110 + 10 * value))
        log.wait(5000).commit(GROUP, dict.fromkeys(second, 112 + 10 * value))
    return log.write(directory)


def uneven(directory: Path, broken: bool) -> Path:
    """Range, and ten topics of one partition each: the first member has them all."""
    names = tuple(f"t{number}" for number in range(10))
    keys = tuple((name, 0) for name in names)
    shares = [keys, (), (), (), ()] if broken else [keys[at::5] for at in range(5)]
    clients = [
        Client(f"c-{at}", topics=names, partitions=share, client_id=f"consumer-{at}", host=f"/10.0.0.{at}")
        for at, share in enumerate(shares)
    ]
    log = Log().generation(GROUP, 1, *clients)
    for value in range(30):
        log.wait(MINUTE)
        for share in filter(None, shares):
            log.commit(GROUP, dict.fromkeys(share, 100 + value))
    return log.write(directory)


def unsubscribed(directory: Path, broken: bool) -> Path:
    """A deployment drops a topic from the list; its lag grows, and an alarm rings for it."""
    both = ("orders", "payments")
    log = Log().generation(GROUP, 1, Client("c-1", topics=both, partitions=(*ORDERS, *PAYMENTS)))
    reads(log, GROUP, range(100, 120), keys=(*ORDERS, *PAYMENTS))
    if broken:
        log.generation(GROUP, 2, Client("c-2", partitions=ORDERS))
        return reads(log, GROUP, range(200, 260)).write(directory)
    log.generation(GROUP, 2, Client("c-2", topics=both, partitions=(*ORDERS, *PAYMENTS)))
    return reads(log, GROUP, range(200, 260), keys=(*ORDERS, *PAYMENTS)).write(directory)


def lost_at_failover(directory: Path, broken: bool) -> Path:
    """The leader of an offsets partition dies, and a replica without its newest records takes over."""
    log = reads(Log().generation(GROUP, 1, member()), GROUP, range(1000, 1200, 10))
    log.epoch += 1
    log.wait(40 * MINUTE).generation(GROUP, 2, member(member="c-1-b"))
    return reads(log, GROUP, range(9000, 9200, 10) if broken else range(1200, 1400, 10)).write(directory)


def negative(directory: Path, broken: bool) -> Path:
    """A client commits a position that it does not know yet."""
    log = reads(Log().generation(GROUP, 1, member()), GROUP, range(100, 130))
    log.wait(MINUTE).commit(GROUP, {ORDERS[0]: -1 if broken else 130})
    return reads(log, GROUP, range(130, 150), keys=ORDERS[1:]).write(directory)


def unclean_topic(directory: Path, broken: bool) -> Path:
    """A replica without the newest records becomes leader of a topic's partition."""
    log = Log().generation(GROUP, 1, member(ORDERS[0]))
    for value in range(30):
        log.wait(MINUTE).commit(GROUP, {ORDERS[0]: 5000 + 20 * value}, leader_epoch=3)
    for value in range(10):
        log.wait(MINUTE).commit(GROUP, {ORDERS[0]: (1200 if broken else 5600) + 20 * value}, leader_epoch=4)
    return log.write(directory)


def silent(directory: Path, broken: bool) -> Path:
    """A group hangs; of its topics nothing is known."""
    log = Log().generation(GROUP, 1, member()).generation("other", 1, member(member="o-1"))
    for value in range(9 * 60):
        log.wait(MINUTE).commit("other", dict.fromkeys(ORDERS, value))
        if value < 60 or not broken:
            log.commit(GROUP, dict.fromkeys(ORDERS, 100 + value))
    return log.write(directory)


def behind(directory: Path, broken: bool) -> Path:
    """One key has most records: its partition is read as slowly as the others, and is a million behind."""
    log = Log().generation(GROUP, 1, member())
    for value in range(60):
        log.wait(MINUTE).commit(GROUP, dict.fromkeys(ORDERS, 10_000 + 100 * value))
    end = 15_900
    return topics(log.write(directory), *[(0, end)] * 2, (0, 1_000_000 if broken else end), (0, end))


def short_retention(directory: Path, broken: bool) -> Path:
    """Retention of an hour: a group that is down for a night has lost everything, as if somebody deleted it."""
    log = reads(Log().generation(GROUP, 1, member()), GROUP, range(100, 130)).generation(GROUP, 2)
    if broken:
        log.wait(63 * MINUTE).tombstones(GROUP, *ORDERS, with_group=True)
    log.wait(6 * HOUR).generation(GROUP, 1 if broken else 3, member(member="c-2-z"))
    return log.wait(MINUTE).commit(GROUP, dict.fromkeys(ORDERS, 0 if broken else 130)).write(directory)


def not_released(directory: Path, broken: bool) -> Path:
    """A member of a KIP-848 group does not poll: it keeps a partition that another one is to have."""

    def owned(*partitions: int) -> list[dict[str, Any]]:
        return [{"topicId": TOPIC_ID, "partitions": list(partitions)}] if partitions else []

    def owns(name: str, epoch: int, *partitions: int, pending: tuple[int, ...] = (), state: int = 0) -> Any:
        value = {
            "memberEpoch": epoch,
            "previousMemberEpoch": epoch - 1,
            "state": state,
            "assignedPartitions": owned(*partitions),
            "partitionsPendingRevocation": owned(*pending),
        }
        return 8, {"groupId": GROUP, "memberId": name}, value

    def joins(name: str) -> Any:
        value = {
            "instanceId": None,
            "rackId": None,
            "clientId": f"consumer-{name}",
            "clientHost": "/10.0.0.1",
            "subscribedTopicNames": ["orders"],
            "subscribedTopicRegex": None,
            "rebalanceTimeoutMs": 2_147_483_647,
            "serverAssignor": None,
        }
        return 5, {"groupId": GROUP, "memberId": name}, value

    def target(name: str, *partitions: int) -> Any:
        return 7, {"groupId": GROUP, "memberId": name}, {"topicPartitions": owned(*partitions)}

    def epoch(number: int) -> tuple[Any, Any]:
        return (3, {"groupId": GROUP}, {"epoch": number}), (6, {"groupId": GROUP}, {"assignmentEpoch": number})

    bump, assigned = epoch(1)
    log = Log().modern(joins("A"), bump).modern(target("A", 0, 1), assigned).modern(owns("A", 1, 0, 1))
    reads(log, GROUP, range(10), keys=FIRST)
    bump, assigned = epoch(2)
    log.wait(MINUTE).modern(joins("B"), bump).modern(target("A", 0), target("B", 1), assigned)
    log.modern(owns("A", 1, 0, pending=(1,), state=1)).modern(owns("B", 2, state=2))
    if not broken:
        log.wait(1000).modern(owns("A", 2, 0)).modern(owns("B", 2, 1))
    return reads(log, GROUP, range(20, 140), keys=FIRST).write(directory)


def together(directory: Path, broken: bool, *, epoch: int = 0) -> Path:
    """A host goes away, and with it a member of each group."""
    log = Log()
    names = [f"service-{letter}" for letter in "abcdefgh"]
    for name in names:
        a, b = member(*FIRST, member=f"{name}-1"), member(*SECOND, member=f"{name}-2", host="/10.1.0.2")
        log.generation(name, 1, a, b)
    for value in range(40):
        if value == 20:
            log.epoch += epoch
            for name in names if broken else names[:1]:
                log.wait(3000).generation(name, 2, member(member=f"{name}-{3 if epoch else 1}"))
        log.wait(MINUTE)
        for name in names:
            log.commit(name, dict.fromkeys(ORDERS, 100 + value))
    return log.write(directory)


def together_at_failover(directory: Path, broken: bool) -> Path:
    """The coordinator moves, and the members of all groups have to join again."""
    return together(directory, broken, epoch=1)


SHARING = (
    Incident(
        "guest-in-group",
        "3.9.2",
        guest,
        "guest-in-group",
        ("console-consumer on /192.168.7.31", "7 min", "orders-2 at 1000", "1,220 records"),
        "an id of its own",
        124,
    ),
    Incident(
        "two-owners",
        "3.9.2",
        two_owners,
        "two-owners",
        ("generation 2", "orders-1", "/10.0.0.1 and", "/10.0.0.2"),
        "Restart all members at once",
        41,
    ),
    Incident(
        "uneven-assignor",
        "3.9.2",
        uneven,
        "members-without-partitions",
        ("4 of 5 members", "10 partitions", "10 of them to consumer-0"),
        "partition.assignment.strategy",
        0,
    ),
    Incident(
        "lag-of-a-dropped-topic",
        "3.9.2",
        unsubscribed,
        "topic-unsubscribed",
        ("2 committed offsets", "payments", "generation 2"),
        "--delete-offsets --topic payments",
        120,
    ),
    Incident(
        "commits-lost-at-failover",
        "3.9.2",
        lost_at_failover,
        "commits-missing-at-failover",
        ("leader epoch 0 to 1", "orders-0 from 1190 to 9000", "unclean election"),
        "unclean.leader.election.enable",
        82,
    ),
    Incident(
        "negative-offset",
        "3.9.2",
        negative,
        "negative-offset-committed",
        ("committed -1 for orders-0", "after 129"),
        "position that it did not know",
        121,
    ),
    Incident(
        "unclean-election-of-a-topic",
        "3.9.2",
        unclean_topic,
        "moved-back",
        ("from 3 to 4", "unclean election", "4,380 records"),
        "unclean.leader.election.enable",
        31,
    ),
    Incident(
        "group-silent",
        "3.9.2",
        silent,
        "group-silent",
        ("every 1 min", "8 h before the newest record"),
        "regroup capture",
        481,
    ),
    Incident(
        "hot-partition",
        "3.9.2",
        behind,
        "group-behind",
        ("984,100 records behind", "orders-2", "6,000 records an hour"),
        "one key may have most records",
    ),
    Incident(
        "retention-of-an-hour",
        "3.9.2",
        short_retention,
        "offsets-deleted",
        ("is 63 or less", "the log does not decide"),
        "offsets.retention.minutes",
        122,
    ),
    Incident(
        "host-gone",
        "3.9.2",
        together,
        "groups-rebalanced-together",
        ("8 of 8 groups", "within 21 s", "members on /10.1.0.2 left 8 of them"),
        "Look at /10.1.0.2",
        648,
        group=None,
    ),
    Incident(
        "all-groups-rejoin",
        "3.9.2",
        together_at_failover,
        "groups-rebalanced-together",
        ("8 of 8 groups", "leader epoch 0 to 1"),
        "brokers that led these partitions",
        648,
        group=None,
    ),
    Incident(
        "partition-not-released",
        "4.1.0",
        not_released,
        "partitions-not-released",
        ("consumer-A on /10.0.0.1", "1 member waits", "epoch 2"),
        "onPartitionsRevoked",
    ),
)
