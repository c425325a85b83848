"""Single rules of compaction: end markers, producers, horizons, families of tombstones, open transactions."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator_core.durations import DAY_MS
from coordinator_core.kernels.arrays import Array
from coordinator_core.lifecycle.compact import CompactionOptions, compact_partition
from coordinator_core.lifecycle.compact_plan import CompactionPlan, CompactionRules
from coordinator_core.lifecycle.compact_scan import scan_log
from coordinator_core.lifecycle.compact_states import proof_profiles
from coordinator_core.lifecycle.compact_write import write_survivors
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import read_records
from coordinator_core.log.types import Codec, ControlType
from coordinator_core.records.codec import encode_key, encode_value
from coordinator_core.releases import PROFILE_RELEASES, profile_for, profile_for_release
from tests.log.builders import build_batch, build_control_batch, build_empty_batch, build_message, write_partition
from tests.replay.histories import OffsetKey, encoded_key, offset_value
from tests.replay.reference import replay_partition

NOW = 1_795_260_000_000
KEY, OTHER = encoded_key(OffsetKey("g", "t", 0)), encoded_key(OffsetKey("g", "t", 1))
COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT
Left = list[tuple[int, int, int | None, list[int]]]


def left_of(tmp_path: Path, *batches: bytes, now_ms: int = NOW, start: int = 0, profile: str = "J3") -> Left:
    """Compact the log: base and last offset, horizon and record offsets of every batch that is left."""
    write_partition(tmp_path / "in", {0: b"".join(batches)})
    (tmp_path / "in" / "log-start-offset-checkpoint").write_text(f"0\n1\n__consumer_offsets 0 {start}\n")
    (log,) = discover([str(tmp_path / "in")]).partitions
    target = tmp_path / "out"
    target.mkdir()
    compact_partition(log, target, CompactionOptions(profile_for(profile), CompactionRules(now_ms)))
    (result,) = discover([str(target)]).partitions
    return [
        (batch.base_offset, batch.last_offset, batch.delete_horizon_ms, [record.offset for record in records])
        for _, batch, records in read_records(result)
    ]


class Out:
    """A sink that keeps what it gets."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: memoryview, batches: Array) -> None:
        self.data += data


def transaction(base: int, key: bytes, end: ControlType, *, producer_id: int = 5, age_ms: int = 0) -> bytes:
    """A commit and its end, two offsets."""
    common = {"producer_id": producer_id, "timestamp": NOW - age_ms}
    return build_batch(base, [(key, offset_value(base))], transactional=True, **common) + build_control_batch(
        base + 1, end, **common
    )


def test_a_marker_stays_with_its_data_and_gets_its_horizon_when_that_is_gone(tmp_path: Path) -> None:
    old = 2 * DAY_MS
    left = left_of(
        tmp_path,
        transaction(0, KEY, COMMIT, age_ms=old),
        transaction(2, KEY, COMMIT, age_ms=old),
        build_batch(4, [(OTHER, offset_value(1))], timestamp=NOW),
    )
    assert left == [(1, 1, NOW + DAY_MS, [1]), (2, 2, None, [2]), (3, 3, None, [3]), (4, 4, None, [4])]


def test_a_marker_goes_after_its_horizon(tmp_path: Path) -> None:
    marker = {"producer_id": 5, "transactional": True, "control": True, "timestamp": NOW - 2 * DAY_MS}
    record = (b"\0\0\0\1", b"\0\0\0\0\0\0")
    batches = [
        build_batch(0, [record], delete_horizon=NOW, **marker),
        build_batch(1, [record], delete_horizon=NOW + 1, **marker),
        build_batch(2, [(OTHER, offset_value(1))], timestamp=NOW),
    ]
    # The second is the producer's last too, and that is not over.
    assert left_of(tmp_path, *batches) == [(1, 1, NOW + 1, [1]), (2, 2, None, [2])]


def test_aborted_data_goes_and_its_ghost_stays(tmp_path: Path) -> None:
    kept = build_batch(0, [(OTHER, offset_value(1))], timestamp=NOW)
    left = left_of(tmp_path, kept, transaction(1, KEY, ABORT, age_ms=2 * DAY_MS))
    assert left == [(0, 0, None, [0]), (2, 2, NOW + DAY_MS, [2])]
    # A group that only an aborted commit made is still there in the Java coordinator.
    ghost = left_of(tmp_path / "ghost", transaction(0, KEY, ABORT, age_ms=2 * DAY_MS))
    assert ghost == [(0, 0, None, [0]), (1, 1, None, [1])]


def test_the_last_batch_of_an_active_producer_stays_empty(tmp_path: Path) -> None:
    batches = [
        transaction(0, KEY, COMMIT, age_ms=1000),
        build_batch(2, [(KEY, offset_value(9))], timestamp=NOW),
    ]
    assert left_of(tmp_path, *batches) == [(0, 0, None, []), (1, 1, None, [1]), (2, 2, None, [2])]
    later = left_of(tmp_path / "later", *batches, now_ms=NOW + 2 * DAY_MS)
    assert later == [(1, 1, NOW + 3 * DAY_MS, [1]), (2, 2, None, [2])]


