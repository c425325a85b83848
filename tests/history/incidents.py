"""Real incidents, built again: each log twice, as it went wrong and as it would have been sound.

Ids are those under which the reports are known; ``docs/investigate.md`` has the same table for people.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coordinator_core.log.types import ControlType
from coordinator_core.records.codec import encode_key, encode_value
from coordinator_core.topology import BrokerInfo, PartitionInfo, Topology
from tests.history.logs import DAY, HOUR, MINUTE, T0, Client, Log, modern_member
from tests.log.builders import build_message

ORDERS = tuple(("orders", number) for number in range(4))
GROUP = "billing"
Build = Callable[[Path, bool], Path]


@dataclass(frozen=True)
class Incident:
    """``build`` writes the log to a directory; with ``True`` as it went wrong, else the clean twin.

    ``code`` and ``bug`` are what the investigation must find; ``says`` what its verdict must name, ``record`` the
    record offset that its evidence must hold, ``remedy`` a part of what to do. ``arguments`` go to the command.
    """

    id: str
    release: str
    build: Build
    code: str
    says: tuple[str, ...]
    remedy: str
    record: int | None = None
    bug: str | None = None
    group: str | None = GROUP
    arguments: tuple[str, ...] = ()
    now_ms: int = T0 + 40 * DAY
    twin_release: str | None = None


def member(*partitions: tuple[str, int], member: str = "c-1-a", **more: Any) -> Client:
    return Client(member, partitions=partitions or ORDERS, **more)


def reads(
    log: Log, group: str, values: range, *, every: int = MINUTE, keys: tuple[tuple[str, int], ...] = ORDERS
) -> Log:
    """A consumer that commits all of its partitions again and again."""
    for value in values:
        log.wait(every).commit(group, dict.fromkeys(keys, value))
    return log


def sixt(directory: Path, broken: bool) -> Path:
    """A quiet topic, 24 hours, Kafka 1.0: the offsets of a live group go, and it reads everything again."""
    log = Log(group_version=1, commit_version=1).generation(GROUP, 1, member())
    log.commit(GROUP, dict.fromkeys(ORDERS, 5000))
    if broken:
        log.wait(DAY + 3 * MINUTE).tombstones(GROUP, *ORDERS)
        log.wait(HOUR).generation(GROUP, 2, member())
        log.wait(MINUTE).commit(GROUP, dict.fromkeys(ORDERS, 12))
    else:
        log.wait(DAY - HOUR).commit(GROUP, dict.fromkeys(ORDERS, 5000))
    return log.write(directory)


def rebalance_expiry(directory: Path, broken: bool) -> Path:
    """KAFKA-13636: the sweep comes while the group, Empty until then, rebalances."""
    log = Log().generation(GROUP, 1, member())
    log.commit(GROUP, dict.fromkeys(ORDERS, 900)).wait(8 * DAY).generation(GROUP, 2)
    log.wait(MINUTE)
    if broken:
        log.tombstones(GROUP, *ORDERS)
    log.wait(MINUTE).generation(GROUP, 3, member(member="c-2-b"))
    log.wait(MINUTE).commit(GROUP, dict.fromkeys(ORDERS, 3 if broken else 905))
    return log.write(directory)


def retention(directory: Path, broken: bool) -> Path:
    """Retention in force: groups go seven days after they became Empty."""
    log = Log()
    for number in range(4):
        name = f"report-{'abcd'[number]}"
        log.generation(name, 1, member()).commit(name, dict.fromkeys(ORDERS, 10)).generation(name, 2)
    log.wait(7 * DAY + 4 * MINUTE)
    if broken:
        for number in range(4):
            log.tombstones(f"report-{'abcd'[number]}", *ORDERS, with_group=True)
    else:
        log.wait(20 * DAY).commit("other", {("orders", 0): 1})
    return log.write(directory)


def assign_only_deleted(directory: Path, broken: bool) -> Path:
    """DeleteGroups of a group that only used assign(): no tombstone of the group."""
    log = Log()
    for value in range(5):
        log.wait(MINUTE).commit(GROUP, dict.fromkeys(ORDERS, 10 * value))
    if broken:
        log.wait(MINUTE).tombstones(GROUP, *ORDERS)
    return log.write(directory)


def stale_store(directory: Path, broken: bool) -> Path:
    """librdkafka below 1.9: a partition comes back to a member, which commits what it had stored in its first "
    "ownership."""
    first, second = ORDERS[:2], ORDERS[2:]
    a, b = {"member": "a-1", "client_id": "rdkafka"}, {"member": "b-1", "client_id": "rdkafka"}
    log = Log().generation(GROUP, 1, member(*ORDERS, **a))
    reads(log, GROUP, range(100, 110))
    log.generation(GROUP, 2, member(*first, **a), member(*second, **b))
    for value in range(200, 230):
        log.wait(MINUTE).commit(GROUP, dict.fromkeys(second, 110 + 10 * (value - 200)))
        log.commit(GROUP, dict.fromkeys(first, value))
    log.generation(GROUP, 3, member(*ORDERS, **a))
    log.wait(MINUTE).commit(GROUP, {("orders", 2): 109 if broken else 405, ("orders", 0): 230})
    return log.write(directory)


