"""Incidents of members, resets and deletions: what a broker with its usual retention writes."""

from __future__ import annotations

import base64

from coordinator_core.groups.hashing import partition_for
from coordinator_core.records.codec import encode_key
from tests.live.broker import now_ms
from tests.live.wire import OFFSETS_TOPIC
from tests.log.builders import build_batch
from tests.recording.script import ConsumerMember, Producer, ShareMember, downgrade, settle
from tests.recording.stage import BOTH, ORDERS, Play, Programme

PROGRAMME = Programme()
incident = PROGRAMME.add
ALL = [("orders", number) for number in range(4)]
FIRST, SECOND = ALL[:2], ALL[2:]


def _comes_back(play: Play, start: int) -> None:
    """A consumer of a new deployment commits from ``start`` on."""
    again = play.joins("billing-2")
    play.reads(again, range(start, start + 100, 20))


@incident(
    "reset-to-earliest",
    "reset-by-admin",
    like="offset-reset-180k",
    records=("commit",),
    says=("4 partitions", "1,600 records"),
)
def reset(play: Play) -> None:
    member = play.joins("billing-1")
    play.reads(member, range(100, 401, 50))
    play.leaves(member)
    if play.broken:
        with play.fault("kafka-consumer-groups.sh --reset-offsets --to-earliest"):
            play.tool("--reset-offsets", "--to-earliest", "--topic", "orders", "--execute")
    _comes_back(play, 20 if play.broken else 420)


@incident("reset-to-latest", "skipped-by-admin", records=("commit",), says=("4 partitions", "22,400 records"))
def skip(play: Play) -> None:
    member = play.joins("billing-1")
    play.reads(member, range(100, 401, 50))
    play.leaves(member)
    if play.broken:
        with play.fault("kafka-consumer-groups.sh --reset-offsets --to-latest"):
            play.tool("--reset-offsets", "--to-latest", "--topic", "orders", "--execute")
    else:
        _comes_back(play, 420)


@incident("offsets-of-a-topic-deleted", "offsets-deleted", cause="OffsetDelete", records=("offset tombstone",))
def offset_delete(play: Play) -> None:
    member = play.joins("billing-1", BOTH)
    play.reads(member, range(100, 401, 50))
    play.leaves(member)
    if play.broken:
        with play.fault("kafka-consumer-groups.sh --delete-offsets --topic orders"):
            play.tool("--delete-offsets", "--topic", "orders")
    _comes_back(play, 20 if play.broken else 420)


@incident("group-deleted", "offsets-deleted", cause="DeleteGroups", records=("offset tombstone",))
def delete_group(play: Play) -> None:
    member = play.joins("billing-1")
    play.reads(member, range(100, 401, 50))
    play.leaves(member)
    if play.broken:
        with play.fault("kafka-consumer-groups.sh --delete"):
            play.tool("--delete")
    _comes_back(play, 20 if play.broken else 420)


@incident("topic-made-again", "topic-deleted", cause="topic deletion", records=("offset tombstone",))
def topic_deleted(play: Play) -> None:
    """Members of the group stay while its topic is deleted and made again."""
    member = play.joins("billing-1", {"gone": 2} if play.broken else ORDERS)
    play.reads(member, range(100, 401, 50))
    if not play.broken:
        return play.reads(member, range(420, 500, 20))
    stage = play.stage
    with play.fault("kafka-topics.sh --delete --topic gone"):
        stage.tool("org.apache.kafka.tools.TopicCommand", "--delete", "--topic", "gone")
        stage.until_gone((play.group, "gone", 0), (play.group, "gone", 1))
    words = ("--create", "--topic", "gone", "--partitions", "2", "--replication-factor", "1")
    stage.tool("org.apache.kafka.tools.TopicCommand", *words)
    stage._wait_for_topics()
    stage.produce("gone", 2, 500)
    return play.reads(member, range(1, 5))


