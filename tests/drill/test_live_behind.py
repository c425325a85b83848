"""Coordinators of 4.3.1 that answer older offsets than were acknowledged, and offsets that are lost.

Seen on 4.3.1: a coordinator answers OffsetFetch as of the high watermark that it has heard of. One that leads
since an election has loaded all of the log, but learns its high watermark only from the fetches of the other
replicas in sync. Meanwhile ListOffsets is refused with ``OFFSET_NOT_AVAILABLE``, commits wait, and
OffsetFetch answers, without error, as before the last commits. Nothing is lost: later the answers are right.

In two of 600 elections (50 partitions, twelve times) the high watermark was told all along, and still the
coordinator answered as before, for as long as nothing was written (8 s), until the next commit: it had missed
the high watermark between its load and its first listening. As that cannot be brought about at will, a watch
is shown here that a high watermark which is told and does not move is not enough.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.protocol.admin import ElectionType, ElectLeadersRequest
from kafka.protocol.consumer import ListOffsetsRequest, OffsetFetchRequest

from coordinator_core.cluster.client import Client
from coordinator_core.cluster.drill_probes import SERVED_ROUNDS, Canaries, Known
from coordinator_core.cluster.drill_watch import Watch
from coordinator_core.cluster.errors import ClusterError
from coordinator_core.cluster.groups import OFFSET_FETCH_VERSION, ask_coordinators, fetched_offsets
from coordinator_core.cluster.settings import client_settings
from coordinator_core.drill.canaries import Canary, canaries
from coordinator_core.errors import ExitCode
from coordinator_core.groups.hashing import partition_for
from tests.cluster.kit import TOPIC, Commits
from tests.cluster.three import IDS, ThreeBrokers, three_brokers
from tests.drill.kit import PARTITIONS, SETTINGS, Json, regroup
from tests.drill.test_compare import FAULT, journal, prediction
from tests.live.broker import Kafka, wait_for
from tests.live.wire import OFFSETS_TOPIC

GROUP = "g-0"
PARTITION = partition_for(GROUP, PARTITIONS)
NOT_COORDINATOR = 16
OFFSET_NOT_AVAILABLE = 78
TRIES = 5
OFFSET_KEY = "orders", 0


@dataclass(frozen=True)
class Place:
    cluster: ThreeBrokers
    commits: Commits
    client: Client


@pytest.fixture(scope="module")
def place(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    settings = {
        **SETTINGS,
        # Followers learn the high watermark of the last commit late.
        "replica.fetch.wait.max.ms": "12000",
        # A broker that is stopped stays in sync until it goes on.
        "broker.session.timeout.ms": "120000",
        "replica.lag.time.max.ms": "120000",
    }
    with three_brokers(kafka, tmp_path_factory.mktemp("behind"), settings) as (cluster, commits):
        commits.commit(1, groups=1)
        short = {"request.timeout.ms": "2000", "default.api.timeout.ms": "60000"}
        with Client(client_settings(cluster.bootstrap, short)) as client:
            yield Place(cluster, commits, client)


class Noted(list[Json]):
    """Notes, as a journal has them. Safe in several threads."""

    def __call__(self, event: str, **values: Any) -> None:
        self.append({"event": event, **values})

    def of(self, *kinds: str) -> list[Json]:
        return [each for each in self if each["event"] in kinds]


@contextmanager
def new_leader(place: Place, write: Callable[[], object]) -> Iterator[tuple[int, Callable[[], None]]]:
    """After ``write`` another broker leads, without its high watermark: a replica in sync is stopped.

    The broker, and what lets the replica go on.
    """
    cluster, client = place.cluster, place.client
    wait_for("replicas in sync", lambda: sorted(cluster.isr()[PARTITION]) == list(IDS))
    old = cluster.leaders()[PARTITION]
    controller, _ = client.quorum()
    new, stopped = sorted(set(IDS) - {old}, key=lambda node: node != controller)
    place.commits.reassign(OFFSETS_TOPIC, {PARTITION: [new, old, stopped]})
    wait_for(
        "the new order",
        lambda: client.topic(OFFSETS_TOPIC).partitions[PARTITION].replicas == (new, old, stopped),
    )
    write()
    pid = cluster.nodes[stopped].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        wanted = ElectLeadersRequest.TopicPartitions(topic=OFFSETS_TOPIC, partitions=[PARTITION])

        def elected() -> bool:
            """The controller elects nobody whom it has just found out of sync."""
            client.ask(
                lambda: ElectLeadersRequest(
                    election_type=ElectionType.PREFERRED, topic_partitions=[wanted], timeout_ms=1000
                ),
                old,
            )
            return all(cluster.leaders(node)[PARTITION] == new for node in (new, old))

        wait_for("the new leader", elected)
        # A broker names the new leader before its own coordinator stops answering.
        wait_for("the old coordinator", lambda: offset_fetch(place, old, GROUP, TOPIC, 0)[0] == NOT_COORDINATOR)
        yield new, lambda: os.kill(pid, signal.SIGCONT)
    finally:
        os.kill(pid, signal.SIGCONT)
        wait_for("one leader", lambda: len({cluster.leaders(node)[PARTITION] for node in IDS}) == 1)


def told(place: Place, broker: int) -> int:
    """Error code of ListOffsets for the end of the partition."""
    kind = ListOffsetsRequest.ListOffsetsTopic
    end = kind.ListOffsetsPartition(partition_index=PARTITION, timestamp=-1, current_leader_epoch=-1)
    asked = ListOffsetsRequest[7](replica_id=-1, isolation_level=0, topics=[kind(name=OFFSETS_TOPIC, partitions=[end])])
    with place.cluster.nodes[broker].connect() as connection:
        code: int = connection.send(asked).topics[0].partitions[0].error_code
    return code


def offset_fetch(place: Place, broker: int, group: str, topic: str, partition: int) -> tuple[int, int]:
    """Error code of OffsetFetch, and the committed offset: -1 with an error."""
    kind = OffsetFetchRequest.OffsetFetchRequestTopic
    asked = OffsetFetchRequest[5](group_id=group, topics=[kind(name=topic, partition_indexes=[partition])])
    with place.cluster.nodes[broker].connect() as connection:
        answer = connection.send(asked)
    return answer.error_code, -1 if answer.error_code else answer.topics[0].partitions[0].committed_offset


def answered(place: Place, broker: int, group: str, topic: str, partition: int) -> int:
    """The committed offset, as ``broker`` answers OffsetFetch once it has loaded."""

    def fetched() -> int | None:
        code, offset = offset_fetch(place, broker, group, topic, partition)
        return None if code else offset

    return wait_for("an answer", fetched)


@contextmanager
def coordinator_behind(place: Place) -> Iterator[tuple[int, int, Callable[[], None]]]:
    """A coordinator that answers ``GROUP`` as before its last commit.

    The broker, the offset that was committed last, and what ends the state.
    """
    for _ in range(TRIES):
        with new_leader(place, lambda: place.commits.commit(1, groups=1)) as (new, go_on):
            count = place.commits._count
            # A follower that learnt the high watermark in time is possible.
            if answered(place, new, GROUP, TOPIC, 0) == count:
                continue
            yield new, count, go_on
            return
    pytest.fail("no coordinator was behind")


def test_a_watch_waits_for_a_coordinator_that_is_behind(place: Place) -> None:
    with coordinator_behind(place) as (new, count, go_on):
        noted = Noted()
        before = {GROUP: {(TOPIC, partition): count for partition in range(64)}}
        watch = Watch(place.client, place.client.topic(OFFSETS_TOPIC), before, noted, 0)
        for _ in range(3):
            assert watch.look() == {GROUP}
            assert told(place, new) == OFFSET_NOT_AVAILABLE
            assert answered(place, new, GROUP, TOPIC, 0) == count - 1
        assert noted.of("backwards", "behind") == []
        go_on()
        watch.look_until_all_answer()
        # Nor does it believe the replica that has not heard of the new leader.
        assert {event["leader"] for event in noted.of("leader")} <= {new}
        assert answered(place, new, GROUP, TOPIC, 0) == count
        assert noted.of("backwards") == []
        behind = sorted(noted.of("behind"), key=lambda event: event["partition"])
        assert [
            (event["group_id"], event["topic"], event["partition"], event["before"], event["after"]) for event in behind
        ] == [(GROUP, TOPIC, partition, count, count - 1) for partition in range(64)]
        assert all(event["coordinator"] == new and event["behind_ms"] > 0 for event in behind)
        assert watch.look() == set()


def test_stable_offsets_of_a_coordinator_that_is_behind(place: Place) -> None:
    """It answers NOT_COORDINATOR, after ``offsets.commit.timeout.ms`` (5 s): the command says so, and what helps."""
    info = place.client.topic(OFFSETS_TOPIC)
    with coordinator_behind(place) as (new, _, go_on):
        slow = {"request.timeout.ms": "18000", "default.api.timeout.ms": "20000"}
        with Client(client_settings(place.cluster.nodes[new].bootstrap, slow)) as client:

            def ask(broker: int, group_ids: list[str]) -> dict[str, int]:
                asked = {group_id: [(TOPIC, 0)] for group_id in group_ids}
                answers = fetched_offsets(client, broker, asked, False, OFFSET_FETCH_VERSION)
                return {group_id: code for group_id, code, _ in answers if code}

            with pytest.raises(ClusterError) as told:
                ask_coordinators(client, info, [GROUP], ask)
            where = f"{OFFSETS_TOPIC}-{PARTITION}, broker {new}"
            assert f"not within 20 s: group {GROUP!r} ({where}): error 16 (NOT_COORDINATOR)" in str(told.value)
            assert "a commit of any group in this partition helps" in str(told.value)
            go_on()
            ask_coordinators(client, info, [GROUP], ask)


def canary(place: Place, noted: Noted) -> tuple[Canary, Any]:
    """A canary of the partition whose rounds are the test's to do; it has been served."""
    one = canaries(os.urandom(4).hex(), [PARTITION], PARTITIONS)[0]
    (state,) = Canaries(place.client, [one], noted, 0)._states
    served(state)
    return one, state


