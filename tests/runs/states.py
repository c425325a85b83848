"""States that use every column of every table, and random ones."""

from __future__ import annotations

from hypothesis import strategies as st

from coordinator_core.groups.model import (
    CarriedRecord,
    ClassicGroup,
    ClassicMember,
    CommittedOffset,
    ConsumerGroup,
    ConsumerMember,
    GroupState,
    LoadFailure,
    MemberState,
    OffsetKey,
    PartitionState,
    ResolvedRegex,
    ShareGroup,
    ShareMember,
    ShareTopic,
    StreamsGroup,
    StreamsMember,
    TaskAssignment,
    Transaction,
    TransactionOutcome,
)

TOPIC_A = "AAAAAAAAAAAAAAAAAAAAAQ"
TOPIC_B = "AAAAAAAAAAAAAAAAAAAAAg"

TOPOLOGY: dict[str, object] = {
    "epoch": 3,
    "subtopologies": [
        {
            "subtopologyId": "0",
            "sourceTopics": ["in", "other"],
            "sourceTopicRegex": ["in-.*"],
            "stateChangelogTopics": [
                {
                    "name": "store-changelog",
                    "partitions": 0,
                    "replicationFactor": 3,
                    "topicConfigs": [{"key": "cleanup.policy", "value": "compact"}],
                }
            ],
            "repartitionSinkTopics": ["re"],
            "repartitionSourceTopics": [{"name": "re", "partitions": 4, "replicationFactor": -1, "topicConfigs": []}],
            "copartitionGroups": [{"sourceTopics": [0, 1], "sourceTopicRegex": [], "repartitionSourceTopics": [0]}],
        }
    ],
}


def offset(record_offset: int, **changes: object) -> CommittedOffset:
    fields: dict[str, object] = {
        "committed_offset": 10,
        "leader_epoch": None,
        "metadata": "",
        "commit_timestamp_ms": 1_000,
        "expire_timestamp_ms": None,
        "topic_id": None,
        "record_offset": record_offset,
        "value_version": 4,
        "producer_id": None,
        "producer_epoch": None,
        "ordering_offset": record_offset,
    }
    return CommittedOffset(**{**fields, **changes})  # type: ignore[arg-type]