@incident("two-writers", "two-writers", like="two-writers", records=("commit",), says=("4 partitions",))
def two_writers(play: Play) -> None:
    with play.fault("two standalone consumers commit in turn"):
        for value in range(8):
            play.commits(*((*key, 100 + value, "") for key in ALL), leader_epoch=0)
            if play.broken:
                play.commits(*((*key, 4000 + value, "") for key in ALL), leader_epoch=0)


@incident(
    "commit-of-lost-partitions",
    "commit-after-losing-partition",
    like="trespass",
    records=("commit",),
    says=("map-a on /127.0.0.1 committed", "belongs to other-b"),
)
def trespass(play: Play) -> None:
    """A client commits a map of all partitions that it ever read: of those that it has lost, where it had been."""
    a, b = play.joins("map-a"), play.member("other-b")
    play.reads(a, range(100, 120))
    a.given = {"map-a": FIRST, "other-b": SECOND}
    with play.act("other-b joins, and gets two partitions"):
        a.join(b)
    play.reads(b, range(120, 123))
    with play.fault("map-a commits a map of all that it ever read"):
        lost = [(*key, 119, "") for key in SECOND] if play.broken else []
        a.commit(*((*key, 125, "") for key in FIRST), *lost)
    play.reads(b, range(123, 126))


@incident(
    "duplicate-instance",
    "duplicate-instance-id",
    like="duplicate-instance",
    records=("generation",),
    says=("instance id i-1", "replaced 6 times"),
)
def duplicate_instance(play: Play) -> None:
    one = play.joins("process-1", instance_id="i-1")
    play.reads(one, range(100, 400, 100))
    two = play.member("process-2", instance_id="i-1")
    with play.fault("two processes with instance id i-1 put each other out"):
        for turn in range(6 if play.broken else 1):
            (one if turn % 2 else two).comes_again()
            (one if turn % 2 else two).join_alone()


@incident(
    "rebalance-storm",
    "rebalance-storm",
    like="rebalance-storm",
    records=("generation",),
    says=("slow on /127.0.0.1",),
)
def storm(play: Play) -> None:
    steady, slow = play.member("steady"), play.member("slow")
    with play.fault("a member that exceeds max.poll.interval.ms leaves and comes again"):
        steady.join()
        steady.goes_to(100)
        for _ in range(12 if play.broken else 1):
            slow.comes_again()
            steady.join(slow)
            slow.leave()
            steady.join()
    play.reads(steady, range(130, 150, 10))


@incident(
    "member-that-crashes",
    "flapping-member",
    like="flapping-member",
    records=("generation",),
    says=("crash on /127.0.0.1", "all members give up"),
)
def flapping(play: Play) -> None:
    steady, crash = play.joins("steady"), play.member("crash")
    with play.fault("one of two members comes and goes"):
        for turn in range(6 if play.broken else 2):
            crash.comes_again()
            steady.join(crash)
            for member in (steady, crash):
                member.goes_to(100 + 20 * turn)
            crash.leave()
            steady.join()
            steady.goes_to(110 + 20 * turn)


@incident(
    "fenced-member",
    "flapping-member",
    like="fenced-member",
    records=("epoch",),
    says=("away on /127.0.0.1", "partitions move to it and away"),
)
def fenced(play: Play) -> None:
    """The same in a KIP-848 group."""
    stays = ConsumerMember(play.stage, play.group, "stays", ["orders"])
    settle(stays)
    with play.fault("a KIP-848 member goes and joins anew"):
        for turn in range(6 if play.broken else 2):
            away = ConsumerMember(play.stage, play.group, "away", ["orders"])
            settle(stays, away)
            stays.commit(("orders", 0, 100 + turn, ""))
            away.leave()
            settle(stays)


@incident(
    "two-applications",
    "mixed-subscriptions",
    like="fhir-2539",
    records=("generation",),
    says=("2 classes", "mailer on /127.0.0.1", "payments-0"),
)
def mixed(play: Play) -> None:
    """Two applications with different topics in one group; its leader gives the other one nothing."""
    web, mailer = play.joins("web", BOTH), play.member("mailer", {"payments": 2})
    play.reads(web, range(100, 130, 10))
    if play.broken:
        web.topics = ORDERS
        web.given = {"web": ALL}
    else:
        web.given = {"web": ALL, "mailer": [("payments", 0), ("payments", 1)]}
        mailer.topics = web.topics
    with play.fault("mailer, which reads payments, joins web, which reads orders"):
        web.join(mailer)
    play.reads(web, range(130, 150, 10))


