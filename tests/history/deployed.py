"""Incidents of what was deployed beside a group, or copied over it: environments, instance ids, mirrors of the offsets
topic; each with a clean twin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from coordinator_core.records.codec import encode_value
from tests.history.incidents import GROUP, ORDERS, Incident, member, reads, topics
from tests.history.logs import DAY, HOUR, MINUTE, T0, Client, Log

FIRST, SECOND = ORDERS[:2], ORDERS[2:]
NAMES = ("billing", "mail", "stock")
UNFILLED = "${KAFKA_GROUP_ID}"


def environments(directory: Path, broken: bool, *, same_client: bool = False) -> Path:
    """Staging is deployed with the bootstrap servers and the group id of production."""
    one, two = ("consumer-1", "consumer-1") if same_client else ("billing-1", "billing-2")
    other = "consumer-1" if same_client else "billing-staging-1"
    log = Log().generation(
        GROUP,
        1,
        member(*FIRST, member="p-1", client_id=one),
        member(*SECOND, member="p-2", client_id=two, host="/10.0.0.2"),
    )
    reads(log, GROUP, range(100, 700, 10))
    # The twin is scaled up in another zone.
    hosts = ("/172.20.1.5", "/172.20.1.6") if broken else ("/10.0.7.5", "/10.0.7.6")
    log.generation(
        GROUP,
        2,
        member(ORDERS[0], member="p-1", client_id=one),
        member(ORDERS[1], member="p-2", client_id=two, host="/10.0.0.2"),
        member(ORDERS[2], member="s-1", client_id=other if broken else one, host=hosts[0]),
        member(ORDERS[3], member="s-2", client_id=other if broken else two, host=hosts[1]),
    )
    for value in range(700, 2000, 10):
        log.wait(MINUTE)
        for key in ORDERS:
            log.commit(GROUP, {key: value})
    return log.write(directory)


def environments_alike(directory: Path, broken: bool) -> Path:
    """The same, and both have the default client id."""
    return environments(directory, broken, same_client=True)


def copied(directory: Path, broken: bool) -> Path:
    """MirrorMaker 1 with --whitelist '.*' copies the offsets topic, too; its producer places records by their key."""
    logs = [Log() for _ in range(4)]
    for value in range(30):
        for home, name in enumerate(NAMES):
            for key in ORDERS:
                log = logs[(home + key[1]) % 4 if broken else home]
                log.at = T0 + value * MINUTE
                fields = {"offset": 100 + value, "leaderEpoch": 0, "metadata": "", "commitTimestamp": log.at - 500}
                log.records((log._key(name, *key), encode_value(1, 3, fields)), sequence=-1 if broken else 0)
    for number, log in enumerate(logs):
        if log.data:
            log.write(directory, number)
    return directory


def fenced(directory: Path, broken: bool) -> Path:
    """A static member was restarted, of which nothing is written; then the coordinator moves and fences it."""
    first = member(*FIRST, member="a-1", instance_id="i-1")
    second = member(*SECOND, member="b-1", instance_id="i-2", host="/10.0.0.2")
    log = Log().generation(GROUP, 1, first, second)
    for value in range(100, 700, 10):
        log.wait(MINUTE).commit(GROUP, dict.fromkeys(FIRST, value)).commit(GROUP, dict.fromkeys(SECOND, value))
    log.epoch += 1
    for value in range(700, 1000, 10):
        log.wait(MINUTE).commit(GROUP, dict.fromkeys(SECOND, value))
        if not broken:
            log.commit(GROUP, dict.fromkeys(FIRST, value))
        if broken and value == 700:
            log.generation(GROUP, 2, replace(second, partitions=ORDERS))
        elif broken and value > 700:
            log.commit(GROUP, dict.fromkeys(FIRST, value))
    return log.write(directory)


def one_too_many(directory: Path, broken: bool) -> Path:
    """A client commits position() + 1, as if it were the offset of the last record."""
    by = 1 if broken else 0
    log = reads(Log().generation(GROUP, 1, member()), GROUP, range(100 + by, 400 + by, 10))
    return topics(log.write(directory), *[(0, 390)] * 4)


def _pods(turn: int, broken: bool) -> list[str]:
    """Instance ids of a start: names of a Deployment's pods, or ordinals of a StatefulSet."""
    return [f"billing-{turn}f9c-{number}" if broken else f"billing-{number}" for number in range(2)]


