"""Expiry rule by rule and release by release; sweeps of random logs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.groups.model import (
    ClassicGroup,
    ClassicMember,
    CommittedOffset,
    ConsumerGroup,
    ConsumerMember,
    Group,
    GroupState,
    LoadFailure,
    OffsetKey,
    PartitionState,
    ResolvedRegex,
    ShareGroup,
    StreamsGroup,
    StreamsMember,
    Transaction,
    TransactionOutcome,
)
from coordinator_core.lifecycle.expiry import plan_expiry
from coordinator_core.lifecycle.plan import ExpiryPlan, Kept, Reason, Tombstone, TombstoneKind
from coordinator_core.records.codec import decode_key
from coordinator_core.releases import Loader, Profile, profile_for_release
from tests.blobs import encode_consumer_subscription
from tests.examples import examples
from tests.fold.random_logs import Log, build, data_batches, markers
from tests.lifecycle.sweeps import expired_offset_keys
from tests.log.builders import build_batch
from tests.replay.histories import replay_batches
from tests.runs.states import offset

COMMIT_MS, EMPTY_MS, EXPLICIT_MS, RETENTION_MS = 1_000, 5_000, 7_000, 10_000
OFFSET_KEY = OffsetKey("g", "t", 0)


def profile(release: str) -> Profile:
    """``"3.9.2 new"`` is that release's new coordinator."""
    version, _, coordinator = release.partition(" ")
    return profile_for_release(version, coordinator or None)


def member(*topics: str, subscription: bytes | None = None) -> ClassicMember:
    blob = encode_consumer_subscription(1, {"topics": list(topics), "userData": None, "ownedPartitions": []})
    return ClassicMember("m", None, "c", "/h", 1, 1, blob if subscription is None else subscription, b"")


def classic(*members: ClassicMember, **changes: Any) -> ClassicGroup:
    group = ClassicGroup(
        "g",
        GroupState.STABLE if members else GroupState.EMPTY,
        protocol_type="consumer",
        generation=1,
        protocol="range" if members else None,
        state_timestamp_ms=EMPTY_MS,
        members=members,
        record_offset=3,
    )
    return group._replace(**changes)


SIMPLE = ClassicGroup("g", GroupState.EMPTY)


def state_of(
    group: Group | None,
    committed: CommittedOffset | None = None,
    *,
    pending: OffsetKey | None = None,
    pending_removed: bool = False,
) -> PartitionState:
    """A partition with one group, one committed offset and, with ``pending``, an open transaction.

    ``pending_removed``: a tombstone has removed the transaction's commit.
    """
    state = PartitionState(0)
    if group is not None:
        state.groups[group.group_id] = group
    if committed is not None:
        state.offsets[OFFSET_KEY] = committed
    if pending is not None:
        state.transactions = [Transaction(7, 0, 9, 9, TransactionOutcome.OPEN, None, ("g",), 1, 1_000)]
        state.pending = {} if pending_removed else {7: {pending: offset(9, producer_id=7, producer_epoch=0)}}
    return state


def plan_of(state: PartitionState, release: str, now_ms: int = 0, **options: Any) -> ExpiryPlan:
    return plan_expiry(state, profile(release), now_ms=now_ms, offsets_retention_ms=RETENTION_MS, **options)


PLAIN = offset(1)
EXPLICIT = offset(1, expire_timestamp_ms=EXPLICIT_MS, value_version=1)
ACTIVE, SUBSCRIBED, REBALANCING = Kept.ACTIVE_GROUP, Kept.SUBSCRIBED_TOPIC, Kept.REBALANCING_GROUP
AGE = (Reason.COMMIT_AGE, 11_001)
OWN_TIME_OVER = (Reason.EXPIRE_TIMESTAMP, 7_001)
OWN_TIME = (Reason.EXPIRE_TIMESTAMP, 7_000)
UNSUBSCRIBED = (Reason.UNSUBSCRIBED_TOPIC, 11_000)
SINCE_COMMIT_IF_EMPTY = (Reason.EMPTY_GROUP_COMMIT, 11_000)
SINCE_COMMIT_IF_SIMPLE = (Reason.SIMPLE_GROUP, 11_000)
V3_CUT_SHORT = b"\0\3" + b"\0\0\0\1\0\1t" + b"\0\0\0\0"