@incident(
    "guest-in-group",
    "guest-in-group",
    like="guest-in-group",
    records=("commit",),
    says=("console-consumer on /127.0.0.1", "2 partitions"),
)
def guest(play: Play) -> None:
    name = "console-consumer" if play.broken else "billing-2"
    own, other = play.joins("billing-1"), play.member(name)
    play.reads(own, range(100, 140, 10))
    own.given = {"billing-1": FIRST, name: SECOND}
    with play.fault(f"{name} is a member for a while"):
        own.join(other)
        for value in range(3):
            own.goes_to(140 + value)
            other.goes_to(200 + 100 * value)
        other.leave()
    own.given = {}
    with play.act("billing-1 is alone again"):
        own.join()
    with play.act("billing-1 goes on"):
        for value in range(10):
            own.commit(*((*key, (143 if key in FIRST else 401) + value, "") for key in ALL))


@incident(
    "position-unknown",
    "negative-offset-committed",
    like="negative-offset",
    records=("commit",),
    says=("committed -1 for orders-0", "after 390"),
)
def negative(play: Play) -> None:
    member = play.joins("billing-1")
    play.reads(member, range(300, 400, 10))
    with play.fault("a commit of -1"):
        member.commit(("orders", 0, -1 if play.broken else 400, ""))


@incident(
    "stored-offsets-kept",
    "stale-commit",
    like="librdkafka-2782",
    records=("commit",),
    says=("from 400 to 109", "generation 1"),
    bug="librdkafka-3774",
)
def stale(play: Play) -> None:
    a, b = play.joins("rdkafka-a"), play.member("rdkafka-b")
    play.reads(a, range(100, 110))
    a.given = {"rdkafka-a": FIRST, "rdkafka-b": SECOND}
    with play.act("rdkafka-b joins"):
        a.join(b)
    play.reads(b, range(110, 401, 10))
    play.leaves(b)
    a.given = {}
    with play.act("rdkafka-a has all partitions again"):
        a.join()
    with play.fault("rdkafka-a commits what it had stored"):
        a.commit(("orders", 2, 109 if play.broken else 405, ""), ("orders", 0, 111, ""))


@incident(
    "sent-to-the-end",
    "jumped-forward",
    like="tiered-663",
    records=("commit",),
    says=("orders-1 from 290 to 6000", "5,710 records"),
)
def jumped(play: Play) -> None:
    member = play.joins("billing-1")
    play.reads(member, range(200, 300, 10))
    with play.fault("auto.offset.reset=latest after an OFFSET_OUT_OF_RANGE"):
        member.commit(("orders", 1, 6000 if play.broken else 300, ""))


@incident("sought-back", "moved-back", records=("commit",), says=("4 partitions", "by 760 records", "sought back"))
def back(play: Play) -> None:
    member = play.joins("billing-1")
    play.reads(member, range(200, 300, 10))
    with play.fault("the consumer seeks back"):
        member.goes_to(100 if play.broken else 300)


@incident(
    "two-owners",
    "two-owners",
    like="two-owners",
    records=("generation",),
    says=("orders-1 to sticky-", "generation 2", "to the end of this log"),
)
def two_owners(play: Play) -> None:
    a, b = play.joins("sticky-a"), play.member("sticky-b")
    play.reads(a, range(100, 110))
    a.given = {"sticky-a": FIRST, "sticky-b": ALL[1:] if play.broken else SECOND}
    with play.fault("the leader gives orders-1 to both members"):
        a.join(b)
    play.reads(a, range(110, 115))
    play.reads(b, range(115, 120))