def admin_reset(directory: Path, broken: bool) -> Path:
    """kafka-consumer-groups.sh --reset-offsets --to-datetime on a payment group."""
    log = Log().generation(GROUP, 1, member())
    reads(log, GROUP, range(1000, 1400, 10))
    log.wait(MINUTE).generation(GROUP, 2)
    if broken:
        log.wait(MINUTE).commit(GROUP, {key: 1000 + key[1] for key in ORDERS}, leader_epoch=-1)
    log.wait(MINUTE).generation(GROUP, 3, member(member="c-9-z"))
    reads(log, GROUP, range(1010, 1400, 10) if broken else range(1400, 1800, 10))
    return log.write(directory)


def jump(directory: Path, broken: bool) -> Path:
    """Tiered storage: after a leader change the consumer is sent to the end of the log."""
    log = Log().generation(GROUP, 1, member())
    for value in range(30):
        log.wait(MINUTE).commit(GROUP, dict.fromkeys(ORDERS, 1000 + 20 * value), leader_epoch=4)
    log.wait(MINUTE).commit(GROUP, {("orders", 1): 4_000_000 if broken else 1600}, leader_epoch=5)
    for value in range(5):
        log.wait(MINUTE).commit(GROUP, {("orders", 1): (4_000_000 if broken else 1600) + value}, leader_epoch=5)
    return log.write(directory)


def never_cleaned(directory: Path, broken: bool) -> Path:
    """One application commits after each message, and no cleaner has ever run."""
    log = Log(group_version=1, commit_version=1).generation(GROUP, 1, member())
    for value in range(1100 if broken else 50):
        for part in range(25):
            log.commit(GROUP, dict.fromkeys(ORDERS, value * 25 + part))
        log.wait(1000)
    log.commit("other", {("orders", 0): 1})
    return log.write(directory)


def empty_end(directory: Path, broken: bool) -> Path:
    """Tombstones were cleaned away and the last segment is empty: the log ends where no batch stands."""
    log = Log().commit(GROUP, dict.fromkeys(ORDERS, 7))
    if broken:
        log.skip(60)
    return log.roll().write(directory)


def large_batch(directory: Path, broken: bool) -> Path:
    """A group whose metadata is larger than the load buffer."""
    members = [
        Client(f"member-{number:06d}-" + "x" * 100, topics=("orders", "t" * 200), partitions=(("orders", number),))
        for number in range(15_000 if broken else 200)
    ]
    return Log(group_version=1, commit_version=1).generation(GROUP, 1, *members).write(directory)


def delete_policy(directory: Path, broken: bool) -> Path:
    """cleanup.policy=compact,delete: the oldest segments went with live offsets in them."""
    log = Log()
    if broken:
        log.next_offset = log.base = 40_000
    log.wait(DAY).generation(GROUP, 1, member()).commit(GROUP, dict.fromkeys(ORDERS, 4))
    return log.write(directory)


def hanging(directory: Path, broken: bool) -> Path:
    """A transactional commit whose end marker never came."""
    log = Log().generation(GROUP, 1, member()).commit(GROUP, dict.fromkeys(ORDERS, 4))
    log.wait(MINUTE).commit(GROUP, {("orders", 0): 9}, producer_id=4711)
    if not broken:
        log.wait(1000).marker(ControlType.COMMIT, 4711)
    return reads(log, GROUP, range(10, 40)).write(directory)