def consumer(*topics: str, **fields: Any) -> ConsumerGroup:
    """Empty without ``topics``, else of one member that subscribes to them."""
    members = {"m": ConsumerMember("m", subscribed_topics=topics)} if topics else {}
    return ConsumerGroup("g", members=members, record_offset=3, **fields)


def streams(*topics: str, repartition: str = "re") -> StreamsGroup:
    subtopology = {"sourceTopics": list(topics), "repartitionSourceTopics": [{"name": repartition}]}
    return StreamsGroup(
        "g",
        members={"m": StreamsMember("m")},
        topology={"epoch": 0, "subtopologies": [subtopology]},
        topology_record_offset=4,
        record_offset=3,
    )


REGEXES = {"b": ResolvedRegex((), 1, 1, 8), "a": ResolvedRegex((), 1, 1, 7)}


VERDICTS: list[tuple[str, Group | None, CommittedOffset, str, object]] = [
    ("empty", classic(), PLAIN, "0.9.0.1 0.10.0.1 0.10.1.1 0.11.0.3 1.1.1 2.0.1", AGE),
    ("empty", classic(), PLAIN, "2.1.1 2.3.1 2.4.1 3.9.2 3.9.2/new 4.3.1", (Reason.EMPTY_GROUP, 15_000)),
    (
        "empty, no state time",
        classic(state_timestamp_ms=None),
        PLAIN,
        "2.1.1 2.4.1 4.3.1",
        SINCE_COMMIT_IF_EMPTY,
    ),
    ("empty, own time", classic(), EXPLICIT, "0.9.0.1 2.0.1", OWN_TIME_OVER),
    ("empty, own time", classic(), EXPLICIT, "2.1.1 3.9.2 4.3.1", OWN_TIME),
    ("own time -1", classic(), offset(1, expire_timestamp_ms=-1), "2.1.1", (Reason.EXPIRE_TIMESTAMP, -1)),
    ("empty connect", classic(protocol_type="connect"), PLAIN, "2.1.1 4.3.1", (Reason.EMPTY_GROUP, 15_000)),
    ("simple", SIMPLE, PLAIN, "2.0.1", AGE),
    ("simple", SIMPLE, PLAIN, "2.1.1 2.4.1 3.9.2 4.3.1", SINCE_COMMIT_IF_SIMPLE),
    ("simple, own time", SIMPLE, EXPLICIT, "2.4.1 4.3.1", OWN_TIME),
    ("0.8.2", ClassicGroup("g", None), EXPLICIT, "0.8.2.2", AGE),
    ("no group", None, PLAIN, "0.9.0.1 0.10.0.1", AGE),
    ("no group", None, PLAIN, "3.9.2/new 4.3.1", Kept.ORPHANED),
    ("subscribed", classic(member("t", "u")), PLAIN, "0.10.2.2 2.0.1", AGE),
    ("subscribed", classic(member("t", "u")), PLAIN, "2.1.1 2.3.1", ACTIVE),
    ("subscribed", classic(member("t", "u")), PLAIN, "2.4.1 3.9.2 3.9.2/new 4.3.1", SUBSCRIBED),
    ("subscribed, own time", classic(member("t")), EXPLICIT, "2.0.1", OWN_TIME_OVER),
    ("subscribed, own time", classic(member("t")), EXPLICIT, "2.4.1 4.3.1", SUBSCRIBED),
    ("unsubscribed", classic(member("u")), PLAIN, "2.1.1 2.3.1", ACTIVE),
    ("unsubscribed", classic(member("u")), PLAIN, "2.4.1 2.8.2 3.9.2 4.3.1", UNSUBSCRIBED),
    ("unsubscribed, own time", classic(member("u")), EXPLICIT, "2.4.1 4.3.1", OWN_TIME),
    ("live connect", classic(member("u"), protocol_type="connect"), PLAIN, "2.0.1", AGE),
    ("live connect", classic(member("u"), protocol_type="connect"), PLAIN, "2.4.1 4.3.1", ACTIVE),
    ("unreadable", classic(member(subscription=b"\0\1\0")), PLAIN, "2.4.1 4.3.1", ACTIVE),
    ("too short", classic(member(subscription=b"\0")), PLAIN, "2.4.1 4.3.1", ACTIVE),
    # Only the topics are read, whatever the version says and whatever comes behind user data.
    ("v3 cut short", classic(member(subscription=V3_CUT_SHORT)), PLAIN, "2.4.1 4.3.1", SUBSCRIBED),
    ("no protocol", classic(member("u"), protocol=None), PLAIN, "2.4.1 4.3.1", ACTIVE),
    ("members, no type", classic(member("u"), protocol_type=None), PLAIN, "4.3.1", SINCE_COMMIT_IF_SIMPLE),
    ("consumer", consumer("t"), PLAIN, "3.7.2/new 4.3.1", SUBSCRIBED),
    ("consumer", consumer("u"), PLAIN, "4.3.1", UNSUBSCRIBED),
    ("empty consumer", consumer(), PLAIN, "3.8.1/new 4.3.1", SINCE_COMMIT_IF_EMPTY),
    ("empty consumer, own time", consumer(), EXPLICIT, "4.3.1", OWN_TIME),
    ("regex", consumer(regexes={"t.*": ResolvedRegex(("t", "t2"), 1, 1, 5)}), PLAIN, "4.3.1", SUBSCRIBED),
    ("streams", streams(), PLAIN, "4.1.1 4.3.1", UNSUBSCRIBED),
    ("streams, source", streams("t"), PLAIN, "4.1.1 4.3.1", SUBSCRIBED),
    ("streams, repartition", streams(repartition="t"), PLAIN, "4.3.1", SUBSCRIBED),
    ("streams, no topology", replace(streams(), topology=None), PLAIN, "4.3.1", UNSUBSCRIBED),
    ("empty streams", replace(streams("t"), members={}), PLAIN, "4.3.1", SINCE_COMMIT_IF_EMPTY),
    ("never", SIMPLE, PLAIN._replace(commit_timestamp_ms=2**63 - 2), "2.4.1 4.3.1", Kept.NEVER),
    ("age overflows", SIMPLE, PLAIN._replace(commit_timestamp_ms=-(2**63)), "4.3.1", Kept.NEVER),
    ("never", SIMPLE, PLAIN._replace(expire_timestamp_ms=2**63 - 1), "2.0.1", Kept.NEVER),
    (
        "sum overflows",
        SIMPLE,
        PLAIN._replace(commit_timestamp_ms=2**63 - 1),
        "2.0.1",
        (Reason.COMMIT_AGE, -(2**63) + RETENTION_MS),
    ),
]  # fmt: skip