@incident(
    "topic-dropped",
    "topic-unsubscribed",
    like="lag-of-a-dropped-topic",
    records=("commit",),
    says=("2 committed offsets", "payments", "generation 2"),
)
def dropped(play: Play) -> None:
    member = play.joins("billing-1", BOTH)
    with play.fault("commits of both topics"):
        for value in range(100, 140, 10):
            member.goes_to(value)
    if play.broken:
        member.topics = ORDERS
        with play.act("a deployment without payments joins"):
            member.join()
    play.reads(member, range(140, 300, 10))


@incident(
    "transactions-aborted",
    "transactions-aborted",
    like="transactions-aborted",
    records=("transactional commit", "marker"),
    says=("6 transactions", "orders-0 stays at 100", "was to commit 120"),
)
def aborted(play: Play) -> None:
    producer = Producer(play.stage, play.group, old_client=False)
    with play.act("a transaction that is committed"):
        producer.commit(play.group, *((*key, 100, "") for key in ALL))
        producer.end(True)
    with play.fault("transactions that are aborted"):
        for turn in range(6):
            producer.commit(play.group, *((*key, 120 if play.broken else 120 + turn, "") for key in ALL))
            producer.end(not play.broken and turn != 2)


@incident(
    "overtaken-in-a-transaction",
    "commit-overtaken",
    records=("transactional commit", "marker"),
    says=("stays at 105", "not 120"),
)
def overtaken(play: Play) -> None:
    producer = Producer(play.stage, play.group, old_client=False)
    play.commits(("orders", 0, 100, ""), leader_epoch=0)
    with play.fault("a plain commit while a transaction is open, which then commits"):
        producer.commit(play.group, ("orders", 0, 120, ""))
        if play.broken:
            play.commits(("orders", 0, 105, ""), leader_epoch=0)
        producer.end(True)


@incident(
    "forged-tombstones",
    "tombstones-without-a-rule",
    like="forged-tombstones",
    cause="no rule of this release justifies it",
    records=("offset tombstone",),
    says=("a client wrote it",),
)
def forged(play: Play) -> None:
    """Brokers take what a client with this id writes to their internal topics."""
    member = play.joins("billing-1")
    play.reads(member, range(100, 140, 10))
    if not play.broken:
        return
    client = play.stage._client("__admin_client")
    keys = [encode_key(1, {"group": play.group, "topic": topic, "partition": number}) for topic, number in ALL]
    with play.fault("a client writes tombstones to __consumer_offsets"):
        producer_id = client.ask("InitProducerId", {"transactionalId": None, "transactionTimeoutMs": 60_000}, 1)
        batch = build_batch(
            0,
            [(key, None) for key in keys],
            timestamp=now_ms(),
            producer_id=producer_id["producerId"],
            producer_epoch=producer_id["producerEpoch"],
            base_sequence=0,
        )
        row = {
            "index": partition_for(play.group, play.stage.offsets_partitions),
            "records": base64.b64encode(batch).decode(),
        }
        topics = [{"name": OFFSETS_TOPIC, "partitionData": [row]}]
        client.ask("Produce", {"transactionalId": None, "acks": -1, "timeoutMs": 30_000, "topicData": topics}, 8)


@incident(
    "below-log-start",
    "committed-below-log-start",
    like="redpanda-30624",
    records=("commit",),
    says=("clicks-0 at 300", "begins at 1000", "700 records"),
)
def below_start(play: Play) -> None:
    topic = "clicks" if play.broken else "orders"
    with play.fault("commits of a topic whose records are deleted up to 1000 afterwards"):
        for value in (100, 200, 300):
            play.commits((topic, 0, value, ""), leader_epoch=0)
    partitions = [{"partitionIndex": 0, "offset": 1000}]
    body = {"topics": [{"name": "clicks", "partitions": partitions}], "timeoutMs": 30_000}
    if play.broken:
        play.stage.session.ask("DeleteRecords", body)


@incident(
    "beyond-log-end",
    "committed-beyond-log-end",
    like="librdkafka-1558",
    records=("commit",),
    says=("payments-0 at 70000", "without a leader epoch", "ends at 1500"),
)
def beyond_end(play: Play) -> None:
    with play.fault("an Admin client commits what the partition does not have"):
        play.commits(("payments", 0, 70_000 if play.broken else 70, ""))