def handover(directory: Path, broken: bool) -> Path:
    """KAFKA-19862: a partition goes from member A to member B; the record that says A gave it up is replaced later."""
    topic = "AAAAAAAAAAAAAAAAAAAAAQ"

    def owns(member: str, epoch: int, *partitions: int) -> tuple[int, dict[str, Any], dict[str, Any]]:
        value = {
            "memberEpoch": epoch,
            "previousMemberEpoch": epoch - 1,
            "state": 0,
            "assignedPartitions": [{"topicId": topic, "partitions": list(partitions)}] if partitions else [],
            "partitionsPendingRevocation": [],
        }
        return 8, {"groupId": GROUP, "memberId": member}, value

    log = Log().modern(modern_member(GROUP, "A"), (3, {"groupId": GROUP}, {"epoch": 2}), owns("A", 2, 0, 1))
    log.wait(MINUTE).modern(modern_member(GROUP, "B"), (3, {"groupId": GROUP}, {"epoch": 3}), owns("A", 3, 0))
    log.wait(MINUTE).modern(owns("B", 3, 1))
    log.wait(MINUTE).modern(owns("A", 4, 0))
    return log.write(directory)


def streams_over_simple(directory: Path, broken: bool) -> Path:
    """KAFKA-20254: commits of a classic group first, then a streams group of the same id."""
    log = Log()
    if broken:
        log.commit(GROUP, dict.fromkeys(ORDERS, 4)).wait(HOUR)
    log.modern((17, {"groupId": GROUP}, {"epoch": 1, "metadataHash": 0, "validatedTopologyEpoch": -1}))
    return log.write(directory)


def unread_subscription(directory: Path, broken: bool) -> Path:
    """KAFKA-20570: a client that writes its own bytes as the subscription of a ``consumer`` group."""
    own = b'{"topics":["orders"]}' if broken else None
    return Log().commit("old", dict.fromkeys(ORDERS, 4)).generation(GROUP, 1, member(subscription=own)).write(directory)


def downgrade_race(directory: Path, broken: bool) -> Path:
    """KAFKA-21117: records of a KIP-848 group over a classic one whose tombstone the cleaner has removed."""
    log = Log().generation(GROUP, 5, member()).wait(HOUR)
    if not broken:
        log.tombstones(GROUP, with_group=True)
    log.modern((3, {"groupId": GROUP}, {"epoch": 6}))
    return log.write(directory)


def lost_member(directory: Path, broken: bool) -> Path:
    """KAFKA-17306: the tombstones of a KIP-848 member outlive it."""
    log = Log()
    if not broken:
        log.modern((3, {"groupId": GROUP}, {"epoch": 1}))
    key = {"groupId": GROUP, "memberId": "gone"}
    log.wait(MINUTE).modern((8, key, None), (7, key, None), (5, key, None))
    return log.write(directory)


def newer_records(directory: Path, broken: bool) -> Path:
    """KIP-915: records of later releases, and a broker that is to go back to 3.3."""
    log = Log().generation("old", 1, member()).commit("old", dict.fromkeys(ORDERS, 4))
    if broken:
        log.modern((3, {"groupId": GROUP}, {"epoch": 1}))
    return log.write(directory)


def unknown_version(directory: Path, broken: bool) -> Path:
    """KAFKA-18672: a broker of a later release wrote values that this one does not know."""
    log = Log().commit(GROUP, dict.fromkeys(ORDERS, 4)).generation(GROUP, 1, member())
    if broken:
        key = encode_key(2, {"group": "newer"})
        log.records((key, b"\x00\x09" + b"\x00" * 40))
    return log.write(directory)


def reassigned(directory: Path, broken: bool) -> Path:
    """KAFKA-4362: two message formats in the partition, and no write after its reassignment."""
    log = Log(group_version=1, commit_version=1)
    key = encode_key(1, {"group": GROUP, "topic": "orders", "partition": 0})
    value = {"offset": 3, "metadata": "", "commitTimestamp": T0, "expireTimestamp": T0 + DAY}
    for offset in range(4):
        magic = 0 if broken and offset < 2 else 1
        log.data += build_message(offset, key, encode_value(1, 1, value), magic=magic, timestamp=T0)
    return log.write(directory)