def releases(text: str) -> list[str]:
    return [name.replace("/", " ") for name in text.split()]


@pytest.mark.parametrize(
    "group, committed, release, expected",
    [
        pytest.param(group, committed, release, expected, id=f"{name}-{release}")
        for name, group, committed, names, expected in VERDICTS
        for release in releases(names)
    ],
)
def test_when_an_offset_expires(
    group: Group | None, committed: CommittedOffset, release: str, expected: object
) -> None:
    state = state_of(group, committed)
    plan = plan_of(state, release)
    found = [item for item in (*plan.tombstones, *plan.forecast) if item.kind is TombstoneKind.OFFSET]
    if isinstance(expected, Kept):
        assert found == []
        assert plan.kept["g"][expected] == 1
        return
    (tombstone,) = found
    assert (tombstone.reason, tombstone.expires_at_ms) == expected
    assert tombstone.record_offset == committed.record_offset
    for now_ms, due in ((tombstone.expires_at_ms - 1, False), (tombstone.expires_at_ms, True)):
        assert (OFFSET_KEY in expired_offset_keys(plan_of(state, release, now_ms))) is due


@pytest.mark.parametrize(
    "release, verdict",
    [
        ("2.3.1", REBALANCING),
        *((release, Reason.UNSUBSCRIBED_TOPIC) for release in ("2.4.1", "2.8.1", "3.0.0", "3.1.0")),
        *((release, REBALANCING) for release in ("2.8.2", "3.0.1", "3.1.1", "3.2.0", "3.9.2", "4.3.1")),
    ],
)
def test_a_rebalancing_group(release: str, verdict: Reason | Kept) -> None:
    plan = plan_of(state_of(classic(member("u")), PLAIN), release, 11_000, rebalancing=["g"])
    if isinstance(verdict, Kept):
        assert (plan.tombstones, plan.kept["g"][verdict]) == ((), 1)
    else:
        assert [item.reason for item in plan.tombstones] == [verdict]


