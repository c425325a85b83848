"""Groups that the Java coordinator builds from records: order, conflicts, derived states."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_core.groups.model import ClassicGroup, ConsumerGroup, GroupState, MemberState, ShareGroup, StreamsGroup
from coordinator_core.records.codec import encode_key, encode_value
from coordinator_core.records.schemas import SHARE_4_0_LAYOUT
from coordinator_core.releases import profile_for_release
from tests.replay.histories import GROUP, History

KAFKA_4_3 = profile_for_release("4.3.1")
KAFKA_3_9 = profile_for_release("3.9.2", "new")
TOPIC_ID = "AQIDBAUGBwgJCgsMDQ4PEA"
GROUP_KEY = {"groupId": GROUP}


def member_key(member: str) -> dict[str, str]:
    return {"groupId": GROUP, "memberId": member}


def consumer_member(**fields: Any) -> dict[str, Any]:
    return {
        "instanceId": None,
        "rackId": None,
        "clientId": "c",
        "clientHost": "/127.0.0.1",
        "subscribedTopicNames": ["t"],
        "subscribedTopicRegex": "",
        "rebalanceTimeoutMs": 300_000,
        "serverAssignor": None,
    } | fields


def assignment(epoch: int, *partitions: int, state: int = 0, revoking: tuple[int, ...] = ()) -> dict[str, Any]:
    return {
        "memberEpoch": epoch,
        "previousMemberEpoch": epoch - 1,
        "state": state,
        "assignedPartitions": [{"topicId": TOPIC_ID, "partitions": list(partitions)}],
        "partitionsPendingRevocation": [{"topicId": TOPIC_ID, "partitions": list(revoking)}] if revoking else [],
    }


def with_member(history: History, member: str = "m", *partitions: int, epoch: int = 2) -> History:
    """Records of a member in the order a coordinator writes them: 5, 3, 7, 6, 8."""
    target = {"topicPartitions": [{"topicId": TOPIC_ID, "partitions": list(partitions)}]}
    return (
        history.modern(5, member_key(member), consumer_member())
        .modern(3, GROUP_KEY, {"epoch": epoch})
        .modern(7, member_key(member), target)
        .modern(6, GROUP_KEY, {"assignmentEpoch": epoch})
        .modern(8, member_key(member), assignment(epoch, *partitions))
    )


def without_group(history: History, member: str = "m") -> History:
    """The tombstones of a deletion, in the order a coordinator writes them."""
    for key_type, key in (
        (8, member_key(member)),
        (7, member_key(member)),
        (6, GROUP_KEY),
        (5, member_key(member)),
    ):
        history.modern(key_type, key, None)
    return history.modern(4, GROUP_KEY, None).modern(3, GROUP_KEY, None)


def consumer_group(history: History) -> ConsumerGroup:
    group = history.replay(KAFKA_4_3).groups[GROUP]
    assert isinstance(group, ConsumerGroup)
    return group


def failure(history: History, profile=KAFKA_4_3) -> str:  # type: ignore[no-untyped-def]
    failures = history.replay(profile).load_failures
    assert len(failures) == 1
    return failures[0].detail


def test_a_member_with_its_assignment_is_stable() -> None:
    group = consumer_group(with_member(History(), "m", 0, 1))
    assert (group.state, group.group_epoch, group.assignment_epoch) == (GroupState.STABLE, 2, 2)
    assert group.members["m"].assigned == {TOPIC_ID: (0, 1)}
    assert group.members["m"].subscribed_regex is None
    assert group.target_assignment == {"m": {TOPIC_ID: (0, 1)}}


def test_states_are_derived_from_epochs_and_members() -> None:
    assigning = with_member(History(), "m", 0).modern(3, GROUP_KEY, {"epoch": 3})
    assert consumer_group(assigning).state is GroupState.ASSIGNING
    reconciling = with_member(History(), "m", 0).modern(8, member_key("m"), assignment(2, state=1, revoking=(0,)))
    assert consumer_group(reconciling).state is GroupState.RECONCILING
    assert consumer_group(reconciling).members["m"].state is MemberState.UNREVOKED_PARTITIONS
    behind = with_member(with_member(History(), "m", 0), "n", 1, epoch=3)
    assert consumer_group(behind).state is GroupState.RECONCILING
    assert consumer_group(History().modern(3, GROUP_KEY, {"epoch": 3})).state is GroupState.EMPTY


def test_a_deletion_in_the_coordinators_order_leaves_nothing() -> None:
    state = without_group(with_member(History(), "m", 0)).replay(KAFKA_4_3)
    assert (state.groups, state.load_failures) == ({}, [])


def test_a_group_tombstone_without_its_siblings_fails_the_load() -> None:
    history = with_member(History(), "m", 0)
    assert "still has 1 member" in failure(history.modern(3, GROUP_KEY, None))
    empty = History().modern(3, GROUP_KEY, {"epoch": 3}).modern(6, GROUP_KEY, {"assignmentEpoch": 3})
    assert "target assignment metadata" in failure(empty.modern(3, GROUP_KEY, None))


def test_a_member_tombstone_needs_those_of_its_assignments_first() -> None:
    assert "current assignment" in failure(with_member(History()).modern(5, member_key("m"), None))
    half = with_member(History()).modern(8, member_key("m"), None)
    assert "target assignment" in failure(half.modern(5, member_key("m"), None))


def test_target_metadata_cannot_go_before_the_targets() -> None:
    assert failure(with_member(History()).modern(6, GROUP_KEY, None)).endswith("still has 1 target assignment")


def test_a_partition_owned_at_a_newer_epoch_cannot_be_given_away() -> None:
    history = with_member(History(), "m", 0, epoch=5).modern(8, member_key("n"), assignment(5, 0))
    assert "while owned at epoch 5" in failure(history)
    moved = with_member(History(), "m", 0, epoch=5).modern(8, member_key("n"), assignment(6, 0))
    assert moved.replay(KAFKA_4_3).load_failures == []


STRICT = ["3.8.1", "3.9.2", "4.0.0", "4.0.1", "4.1.0", "4.1.1"]
TOLERANT = ["4.0.2", "4.1.2", "4.2.0", "4.3.1"]


@pytest.mark.parametrize("release", [*STRICT, *TOLERANT])
def test_a_partition_goes_to_another_member_once_the_first_gave_it_up(release: str) -> None:
    moved = (
        with_member(History(), "m", 0, 1, epoch=5)
        .modern(8, member_key("m"), assignment(6, 1))
        .modern(8, member_key("n"), assignment(6, 0))
        .modern(8, member_key("m"), assignment(7, 1, 2))
    )
    assert moved.replay(profile_for_release(release, "new")).load_failures == []


@pytest.mark.parametrize("release", [*STRICT, *TOLERANT])
def test_without_the_record_that_gave_it_up_early_patches_stop(release: str) -> None:
    """KAFKA-19862: a cleaner that runs during the load may take that record away."""
    profile = profile_for_release(release, "new")
    moved = with_member(History(), "m", 0, 1, epoch=5).modern(8, member_key("n"), assignment(6, 0))
    if release in STRICT:
        assert "while owned at epoch 5" in failure(moved, profile)
    else:
        assert moved.replay(profile).load_failures == []


SHARE_TOMBSTONES = [(key_type, key_type in (10, 13, 14)) for key_type in (10, 11, 12, 13, 14, 15)]


@pytest.mark.parametrize("key_type, of_member", SHARE_TOMBSTONES)
def test_tombstones_of_unknown_share_groups_are_ignored_since_4_1_and_fatal_before(
    key_type: int, of_member: bool
) -> None:
    history = History().modern(key_type, member_key("m") if of_member else GROUP_KEY, None)
    for release in ("4.0.0", "4.0.1", "4.0.2"):
        assert "share group 'g', which does not exist" in failure(history, profile_for_release(release))
    for release in ("4.1.0", "4.3.1"):
        assert history.replay(profile_for_release(release)).load_failures == []


def test_tombstones_of_a_share_group_that_is_there_load_on_4_0() -> None:
    first = encode_value(11, 0, {"epoch": 1}, SHARE_4_0_LAYOUT)
    history = History().records((encode_key(11, GROUP_KEY), first)).modern(12, GROUP_KEY, None)
    assert history.modern(11, GROUP_KEY, None).replay(profile_for_release("4.0.2")).load_failures == []


def test_4_0_does_not_read_share_groups_of_later_releases() -> None:
    kafka_4_0 = profile_for_release("4.0.2")
    first = encode_value(11, 0, {"epoch": 7}, SHARE_4_0_LAYOUT)
    own = History().records((encode_key(11, GROUP_KEY), first)).replay(kafka_4_0)
    assert (own.groups[GROUP].group_epoch, own.load_failures) == (7, [])  # type: ignore[union-attr]
    # The first bytes of the hash look like a tag of 127 bytes.
    later = History().modern(11, GROUP_KEY, {"epoch": 7, "metadataHash": 0x01_01_7F_00_00_00_00_00})
    assert "127 bytes declared" in failure(later, kafka_4_0)
    assert later.replay(profile_for_release("4.1.0")).load_failures == []
    # The first byte of this hash looks like the count of no tags; nobody reads the rest.
    without_hash = History().modern(11, GROUP_KEY, {"epoch": 7, "metadataHash": 0}).replay(kafka_4_0)
    assert (without_hash.groups[GROUP].group_epoch, without_hash.load_failures) == (7, [])  # type: ignore[union-attr]


def test_an_assignment_that_fails_the_load_moves_no_partition() -> None:
    history = with_member(with_member(History(), "m", 0, epoch=5), "n", 1, 2, epoch=5)
    before = consumer_group(history).partition_epochs
    assert before == {(TOPIC_ID, partition): 5 for partition in (0, 1, 2)}
    history.modern(8, member_key("n"), assignment(5, 1, 0))
    assert "while owned at epoch 5" in failure(history)
    assert consumer_group(history).partition_epochs == before


def test_a_partition_cannot_be_assigned_and_pending_revocation() -> None:
    history = with_member(History(), "m", 0).modern(8, member_key("m"), assignment(3, 0, 1, revoking=(1,)))
    assert "goes to member 'm' at epoch 3 while owned at epoch 3" in failure(history)


@pytest.mark.parametrize("key_type", [3, 4, 5, 6, 7, 8, 16])
def test_tombstones_of_unknown_groups_are_ignored_since_4_0_and_fatal_before(key_type: int) -> None:
    key: dict[str, Any] = dict(GROUP_KEY)
    if key_type in (5, 7, 8):
        key["memberId"] = "m"
    if key_type == 16:
        key["regularExpression"] = "t.*"
    history = History().modern(key_type, key, None)
    assert history.replay(KAFKA_4_3).load_failures == []
    if key_type != 16:
        assert "does not exist" in failure(history, KAFKA_3_9)


def test_a_kip_848_record_replaces_a_simple_group_since_4_0_and_no_other() -> None:
    simple = History().commit(1)
    assert isinstance(simple.modern(3, GROUP_KEY, {"epoch": 1}).replay(KAFKA_4_3).groups[GROUP], ConsumerGroup)
    assert "not a consumer group" in failure(simple, KAFKA_3_9)
    assert "not a consumer group" in failure(History().group("m").modern(3, GROUP_KEY, {"epoch": 1}))


def test_share_records_never_replace_and_streams_records_do_since_4_2_1() -> None:
    share = History().commit(1).modern(11, GROUP_KEY, {"epoch": 1, "metadataHash": 0})
    assert "not a share group" in failure(share)
    streams = History().commit(1).modern(17, GROUP_KEY, {"epoch": 1, "metadataHash": 0})
    assert isinstance(streams.replay(KAFKA_4_3).groups[GROUP], StreamsGroup)
    assert isinstance(streams.replay(profile_for_release("4.2.1")).groups[GROUP], StreamsGroup)
    for release in ("4.1.2", "4.2.0"):
        assert "not a streams group" in failure(streams, profile_for_release(release))


def test_a_classic_record_replaces_and_its_tombstone_removes_a_group_of_any_type() -> None:
    upgraded = with_member(History(), "m", 0)
    assert upgraded.group("c").replay(KAFKA_4_3).groups[GROUP].state is GroupState.STABLE
    assert upgraded.group_tombstone().replay(KAFKA_4_3).groups == {}


def test_commits_of_a_share_group_are_stored_on_it() -> None:
    history = History().modern(11, GROUP_KEY, {"epoch": 1, "metadataHash": 0}).commit(1)
    state = history.replay(KAFKA_4_3)
    assert isinstance(state.groups[GROUP], ShareGroup)
    assert len(state.offsets) == 1


CLASSIC_MEMBER = {
    "memberId": "a",
    "groupInstanceId": "i",
    "clientId": "c",
    "clientHost": "/h",
    "rebalanceTimeout": 1,
    "sessionTimeout": 1,
    "subscription": b"",
    "assignment": b"",
}


def test_two_members_with_one_instance_id_fail_the_load() -> None:
    """Of the new coordinator, and of the classic one from 3.0 on, as on a broker of 3.9.2."""
    members = [CLASSIC_MEMBER, CLASSIC_MEMBER | {"memberId": "b"}]
    history = History().group(members=members, protocol="range", leader="a")
    assert "group instance id 'i'" in failure(history)
    assert "group instance id 'i'" in failure(history, profile_for_release("3.0.0"))
    assert "group instance id 'i'" in failure(history, profile_for_release("3.9.2", "classic"))
    assert not history.replay(profile_for_release("2.8.2")).load_failures


@pytest.mark.parametrize(("release", "timeout_ms"), [("2.4.1", -1), ("3.9.2", -1), ("4.3.1", 6000)])
def test_a_rebalance_timeout_of_minus_one(release: str, timeout_ms: int) -> None:
    """The new coordinator takes the session timeout for it, the classic one takes it as it is (class files)."""
    member = CLASSIC_MEMBER | {"rebalanceTimeout": -1, "sessionTimeout": 6000}
    history = History().group(members=[member], protocol="range", leader="a")
    found = history.replay(profile_for_release(release)).groups[GROUP]
    assert isinstance(found, ClassicGroup)
    assert [one.rebalance_timeout_ms for one in found.members] == [timeout_ms]


ONE_TOPIC = b"\0\0\0\0\0\1\0\1t"


@pytest.mark.parametrize(
    ("subscription", "stopped"),
    [
        (b"\0\0\xff\xff\xff\xff", ("2.7.2", "2.8.2", "3.9.2", "4.3.1")),
        (b"\0\0\0\0\0\1\xff\xff", ("2.7.2", "2.8.2", "3.9.2", "4.3.1")),
        (b"\0\0\0\0\0\1\0\5ab", ("2.8.2", "3.9.2", "4.3.1")),
        (b"\0\0\0\0\0\5\0\1t", ("2.8.2", "3.9.2", "4.3.1")),
        (b'{"topics":["t"]}', ("2.7.2", "2.8.2", "3.9.2", "4.3.1")),
        (ONE_TOPIC + b"\0\0\0\x09", ("2.7.2", "2.8.2", "3.9.2", "4.3.1")),
        (ONE_TOPIC, ()),
        (ONE_TOPIC + b"\xff\xff\xff\xff", ()),
        (b"", ()),
        (b"s", ()),
    ],
)
def test_subscriptions_that_stop_the_load(subscription: bytes, stopped: tuple[str, ...]) -> None:
    """As brokers of 3.9.2, 4.1.1, 4.3.1 and 4.4.0 do (KAFKA-20570)."""
    members = [CLASSIC_MEMBER | {"subscription": subscription}]
    history = History().group(members=members, protocol="range", leader="a")
    releases = ("2.6.3", "2.7.2", "2.8.2", "3.9.2", "4.3.1", "4.4.0")
    failed = [one for one in releases if history.replay(profile_for_release(one)).load_failures]
    assert failed == [*stopped]
    for other in ({"protocol": None}, {"protocolType": "connect"}):
        harmless = History().group(members=members, **({"protocol": "range", "leader": "a"} | other))
        assert not harmless.replay(KAFKA_4_3).load_failures


def test_a_streams_group_is_not_ready_without_a_validated_topology() -> None:
    member = {
        "instanceId": None,
        "rackId": None,
        "clientId": "c",
        "clientHost": "/h",
        "rebalanceTimeoutMs": 1,
        "topologyEpoch": 0,
        "processId": "p",
        "userEndpoint": {"host": "h", "port": 9000},
        "clientTags": [{"key": "zone", "value": "a"}],
    }
    history = History().modern(19, member_key("m"), member)
    group = history.replay(KAFKA_4_3).groups[GROUP]
    assert group.state is GroupState.NOT_READY
    # 4.1 does not read which topology was validated.
    metadata = {"epoch": 0, "metadataHash": 0, "validatedTopologyEpoch": 0}
    history = history.modern(23, GROUP_KEY, {"epoch": 0, "subtopologies": []}).modern(17, GROUP_KEY, metadata)
    states = [history.replay(profile_for_release(release)).groups[GROUP].state for release in ("4.1.2", "4.2.1")]
    assert states == [GroupState.NOT_READY, GroupState.STABLE]
    assert isinstance(group, StreamsGroup)
    assert group.members["m"].user_endpoint == ("h", 9000)
    validated = {"epoch": 1, "metadataHash": 0, "validatedTopologyEpoch": 0}
    history.modern(23, GROUP_KEY, {"epoch": 0, "subtopologies": []}).modern(17, GROUP_KEY, validated)
    assert history.replay(KAFKA_4_3).groups[GROUP].state is GroupState.RECONCILING


def test_epochs_begin_at_1_since_4_3() -> None:
    history = History().modern(5, member_key("m"), consumer_member())
    epochs = [
        history.replay(profile_for_release(release)).groups[GROUP].assignment_epoch  # type: ignore[union-attr]
        for release in ("4.2.0", "4.3.1")
    ]
    assert epochs == [0, 1]