def reused_id(directory: Path, broken: bool) -> Path:
    """KAFKA-4704: a group is removed, and a standalone consumer uses its id."""
    log = (
        Log(group_version=1, commit_version=1, magic=1)
        .generation(GROUP, 1, member())
        .commit(GROUP, dict.fromkeys(ORDERS, 4))
    )
    log.generation(GROUP, 2).wait(DAY + MINUTE).tombstones(GROUP, *ORDERS, with_group=True)
    other = GROUP if broken else "reports"
    log.wait(HOUR).commit(other, {("orders", 0): 4})
    return log.write(directory)


def split_group(directory: Path, broken: bool) -> Path:
    """KIP-895: partitions were added to __consumer_offsets; the group is in two of them."""
    Log().commit(GROUP, dict.fromkeys(ORDERS, 4000)).write(directory, 3)
    Log(at=T0 + HOUR).commit(GROUP if broken else "other", dict.fromkeys(ORDERS, 10)).write(directory, 17)
    return directory


def random_ids(directory: Path, broken: bool) -> Path:
    """group.id=${random.uuid}"""
    log = Log()
    for number in range(120 if broken else 5):
        name = f"web-{number:08x}-1111-2222-3333-444455556666"
        log.generation(name, 1, member(client_id="web-sse", host="/10.1.2.3")).wait(MINUTE)
        log.commit(name, {("orders", 0): 1}).generation(name, 2).wait(4 * MINUTE)
    return log.write(directory)


def mixed(directory: Path, broken: bool) -> Path:
    """Two applications with different topics in one group."""
    events = (("events", 0), ("events", 1))
    log = Log().commit(GROUP, dict.fromkeys((*ORDERS, *events), 5), leader_epoch=-1).wait(MINUTE)
    for generation in range(1, 6):
        other = ("events",) if broken else ("events", "orders")
        given = () if broken else (ORDERS[3], *events)
        log.wait(MINUTE).generation(
            GROUP,
            generation,
            Client(
                "web-1",
                ("orders",) if broken else ("events", "orders"),
                ORDERS if broken else ORDERS[:3],
                client_id="web",
            ),
            Client("fhir-1", other, given, client_id="fhir", host="/10.0.0.2"),
        )
    return log.write(directory)


def left_out(directory: Path, broken: bool) -> Path:
    """KAFKA-9801: a static member joins in CompletingRebalance, its assignment is lost."""
    log = Log().commit(GROUP, dict.fromkeys(ORDERS, 5), leader_epoch=-1).wait(MINUTE)
    log.generation(
        GROUP,
        4,
        Client("i-1-a", partitions=ORDERS[:2], instance_id="i-1"),
        Client("i-2-b", partitions=() if broken else ORDERS[2:], instance_id="i-2", host="/10.0.0.2"),
    )
    return log.write(directory)


def mirror(directory: Path, broken: bool) -> Path:
    """MirrorMaker writes the offsets of a group every minute, and sets them back."""
    log = Log()
    for value in range(12):
        log.wait(MINUTE).commit(GROUP, dict.fromkeys(ORDERS, 1000 + 10 * value), leader_epoch=-1)
    for value in range(12):
        start = 400 if broken else 1120
        log.wait(MINUTE).commit(GROUP, dict.fromkeys(ORDERS, start + 10 * value), leader_epoch=-1)
    return log.write(directory)


def connector(directory: Path, broken: bool) -> Path:
    """A sink connector was deleted; its group stays."""
    name = "connect-es-sink"
    log = Log(group_version=1, commit_version=1).generation(name, 1, member(client_id="connector-consumer-es-sink-0"))
    log.commit(name, dict.fromkeys(ORDERS, 77)).wait(MINUTE)
    if broken:
        log.generation(name, 2)
    return log.write(directory)


def duplicate_instance(directory: Path, broken: bool) -> Path:
    """Two processes with one group.instance.id put each other out."""
    log = Log()
    for turn in range(12 if broken else 1):
        log.wait(10_000).generation(
            GROUP, 1, member(member=f"i-1-{turn}", instance_id="i-1", host=f"/10.0.0.{1 + turn % 2}")
        )
    return log.write(directory)


def storm(directory: Path, broken: bool) -> Path:
    """A member that exceeds max.poll.interval.ms comes and goes."""
    log = Log()
    for number in range(40 if broken else 4):
        slow = [] if number % 2 else [member(member=f"slow-{number}", client_id="slow", host="/10.0.0.9")]
        log.wait(MINUTE).generation(GROUP, number + 1, member(member="c-1"), *slow)
    return log.write(directory)