def served(state: Any) -> None:
    """Rounds until three in a row were served: three commits are acknowledged."""
    state.served_rounds = 0
    wait_for("the canary", lambda: state.round() or state.served_rounds == SERVED_ROUNDS)


def until(state: Any, found: Callable[[], list[Any]]) -> None:
    """Rounds until something is found."""
    wait_for("the canary", lambda: state.round() or bool(found()))


def test_a_canary_waits_for_a_coordinator_that_is_behind(place: Place) -> None:
    noted = Noted()
    one, state = canary(place, noted)
    for _ in range(TRIES):
        with new_leader(place, lambda: served(state)) as (new, go_on):
            known = fetches(noted)[-1] + 1
            if answered(place, new, one.group_id, OFFSETS_TOPIC, PARTITION) == known:
                continue
            assert told(place, new) == OFFSET_NOT_AVAILABLE
            noted.clear()
            until(state, lambda: fetches(noted)[2:])
            assert {(event["broker"], event["detail"]) for event in fetched(noted)} == {(new, known - 1)}
            assert (noted.of("backwards", "behind"), state.served_rounds) == ([], 0)
            go_on()
            until(state, lambda: noted.of("backwards", "behind"))
            [behind] = noted.of("backwards", "behind")
            assert behind.pop("behind_ms") > 0
            assert behind == {
                "event": "behind",
                "group_id": one.group_id,
                "topic": OFFSETS_TOPIC,
                "partition": PARTITION,
                "before": known,
                "after": known - 1,
                "coordinator": new,
            }
            # It commits where it did before.
            served(state)
            assert fetches(noted)[-1] > known
            return
    pytest.fail("no coordinator was behind")