@pytest.mark.parametrize(
    "release, protects",
    [("0.11.0.3", False), ("3.9.2", False), ("3.7.2 new", False), ("3.8.1 new", True), ("4.3.1", True)],
)
def test_a_pending_commit_of_the_same_offset_key(release: str, protects: bool) -> None:
    plan = plan_of(state_of(classic(), PLAIN, pending=OFFSET_KEY), release, 15_000)
    assert (OFFSET_KEY in expired_offset_keys(plan)) is not protects
    if protects:
        assert plan.kept["g"] == {Kept.PENDING_COMMIT: 1, Kept.GROUP_HAS_OFFSETS: 1}


@pytest.mark.parametrize(
    "release, with_offsets, without_offsets, with_removed",
    [
        ("3.9.2", "stays", "stays", "goes"),
        ("3.7.2 new", "goes", "goes", "goes"),
        ("3.8.1 new", "goes a sweep later", "goes", "goes a sweep later"),
        ("4.0.0", "goes a sweep later", "goes", "goes a sweep later"),
        ("4.0.1", "stays", "stays", "goes"),
        ("4.3.1", "stays", "stays", "goes"),
    ],
)
def test_an_open_transaction_and_its_group(
    release: str, with_offsets: str, without_offsets: str, with_removed: str
) -> None:
    """KAFKA-19163: beside an offset that expires now, alone, and after its own commit was removed."""
    other = OffsetKey("g", "t", 1)
    states = [
        (state_of(classic(), PLAIN, pending=other), with_offsets),
        (state_of(classic(), pending=other), without_offsets),
        (state_of(classic(), PLAIN, pending=other, pending_removed=True), with_removed),
    ]
    for state, fate in states:
        plan = plan_of(state, release, 20_000)
        assert plan.deleted_groups() == ({"g"} if fate == "goes" else set())
        assert plan.kept == ({"g": {Kept.OPEN_TRANSACTION: 1}} if fate == "stays" else {})
        later = [(item.kind, item.expires_at_ms) for item in plan.forecast]
        assert later == ([(TombstoneKind.GROUP, 20_001)] if fate == "goes a sweep later" else [])


@pytest.mark.parametrize("release", ["0.10.1.1", "2.0.1", "2.4.1", "3.9.2", "3.9.2 new", "4.3.1"])
def test_a_group_goes_with_its_last_offset(release: str) -> None:
    state = state_of(classic(), PLAIN)
    state.offsets[OffsetKey("g", "t", 1)] = PLAIN._replace(commit_timestamp_ms=9_000, expire_timestamp_ms=30_000)
    first, last = plan_of(state, release, 20_000), plan_of(state, release, 30_001)
    assert [(item.kind, item.partition) for item in first.tombstones] == [(TombstoneKind.OFFSET, 0)]
    assert [item.kind for item in first.forecast] == [TombstoneKind.OFFSET, TombstoneKind.GROUP]
    assert first.forecast[1].expires_at_ms == first.forecast[0].expires_at_ms
    assert [item.kind for item in last.tombstones] == [
        TombstoneKind.OFFSET,
        TombstoneKind.OFFSET,
        TombstoneKind.GROUP,
    ]
    assert last.tombstones[-1].record_offset == 3
    assert (last.forecast, last.kept) == ((), {})