def test_the_log_end_offset_stays(tmp_path: Path) -> None:
    tombstone = build_batch(1, [(OTHER, None)], delete_horizon=NOW - 1, timestamp=NOW - DAY_MS, last_offset_delta=4)
    left = left_of(tmp_path, build_batch(0, [(KEY, offset_value(1))], timestamp=NOW), tombstone)
    assert left == [(0, 0, None, [0]), (1, 5, None, [])]
    emptied = left_of(tmp_path / "again", build_empty_batch(0, 3), build_batch(4, [(KEY, offset_value(1))]))
    assert emptied == [(4, 4, None, [4])]


def test_tombstones_get_a_horizon_once(tmp_path: Path) -> None:
    batches = [
        build_batch(0, [(KEY, offset_value(1)), (OTHER, offset_value(1))], timestamp=NOW),
        build_batch(2, [(KEY, None), (OTHER, offset_value(2))], timestamp=NOW, codec=Codec.ZSTD),
        build_batch(4, [(encoded_key(OffsetKey("g", "t", 2)), None)], timestamp=NOW, delete_horizon=NOW + 5),
    ]
    assert left_of(tmp_path, *batches) == [(2, 3, NOW + DAY_MS, [2, 3]), (4, 4, NOW + 5, [4])]


def test_nothing_from_the_first_open_transaction_on_is_touched(tmp_path: Path) -> None:
    tail = [
        build_batch(2, [(KEY, offset_value(3))], producer_id=7, transactional=True),
        build_batch(3, [(KEY, offset_value(4)), (KEY, offset_value(5))]),
        transaction(5, KEY, ABORT, producer_id=8),
    ]
    head = [build_batch(0, [(KEY, offset_value(1))]), build_batch(1, [(KEY, offset_value(2))])]
    left_of(tmp_path, *head, *tail)
    (segment,) = (tmp_path / "out").glob("*/*.log")
    assert segment.read_bytes() == b"".join([head[1], *tail])


def test_commits_of_an_idempotent_producer_stay_pending(tmp_path: Path) -> None:
    """The Java coordinator waits for an end of what has a producer id; to the cleaner that is no transaction."""
    batches = [
        build_batch(0, [(KEY, offset_value(1)), (OTHER, None)], producer_id=5),
        build_batch(2, [(KEY, offset_value(3)), (OTHER, offset_value(4))]),
    ]
    assert [offsets for *_, offsets in left_of(tmp_path, *batches)] == [[0, 1], [2, 3]]


def test_a_marker_stays_with_commits_of_an_idempotent_producer(tmp_path: Path) -> None:
    """Without it they would be pending to the Java coordinator, which dropped them."""
    common = {"producer_id": 5, "timestamp": NOW - 2 * DAY_MS}
    abort = [(b"\0\0\0\0", bytes(6))]
    batches = [
        build_batch(0, [(KEY, offset_value(1))], **common),
        build_batch(1, abort, transactional=True, control=True, delete_horizon=NOW - 1, **common),
        build_batch(2, [(OTHER, offset_value(2))]),
    ]
    assert [offsets for *_, offsets in left_of(tmp_path, *batches)] == [[0], [1], [2]]


@pytest.mark.parametrize("profile", ["J1", "J3", "S4"])
@pytest.mark.parametrize("version, like", [(b"\0\x09", 4), (b"\xff\xff", 0)])
def test_a_commit_of_an_unknown_version_is_carried(profile: str, version: bytes, like: int, tmp_path: Path) -> None:
    """The new coordinator of 3.7 to 4.0 reads it as a version that it knows, and no other release does."""
    unknown = version + offset_value(2, version=like)[2:]
    batches = [build_batch(0, [(KEY, offset_value(1)), (OTHER, offset_value(1))]), build_batch(2, [(KEY, unknown)])]
    for producer in ([], [build_batch(3, [(OTHER, offset_value(3))], producer_id=5)]):
        directory = tmp_path / str(len(producer))
        left = left_of(directory, *batches, *producer, profile=profile)
        assert 2 in [offset for *_, offsets in left for offset in offsets]


def test_batches_below_the_log_start_offset_decide_nothing(tmp_path: Path) -> None:
    opened = build_batch(0, [(KEY, offset_value(1))], producer_id=5, transactional=True, timestamp=NOW)
    closed = build_control_batch(2, COMMIT, producer_id=5, timestamp=NOW)
    first, last = build_batch(1, [(OTHER, offset_value(1))]), build_batch(3, [(OTHER, offset_value(2))])
    assert left_of(tmp_path, opened, first, last, start=1) == [(3, 3, None, [3])]
    ended = left_of(tmp_path / "ended", opened, first, closed, last, start=1)
    assert ended == [(2, 2, NOW + DAY_MS, [2]), (3, 3, None, [3])]