def new_instances(directory: Path, broken: bool) -> Path:
    """group.instance.id is the name of a Deployment's pod; the twin's pods keep theirs, and get new addresses."""
    log, value, generation = Log(), 100, 1

    def pods(turn: int, *owned: tuple[tuple[str, int], ...]) -> Iterator[Client]:
        for number, (name, partitions) in enumerate(zip(_pods(turn, broken), owned, strict=True)):
            yield member(*partitions, member=f"{turn}-{name}", instance_id=name, host=f"/10.0.{turn}.{number}")

    def goes_on(keys: tuple[tuple[str, int], ...]) -> None:
        nonlocal value
        for key in keys:
            log.wait(1000).commit(GROUP, {key: value})
        value += 10
        log.wait(MINUTE - 1000 * len(keys))

    log.generation(GROUP, generation, *pods(0, FIRST, SECOND))
    for turn in range(1, 5):
        for _ in range(30):
            goes_on(ORDERS)
        if broken:
            generation += 1
            log.generation(
                GROUP, generation, *pods(turn - 1, FIRST[:1], FIRST[1:]), *pods(turn, SECOND[:1], SECOND[1:])
            )
            for _ in range(30):
                goes_on(SECOND)
            generation += 1
        log.generation(GROUP, generation, *pods(turn, FIRST, SECOND))
    for _ in range(30):
        goes_on(ORDERS)
    return log.write(directory)


def assigned_beside_members(directory: Path, broken: bool) -> Path:
    """A retry job reads with assign() under the id of the group whose members come now and then."""
    log = Log()
    for value in range(100, 400, 10):
        log.wait(MINUTE).commit(GROUP, dict.fromkeys(ORDERS, value))
    if broken:
        reads(log.generation(GROUP, 1, member()), GROUP, range(400, 800, 10)).generation(GROUP, 2)
    for value in range(1200 if broken else 400, 1500, 10):
        log.wait(MINUTE).commit(GROUP, dict.fromkeys(ORDERS, value))
    return log.write(directory)


def unfilled(directory: Path, broken: bool) -> Path:
    """group.id is a placeholder that nobody filled in."""
    group = UNFILLED if broken else "billing-group"
    mail = member(*FIRST, member="a-1", client_id="mail")
    stock = member(*SECOND, member="b-1", client_id="stock", host="/10.0.0.2")
    return reads(Log().generation(group, 1, mail, stock), group, range(100, 400, 10)).write(directory)


def passed_at_close(directory: Path, broken: bool) -> Path:
    """A record fails, its consumer closes and is started again; the last close commits behind the record."""
    second = member(*SECOND, member="b-0", host="/10.0.0.2")
    log = Log().generation(GROUP, 1, member(*FIRST, member="a-0"), second)
    value, generation = 100, 1
    for _ in range(30):
        log.wait(MINUTE).commit(GROUP, dict.fromkeys(FIRST, value)).commit(GROUP, dict.fromkeys(SECOND, value))
        value += 10
    for turn in range(1, 4):
        log.wait(2 * MINUTE).generation(GROUP, generation + 1, replace(second, partitions=ORDERS))
        log.wait(MINUTE).generation(GROUP, generation + 2, member(*FIRST, member=f"a-{turn}"), second)
        generation += 2
        for _ in range(10):
            log.wait(MINUTE).commit(GROUP, dict.fromkeys(SECOND, value))
            value += 10
    if broken:
        log.commit(GROUP, {ORDERS[0]: 391}).wait(1000).generation(
            GROUP, generation + 1, replace(second, partitions=ORDERS)
        )
    # The twin's record was mended, and its consumer stays.
    for own in range(391, 691, 10):
        log.wait(MINUTE).commit(GROUP, dict.fromkeys(SECOND, value))
        if not broken:
            log.commit(GROUP, dict.fromkeys(FIRST, own))
        value += 10
    return log.write(directory)


def preallocated(directory: Path, broken: bool) -> Path:
    """log.preallocate is set: the segment that is written to ends with zeroes."""
    log = reads(Log().generation(GROUP, 1, member()), GROUP, range(100, 400, 10))
    if broken:
        log.data += bytes(1 << 16)
    return log.write(directory)


def preallocated_and_closed(directory: Path, broken: bool) -> Path:
    """The same, in a segment that was closed with its zeroes."""
    log = Log(group_version=1, commit_version=1, magic=1).generation(GROUP, 1, member())
    reads(log, GROUP, range(100, 400, 10))
    if broken:
        log.data += bytes(1 << 16)
    return reads(log.roll(), GROUP, range(400, 500, 10)).write(directory)


