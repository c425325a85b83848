"""Records by group, topic and client against a plain count; predicted sizes against the cleaner's."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from coordinator_core.errors import DamagedInputError
from coordinator_core.groups.model import PartitionState
from coordinator_core.lifecycle.compact_plan import CompactionRules
from coordinator_core.lifecycle.forensics import PartitionForensics, Total, forensics
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import read_records
from coordinator_core.log.types import Codec
from coordinator_core.records.codec import decode_key
from coordinator_core.releases import profile_for_release
from coordinator_core.runs.local import replay_snapshot, replay_to_run
from coordinator_core.runs.place import RunPlace
from coordinator_core.runs.read import open_run
from tests.cases import CASES, FEW_CASES, TORN, Case, case, cross_section
from tests.cli.test_damaged_input import write_segment
from tests.log.builders import build_batch, build_empty_batch, build_wrapper
from tests.replay.histories import History, OffsetKey, encoded_key, offset_value

NOW_MS = 1_800_000_000_000
WHOLE = [item for item in CASES if item not in TORN]


def forensics_of(item: Case, now_ms: int = NOW_MS) -> dict[int, PartitionForensics]:
    snapshot = discover([str(item.paths[0])])
    profile = profile_for_release(item.release, item.coordinator)
    states = {state.offsets_partition: state for state in replay_snapshot(snapshot, profile, damage=[])}
    return {
        log.offsets_partition: forensics(
            log,
            states[log.offsets_partition],
            rules=CompactionRules(now_ms=now_ms),
            topic_names=snapshot.topic_names,
        )
        for log in snapshot.partitions
    }


@pytest.mark.parametrize("item", cross_section(WHOLE, FEW_CASES))
def test_every_record_counts_once(item: Case, tmp_path: Path) -> None:
    found = forensics_of(item)
    records: Counter[tuple[int, str, str | None]] = Counter()
    tombstones: Counter[tuple[int, str, str | None]] = Counter()
    times: dict[tuple[int, str], list[int]] = {}
    for log in discover([str(item.paths[0])]).partitions:
        for _, batch, batch_records in read_records(log, damage=[]):
            for record in () if batch.is_control else batch_records:
                assert record.key is not None
                data = decode_key(record.key).data or {}
                group_id = str(data.get("groupId", data.get("group")))
                place = (log.offsets_partition, group_id, data.get("topic"))
                records[place] += 1
                tombstones[place] += record.value is None
                times.setdefault(place[:2], []).append(record.timestamp_ms)
    for partition, one in found.items():
        for group_id, total in one.totals.groups.items():
            assert group_id is not None
            mine = {place: count for place, count in records.items() if place[:2] == (partition, group_id)}
            assert total.records == sum(mine.values())
            known = [time for time in times[partition, group_id] if time >= 0]
            assert total.first_timestamp_ms == min(known, default=None)
            assert total.last_timestamp_ms == max(known, default=None)
            parts = [w for (group, _), w in one.totals.clients.items() if group == group_id]
            assert sum(part.size_bytes for part in parts) == total.size_bytes
            assert sum(part.dead_bytes for part in parts) == total.dead_bytes
    assert {
        (partition, group, topic): (total.records, total.tombstones)
        for partition, one in found.items()
        for (group, topic), total in one.totals.topics.items()
    } == {place: (count, tombstones[place]) for place, count in records.items() if place[2] is not None}
    # The published statistics come from the fold, another implementation, and count the same bytes.
    run = RunPlace(str(tmp_path), "c", "w", "r")
    profile = profile_for_release(item.release, item.coordinator)
    replay_to_run(discover([str(item.paths[0])]), run, profile=profile, now_ms=NOW_MS)
    published: Counter[tuple[int, str]] = Counter()
    for row in open_run(run.path).table("group_stats").to_pylist():
        published[row["offsets_partition"], row["group_id"]] += row["size_bytes"]
    assert published == {
        (partition, group_id): total.size_bytes
        for partition, one in found.items()
        for group_id, total in one.totals.groups.items()
    }


def test_what_lives_and_what_is_dead(tmp_path: Path) -> None:
    other = OffsetKey("g", "u", 1)
    history = History().commit(1).commit(2).commit(3).commit(9, other).tombstone(other).group("m")
    one = measured(tmp_path, history)
    assert counts(one.totals.groups["g"]) == (6, 1, 4, 3)
    assert counts(one.totals.topics["g", "t"]) == (3, 0, 3, 2)
    # The newest tombstone stays until its delete horizon.
    assert counts(one.totals.topics["g", "u"]) == (2, 1, 1, 1)
    assert counts(one.totals.types[2]) == (1, 0, 0, 0)
    assert one.size.records == 6
    assert one.compacted.records == 3
    assert one.size.size_bytes - one.compacted.size_bytes > one.totals.groups["g"].dead_bytes > 0


def test_what_an_open_transaction_holds_back_is_live(tmp_path: Path) -> None:
    history = History().commit(1).commit(2).commit(3, producer_id=5).commit(4).commit(5)
    one = measured(tmp_path, history)
    assert one.last_stable_offset == 2
    assert counts(one.totals.groups["g"]) == (5, 0, 5, 1)
    assert one.compacted.records == 4


def test_keys_that_cannot_be_read_are_weighed_too(tmp_path: Path) -> None:
    history = History().commit(1).records((b"\0\1\0\5ab", b"\0\0")).records((b"\0\x63zz", b"\0\0"))
    one = measured(tmp_path, history)
    assert counts(one.totals.groups[None]) == (2, 0, 0, 0)
    assert {key_type: total.records for key_type, total in one.totals.types.items()} == {
        None: 1,
        1: 1,
        99: 1,
    }


def test_sizes_of_a_compressed_batch_with_an_append_time_are_those_without_the_compression(tmp_path: Path) -> None:
    """Each record has the delta to its producer's timestamp, which the append time hides."""
    commits = [(encoded_key(), offset_value(number), 1_000 + 1_000 * number) for number in range(3)]
    found = []
    for codec in (Codec.NONE, Codec.ZSTD):
        (tmp_path / codec.name).mkdir()
        history = History(3, [build_batch(0, commits, codec=codec, log_append_time=NOW_MS)])
        found.append(measured(tmp_path / codec.name, history).totals)
    assert found[0] == found[1]