def forged(directory: Path, broken: bool) -> Path:
    """A client with write access to the topic wrote tombstones by itself."""
    log = Log().generation(GROUP, 1, member()).commit(GROUP, dict.fromkeys(ORDERS, 50)).wait(HOUR)
    if broken:
        log.records(*((Log._key(GROUP, *key), None) for key in ORDERS), sequence=17)
    return log.write(directory)


def topics(
    directory: Path,
    *ends: tuple[int, int],
    topic_id: str | None = None,
    offsets_retention_minutes: int | None = None,
) -> Path:
    """topics.json, as a capture has it: log start and end of each partition of ``orders``."""
    partitions = [
        {"partition": number, "start_offset": start, "end_offset": end} for number, (start, end) in enumerate(ends)
    ]
    document: dict[str, Any] = {"topics": [{"name": "orders", "topic_id": topic_id, "partitions": partitions}]}
    if offsets_retention_minutes is not None:
        config = {"offsets.retention.minutes": str(offsets_retention_minutes)}
        document["brokers"] = [{"broker_id": 0, "config": config}]
        document["offsets_topic"] = {"name": "__consumer_offsets", "topic_id": None, "config": {}, "partitions": []}
    (directory / "topics.json").write_text(json.dumps(document))
    return directory


def below_start(directory: Path, broken: bool) -> Path:
    """Retention emptied partitions that the group had not read to their end; it has nothing to read, and no commit."""
    log = Log().generation(GROUP, 1, member())
    reads(log, GROUP, range(5000, 5100, 10))
    bounds = (9_000_000, 9_000_000) if broken else (5000, 5090)
    return topics(log.write(directory), bounds, bounds, (0, 5090), (0, 5090))


def beyond_end(directory: Path, broken: bool) -> Path:
    """A partition lost its data and began anew; the client commits nothing below its stored offset."""
    log = Log(group_version=1, commit_version=1, magic=1).generation(GROUP, 1, member())
    reads(log, GROUP, range(70_000, 70_100, 10))
    return topics(log.write(directory), (0, 1200 if broken else 70_100), *[(0, 70_100)] * 3)


def stuck_partition(directory: Path, broken: bool) -> Path:
    """One partition stands still at a record that fails again and again; the others go on."""
    log = Log().generation(GROUP, 1, member())
    reads(log, GROUP, range(1000, 1200, 10))
    rest = tuple(key for key in ORDERS if not broken or key != ("orders", 3))
    reads(log, GROUP, range(1200, 2000, 5), keys=rest)
    return topics(log.write(directory), *[(0, 2500)] * 4)


def all_stopped(directory: Path, broken: bool) -> Path:
    """All members heartbeat and none of them reads on: one hangs in its batch, and nothing times out."""
    log = Log().generation(GROUP, 1, member())
    reads(log, GROUP, range(1000, 1200, 10))
    if not broken:
        reads(log, GROUP, range(1200, 2500, 10))
    log.wait(2 * HOUR).commit("other", {("events", 0): 1})
    return topics(log.write(directory), *[(0, 2500)] * 4)


def more_partitions(directory: Path, broken: bool) -> Path:
    """The topic got two more partitions; the leader of the group has not seen them."""
    log = Log().generation(GROUP, 1, member())
    reads(log, GROUP, range(1000, 3000, 10))
    return topics(log.write(directory), *[(0, 3000)] * (6 if broken else 4))


def recreated(directory: Path, broken: bool) -> Path:
    """The topic was deleted and made again under its name; the group goes on from offsets of the old one."""
    old, new = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"
    log = Log().generation(GROUP, 1, member())
    key = encode_key(1, {"group": GROUP, "topic": "orders", "partition": 0})
    value = {
        "offset": 70,
        "leaderEpoch": 0,
        "metadata": "",
        "commitTimestamp": log.at,
        "topicId": old if broken else new,
    }
    log.records((key, encode_value(1, 4, value)), sequence=0)
    return topics(log.write(directory), *[(0, 100)] * 4, topic_id=new)


def unsteady_coordinator(directory: Path, broken: bool) -> Path:
    """A broker that loses its session again and again: the partition's leader moves every five minutes."""
    log = Log().generation(GROUP, 1, member())
    for turn in range(10):
        log.epoch += broken or turn == 5
        log.wait(5 * MINUTE).commit(GROUP, dict.fromkeys(ORDERS, 10 * turn))
    return log.write(directory)