@pytest.mark.parametrize(
    "group, release, kept",
    [
        (SIMPLE, "3.9.2", Kept.GENERATION_ZERO),
        (SIMPLE, "4.3.1", None),
        (classic(generation=0), "2.4.1", Kept.GENERATION_ZERO),
        (classic(), "2.4.1", None),
        (classic(), "0.10.0.1", Kept.NEVER_DELETED),
        (classic(member("t")), "4.3.1", Kept.GROUP_HAS_MEMBERS),
        (classic(member("t")), "0.9.0.1", Kept.GROUP_HAS_MEMBERS),
    ],
)
def test_a_group_without_offsets(group: Group, release: str, kept: Kept | None) -> None:
    plan = plan_of(state_of(group), release, 1)
    assert plan.kept == ({} if kept is None else {"g": {kept: 1}})
    assert [(item.reason, item.expires_at_ms) for item in plan.tombstones] == (
        [(Reason.NOTHING_LEFT, 1)] if kept is None else []
    )


@pytest.mark.parametrize(
    "group, release, types",
    [
        (classic(), "4.3.1", [1, 2]),
        (consumer(regexes=REGEXES), "4.3.1", [1, 6, 16, 16, 4, 3]),
        (consumer(), "3.7.2 new", [1, 6, 4, 3]),
        (replace(streams(), members={}), "4.3.1", [1, 20, 17, 23]),
        (ShareGroup("g", record_offset=3), "4.0.1", [12, 9, 11]),
    ],
)
def test_the_tombstones_of_a_group(group: Group, release: str, types: list[int]) -> None:
    plan = plan_of(state_of(group, None if isinstance(group, ShareGroup) else PLAIN), release, 20_000)
    keys = [decode_key(item.key) for item in plan.tombstones]
    assert [key.type for key in keys] == types
    assert {(key.data or {}).get("groupId", (key.data or {}).get("group")) for key in keys} == {"g"}
    offsets = {item.kind: item.record_offset for item in plan.tombstones}
    assert offsets[TombstoneKind.GROUP] == 3
    assert offsets.get(TombstoneKind.TOPOLOGY) == (4 if 23 in types else None)
    assert offsets.get(TombstoneKind.REGULAR_EXPRESSION) == (8 if 16 in types else None)


@pytest.mark.parametrize(
    "release, with_offsets, fails",
    [
        ("4.0.1", True, True),
        ("4.1.1", True, False),
        ("4.3.1", False, False),
        ("4.4.0", False, False),
        ("4.4.0", True, True),
    ],
)
def test_share_groups(release: str, with_offsets: bool, fails: bool) -> None:
    state = state_of(ShareGroup("g"), PLAIN if with_offsets else None)
    state.groups["other"] = SIMPLE._replace(group_id="other")
    plan = plan_of(state, release, 20_000)
    if fails:
        assert "'g'" in str(plan.failure)
        assert (plan.tombstones, plan.forecast) == ((), ())
        assert plan.kept == {"g": {Kept.SWEEP_FAILS: 2}, "other": {Kept.SWEEP_FAILS: 1}}
    else:
        assert plan.failure is None
        assert plan.kept == {"g": {Kept.SHARE_GROUP: 1 + with_offsets}}
        assert plan.deleted_groups() == {"other"}


def test_a_target_assignment_that_was_left_over_stops_the_sweep_that_would_delete_the_group() -> None:
    state = state_of(consumer(target_assignment={"gone": {}}), PLAIN)
    assert plan_of(state, "4.3.1", 10_999).failure is None
    late = plan_of(state, "4.3.1", 11_000)
    assert "1 target assignment," in str(late.failure)
    assert late.tombstones == ()
    assert late.kept == {"g": {Kept.SWEEP_FAILS: 2}}