def fetched(noted: Noted) -> list[Json]:
    return [event for event in noted.of("probe") if (event["api"], event["answer"]) == ("OffsetFetch", "NONE")]


def fetches(noted: Noted) -> list[int]:
    """Offsets that the canary was answered."""
    return [event["detail"] for event in fetched(noted)]


def test_offsets_that_are_gone_are_said_once(place: Place) -> None:
    """By the canary, which has to write for it, and by a watch, to which the canary's commits are enough."""
    noted, watched = Noted(), Noted()
    one, state = canary(place, noted)
    known = fetches(noted)[-1] + 1
    leader = place.cluster.leaders()[PARTITION]
    before = {GROUP: {(TOPIC, 0): answered(place, leader, GROUP, TOPIC, 0)}}
    watch = Watch(place.client, place.client.topic(OFFSETS_TOPIC), before, watched, 0)
    assert watch.look() == set()
    # Another client would go on with the coordinators that it once found.
    admin = KafkaAdminClient(bootstrap_servers=place.cluster.bootstrap.split(","))
    for group, topic, partition in ((one.group_id, OFFSETS_TOPIC, PARTITION), (GROUP, TOPIC, 0)):
        admin.delete_group_offsets(group, [TopicPartition(topic, partition)])
    admin.close()
    for _ in range(3):
        assert watch.look() == {GROUP}
        assert told(place, leader) == 0
    assert watched == []
    noted.clear()
    served(state)
    watch.look_until_all_answer()
    served(state)
    watch.look()
    assert fetches(noted)[:3] == [-1, -1, known + 2]
    for found, group, topic, partition, offset in (
        (noted, one.group_id, OFFSETS_TOPIC, PARTITION, known),
        (watched, GROUP, TOPIC, 0, before[GROUP][TOPIC, 0]),
    ):
        assert found.of("backwards", "behind") == [
            {
                "event": "backwards",
                "group_id": group,
                "topic": topic,
                "partition": partition,
                "before": offset,
                "after": None,
                "coordinator": leader,
            }
        ]