def topic_of_idle_groups(directory: Path, broken: bool) -> Path:
    """A topic is deleted that groups have read which nobody runs any more; they were left at different times."""
    log = Log()
    for name in ("old-a", "old-b", "old-c"):
        log.generation(name, 1, member(member=f"{name}-1")).commit(name, dict.fromkeys(ORDERS, 50))
        log.wait(9 * HOUR).generation(name, 2)
    reads(log, "other", range(60), keys=(("events", 0),)).wait(2 * DAY)
    for name in ("old-a", "old-b", "old-c") if broken else ():
        log.tombstones(name, *ORDERS)
    return log.wait(MINUTE).commit("other", {("events", 0): 70}).write(directory)


DEPLOYED = (
    Incident(
        "sentry-self-hosted-599",
        "3.9.2",
        environments,
        "members-of-two-kinds",
        (
            "2 members of billing-* on 10.0.*.*",
            "billing-staging-* on 172.20.*.*",
            "orders-2, orders-3 go to the latter",
        ),
        "a group.id of its own",
        241,
    ),
    Incident(
        "staging-in-production",
        "3.9.2",
        environments_alike,
        "members-of-two-kinds",
        ("consumer-* on 10.0.*.*", "consumer-* on 172.20.*.*", "the former stayed"),
        "a group.id of its own",
        241,
    ),
    Incident(
        "mirrored-offsets-topic",
        "2.3.1",
        copied,
        "offsets-topic-copied",
        ("3 groups are in several partitions", "orders-0 in 0, orders-1 in 1", "as a producer places them"),
        "--exclude '__.*'",
        87,
        group=None,
    ),
    Incident(
        "confluent-kafka-go-494",
        "2.3.1",
        fenced,
        "static-members-fenced",
        ("instance i-1", "leader epoch 0 to 1", "not once since", "KAFKA-10284"),
        "FencedInstanceIdException",
        243,
        "KAFKA-10284",
    ),
    Incident(
        "committed-one-too-many",
        "3.9.2",
        one_too_many,
        "committed-one-too-many",
        ("in 4 partitions", "orders-0 at 391", "ends at 390", "skips the next record"),
        "--shift-by -1",
        117,
    ),
    Incident(
        "PostHog-65809",
        "3.9.2",
        new_instances,
        "instance-ids-do-not-last",
        ("10 group instance ids for 2 members", "4 times", "up to 30 min"),
        "ordinal of a StatefulSet",
        121,
    ),
    Incident(
        "confluent-kafka-dotnet-1464",
        "3.9.2",
        assigned_beside_members,
        "commits-refused-beside-members",
        ("A consumer with assign()", "orders-0 from 390 to 1200", "UNKNOWN_MEMBER_ID"),
        "a group.id of its own",
        116,
    ),
    Incident(
        "group-id-not-filled-in",
        "3.9.2",
        unfilled,
        "group-id-not-filled-in",
        ("a placeholder that nobody filled in", "2 clients used it"),
        "'${KAFKA_GROUP_ID}' --reset-offsets --all-topics --to-current --export --dry-run > offsets.csv",
        0,
        group=None,
    ),
    Incident(
        "silverback-253",
        "3.9.2",
        passed_at_close,
        "record-passed-at-close",
        ("stood at 390", "its owners left 3 times", "committed 391"),
        "--to-offset 390",
    ),
    Incident(
        "KAFKA-13664",
        "4.3.1",
        preallocated,
        "preallocated-segment",
        ("64 KiB of zeroes", "does not load offsets partition 0", "KAFKA-13664"),
        "preallocate=false",
        None,
        "KAFKA-13664",
        twin_release="3.9.2",
    ),
    Incident(
        "KAFKA-5431",
        "0.10.2.2",
        preallocated_and_closed,
        "preallocated-segment",
        ("00000000000000000000.log", "64 KiB of zeroes", "The cleaner of 0.10.2.2 dies", "KAFKA-5431"),
        "log.preallocate=false",
        None,
        "KAFKA-5431",
        group=None,
    ),
    Incident(
        "topic-of-idle-groups",
        "4.3.1",
        topic_of_idle_groups,
        "groups-lost-offsets-together",
        ("3 of 4 groups", "a topic that they read was deleted"),
        "who deleted the topic",
        group=None,
    ),
)