def rich_states() -> list[PartitionState]:
    """Two offsets partitions with a group of every type and a row in every table."""
    first = PartitionState(3)
    first.groups = {
        "": ClassicGroup("", GroupState.EMPTY),
        "no-state": ClassicGroup("no-state", None),
        "g-live": ClassicGroup(
            "g-live",
            GroupState.STABLE,
            protocol_type="consumer",
            generation=7,
            protocol="range",
            leader="m-2",
            state_timestamp_ms=1_700_000_000_000,
            members=(
                ClassicMember("m-2", None, "c", "/127.0.0.1", 600_000, 300_000, b"\0\1\0\0", b""),
                ClassicMember("m-1", "static", "c", "/127.0.0.1", 600_000, -1, b"\xff", b"\xff\0"),
            ),
            record_offset=12,
        ),
        "connect-x": ClassicGroup(
            "connect-x",
            GroupState.STABLE,
            protocol_type="connect",
            generation=1,
            members=(ClassicMember("w", None, "c", "/h", 10, 20, b"\0\1", b"\0\1"),),
            record_offset=13,
        ),
        "ünïcode 日本 🙂": ConsumerGroup(
            "ünïcode 日本 🙂",
            group_epoch=5,
            metadata_hash=-(2**63),
            assignment_epoch=5,
            assignment_timestamp_ms=99,
            members={
                "m-9": ConsumerMember(
                    "m-9",
                    instance_id="i",
                    rack_id="r",
                    client_id="c",
                    client_host="/h",
                    subscribed_topics=("b", "a"),
                    subscribed_regex="",
                    rebalance_timeout_ms=300_000,
                    server_assignor="uniform",
                    classic_session_timeout_ms=45_000,
                    classic_protocols=(("range", b"\0\3"), ("sticky", b"")),
                    member_epoch=5,
                    previous_member_epoch=4,
                    state=MemberState.UNREVOKED_PARTITIONS,
                    assigned={TOPIC_B: (2, 0), TOPIC_A: (1,)},
                    pending_revocation={TOPIC_A: (3,)},
                    record_offset=20,
                    assignment_record_offset=21,
                ),
                "m-0": ConsumerMember("m-0"),
            },
            target_assignment={"m-9": {TOPIC_A: (1, 2)}, "gone": {}},
            target_record_offsets={"m-9": 30, "gone": 31},
            regexes={"t.*": ResolvedRegex(("t1", "t2"), 77, 1_234, 25)},
            has_partition_metadata_record=True,
            record_offset=22,
        ),
    }
    first.offsets = {
        OffsetKey("", "t", 0): offset(1),
        OffsetKey("g-live", "t", 2**31 - 1): offset(
            2,
            committed_offset=2**63 - 1,
            leader_epoch=4,
            metadata="m\0\n",
            expire_timestamp_ms=-1,
            topic_id=TOPIC_A,
            value_version=1,
            producer_id=4_000,
            producer_epoch=2,
            ordering_offset=0,
        ),
        OffsetKey("orphan", "t", 0): offset(3, committed_offset=-1),
    }
    first.pending = {
        4_000: {OffsetKey("g-live", "t", 1): offset(30, producer_id=4_000, producer_epoch=3)},
        4_001: {
            OffsetKey("g-live", "t", 1): offset(
                31,
                producer_id=4_001,
                producer_epoch=0,
                leader_epoch=1,
                expire_timestamp_ms=5,
                topic_id=TOPIC_A,
            ),
            OffsetKey("pending-only", "t", 1): offset(32, producer_id=4_001, producer_epoch=0),
        },
    }
    first.transactions = [
        Transaction(4_000, 2, 2, 2, TransactionOutcome.COMMITTED, 5, ("g-live",), 1, 800),
        Transaction(4_000, 3, 30, 30, TransactionOutcome.OPEN, None, ("g-live",), 1, 900),
        Transaction(4_001, 0, 31, 32, TransactionOutcome.OPEN, None, ("g-live", "pending-only"), 2, 900),
    ]
    first.load_failures = [LoadFailure(40, "value version 9")]
    first.carried = [
        CarriedRecord(40, 1, 9, "value version 9"),
        CarriedRecord(41, 24, None, "key type 24"),
        CarriedRecord(42, None, None, "null key"),
    ]
    first.record_counts = {(1, 4): 3, (1, None): 1, (2, 3): 2}
    second = PartitionState(17)
    second.groups = {
        "share": ShareGroup(
            "share",
            group_epoch=2,
            metadata_hash=5,
            assignment_epoch=2,
            members={
                "s": ShareMember(
                    "s",
                    rack_id=None,
                    client_id="c",
                    client_host="/h",
                    subscribed_topics=("t",),
                    member_epoch=2,
                    previous_member_epoch=1,
                    state=MemberState.STABLE,
                    assigned={TOPIC_A: (0,)},
                    record_offset=1,
                    assignment_record_offset=2,
                )
            },
            target_assignment={"s": {TOPIC_A: (0,)}},
            target_record_offsets={"s": 40},
            topics=(
                ShareTopic(TOPIC_B, "z", "initialized", (1, 0), 41),
                ShareTopic(TOPIC_A, "a", "deleting", None, 41),
                ShareTopic(TOPIC_A, "a", "initializing", (), 41),
            ),
            record_offset=3,
        ),
        "streams": StreamsGroup(
            "streams",
            group_epoch=3,
            metadata_hash=1,
            validated_topology_epoch=3,
            assignment_epoch=3,
            assignment_timestamp_ms=4,
            last_assignment_configs={"num.standby.replicas": "1"},
            members={
                "st": StreamsMember(
                    "st",
                    instance_id="i",
                    rack_id="r",
                    client_id="c",
                    client_host="/h",
                    rebalance_timeout_ms=1,
                    topology_epoch=3,
                    process_id="p",
                    user_endpoint=("localhost", 65_535),
                    client_tags=(("zone", "a"),),
                    member_epoch=3,
                    previous_member_epoch=2,
                    state=MemberState.UNRELEASED_TASKS,
                    assigned=TaskAssignment({"0": (1, 0)}, {"1": ()}, {}),
                    pending_revocation=TaskAssignment({}, {}, {"2": (5,)}),
                    record_offset=8,
                    assignment_record_offset=9,
                )
            },
            target_assignment={"st": TaskAssignment({"0": (0,)}, {}, {})},
            target_record_offsets={"st": 50},
            topology=TOPOLOGY,
            topology_record_offset=51,
            record_offset=10,
        ),
        "streams-new": StreamsGroup("streams-new"),
    }
    return [first, second]


_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
_offset_keys = st.builds(OffsetKey, _text, _text, st.integers(0, 2**31 - 1))


@st.composite
def offset_states(draw: st.DrawFn) -> list[PartitionState]:
    """States with random committed offsets, in one to three offsets partitions."""
    states = []
    for partition in sorted(draw(st.sets(st.integers(0, 49), min_size=1, max_size=3))):
        state = PartitionState(partition)
        for number, offset_key in enumerate(draw(st.lists(_offset_keys, min_size=1, max_size=8, unique=True))):
            state.offsets[offset_key] = offset(
                number,
                committed_offset=draw(st.integers(-1, 2**63 - 1)),
                leader_epoch=draw(st.none() | st.sampled_from((-2, 0, 9))),
                metadata=draw(_text),
            )
        states.append(state)
    return states