def test_damage_is_not_weighed(tmp_path: Path) -> None:
    data = bytearray(b"".join(History().commit(1).commit(2).batches))
    data[-1] ^= 1
    (log,) = discover([str(write_segment(tmp_path, bytes(data)))]).partitions
    with pytest.raises(DamagedInputError):
        forensics(log, PartitionState(0), rules=CompactionRules(now_ms=NOW_MS), topic_names={})


def test_commit_rate() -> None:
    total = Total()
    assert total.commits_per_second is None
    total.add((1, 0, 10, 1, 10, 1_000, 1_000), is_commit=True)
    assert total.commits_per_second is None
    total.add((4, 1, 10, 1, 10, 1_500, 3_000), is_commit=True)
    assert total.commits_per_second == 1.5


def test_a_first_record_of_1970_is_the_first() -> None:
    total = Total()
    total.add((1, 0, 10, 1, 10, 0, 0), is_commit=True)
    total.add((2, 0, 20, 1, 10, 1_000, 2_000), is_commit=True)
    assert (total.first_timestamp_ms, total.last_timestamp_ms) == (0, 2_000)
    assert total.commits_per_second == 1.0


def test_commits_without_a_time_have_no_rate() -> None:
    """One key has some, of message format 0, another one has none."""
    total = Total()
    total.add((5000, 0, 1, 1, 1, -1, 3000), is_commit=True)
    total.add((3, 0, 1, 1, 1, 1000, 3000), is_commit=True)
    assert (total.commits, total.commits_per_second) == (5003, None)


def test_clients_are_those_that_own_the_partition() -> None:
    """Owners by Kafka's own answer to DescribeGroups after a restart."""
    found = forensics_of(case("k431-mixed"))
    clients: dict[str, set[str | None]] = {}
    for one in found.values():
        for group_id, client_id in one.totals.clients:
            clients.setdefault(group_id, set()).add(client_id)
    for group_id, answer in case("k431-mixed").reloaded()["groups"].items():
        if answer["type"] == "consumer" and answer["describe"]["members"]:
            theirs = {member["clientId"] for member in answer["describe"]["members"]}
            assert theirs <= clients[group_id]


@pytest.mark.parametrize("partition", [0, 1])
def test_the_cleaners_output_is_predicted(partition: int) -> None:
    """Its pass over A left B: within a thousandth, for the empty batch at the end of a round, and markers."""
    before, after = case("k431-compacted/A-uncleaned"), case("k431-compacted/B-cleaned-default")
    captured = json.loads((after.directory / "case.json").read_text(encoding="utf-8"))["capturedAtMs"]
    one = forensics_of(before, captured)[partition]
    (log,) = (log for log in discover([str(after.paths[0])]).partitions if log.offsets_partition == partition)
    theirs = sum(segment.size for segment in log.segments)
    assert abs(one.cleaned.size_bytes - theirs) <= theirs / 1_000
    assert one.compacted.size_bytes < one.cleaned.size_bytes < one.size.size_bytes


def measured(directory: Path, history: History) -> PartitionForensics:
    (log,) = discover([str(write_segment(directory, b"".join(history.batches)))]).partitions
    profile = profile_for_release("4.3.1")
    return forensics(log, history.replay(profile), rules=CompactionRules(now_ms=NOW_MS), topic_names={})


def counts(total: Total) -> tuple[int, int, int, int]:
    return total.records, total.tombstones, total.commits, total.dead_records


def test_records_of_the_active_segment_are_counted_one_by_one(tmp_path: Path) -> None:
    """It stays as it is: also a wrapper with many messages, and an empty batch without any."""
    commits = [(encoded_key(), offset_value(number)) for number in range(3)]
    batches = [build_wrapper(0, commits, codec=Codec.GZIP), build_empty_batch(3, producer_id=7)]
    (log,) = discover([str(write_segment(tmp_path, b"".join(batches)))]).partitions
    state = History().records(*commits).replay(profile_for_release("2.0.1"))
    one = forensics(log, state, rules=CompactionRules(now_ms=NOW_MS), topic_names={})
    assert (one.cleaned.batches, one.cleaned.records) == (one.size.batches, one.size.records) == (2, 3)
