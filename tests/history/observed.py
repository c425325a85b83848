"""Incidents as strangers reported them to the trackers of clients and connectors; each with a clean twin."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from coordinator_core.log.types import ControlType
from tests.history.incidents import GROUP, ORDERS, Incident, member, reads
from tests.history.logs import HOUR, MINUTE, Client, Log

FIRST, SECOND = ORDERS[:2], ORDERS[2:]
SINK = "connect-starrocks"
SIZES = (1, 3, 6, 4, 2, 1, 2, 5, 6, 3, 1, 1, 4, 6, 2) * 4


def probing(directory: Path, broken: bool) -> Path:
    """Kafka Streams asks for a probing rebalance every ten minutes, and never comes to rest."""
    log = Log(protocol="stream")
    threads = [
        member(one, member=f"app-{one[1]}", client_id=f"app-StreamThread-{one[1]}", host=f"/10.0.0.{one[1]}")
        for one in ORDERS
    ]
    for number in range(1, 25):
        if broken or number <= 4:
            log.generation(GROUP, number, *threads)
        for minute in range(10):
            log.wait(MINUTE)
            for key in ORDERS:
                log.commit(GROUP, {key: 1000 + 100 * number + 10 * minute})
    return log.write(directory)


def pattern_by_the_hour(directory: Path, broken: bool) -> Path:
    """Topics that match a pattern come all day, and the group rebalances at each refresh of its metadata."""
    log = Log()
    for number in range(1, 31):
        keys = tuple((f"tmp-{topic}", 0) for topic in range(number if broken else 1))
        if broken or number == 1:
            log.generation(GROUP, number, Client("a-1", topics=tuple(topic for topic, _ in keys), partitions=keys))
        reads(log, GROUP, range(5 * number, 5 * number + 5), keys=keys)
    return log.write(directory)


def autoscaled(directory: Path, broken: bool) -> Path:
    """An autoscaler that follows the lag starts and stops members every few minutes."""
    log = Log()
    pods: list[int] = []
    for number, size in enumerate(SIZES, 1):
        wanted = size if broken else 3
        newest = max(pods, default=0)
        pods = [*pods, *range(newest + 1, newest + 1 + max(0, wanted - len(pods)))][-wanted:]
        shares = [ORDERS[at :: len(pods)] for at in range(len(pods))]
        if broken or number == 1:
            of_pods = [
                replace(member(member=f"pod-{pod}", host=f"/10.0.1.{pod}"), partitions=share)
                for pod, share in zip(pods, shares, strict=True)
            ]
            log.generation(GROUP, number, *of_pods)
        for minute in range(5):
            log.wait(MINUTE)
            for share in filter(None, shares):
                log.commit(GROUP, dict.fromkeys(share, 100 + 50 * number + 10 * minute))
    return log.write(directory)


def cut_off(directory: Path, broken: bool, client: Client | None = None) -> Path:
    """A client sends its commits to the broker that was the coordinator, for ever."""
    log = Log().generation("other", 1, member(member="o-1"))
    if client is not None:
        log.generation(GROUP, 1, client)
    for value in range(5 * 60):
        log.wait(MINUTE)
        log.epoch = int(value >= 100)
        log.commit("other", dict.fromkeys(ORDERS, value))
        if value < 100 or not broken:
            log.commit(GROUP, dict.fromkeys(ORDERS, 100 + 10 * value))
    return log.write(directory)


def member_cut_off(directory: Path, broken: bool) -> Path:
    return cut_off(directory, broken, member(client_id="rdkafka"))


def record_not_done(directory: Path, broken: bool, producer_id: int = -1) -> Path:
    """One record hangs in a worker; the client goes on, and notes what is done in the metadata."""
    log = Log().generation(GROUP, 1, member())
    for minute in range(4 * 60):
        log.wait(MINUTE)
        for key in ORDERS:
            stands = broken and key == ORDERS[2] and minute >= 60
            done = "bAAB" + "A" * (minute if stands else 3)
            log.commit(GROUP, {key: 100 + 10 * (59 if stands else minute)}, metadata=done, producer_id=producer_id)
        if producer_id >= 0:
            log.marker(ControlType.COMMIT, producer_id)
    return log.write(directory)


def record_not_done_in_transactions(directory: Path, broken: bool) -> Path:
    return record_not_done(directory, broken, 9)


def stands_still(directory: Path, broken: bool) -> Path:
    """A partition has no leader; its owner commits the same value on and on, and others go on."""
    log = Log().generation(GROUP, 1, member())
    for minute in range(5 * 60):
        stands = broken and minute >= 100
        log.wait(MINUTE).commit(GROUP, {k: 100 + 10 * (100 if stands and k == ORDERS[1] else minute) for k in ORDERS})
    return log.write(directory)


def crowded(directory: Path, broken: bool) -> Path:
    """While a rebalance hangs, a client whose join times out joins again and again."""
    log = Log(group_version=1, commit_version=1).generation(GROUP, 1, member(member="c-0"))
    reads(log, GROUP, range(100, 400, 10)).wait(20 * MINUTE)
    again = [replace(member(member=f"c-{number}"), partitions=()) for number in range(1, 400 if broken else 2)]
    log.generation(GROUP, 2, member(member="c-0"), *again).wait(10_000).generation(GROUP, 3, member(member="c-0"))
    return reads(log, GROUP, range(400, 500, 10)).write(directory)


def not_applied(directory: Path, broken: bool) -> Path:
    """A static member comes back with one more topic in its configuration."""
    topics = ("orders", "refunds") if broken else ("orders",)
    log = Log().generation(GROUP, 1, Client("i-1-a", partitions=ORDERS, instance_id="i-1"))
    reads(log, GROUP, range(100, 400, 10))
    log.generation(GROUP, 1, Client("i-1-b", topics=topics, partitions=ORDERS, instance_id="i-1"))
    return reads(log, GROUP, range(400, 1600, 10)).write(directory)


def nothing_assigned(directory: Path, broken: bool) -> Path:
    """Brokers restart, and the leader of the group assigns with metadata that have no partitions."""
    hosts = {"a-1": "/10.0.0.1", "b-1": "/10.0.0.2"}
    owned = [member(*share, member=name, host=hosts[name]) for name, share in zip(hosts, (FIRST, SECOND), strict=True)]
    log = Log().generation(GROUP, 1, *owned)
    for value in range(100, 400, 10):
        log.wait(MINUTE).commit(GROUP, dict.fromkeys(FIRST, value)).commit(GROUP, dict.fromkeys(SECOND, value))
    log.epoch += 1
    log.wait(MINUTE).generation(GROUP, 2, *[replace(one, partitions=()) if broken else one for one in owned])
    log.generation("other", 1, member(member="o-1"))
    for value in range(120):
        log.wait(MINUTE).commit("other", dict.fromkeys(ORDERS, value))
        if not broken:
            log.commit(GROUP, dict.fromkeys(FIRST, 400 + value)).commit(GROUP, dict.fromkeys(SECOND, 400 + value))
    return log.write(directory)


def left_out(directory: Path, broken: bool) -> Path:
    """A generation in which one partition, that a member owned before, is given to nobody."""
    log = Log().generation(GROUP, 1, member(*FIRST, member="a-1"), member(*SECOND, member="b-1", host="/10.0.0.2"))
    for value in range(260):
        share = SECOND[:1] if broken and value >= 60 else SECOND
        if value == 60:
            log.generation(GROUP, 2, member(*FIRST, member="a-1"), member(*share, member="b-1", host="/10.0.0.2"))
        log.wait(MINUTE).commit(GROUP, dict.fromkeys(FIRST, 100 + value)).commit(GROUP, dict.fromkeys(share, value))
    return log.write(directory)


def assignors(directory: Path, broken: bool) -> Path:
    """Half of the members know range only, the other half cooperative-sticky first."""
    log = Log()
    for number in range(4):
        log.protocol = ("range", "cooperative-sticky")[number % 2 if broken else 0]
        log.generation(GROUP, number + 1, member(*FIRST, member="a-1"), member(*SECOND, member="b-1", host="/10.0.0.2"))
        for value in range(15 * number, 15 * number + 15):
            log.wait(MINUTE).commit(GROUP, dict.fromkeys(FIRST, value)).commit(GROUP, dict.fromkeys(SECOND, value))
    return log.write(directory)


def sink_without_commits(directory: Path, broken: bool) -> Path:
    """A sink connector loads for hours and commits nothing; then it fails, and begins where it was."""
    task = {"client_id": "connector-consumer-starrocks-0"}
    log = reads(Log().generation(SINK, 1, member(member="t-1", **task)), SINK, range(1000, 31_000, 500))
    if broken:
        log.wait(12 * HOUR).generation(SINK, 2).wait(20_000).generation(SINK, 3, member(member="t-2", **task))
        reads(log, SINK, range(31_500, 400_000, 10_000), every=10_000)
    else:
        reads(log, SINK, range(31_000, 61_000, 500))
    return log.write(directory)


def static_scaled_down(directory: Path, broken: bool) -> Path:
    """Two of four static members are gone, and keep their partitions until their session ends."""

    def app(number: int, *owned: tuple[str, int]) -> Client:
        return Client(f"m-{number}", partitions=owned, instance_id=f"app-{number}", host=f"/10.0.0.{number}")

    log = Log().generation(GROUP, 1, *[app(number, ORDERS[number]) for number in range(4)])
    for value in range(60):
        log.wait(MINUTE)
        for key in ORDERS:
            log.commit(GROUP, {key: 100 + 10 * value})
    if broken:
        for value in range(60, 90):
            log.wait(MINUTE).commit(GROUP, {ORDERS[0]: 100 + 10 * value}).commit(GROUP, {ORDERS[1]: 100 + 10 * value})
    log.wait(1000).generation(GROUP, 2, app(0, ORDERS[0], ORDERS[2]), app(1, ORDERS[1], ORDERS[3]))
    for value in range(60):
        log.wait(MINUTE)
        at, waiting = (1000 + 10 * value, 700 + 20 * value) if broken else (700 + 10 * value, 700 + 10 * value)
        log.commit(GROUP, {ORDERS[0]: at, ORDERS[2]: waiting}).commit(GROUP, {ORDERS[1]: at, ORDERS[3]: waiting})
    return log.write(directory)


def slow_batches(directory: Path, broken: bool) -> Path:
    """Each batch takes longer than max.poll.interval.ms; the member is out when it commits, and begins again."""
    log = reads(Log().generation(GROUP, 1, member()), GROUP, range(100, 400, 10))
    for number in range(12 if broken else 1):
        log.wait(5 * MINUTE).generation(GROUP, 2 * number + 2)
        log.wait(20_000).generation(GROUP, 2 * number + 3, member(member=f"c-{number}"))
    return log.write(directory) if broken else reads(log, GROUP, range(400, 700, 10)).write(directory)


def consumer_for_each_batch(directory: Path, broken: bool) -> Path:
    """A job makes a consumer each minute, reads a batch, commits and closes it."""
    log = Log()
    for number in range(60 if broken else 6):
        log.wait(40_000).generation(GROUP, 2 * number + 1, member(member=f"c-{number}"))
        log.wait(5000).commit(GROUP, dict.fromkeys(ORDERS, 100 + 10 * number))
        log.wait(15_000).generation(GROUP, 2 * number + 2)
    return log.write(directory)


def topic_made_again(directory: Path, broken: bool) -> Path:
    """The topic is deleted and made again while its consumers run; they have no leader epochs."""
    log = reads(Log().generation(GROUP, 1, member(client_id="sarama")), GROUP, range(50_000, 50_600, 10))
    return reads(log, GROUP, range(3 if broken else 50_600, 603 if broken else 51_200, 10)).write(directory)


def one_partition_out_of_range(directory: Path, broken: bool) -> Path:
    """A fetch of one partition is out of range while brokers are upgraded, and it is read from its beginning."""
    log = Log().generation(GROUP, 1, member(client_id="kafkajs"))
    for value in range(120):
        offsets = dict.fromkeys(ORDERS, 2_000_000 + 10 * value)
        if broken and value >= 60:
            offsets[ORDERS[2]] = 300_000 + 500 * (value - 60)
        log.wait(MINUTE).commit(GROUP, offsets, leader_epoch=-1)
    return log.write(directory)


def without_epoch(directory: Path, broken: bool) -> Path:
    """A rebalance listener commits without leader epochs; the log was truncated, and the next owner is out of range."""
    log = Log().generation(GROUP, 1, member(*FIRST, member="a-1"), member(*SECOND, member="b-1", host="/10.0.0.2"))
    for value in range(50_000, 50_600, 10):
        log.wait(MINUTE).commit(GROUP, dict.fromkeys(FIRST, value), leader_epoch=4)
        log.commit(GROUP, dict.fromkeys(SECOND, value), leader_epoch=4)
    log.wait(1000).commit(GROUP, dict.fromkeys(SECOND, 50_600), leader_epoch=-1 if broken else 4)
    log.generation(GROUP, 2, member(member="a-1"))
    for value in range(60):
        of_second = 1000 * value + 1000 if broken else 50_600 + 10 * value
        log.wait(MINUTE).commit(
            GROUP, dict.fromkeys(FIRST, 50_600 + 10 * value) | dict.fromkeys(SECOND, of_second), leader_epoch=5
        )
    return log.write(directory)


def former_owner(directory: Path, broken: bool) -> Path:
    """A member goes on committing its last value for partitions that it has lost, each in a request of its own."""
    log = reads(Log().generation(GROUP, 1, member(member="a-1")), GROUP, range(100, 400, 10))
    log.generation(GROUP, 2, member(*FIRST, member="a-1"), member(*SECOND, member="b-1", host="/10.0.0.2"))
    for value in range(400, 700, 10):
        log.wait(MINUTE).commit(GROUP, dict.fromkeys(SECOND, value)).commit(GROUP, dict.fromkeys(FIRST, value))
        if broken:
            log.commit(GROUP, dict.fromkeys(SECOND, 390))
    return log.write(directory)


def second_start(directory: Path, broken: bool) -> Path:
    """Partitions without records at the first start; at the second one they are begun at their end."""
    log = reads(Log().generation(GROUP, 1, member()), GROUP, range(5000, 5600, 10), keys=FIRST)
    log.generation(GROUP, 2).wait(3 * HOUR).generation(GROUP, 3, member(member="c-2"))
    for value in range(0, 300, 10):
        log.wait(MINUTE).commit(GROUP, dict.fromkeys(FIRST, 5600 + value))
        log.commit(GROUP, dict.fromkeys(SECOND, 9000 + value if broken else value))
    return log.write(directory)


def begun_at_latest(directory: Path, broken: bool) -> Path:
    """Members that cannot fetch their committed offsets at a start go to the end instead."""
    log = reads(Log().generation(GROUP, 1, member()), GROUP, range(10_000, 10_600, 10))
    log.generation(GROUP, 2).wait(2 * HOUR)
    log.generation(GROUP, 3, member(*FIRST, member="x-1"), member(*SECOND, member="y-1", host="/10.0.0.3"))
    for value in range(10_600, 10_900, 10):
        log.wait(MINUTE).commit(GROUP, dict.fromkeys(FIRST, value + (84_400 if broken else 0)))
        log.commit(GROUP, dict.fromkeys(SECOND, value))
    return log.write(directory)


OBSERVED = (
    Incident(
        "streams-probing-rebalances",
        "2.6.3",
        probing,
        "rebalances-by-the-clock",
        ("every 10 min, 24 times", "nobody joined or left", "KIP-441", "came out the same"),
        "acceptable.recovery.lag",
    ),
    Incident(
        "pattern-matches-new-topics",
        "3.9.2",
        pattern_by_the_hour,
        "rebalances-by-the-clock",
        ("every 5 min, 30 times", "tmp-1,"),
        "Narrow the pattern",
    ),
    Incident(
        "keda-5096",
        "3.9.2",
        autoscaled,
        "scaled-up-and-down",
        ("grew and shrank 24 times", "between 1 and 6 members", "60 rebalances"),
        "stabilizationWindowSeconds",
    ),
    Incident(
        "KAFKA-13563",
        "2.8.1",
        cut_off,
        "commits-end-with-coordinator",
        ("by standalone consumer", "(record 800)", "leader epoch 0 to 1, record 801"),
        "KAFKA-13563",
        801,
    ),
    Incident(
        "librdkafka-2630",
        "2.3.1",
        member_cut_off,
        "commits-end-with-coordinator",
        ("(record 801)", "leader epoch 0 to 1, record 802", "It may read on all the time"),
        "issue 2630",
        801,
    ),
    Incident(
        "parallel-consumer-857",
        "3.9.2",
        record_not_done,
        "record-not-done",
        ("orders-2 of billing stays at 690", "(record 239)", "180 times with other metadata", "3 h"),
        "the record at offset 690 of orders-2",
        239,
    ),
    Incident(
        "parallel-consumer-transactional",
        "3.9.2",
        record_not_done_in_transactions,
        "record-not-done",
        ("orders-2 of billing stays at 690", "180 times with other metadata"),
        "the record at offset 690 of orders-2",
        298,
    ),
    Incident(
        "partition-without-leader",
        "3.9.2",
        stands_still,
        "stands-still",
        ("orders-1 at 1100", "(record 402)", "3 other partitions", "the log does not decide"),
        "a leader of none",
        402,
    ),
    Incident(
        "KAFKA-7610",
        "1.1.1",
        crowded,
        "group-crowded",
        ("399 new members", "generation 2", "399 of them went in generation 3", "KAFKA-7610"),
        "KIP-394",
        121,
        "KAFKA-7610",
    ),
    Incident(
        "KAFKA-12759",
        "3.9.2",
        not_applied,
        "subscription-not-applied",
        ("instance i-1", "to refunds, too", "stayed in generation 1"),
        "removeMembersFromConsumerGroup with instance id i-1",
        121,
        "KAFKA-12759",
    ),
    Incident(
        "alpakka-1304",
        "3.9.2",
        nothing_assigned,
        "nothing-assigned",
        ("generation 2", "2 members subscribe to orders", "nobody reads 4 partitions"),
        "restart one member",
        121,
    ),
    Incident(
        "one-partition-left-out",
        "3.9.2",
        left_out,
        "partitions-left-out",
        ("owns orders-3 since generation 2", "in generation 1 somebody did"),
        "restart one member",
        241,
    ),
    Incident(
        "assignors-differ",
        "3.9.2",
        assignors,
        "assignor-changed",
        ("from range to cooperative-sticky in generation 2", "changed 3 times"),
        "in two rounds",
        61,
    ),
    Incident(
        "starrocks-33",
        "3.9.2",
        sink_without_commits,
        "left-long-after-last-commit",
        ("(record 240)", "for 12 h more", "orders-3 at 30500", "processed again"),
        "could not commit",
        240,
        group=SINK,
    ),
    Incident(
        "static-members-scaled-down",
        "3.9.2",
        static_scaled_down,
        "left-long-after-last-commit",
        ("instance app-2", "instance app-3", "for 30 min more", "2 partitions stood still"),
        "removeMembersFromConsumerGroup with instance id app-2",
        240,
    ),
    Incident(
        "slow-batches",
        "3.9.2",
        slow_batches,
        "rebalance-storm",
        ("joined 12 times", "leave 5 min after they joined, which is their max.poll.interval.ms"),
        "Lower max.poll.records",
    ),
    Incident(
        "consumer-for-each-batch",
        "3.9.2",
        consumer_for_each_batch,
        "rebalance-storm",
        ("are starts of the whole group", "made for each batch or request"),
        "Keep the consumer open",
    ),
    Incident(
        "topic-made-again-while-read",
        "3.9.2",
        topic_made_again,
        "moved-back",
        ("All 4 partitions of orders begin again near 0", "this speaks for a new topic"),
        "nothing is to be put back",
        241,
    ),
    Incident(
        "kafkajs-1119",
        "3.3.1",
        one_partition_out_of_range,
        "moved-back",
        ("1 partition of billing", "3 other partitions meanwhile", "out of range"),
        "OFFSET_OUT_OF_RANGE of orders-2",
    ),
    Incident(
        "KAFKA-19902",
        "3.9.2",
        without_epoch,
        "moved-back",
        ("(record 241) has no leader epoch", "KAFKA-19902"),
        "Commit with a leader epoch",
    ),
    Incident(
        "alpakka-118",
        "3.9.2",
        former_owner,
        "commits-out-of-order",
        ("had committed last as the owner, up to generation 1 (record 119)", "what it has lost"),
        "onPartitionsRevoked",
    ),
    Incident(
        "second-start-at-latest",
        "3.9.2",
        second_start,
        "partition-begun-late",
        ("owned in billing since generation 1", "before generation 3", "orders-2 begins at 9000"),
        "auto.offset.reset=earliest",
    ),
    Incident(
        "platformatic-267",
        "3.9.2",
        begun_at_latest,
        "jumped-forward",
        ("first commit of its owner in generation 3", "did not begin at the committed offset"),
        "OffsetFetch that failed",
    ),
)
