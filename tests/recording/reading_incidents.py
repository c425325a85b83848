"""Incidents of what groups read and commit: records that went before, values and ids that were another one's."""

from __future__ import annotations

from tests.recording.stage import Member, Play, Programme

PROGRAMME = Programme()
incident = PROGRAMME.add
ALL = [("orders", number) for number in range(4)]
PARTITIONS = 4
RECORDS = 2000


def _topic(play: Play) -> str:
    """A topic of the group's own, with records."""
    name = f"{play.group}-events"
    topic = {"name": name, "numPartitions": PARTITIONS, "replicationFactor": 1}
    play.stage.session.ask("CreateTopics", {"topics": [topic], "timeoutMs": 30_000})
    play.stage.produce(name, PARTITIONS, RECORDS)
    return name


def _begins(play: Play, topic: str, partitions: int = PARTITIONS) -> Member:
    return play.joins("billing-1", {topic: partitions})


def _delete_records(play: Play, topic: str, before: int) -> None:
    """As retention does once their segments are old."""
    rows = [{"partitionIndex": number, "offset": before} for number in range(PARTITIONS)]
    play.stage.session.ask("DeleteRecords", {"topics": [{"name": topic, "partitions": rows}], "timeoutMs": 30_000})


@incident(
    "overtaken-by-retention",
    "jumped-forward",
    like="overtaken-by-retention",
    records=("commit",),
    says=("from 400 to 1900", "begins at 1850", "retention"),
)
def overtaken(play: Play) -> None:
    """Records went before the consumer came to them, and its policy sends it to the first that are left."""
    topic = _topic(play)
    member = _begins(play, topic)
    play.reads(member, range(100, 401, 20))
    with play.fault("records before 1850 are deleted, and the consumer goes on behind them"):
        if play.broken:
            _delete_records(play, topic, 1850)
        play.reads(member, range(1900, 1991, 10) if play.broken else range(420, 511, 10))


@incident(
    "stopped-below-the-log-start",
    "committed-below-log-start",
    records=("commit",),
    says=("1850",),
)
def stopped(play: Play) -> None:
    """A group was stopped while records that it had not read were deleted."""
    topic = _topic(play)
    member = _begins(play, topic)
    with play.fault("the group commits, and records before 1850 are deleted"):
        play.reads(member, range(100, 401, 50) if play.broken else range(1850, 2001, 50))
        _delete_records(play, topic, 1850)


@incident(
    "connect-under-a-consumers-id",
    "protocol-type-changed",
    like="connect-under-a-consumers-id",
    records=("generation",),
    says=("billing-1 on /127.0.0.1", "of connect (connect-w-1 on /127.0.0.1)"),
)
def two_protocols(play: Play) -> None:
    """A Connect worker is given the id of a group of consumers."""
    with play.fault("a consumer comes and goes, then a worker of another protocol joins"):
        member = play.joins("billing-1")
        play.reads(member, range(100, 201, 20))
        play.leaves(member)
        name, kind = ("connect-w-1", "connect") if play.broken else ("billing-2", "consumer")
        play.member(name, protocol_type=kind).join()


@incident(
    "metadata-grow",
    "metadata-near-limit",
    like="metadata-near-limit",
    records=("commit",),
    says=("3,900 characters", "4,096", "OFFSET_METADATA_TOO_LARGE"),
)
def long_metadata(play: Play) -> None:
    """A client keeps what it has acknowledged out of order in the metadata."""
    with play.fault("metadata grow with each commit"):
        for number in range(40):
            play.commits(("orders", 0, 100, "x" * (100 * number if play.broken else 50)))


@incident(
    "reset-of-a-running-job",
    "reset-without-effect",
    like="reset-of-a-running-job",
    records=("commit",),
    says=("had no effect", "to 0", "no member of the group"),
)
def reset_of_assign(play: Play) -> None:
    """The consumer runs with assign(), so that the group has no members and the tool may reset it."""
    _commits_alone(play, range(4000, 4100, 10))
    with play.fault("kafka-consumer-groups.sh --reset-offsets --to-earliest"):
        if play.broken:
            play.tool("--reset-offsets", "--to-earliest", "--topic", "orders", "--execute")
        _commits_alone(play, range(4100, 4200, 10))


def _commits_alone(play: Play, values: range) -> None:
    for value in values:
        play.commits(*((*key, value, "") for key in ALL), leader_epoch=0)


@incident(
    "second-start-at-latest",
    "partition-begun-late",
    like="second-start-at-latest",
    records=("commit",),
    says=("begins at 5000",),
)
def second_start(play: Play) -> None:
    """Partitions without a commit at the first start; at the second one they are begun at their end."""
    first = play.joins("billing-1")
    for value in range(100, 400, 20):
        first.commit(*((*key, value, "") for key in ALL[:2]))
    play.leaves(first)
    second = play.joins("billing-2")
    with play.fault("two partitions are committed for the first time"):
        for value in range(0, 200, 10):
            second.commit(*((*key, 400 + value, "") for key in ALL[:2]))
            second.commit(*((*key, value + (5000 if play.broken else 0), "") for key in ALL[2:]))