def test_a_partition_that_is_not_loaded_is_not_swept() -> None:
    state = state_of(SIMPLE, PLAIN)
    state.load_failures = [LoadFailure(4, "value version 9")]
    plan = plan_of(state, "4.3.1", 20_000)
    assert plan.failure == "the partition is not loaded: record offset 4: value version 9"
    assert plan.kept == {"g": {Kept.SWEEP_FAILS: 2}}


@pytest.mark.parametrize(
    "release, minutes", [("0.8.2.2", 1_440), ("1.1.1", 1_440), ("2.0.1", 10_080), ("4.3.1", 10_080)]
)
def test_default_retention(release: str, minutes: int) -> None:
    assert profile(release).expiry.default_offsets_retention_ms == minutes * 60_000


SWEPT_RELEASES = (
    *("0.8.2.2", "0.10.0.1", "0.10.2.2", "0.11.0.3", "2.0.1", "2.1.1", "2.4.1", "3.9.2"),
    *("3.7.2 new", "3.9.2 new", "4.0.1", "4.3.1"),
)
ONE_SWEEP_RELEASES = tuple(release for release in SWEPT_RELEASES if release != "3.9.2 new")
"""Releases in which a group never needs one more sweep than its last offset."""
v2_logs = st.builds(build, st.lists(st.one_of(data_batches, data_batches, markers), min_size=1, max_size=14))


@examples(150)
@given(v2_logs, st.sampled_from(SWEPT_RELEASES), st.integers(1, 6_000), st.integers(1, 6_000))
def test_what_a_sweep_leaves(log: Log, release: str, now_ms: int, retention_ms: int) -> None:
    """The log with the plan's tombstones loads to the state without what they delete; no more is due then."""
    rules = profile(release)
    before = replay_batches(log.batches, rules)
    plan = plan_expiry(before, rules, now_ms=now_ms, offsets_retention_ms=retention_ms)
    if plan.failure is not None:
        assert plan.tombstones == ()
        return
    written = [build_batch(log.end, [(item.key, None) for item in plan.tombstones])] if plan.tombstones else []
    after = replay_batches([*log.batches, *written], rules)
    assert after.load_failures == []
    assert after.pending == before.pending
    expired, deleted = expired_offset_keys(plan), plan.deleted_groups()
    assert after.offsets == {
        offset_key: item for offset_key, item in before.offsets.items() if offset_key not in expired
    }
    left = {group_id for group_id in before.groups if group_id not in deleted}
    if rules.loader is Loader.SCALA:
        # Groups that only offsets made are not there without them.
        held = {offset_key.group_id for offset_key in after.offsets} | {
            offset_key.group_id for commits in after.pending.values() for offset_key in commits
        }
        left = {name for name in left if name in held or before.groups[name].record_offset is not None}
    assert after.groups.keys() == left
    assert plan_expiry(after, rules, now_ms=now_ms, offsets_retention_ms=retention_ms).tombstones == ()


@examples(150)
@given(v2_logs, st.sampled_from(ONE_SWEEP_RELEASES), st.integers(1, 6_000), st.integers(0, 6_000))
def test_the_forecast_is_what_a_later_sweep_writes(log: Log, release: str, now_ms: int, wait_ms: int) -> None:
    rules = profile(release)
    state = replay_batches(log.batches, rules)

    def keys(tombstones: tuple[Tombstone, ...], until_ms: int) -> set[bytes]:
        return {item.key for item in tombstones if item.expires_at_ms <= until_ms}

    now = plan_expiry(state, rules, now_ms=now_ms, offsets_retention_ms=3_000)
    later = plan_expiry(state, rules, now_ms=now_ms + wait_ms, offsets_retention_ms=3_000)
    until_ms = now_ms + wait_ms
    assert keys(later.tombstones, until_ms) == keys(now.tombstones + now.forecast, until_ms)
    assert {group: sum(kept.values()) for group, kept in later.kept.items()} == {
        group: sum(kept.values()) for group, kept in now.kept.items()
    }