@pytest.mark.parametrize("magic", [1, 2])
def test_a_tombstone_that_is_not_the_newest_of_its_key_sets_no_horizon(tmp_path: Path, magic: int) -> None:
    """Neither where a segment has a message of an old format, and is written record by record."""
    item = (OTHER, offset_value(1))
    first = build_message(0, *item, magic=1) if magic == 1 else build_batch(0, [item])
    batches = [first, build_batch(1, [(KEY, None)]), build_batch(2, [(KEY, offset_value(1))])]
    write_partition(tmp_path, {0: b"".join(batches)})
    (log,) = discover([str(tmp_path)]).partitions
    plan = CompactionPlan.of(scan_log(log), CompactionRules(NOW)).keeping(frozenset({1}))
    out = Out()
    write_survivors(plan, out)
    assert out.data == b"".join(batches)


def test_tombstones_of_a_member_go_together(tmp_path: Path) -> None:
    group = [
        (encode_key(3, {"groupId": "k"}), encode_value(3, 0, {"epoch": 4, "metadataHash": 0})),
        (encode_key(6, {"groupId": "k"}), encode_value(6, 0, {"assignmentEpoch": 4})),
    ]
    gone = [(encode_key(kind, {"groupId": "k", "memberId": "m"}), None) for kind in (8, 7, 5)]
    batches = [
        build_batch(0, group, timestamp=NOW),
        build_batch(2, gone[:2], timestamp=NOW - DAY_MS, delete_horizon=NOW - 1),
        build_batch(4, gone[2:], timestamp=NOW - DAY_MS, delete_horizon=NOW + 1),
        build_batch(5, [(KEY, offset_value(1))], timestamp=NOW),
    ]
    stay = [(0, 1, None, [0, 1]), (2, 3, NOW - 1, [2, 3]), (4, 4, NOW + 1, [4]), (5, 5, None, [5])]
    assert left_of(tmp_path, *batches) == stay
    later = left_of(tmp_path / "later", *batches, now_ms=NOW + 1)
    assert later == [(0, 1, None, [0, 1]), (5, 5, None, [5])]


@pytest.mark.parametrize("release", ["4.0.2", "4.3.1"])
def test_share_records_that_4_0_does_not_take_are_compacted_all_the_same(tmp_path: Path, release: str) -> None:
    def share(epoch: int, metadata_hash: int) -> tuple[bytes, bytes]:
        value = encode_value(11, 0, {"epoch": epoch, "metadataHash": metadata_hash})
        return encode_key(11, {"groupId": "k"}), value

    of_member = {"groupId": "gone", "memberId": "m"}
    gone = [(encode_key(10, of_member), None), (encode_key(11, {"groupId": "gone"}), None)]
    batches = [
        build_batch(0, [share(1, 0)], timestamp=NOW),
        build_batch(1, [share(2, 0x01_01_7F_00_00_00_00_00)], timestamp=NOW),
        build_batch(2, gone, timestamp=NOW),
        build_batch(4, [(KEY, offset_value(1))], timestamp=NOW),
    ]
    profile = profile_for_release(release)
    write_partition(tmp_path / "in", {0: b"".join(batches)})
    (log,) = discover([str(tmp_path / "in")]).partitions
    state = replay_partition(log, profile, damage=[])
    assert [failure.record_offset for failure in state.load_failures] == ([1, 2, 3] if release == "4.0.2" else [])
    (tmp_path / "out").mkdir()
    compact_partition(log, tmp_path / "out", CompactionOptions(profile, CompactionRules(NOW)))
    (result,) = discover([str(tmp_path / "out")]).partitions
    left = [record.offset for _, _, records in read_records(result) for record in records]
    # A loader of 4.0 that cannot read record 1 has the group of record 0, so that stays, too.
    assert left == ([0, 1, 2, 3, 4] if release == "4.0.2" else [1, 2, 3, 4])


@pytest.mark.parametrize(
    ("key_types", "with_producers", "alike"),
    [
        ({1, 2}, False, [{"J3", "J0", "J1", "J2", "J4"}]),
        ({1, 2, 3, 6}, True, []),
        (None, False, []),
    ],
)
def test_releases_that_differ_in_nothing_are_proved_once(
    key_types: set[int] | None, with_producers: bool, alike: list[set[str]]
) -> None:
    found = proof_profiles(profile_for("J3"), key_types, with_producers=with_producers)
    names = [{profile.name for profile in members} for members in found]
    assert set().union(*names) == set(PROFILE_RELEASES)
    assert found[0][0].name == "J3"
    for members in alike:
        assert members in names
    if not alike:
        assert max(map(len, names)) <= 2