def test_what_is_answered_again_is_lost_once_the_coordinator_has_heard() -> None:
    noted = Noted()
    known = Known("g", {OFFSET_KEY: 11}, noted)
    for heard in (False, False):
        known.compare(2, {OFFSET_KEY: 10}, heard=heard)
        assert (known.in_doubt, noted) == (True, [])
    known.compare(2, {}, heard=False, failed={OFFSET_KEY})
    known.compare(2, {OFFSET_KEY: 10}, heard=True)
    known.compare(2, {OFFSET_KEY: 10}, heard=True)
    assert [(event["event"], event["before"], event["after"]) for event in noted] == [("backwards", 11, 10)]
    assert not known.in_doubt


def test_the_first_answer_is_no_loss_whatever_the_coordinator_has_heard() -> None:
    noted = Noted()
    known = Known("g", {OFFSET_KEY: 11}, noted)
    known.compare(2, {}, heard=True)
    known.compare(2, {OFFSET_KEY: 11}, heard=True)
    [behind] = noted
    assert (behind["event"], behind["after"], known.in_doubt) == ("behind", None, False)


def test_the_report_tells_for_how_long_answers_were_behind(tmp_path: Path) -> None:
    late = {"event": "behind", "group_id": "g", "topic": "orders", "before": 7, "after": 5, "coordinator": 2}
    events = [
        {"at_ms": FAULT + 2500 + number, **late, "partition": number, "behind_ms": 310.4 + number}
        for number in range(2)
    ]
    files = tmp_path / "prediction.json", tmp_path / "journal.jsonl"
    files[0].write_text(json.dumps(prediction().to_json()))
    files[1].write_text("".join(json.dumps(event) + "\n" for event in journal(*events)))
    done = regroup("drill", "compare", *files, "--output", tmp_path, check=False)
    assert done.returncode == ExitCode.CLEAN, done.stderr
    report = json.loads((tmp_path / "drill.json").read_text())
    assert (report["backwards"], report["behind"]) == ([], events)
    page = (tmp_path / "drill.html").read_text()
    assert "2 committed offsets were answered lower for a while, for at most 311 ms" in page
