"""Predictions of ``whatif`` for a log, against brokers that load it: answers, and records in their logs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import pytest

from coordinator_core.groups.model import ConsumerGroup, GroupType, OffsetKey, PartitionState
from coordinator_core.lifecycle.expiry import plan_expiry
from coordinator_core.lifecycle.plan import ExpiryPlan
from coordinator_core.lifecycle.whatif import (
    Effect,
    Outcome,
    groups_deleted,
    migrated,
    repartitioned,
    retained,
    topics_deleted,
    without_topics,
)
from coordinator_core.records.codec import decode_key, decode_value, encode_key, encode_value
from coordinator_core.releases import Profile, profile_for_release
from coordinator_core.replay.sequential import SequentialReplayer
from tests.lifecycle.sweeps import batches_of, expired_offset_keys, log_end, logs
from tests.live.broker import KAFKA_VERSION, Kafka, now_ms, wait_for
from tests.live.wire import OFFSETS_TOPIC
from tests.log.builders import build_batch
from tests.recording.answers import answers
from tests.recording.brokers import OFFSETS_PARTITIONS, RELEASES, Recorded, RecordedBroker
from tests.recording.script import (
    TOPICS,
    ConsumerMember,
    HeartbeatingMember,
    Script,
    ShareMember,
    StreamsMember,
)
from tests.recording.session import RefusedError, Session

BROKERS = {KAFKA_VERSION: Recorded.of(KAFKA_VERSION), "4.0.2": RELEASES["4.0.2"], "4.4.0": RELEASES["4.4.0"]}
WEEK_MS = 7 * 86_400_000
SHORT_MS = 60_000
OTHER_COUNT = 7
NO_SWEEP = {
    "offsets.retention.minutes": str(WEEK_MS // 60_000),
    "offsets.retention.check.interval.ms": "86400000",
    # Open transactions are to stay open.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "86400000",
}
SWEEPS = {**NO_SWEEP, "offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "500"}
MEMBERS: dict[GroupType, type[HeartbeatingMember]] = {
    GroupType.CONSUMER: ConsumerMember,
    GroupType.SHARE: ShareMember,
    GroupType.STREAMS: StreamsMember,
}
NON_EMPTY_GROUP = 68


def session_with(broker: RecordedBroker) -> Session:
    return Session(broker.port, broker.recorded.release)


def profile_of(broker: RecordedBroker) -> Profile:
    return profile_for_release(broker.recorded.version, broker.recorded.coordinator)


@pytest.fixture(scope="module", params=[*BROKERS])
def stopped(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RecordedBroker:
    """A broker with groups of every kind, dead."""
    # Definitions of all requests are those of its client jar.
    RELEASES["4.4.0"].fetch()
    recorded = BROKERS[request.param]
    kafka = Kafka.fetch() if request.param == KAFKA_VERSION else recorded.fetch()
    broker = RecordedBroker(recorded, kafka, tmp_path_factory.mktemp("whatif") / "broker", NO_SWEEP)
    broker.start()
    script = Script(session_with(broker))
    try:
        script.everything()
    finally:
        broker.kill()
        script.close()
    return broker


@pytest.fixture
def running(stopped: RecordedBroker, tmp_path: Path) -> Iterator[RecordedBroker]:
    """One that has loaded its log."""
    broker = stopped.copied(tmp_path / "broker", NO_SWEEP)
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


def states(broker: RecordedBroker) -> list[PartitionState]:
    found = []
    for partition, log in sorted(logs([str(broker.log_dir)]).items()):
        replayer = SequentialReplayer(profile_of(broker), partition)
        for batch, records in batches_of(log):
            replayer.replay_batch(batch, records)
        found.append(replayer.finish())
    return found


def ends(log_dir: Path) -> dict[int, int]:
    return {partition: log_end(log) for partition, log in logs([str(log_dir)]).items()}


def tombstoned(log_dir: Path, since: dict[int, int]) -> tuple[set[OffsetKey], set[str]]:
    """Offset keys and groups whose tombstones the broker has written from these record offsets on."""
    offset_keys, groups = set(), set()
    for partition, log in logs([str(log_dir)]).items():
        for batch, records in batches_of(log):
            for record in () if batch.is_control or batch.base_offset < since.get(partition, 0) else records:
                assert record.key is not None
                key = decode_key(record.key)
                assert key.data is not None
                if record.value is not None:
                    continue
                if key.type == 1:
                    offset_keys.add(OffsetKey(*key.data.values()))
                elif key.type in (2, 3, 11, 17):
                    groups.add(str(key.data.get("group", key.data.get("groupId"))))
    return offset_keys, groups


def removed(effects: list[Effect]) -> tuple[set[OffsetKey], set[str]]:
    gone = [one for one in effects if one.outcome is Outcome.REMOVED]
    return offset_keys_of(gone), {one.group_id for one in gone if one.topic is None and one.at_ms is None}


def offset_keys_of(effects: list[Effect]) -> set[OffsetKey]:
    return {
        OffsetKey(one.group_id, one.topic, one.partition)
        for one in effects
        if one.topic is not None and one.partition is not None
    }


def holds(effects: list[Effect], found: list[PartitionState]) -> None:
    """The record offset of every effect on a committed offset is that of its value."""
    offsets = {key: offset for state in found for key, offset in state.offsets.items()}
    for one in effects:
        if one.committed_offset is not None:
            (key,) = offset_keys_of([one])
            offset = offsets[key]
            assert (one.record_offset, one.committed_offset) == (offset.record_offset, offset.committed_offset)


def test_groups_and_a_topic_are_deleted(running: RecordedBroker) -> None:
    session, profile = session_with(running), profile_of(running)
    answers(session)
    before, since = states(running), ends(running.log_dir)
    names = sorted(name for state in before for name in state.groups)
    # Some Empty groups stay, for the topic to leave nothing of them.
    wanted = {name for number, name in enumerate(names) if number % 3 or "txn" in name}
    effects = [effect for state in before for effect in groups_deleted(state, profile, wanted)]
    holds(effects, before)
    answer = session.ask("DeleteGroups", {"groupsNames": sorted(wanted)}, expect=(0, NON_EMPTY_GROUP))
    refused = {row["groupId"] for row in answer["results"] if row["errorCode"] == NON_EMPTY_GROUP}
    assert refused == {one.group_id for one in effects if one.outcome is Outcome.REFUSED}
    assert {one.group_id for one in effects if one.topic is None} == wanted
    assert removed(effects) == tombstoned(running.log_dir, since)
    assert any(one.detail == "only in an open transaction" for one in effects)
    assert len(refused) > 5 < len(removed(effects)[1])

    before, since = states(running), ends(running.log_dir)
    effects = []
    for state in before:
        today, then = (
            plan_expiry(one, profile, now_ms=now_ms(), offsets_retention_ms=WEEK_MS)
            for one in (state, without_topics(state, {"orders"}))
        )
        effects += topics_deleted(state, profile, {"orders"}, today=today, then=then)
    holds(effects, before)
    session.ask("DeleteTopics", {"topics": [{"name": "orders", "topicId": "A" * 22}], "timeoutMs": 30_000})
    wait_for("the tombstones", lambda: removed(effects)[0] <= tombstoned(running.log_dir, since)[0])
    assert tombstoned(running.log_dir, since)[0] == removed(effects)[0]
    assert any(one.outcome is Outcome.REBALANCES for one in effects)
    last = {one.group_id for one in effects if one.at_ms is not None}
    running.kill()
    session.close()
    # The sweep takes what has nothing left; nothing else is due in a week.
    since = ends(running.log_dir)
    sweeping = running.copied(running.directory.parent / "sweeping", {**SWEEPS, "offsets.retention.minutes": "10080"})
    sweeping.start()
    try:
        wait_for("the groups to go", lambda: last <= tombstoned(sweeping.log_dir, since)[1])
        assert tombstoned(sweeping.log_dir, since)[1] >= last
        assert last
    finally:
        sweeping.kill()


def test_members_of_other_protocols_join(running: RecordedBroker) -> None:
    script, profile = Script(session_with(running)), profile_of(running)
    answers(script.session)
    before, since = states(running), ends(running.log_dir)
    effects: dict[str, Effect] = {}
    wanted: dict[str, GroupType] = {}
    has_streams = script.session.has("StreamsGroupHeartbeat")
    other = GroupType.STREAMS if has_streams else GroupType.SHARE
    kinds = cycle((GroupType.CONSUMER, other, GroupType.CONSUMER, GroupType.SHARE))
    for state in before:
        for name in sorted(state.groups):
            # Live classic groups are for consumers: only those are converted.
            is_live = state.groups[name].type is GroupType.CLASSIC and getattr(state.groups[name], "members", ())
            wanted[name] = GroupType.CONSUMER if is_live and len(wanted) % 4 else next(kinds)
            effects |= {one.group_id: one for one in migrated(state, profile, wanted[name], groups=[name])}
    said: dict[str, bool] = {}
    for name, kind in wanted.items():
        if name not in effects:
            continue
        topics = () if kind is GroupType.STREAMS else (["clicks"],)
        try:
            MEMBERS[kind](script, name, "joins", *topics).heartbeat(0)
            said[name] = True
        except RefusedError:
            said[name] = False
    assert said == {name: one.outcome is Outcome.CONVERTED for name, one in effects.items()}, {
        name: (wanted[name], one) for name, one in effects.items() if said[name] != (one.outcome is Outcome.CONVERTED)
    }
    after = states(running)
    groups = {name: group for state in after for name, group in state.groups.items()}
    assert all(groups[name].type is wanted[name] for name, converted in said.items() if converted)
    # Committed offsets are as they were, of converted groups too.
    assert {key: one for state in before for key, one in state.offsets.items()} == {
        key: one for state in after for key, one in state.offsets.items()
    }
    epochs = {name: one.epoch for name, one in effects.items() if one.epoch is not None}
    assert epochs
    assert {name: first_epoch(running.log_dir, since, name) for name in epochs} == epochs
    assert all(isinstance(groups[name], ConsumerGroup) for name in epochs)
    assert {wanted[name] for name, converted in said.items() if converted} == {GroupType.CONSUMER} | (
        {GroupType.STREAMS} if has_streams else set()
    )
    assert {wanted[name] for name, converted in said.items() if not converted} == {
        kind for kind in MEMBERS if has_streams or kind is not GroupType.STREAMS
    }
    script.close()
    script.session.close()


def first_epoch(log_dir: Path, since: dict[int, int], group_id: str) -> int:
    """Group epoch of the first metadata record of a consumer group that was written since."""
    for partition, log in logs([str(log_dir)]).items():
        for batch, records in batches_of(log):
            for record in () if batch.is_control or batch.base_offset < since.get(partition, 0) else records:
                assert record.key is not None
                key = decode_key(record.key)
                if key.type == 3 and key.data == {"groupId": group_id} and record.value is not None:
                    value = decode_value(3, record.value).data
                    assert value is not None
                    return int(value["epoch"])
    raise AssertionError(f"{group_id} has no record")


def test_a_topic_of_another_partition_count_finds_other_groups(stopped: RecordedBroker, tmp_path: Path) -> None:
    before = states(stopped)
    effects = [effect for state in before for effect in repartitioned(state, OTHER_COUNT)]
    holds(effects, before)
    settings = {**NO_SWEEP, "offsets.topic.num.partitions": str(OTHER_COUNT)}
    other = RecordedBroker(stopped.recorded, stopped.kafka, tmp_path / "other", settings)
    other.start()
    try:
        script = Script(session_with(other))
        script.create_topics()
        wait_for("the offsets topic", lambda: len(list(other.log_dir.glob(f"{OFFSETS_TOPIC}-*"))) == OTHER_COUNT)
        script.session.close()
    finally:
        other.stop()
    for partition in range(OFFSETS_PARTITIONS):
        for name in ("00000000000000000000.log", "leader-epoch-checkpoint"):
            source = stopped.log_dir / f"{OFFSETS_TOPIC}-{partition}" / name
            shutil.copy(source, other.log_dir / f"{OFFSETS_TOPIC}-{partition}" / name)
    for stale in other.log_dir.glob("*-checkpoint"):
        stale.unlink()
    (other.log_dir / ".kafka_cleanshutdown").unlink(missing_ok=True)
    other.start()
    try:
        session = session_with(other)
        offsets = {key for state in before for key in state.offsets if key.group_id in state.groups}
        lost = {
            OffsetKey(one.group_id, one.topic, one.partition)
            for one in effects
            if one.topic and one.partition is not None
        }
        assert lost
        assert lost < offsets
        wait_for("the offsets that stay", lambda: fetched(session, offsets) == offsets - lost)
        session.close()
    finally:
        other.kill()


def fetched(session: Session, offsets: set[OffsetKey]) -> set[OffsetKey]:
    """The ``offsets`` that the coordinators of their groups answer."""
    found = set()
    topics = [{"name": topic, "partitionIndexes": list(range(count))} for topic, count in TOPICS.items()]
    for group_id in sorted({key.group_id for key in offsets}):
        body = {"groups": [{"groupId": group_id, "topics": topics}], "requireStable": False}
        answer = session.ask("OffsetFetch", body, 9)["groups"][0]
        for topic in answer["topics"]:
            for row in topic["partitions"]:
                if row["committedOffset"] >= 0:
                    found.add(OffsetKey(group_id, topic["name"], row["partitionIndex"]))
    return found & offsets


def test_another_retention_removes_what_was_said(stopped: RecordedBroker, tmp_path: Path) -> None:
    before, since = states(stopped), ends(stopped.log_dir)

    def plans_at(moment: int, retention_ms: int) -> list[ExpiryPlan]:
        profile = profile_of(stopped)
        return [plan_expiry(state, profile, now_ms=moment, offsets_retention_ms=retention_ms) for state in before]

    def effects_at(moment: int) -> list[Effect]:
        plans = zip(before, plans_at(moment, WEEK_MS), plans_at(moment, SHORT_MS), strict=True)
        return [effect for state, today, then in plans for effect in retained(state, today, then)]

    sweeping = stopped.copied(tmp_path / "sweeping", SWEEPS)
    sweeping.start()
    try:
        times = [one.at_ms for one in effects_at(now_ms()) if one.at_ms is not None]
        end = max(at for at in times if at < now_ms() + SHORT_MS)
        effects = effects_at(end)
        holds(effects, before)
        offset_keys = removed(effects)[0]
        wait_for("the last expiry", lambda: now_ms() > end)
        wait_for("the sweep", lambda: offset_keys <= tombstoned(sweeping.log_dir, since)[0])
    finally:
        sweeping.kill()
    # What has an expire timestamp of its own goes under both.
    both = plans_at(end, WEEK_MS)
    own = {key for plan in both for key in expired_offset_keys(plan)}
    written, groups = tombstoned(sweeping.log_dir, since)
    assert written - own == offset_keys
    assert own
    assert groups - {group_id for plan in both for group_id in plan.deleted_groups()} == {
        one.group_id for one in effects if one.topic is None and one.outcome is Outcome.REMOVED
    }
    assert len(offset_keys) > 20


@pytest.mark.parametrize(("release", "compares_ids"), [("4.2.1", False), (KAFKA_VERSION, True), ("4.4.0", True)])
def test_deletion_of_a_topic_and_offsets_of_an_earlier_one(release: str, compares_ids: bool, tmp_path: Path) -> None:
    """From 4.3 on an offset with another topic id than that of the deleted topic stays (``onTopicsDeleted``)."""
    RELEASES["4.4.0"].fetch()
    recorded = Recorded.of(release)
    broker = RecordedBroker(recorded, recorded.fetch(), tmp_path / "broker", NO_SWEEP)
    broker.start()
    try:
        script = Script(session_with(broker))
        script.create_topics()
        script.commit("g", ("orders", 0, 5, ""))
        script.close()
    finally:
        broker.kill()
    # Offsets of an earlier topic orders, and of one whose id is not known, follow in the log.
    (partition,) = (number for number, end in ends(broker.log_dir).items() if end)
    ids = {1: "b-PoTnmQQwSwWFEXFkTVag", 2: "A" * 22}
    value = {"offset": 6, "leaderEpoch": -1, "metadata": "", "commitTimestamp": now_ms()}
    (log,) = (path for path in broker.offsets_segments() if path.parent.name == f"{OFFSETS_TOPIC}-{partition}")
    records = [
        (
            encode_key(1, {"group": "g", "topic": "orders", "partition": number}),
            encode_value(1, 4, {**value, "topicId": topic_id}),
        )
        for number, topic_id in ids.items()
    ]
    with log.open("ab") as file:
        file.write(build_batch(ends(broker.log_dir)[partition], records, timestamp=now_ms()))

    since = ends(broker.log_dir)
    broker.start()
    try:
        session = session_with(broker)
        answers(session)
        session.ask("DeleteTopics", {"topics": [{"name": "orders", "topicId": "A" * 22}], "timeoutMs": 30_000})
        session.close()
        gone = {OffsetKey("g", "orders", number) for number in ((0, 2) if compares_ids else (0, 1, 2))}
        # One batch has the tombstones of a group.
        wait_for("the tombstones", lambda: gone <= tombstoned(broker.log_dir, since)[0])
        assert tombstoned(broker.log_dir, since)[0] == gone
    finally:
        broker.kill()