def nobody_left(directory: Path, broken: bool) -> Path:
    """The consumers were stopped; nobody knows until when their offsets stay."""
    log = Log().generation(GROUP, 1, member()).commit(GROUP, dict.fromkeys(ORDERS, 77)).wait(MINUTE)
    return (log.generation(GROUP, 2) if broken else log).write(directory)


def one_replica(directory: Path, broken: bool) -> Path:
    """The offsets topic was made while one broker ran alone: each partition has one replica, in a cluster of three."""
    for partition in range(3):
        Log().commit(f"{GROUP}-{partition}", dict.fromkeys(ORDERS, 4)).write(directory, partition)
    brokers = {number: BrokerInfo(number, {"PLAINTEXT": ("broker", 9092)}) for number in range(3)}
    infos = []
    for number in range(3):
        replicas = (number,) if broken else tuple((number + step) % 3 for step in range(3))
        infos.append(PartitionInfo(number, number, 0, replicas, replicas))
    (directory / "topology.json").write_text(json.dumps(Topology.of_offsets(brokers, infos).document()))
    return directory


def two_writers(directory: Path, broken: bool) -> Path:
    """A second process with the same group id and assign(), in another environment."""
    log = Log()
    for value in range(12):
        log.wait(MINUTE).commit(GROUP, dict.fromkeys(ORDERS, 100 + value))
        if broken:
            log.wait(MINUTE).commit(GROUP, dict.fromkeys(ORDERS, 90_000 + value))
    return log.write(directory)


def trespass(directory: Path, broken: bool) -> Path:
    """A client commits a map of all partitions that it ever read, also those that it has lost."""
    first, second = ORDERS[:2], ORDERS[2:]
    log = Log().generation(GROUP, 1, member(*ORDERS, member="a"))
    reads(log, GROUP, range(100, 110))
    log.wait(MINUTE).generation(GROUP, 2, member(*first, member="a"), member(*second, member="b", host="/10.0.0.2"))
    log.wait(MINUTE).commit(GROUP, dict.fromkeys(second, 120))
    log.wait(MINUTE).commit(GROUP, dict.fromkeys(ORDERS if broken else first, 125))
    return log.write(directory)


def flapping(directory: Path, broken: bool) -> Path:
    """One of four members crashes every ten minutes, and comes back."""
    log = Log()
    stable = [member(("orders", number), member=f"c-{number}", host=f"/10.0.0.{number}") for number in range(3)]
    generation = 0
    for turn in range(6 if broken else 2):
        for slow in ([], [member(ORDERS[3], member=f"crash-{turn}", client_id="crash", host="/10.0.0.9")]):
            generation += 1
            log.wait(5 * MINUTE).generation(GROUP, generation, *stable, *slow)
            log.wait(1000).commit(GROUP, dict.fromkeys(ORDERS, 10 * generation))
    return log.write(directory)