@incident(
    "scaled-out-too-far",
    "members-without-partitions",
    like="idle-members",
    records=("generation",),
    says=("1 of 3 members", "2 partitions"),
)
def idle(play: Play) -> None:
    topics = {"payments": 2} if play.broken else ORDERS
    first = play.joins("instance-1", topics)
    with play.fault("three members for two partitions"):
        first.join(*(play.member(f"instance-{number}", topics) for number in (2, 3)))
    play.reads(first, range(100, 120, 10))


@incident(
    "assignor-range",
    "members-without-partitions",
    like="uneven-assignor",
    records=("generation",),
    says=("1 of 2 members", "4 partitions", "4 of them to range-a"),
)
def uneven(play: Play) -> None:
    a, b = play.joins("range-a"), play.member("range-b")
    a.given = {"range-a": ALL, "range-b": []} if play.broken else {}
    with play.fault("the assignor gives everything to the first member"):
        a.join(b)
    play.reads(a, range(100, 120, 10))


@incident(
    "connector-deleted",
    "connector-offsets-stay",
    like="connect-es-267",
    group="connect-es-sink",
    records=("commit",),
    says=("es-sink", "orders-0 at 140"),
)
def connector(play: Play) -> None:
    member = play.joins("connector-consumer-es-sink-0")
    with play.fault("commits of the connector"):
        for value in (120, 140):
            member.goes_to(value)
    if play.broken:
        play.leaves(member)


@incident(
    "consumers-stopped",
    "group-is-empty",
    like="group-is-empty",
    records=("generation",),
    says=("last to leave: billing-1", "4 committed offsets"),
)
def nobody_left(play: Play) -> None:
    member = play.joins("billing-1")
    play.reads(member, range(100, 140, 10))
    if play.broken:
        with play.fault("the last member leaves"):
            member.leave()


@incident(
    "flink-job",
    "commits-without-members",
    like="flink-without-members",
    group="flink-orders",
    records=("commit",),
    says=("no members", "Flink", "5 commits"),
)
def outside(play: Play) -> None:
    if not play.broken:
        return play.reads(play.joins("billing-1"), range(100, 150, 10))
    with play.fault("a job commits at its checkpoints"):
        for value in range(100, 150, 10):
            play.commits(*((*key, value, "") for key in ALL), leader_epoch=0)
    return None


@incident("share-group", "share-group", like="share-group", records=("share epoch",), says=("share group", "1 member"))
def share(play: Play) -> None:
    if not play.broken:
        return play.reads(play.joins("billing-1"), range(100, 150, 10))
    with play.fault("a member of a share group joins"):
        settle(ShareMember(play.stage, play.group, "sharing", ["clicks"]))
    return None


@incident(
    "upgraded-to-kip-848",
    "group-changed-type",
    like="group-changes-type",
    records=("group tombstone", "epoch"),
    says=("classic group to a consumer group", "4 offsets stayed"),
)
def upgraded(play: Play) -> None:
    """A classic member stays while the first one with group.protocol=consumer comes."""
    classic = play.joins("classic")
    play.reads(classic, range(100, 140, 10))
    if not play.broken:
        return
    with play.fault("a member with group.protocol=consumer joins"):
        new = ConsumerMember(play.stage, play.group, "modern", ["orders"])
        new.heartbeat(0)
        classic.rejoin(new)
        settle(new)


@incident(
    "downgraded-to-classic",
    "group-changed-type",
    records=("group tombstone", "generation"),
    says=("consumer group to a classic group", "1 offset stayed"),
)
def downgraded(play: Play) -> None:
    only = ConsumerMember(play.stage, play.group, "modern", ["orders"])
    settle(only)
    with play.act("the KIP-848 member commits"):
        only.commit(("orders", 2, 51, ""))
    if play.broken:
        with play.fault("a classic member joins, and the KIP-848 one leaves"):
            downgrade(play.member("classic"), only)