INCIDENTS = (
    Incident(
        "sixt-missing-offsets",
        "1.0.1",
        sixt,
        "offsets-expired-while-active",
        ("4 committed", "active group", "KIP-211"),
        "offsets.retention.minutes",
        5,
        "KIP-211",
    ),
    Incident(
        "KAFKA-13636",
        "2.8.1",
        rebalance_expiry,
        "offsets-expired-while-active",
        ("rebalancing", "generation 3"),
        "Upgrade",
        6,
        "KAFKA-13636",
        now_ms=T0 + 9 * DAY,
    ),
    Incident(
        "strimzi-7135", "3.0.0", retention, "offsets-expired", ("7 d before", "expired"), "Nothing", group="report-b"
    ),
    Incident(
        "burrow-818",
        "3.9.2",
        assign_only_deleted,
        "offsets-deleted",
        ("gone for the broker", "tools that wait for one"),
        "Nothing",
    ),
    Incident(
        "librdkafka-2782",
        "2.8.2",
        stale_store,
        "stale-commit",
        ("from 400 to 109", "generation 1"),
        "librdkafka below 1.9.0",
        bug="librdkafka-3774",
    ),
    Incident(
        "offset-reset-180k",
        "3.9.2",
        admin_reset,
        "reset-by-admin",
        ("4 partitions", "admin client", "read again"),
        "--from-file",
        163,
    ),
    Incident(
        "tiered-663", "3.6.1", jump, "jumped-forward", ("orders-1", "to 4000000", "leader epoch"), "OFFSET_OUT_OF_RANGE"
    ),
    Incident(
        "besthub-952gb",
        "1.0.1",
        never_cleaned,
        "heavy-writer",
        ("100%", "no cleaner has run here"),
        "Commit less often",
        group=None,
    ),
    Incident(
        "KAFKA-9065",
        "2.3.1",
        empty_end,
        "load-never-ends",
        ("never ends loading", "queued behind it wait: after record 3"),
        "commit once",
        bug="KAFKA-9065",
        group=None,
    ),
    Incident(
        "KAFKA-7286",
        "1.1.1",
        large_batch,
        "batch-larger-than-load-buffer",
        ("billing", "never loads"),
        "offsets.load.buffer.size",
        0,
        "KAFKA-7286",
    ),
    Incident(
        "KAFKA-12889",
        "2.8.2",
        delete_policy,
        "log-start-moved",
        ("begins at 40000", "without a tombstone"),
        "cleanup.policy=compact",
        group=None,
    ),
    Incident(
        "KAFKA-9144",
        "2.3.1",
        hanging,
        "hanging-transaction",
        ("producer 4711", "billing"),
        "kafka-transactions.sh",
        5,
        "KAFKA-9144",
    ),
    Incident(
        "KAFKA-19862",
        "4.0.1",
        handover,
        "load-at-risk",
        ("the cleaner runs", "At rest the log is sound"),
        "4.0.2",
        bug="KAFKA-19862",
        twin_release="4.0.2",
    ),
    Incident(
        "KAFKA-17306",
        "3.7.2",
        lost_member,
        "load-refused",
        ("3.7.2 stops", "fixed in 4.0"),
        "4.0",
        0,
        "KAFKA-17306",
        arguments=("--coordinator", "new"),
        twin_release="4.0.0",
    ),
    Incident(
        "KAFKA-20254",
        "4.2.0",
        streams_over_simple,
        "load-refused",
        ("not a streams group", "4.2.1"),
        "4.2.1",
        4,
        "KAFKA-20254",
    ),
    Incident(
        "KAFKA-20570",
        "4.3.1",
        unread_subscription,
        "load-refused",
        ("stops loading", "subscription", "fixed in 4.4"),
        "4.4",
        4,
        "KAFKA-20570",
    ),
    Incident(
        "KAFKA-21117",
        "4.3.1",
        downgrade_race,
        "load-refused",
        ("stops loading", "record 1"),
        "roll clients back",
        1,
        "KAFKA-21117",
    ),
    Incident(
        "KIP-915",
        "3.3.2",
        newer_records,
        "load-refused",
        ("unknown to Kafka 3.3.2",),
        "3.5 or later",
        5,
        "KIP-915",
        group=None,
    ),
    Incident(
        "KAFKA-18672",
        "3.9.2",
        unknown_version,
        "load-refused",
        ("stops loading", "value version 9"),
        "not downgrade below",
        5,
        "KAFKA-18672",
        arguments=("--coordinator", "new"),
        group=None,
    ),
    Incident(
        "KAFKA-4362",
        "0.10.1.0",
        reassigned,
        "mixed-message-formats",
        ("formats 0, 1", "last write"),
        "the brokers one by one",
        0,
        "KAFKA-4362",
        group=None,
    ),
    Incident(
        "KAFKA-4704",
        "0.10.1.1",
        reused_id,
        "group-id-reused",
        ("its id is used for plain offsets",),
        "group id of their own",
        10,
        "KAFKA-4704",
    ),
    Incident(
        "KIP-895",
        "3.9.2",
        split_group,
        "group-in-two-partitions",
        ("3, 17", "17 has the newest"),
        "--offsets-partitions",
    ),
    Incident(
        "redpanda-23054",
        "3.9.2",
        random_ids,
        "one-shot-groups",
        ("120 groups", "web-*", "web-sse on /10.1.2.3"),
        "fixed group.id",
        group=None,
        now_ms=T0 + DAY,
    ),
    Incident(
        "fhir-2539",
        "3.9.2",
        mixed,
        "mixed-subscriptions",
        ("2 classes", "events-0", "fhir on /10.0.0.2"),
        "group id of its own",
    ),
    Incident(
        "KAFKA-9801",
        "2.4.1",
        left_out,
        "partitions-without-owner",
        ("orders-2", "instance i-2", "KAFKA-9801"),
        "rebalance",
        4,
        "KAFKA-9801",
    ),
    Incident(
        "KAFKA-12468", "3.4.1", mirror, "mirror-translates-back", ("MirrorMaker", "go back"), "3.5.0", bug="KAFKA-12468"
    ),
    Incident(
        "connect-es-267",
        "2.0.1",
        connector,
        "connector-offsets-stay",
        ("es-sink", "orders-0 at 77", "until about"),
        "--delete",
        group="connect-es-sink",
        now_ms=T0 + HOUR,
    ),
    Incident(
        "redpanda-30624",
        "3.9.2",
        below_start,
        "committed-below-log-start",
        ("2 committed", "orders-0 at 5090", "begins at 9000000", "real lag there is 0"),
        "--to-earliest --topic orders:0,1 --dry-run (then with --execute)",
        37,
    ),
    Incident(
        "librdkafka-1558",
        "0.10.2.1",
        beyond_end,
        "committed-beyond-log-end",
        ("orders-0 at 70090", "without a leader epoch", "ends at 1200", "68,890 records"),
        "--from-file",
        37,
    ),
    Incident(
        "besthub-rf1",
        "3.9.2",
        one_replica,
        "offsets-topic-without-replicas",
        ("3 partitions", "3 brokers", "roker 1: billing-1"),
        "kafka-reassign-partitions.sh",
        group=None,
    ),
    Incident(
        "duplicate-instance",
        "3.9.2",
        duplicate_instance,
        "duplicate-instance-id",
        ("i-1", "two processes", "/10.0.0.2"),
        "group.instance.id of its own",
    ),
    Incident(
        "rebalance-storm",
        "3.9.2",
        storm,
        "rebalance-storm",
        ("40 times", "slow on /10.0.0.9", "without a commit"),
        "max.poll.interval.ms",
    ),
    Incident(
        "forged-tombstones", "3.9.2", forged, "tombstones-without-a-rule", ("no rule of this release",), "ACLs", 5
    ),
    Incident(
        "stuck-partition",
        "3.9.2",
        stuck_partition,
        "partition-stopped",
        ("1 partition was", "orders-3 stays at 1190", "1,310 behind"),
        "paused partition",
        80,
    ),
    Incident(
        "group-stopped",
        "3.9.2",
        all_stopped,
        "group-stopped",
        ("5,240 records", "nobody has committed since", "record 77"),
        "thread dump",
        77,
    ),
    Incident(
        "partitions-added",
        "3.9.2",
        more_partitions,
        "partitions-unassigned",
        ("orders-4, orders-5", "more partitions since"),
        "restart one member",
        0,
    ),
    Incident(
        "topic-recreated",
        "4.1.0",
        recreated,
        "topic-recreated",
        ("orders-0 at 70", "AAAAAAAAAAAAAAAAAAAAAQ"),
        "--delete-offsets",
        1,
    ),
    Incident(
        "unsteady-coordinator",
        "3.9.2",
        unsteady_coordinator,
        "coordinator-moves",
        ("changed 10 times", "leader epoch 0 to 6"),
        "controller's log",
        group=None,
    ),
    Incident(
        "group-is-empty",
        "3.9.2",
        nobody_left,
        "group-is-empty",
        ("no members since", "4 committed offsets", "2026-06-04"),
        "before that",
        5,
        now_ms=T0 + HOUR,
    ),
    Incident(
        "two-writers",
        "3.9.2",
        two_writers,
        "two-writers",
        ("in turn", "4 partitions", "90000 and 101"),
        "group id of its own",
        4,
    ),
    Incident(
        "trespass",
        "3.9.2",
        trespass,
        "commit-after-losing-partition",
        ("/10.0.0.1 committed orders-2", "generation 2", "/10.0.0.2"),
        "onPartitionsRevoked",
        46,
    ),
    Incident(
        "flapping-member",
        "3.9.2",
        flapping,
        "flapping-member",
        ("crash on /10.0.0.9", "times"),
        "max.poll.interval.ms",
    ),
)
"""Incidents in the order of the reports; those from duplicate-instance on are kinds that no report of them has."""
