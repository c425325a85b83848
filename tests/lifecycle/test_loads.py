"""``regroup loads``: which releases load a log, also after a pass of the cleaner."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.lifecycle.half_cleaned import WrittenRecord, cleanings, group_histories
from coordinator_core.lifecycle.loads import Outcome, PartitionLoad, loads
from coordinator_core.lifecycle.unreadable import has_empty_tail
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import Codec, Snapshot
from coordinator_core.records.codec import encode_key, encode_value
from coordinator_core.releases import every_profile, profile_for_release, profiles_of_release
from tests.cases import CORPUS
from tests.cli.test_damaged_input import outcome
from tests.groups.test_java_loader import GROUP_KEY, assignment, member_key, with_member
from tests.log.builders import build_batch
from tests.replay.histories import GROUP, History, encoded_key, offset_value, parsed

Capture = pytest.CaptureFixture[bytes]
STREAMS_GROUP = {"epoch": 1, "metadataHash": 0, "validatedTopologyEpoch": 0}


def snapshot_of(directory: Path, *segments: Sequence[bytes], partition: int = 7) -> Snapshot:
    """A log directory with these batches; record offsets count on from segment to segment."""
    place = directory / f"__consumer_offsets-{partition}"
    place.mkdir(parents=True)
    offset = 0
    for batches in segments:
        (place / f"{offset:020}.log").write_bytes(b"".join(batches))
        offset += sum(int.from_bytes(batch[57:61], "big") for batch in batches)
    return discover([str(directory)])


def loaded(snapshot: Snapshot, *releases: str, cleaning: bool = False) -> dict[str, PartitionLoad]:
    """The partition under the default coordinator of each of ``releases``."""
    histories = None
    if cleaning:
        histories = {
            log.offsets_partition: group_histories(log, on_damage=OnDamage.FAIL, damage=[])
            for log in snapshot.partitions
        }
    base = profile_for_release("4.3.1")
    profiles = [profile for release in releases for profile in profiles_of_release(release)]
    found = loads(snapshot, base, profiles, on_damage=OnDamage.FAIL, damage=[], histories=histories)
    return {f"{profile.release} {profile.coordinator}": one.partitions[0] for one in found for profile in one.profiles}


def document_of(*arguments: str, capture: Capture) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of the command."""
    code, out, _ = outcome(["loads", *arguments, "--no-fold-cache", "--format", "json"], capture)
    return code, json.loads(out)


def moved_partition() -> History:
    """Partition 0 goes from member m to member n, and m goes on."""
    return (
        with_member(History(), "m", 0, 1, epoch=5)
        .modern(8, member_key("m"), assignment(6, 1))
        .modern(8, member_key("n"), assignment(6, 0))
        .modern(8, member_key("m"), assignment(7, 1, 2))
    )


def test_a_cleaner_can_leave_an_owned_partition_that_early_patches_refuse(tmp_path: Path) -> None:
    snapshot = snapshot_of(tmp_path, moved_partition().batches)
    found = loaded(snapshot, "3.9.2", "4.0.0", "4.0.1", "4.0.2", "4.1.1", "4.1.2", "4.3.1", cleaning=True)
    for release in ("3.9.2 new", "4.0.0 new", "4.0.1 new", "4.1.1 new"):
        assert found[release].outcome is not Outcome.STOPS
        stop = found[release].after_cleaning
        assert stop is not None
        assert stop.bug == "KAFKA-19862"
        assert "while owned at epoch 5" in stop.detail
        fixed = "4.1.2" if release.startswith("4.1") else "4.0.2"
        assert str(stop.fixed_in) == fixed
    for release in ("4.0.2 new", "4.1.2 new", "4.3.1 new"):
        assert found[release].after_cleaning is None
    assert all(one.after_cleaning is None for one in loaded(snapshot, "4.0.1").values()), "was not asked"


def test_what_the_cleaner_left_stops_these_releases(tmp_path: Path) -> None:
    batches = with_member(History(), "m", 0, 1, epoch=5).modern(8, member_key("n"), assignment(6, 0)).batches
    found = loaded(snapshot_of(tmp_path, batches), "4.0.1", "4.0.2")
    stop = found["4.0.1 new"].stop
    assert stop is not None
    assert (stop.bug, str(stop.fixed_in), stop.record_offset) == ("KAFKA-19862", "4.0.2", len(batches) - 1)
    assert found["4.0.2 new"].stop is None


def test_only_the_list_of_all_releases_names_the_one_with_the_fix(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    batches = with_member(History(), "m", 0, 1, epoch=5).modern(8, member_key("n"), assignment(6, 0)).batches
    arguments = ["loads", *snapshot_of(tmp_path, batches).sources, "--kafka-version", "4.3.1"]
    for releases, fix in (("3.8.1,4.0.1,4.3.1", "not in 4.3.1"), ("4.0.1", None), (None, "fixed in 4.0.2")):
        _, said, _ = outcome([*arguments, *(["--releases", releases] if releases else [])], capfd)
        assert f"(KAFKA-19862{f', {fix}' if fix else ''})" in said


def test_a_streams_group_over_a_simple_group_loads_until_the_tombstone_is_cleaned(tmp_path: Path) -> None:
    """KAFKA-20254: the join writes a tombstone of type 2, which a pass removes while the commit stays."""
    history = History().commit(5).group_tombstone().modern(17, GROUP_KEY, STREAMS_GROUP)
    found = loaded(snapshot_of(tmp_path, history.batches), "4.2.0", "4.2.1", cleaning=True)
    stop = found["4.2.0 new"].after_cleaning
    assert found["4.2.0 new"].stop is None
    assert stop is not None
    assert (stop.bug, str(stop.fixed_in)) == ("KAFKA-20254", "4.2.1")
    assert found["4.2.1 new"].after_cleaning is None


def test_a_tombstone_goes_only_in_the_pass_after_what_it_replaced() -> None:
    history = moved_partition().group("a", group_id="h").group_tombstone("h")
    log = history_log(history)
    for left in cleanings(log):
        keys = [written.record.key for written in left if written.record.value is not None]
        tombstoned = {written.record.key for written in log if written.record.value is None}
        assert not any(key in tombstoned for key in keys) or any(
            written.record.value is None and written.record.key in keys for written in left
        )


def test_what_a_cleaner_leaves_of_a_group_does_not_grow_with_its_segments() -> None:
    """It grew with their cube: 100 segments took 40 s."""
    history = with_member(History(), "m", 0, epoch=1)
    for epoch in range(2, 100):
        history.modern(8, member_key("m"), assignment(epoch, 0))
    log = [one._replace(segment=number) for number, one in enumerate(history_log(history))]
    assert len(list(cleanings(log[-4:]))) <= len(list(cleanings(log))) < 100


def test_a_loader_takes_whole_batches() -> None:
    """A pass of the cleaner comes before a batch or behind it: both old records are there, or none."""
    older, newer = (member_key("m"), assignment(1, 0)), (member_key("m"), assignment(2, 0))
    encoded = [(encode_key(8, key), encode_value(8, 0, value)) for key, value in (older, older, newer)]
    log = history_log(History().records(*encoded[:2]).records(encoded[2]))
    assert {tuple(each.record.offset for each in left) for left in cleanings(log)} == {(2,), (0, 1, 2)}


def history_log(history: History) -> list[WrittenRecord]:
    return [WrittenRecord(0, batch, record) for batch, records in parsed(history.batches) for record in records]


def test_releases_before_kip_915_stop_at_types_that_they_do_not_know(tmp_path: Path) -> None:
    batches = History().modern(3, GROUP_KEY, {"epoch": 3}).batches
    found = loaded(snapshot_of(tmp_path, batches), "3.4.0", "3.4.1", "3.5.2")
    stop = found["3.4.0 classic"].stop
    assert stop is not None
    assert (stop.bug, str(stop.fixed_in), stop.record_offset) == ("KIP-915", "3.4.1", 0)
    assert found["3.4.1 classic"].outcome is Outcome.DIFFERS
    assert [each.change for each in found["3.5.2 classic"].differences] == ["absent"]


@pytest.mark.parametrize(
    "layout, key_type, fields, reads, stops",
    [
        ("share-4.0", 11, {"epoch": 3}, ("4.0.2",), ("4.1.2", "4.4.0")),
        ("current", 11, {"epoch": 3, "metadataHash": 1 << 62}, ("4.1.2", "4.4.0"), ("4.0.2",)),
        ("preview-3.7", 4, {"epoch": 1, "topics": []}, ("3.7.2",), ("3.8.1", "4.4.0")),
        ("current", 4, {"topics": []}, ("3.8.1", "4.4.0"), ("3.7.2",)),
    ],
)
def test_values_of_early_releases_are_for_them_alone(
    layout: str,
    key_type: int,
    fields: dict[str, Any],
    reads: Sequence[str],
    stops: Sequence[str],
    tmp_path: Path,
) -> None:
    """Brokers of 3.7.2 to 4.4.0 were given logs of each other (``data/judged``)."""
    record = (encode_key(key_type, GROUP_KEY), encode_value(key_type, 0, fields, layout))
    history = History() if key_type == 11 else History().modern(3, GROUP_KEY, {"epoch": 1})
    found = loaded(snapshot_of(tmp_path, history.records(record).batches), *reads, *stops)
    for release in stops:
        stop = found[f"{release} new"].stop
        assert stop is not None
        assert stop.record_offset == len(history.batches) - 1
    assert all(found[f"{release} new"].stop is None for release in reads)


@pytest.mark.parametrize("name, release", [("k372-new/before", "3.7.2"), ("k381-new/before", "3.9.2")])
def test_the_preview_is_told_from_its_records(name: str, release: str, capfdbinary: Capture) -> None:
    code, document = document_of(str(CORPUS / name / "log"), "--releases", release, capture=capfdbinary)
    outcomes = {one["releases"][0]["coordinator"]: one["outcome"] for one in document["releases"]}
    assert (code, outcomes["new"]) == (0, "loads")


@pytest.mark.parametrize(
    "codec, stops, reads",
    [(Codec.NONE, "0.10.2", "0.11"), (Codec.ZSTD, "2.0.1", "2.1.1")],
)
def test_batches_of_a_newer_format_or_codec_are_not_read(tmp_path: Path, codec: Codec, stops: str, reads: str) -> None:
    value = offset_value(3, version=1, expireTimestamp=-1)
    batches = [build_batch(0, [(encoded_key(), value)], codec=codec)]
    found = loaded(snapshot_of(tmp_path, batches), stops, reads)
    stop = found[f"{stops} classic"].stop
    assert stop is not None
    assert stop.record_offset == 0
    assert "is unknown to Kafka" in stop.detail
    assert found[f"{reads} classic"].stop is None


def test_an_empty_last_segment_behind_a_gap_is_loaded_for_ever_up_to_2_3(tmp_path: Path) -> None:
    """KAFKA-9065; facts 13.4 saw it on a broker of 2.0.1."""
    batches = History().commit(5).batches
    snapshot = snapshot_of(tmp_path, batches)
    assert not has_empty_tail(snapshot.partitions[0])
    (tmp_path / "__consumer_offsets-7" / f"{1:020}.log").write_bytes(b"")
    assert not has_empty_tail(discover([str(tmp_path)]).partitions[0])
    (tmp_path / "__consumer_offsets-7" / f"{1:020}.log").rename(tmp_path / "__consumer_offsets-7" / f"{9:020}.log")
    gap = discover([str(tmp_path)])
    assert has_empty_tail(gap.partitions[0])
    found = loaded(gap, "2.3.1", "2.4.1")
    stop = found["2.3.1 classic"].stop
    assert stop is not None
    assert (stop.bug, str(stop.fixed_in), stop.record_offset) == ("KAFKA-9065", "2.4.1", None)
    assert found["2.4.1 classic"].stop is None


def test_differences_count_committed_offsets_by_group(tmp_path: Path) -> None:
    """A group without a record is a group to the new coordinator only after a commit; 3.9 agrees."""
    batches = History().commit(5).modern(3, GROUP_KEY, {"epoch": 3}).batches
    found = loaded(snapshot_of(tmp_path, batches), "3.9.2")
    (difference,) = found["3.9.2 classic"].differences
    assert (difference.group_id, difference.fields, difference.offset_keys) == (GROUP, ("type",), 0)


@pytest.mark.parametrize(
    "name, release, coordinator",
    [
        pytest.param("k392-classic", "3.9", "classic", marks=pytest.mark.full),
        pytest.param("k431-mixed", "4.3", "new", marks=pytest.mark.full),
        pytest.param("k431-txn", "4.3", "new", marks=pytest.mark.full),
        ("k440/before", "4.4", "new"),
    ],
)
def test_the_release_that_wrote_a_log_loads_it_without_a_difference(
    name: str, release: str, coordinator: str, capfdbinary: Capture
) -> None:
    code, document = document_of(str(CORPUS / name / "log"), capture=capfdbinary)
    assert code == 1, "releases before 0.11 do not read message format 2"
    own = [
        one["outcome"]
        for one in document["releases"]
        if {"release": release, "coordinator": coordinator} in one["releases"]
    ]
    assert own == ["loads"]


def test_a_layout_that_a_release_reads_otherwise_is_named_by_its_type(capfd: pytest.CaptureFixture[str]) -> None:
    """4.0 has other share group records under the same type and version."""
    code, said, _ = outcome(["loads", str(CORPUS / "k431-mixed/log"), "--releases", "4.0.2"], capfd)
    assert code == 1
    assert "value of key type 11, version 0, is not as Kafka 4.0.2 reads it: byte " in said


def test_releases_are_chosen_and_the_exit_code_says_whether_all_load(capfdbinary: Capture) -> None:
    log = str(CORPUS / "k431-mixed" / "log")
    code, document = document_of(log, "--releases", "4.1.2,4.3.1", capture=capfdbinary)
    assert code == 0
    assert [release["release"] for one in document["releases"] for release in one["releases"]] == ["4.1.2", "4.3.1"]
    code, document = document_of(log, "--releases", "4.0.2", capture=capfdbinary)
    stops = {
        partition["offsets_partition"]: partition["stop"]
        for one in document["releases"]
        if one["releases"][0]["coordinator"] == "new"
        for partition in one["partitions"]
        if partition["stop"]
    }
    assert code == 1
    assert stops.keys() == {17, 43, 45}, "partitions with share groups of the layout of 4.1"


def test_every_profile_is_listed_once() -> None:
    labels = [profile.label for profile in every_profile()]
    assert len(set(labels)) == len(labels)


@pytest.mark.parametrize("looked_through", [0, 1, 4096])
def test_offsets_partitions_stop_early_late_and_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looked_through: int
) -> None:
    """Kafka 2.0 knows no value version 3: nothing else of such a partition is replayed, and others are."""
    monkeypatch.setattr("coordinator_core.lifecycle.loads._EARLY_BATCHES", looked_through)
    old, new = ([(encoded_key(), offset_value(7, version=version))] for version in (1, 3))
    snapshot_of(tmp_path, [build_batch(0, new), build_batch(1, old)], partition=1)
    snapshot_of(tmp_path, [build_batch(0, old), build_batch(1, old), build_batch(2, new)], partition=2)
    snapshot = snapshot_of(tmp_path, [build_batch(0, old)], partition=3)
    base = profile_for_release("2.1.0")
    (found,) = loads(snapshot, base, profiles_of_release("2.0.1"), on_damage=OnDamage.FAIL, damage=[])
    stops = {part.offsets_partition: part.stop and part.stop.record_offset for part in found.partitions}
    assert stops == {1: 0, 2: 2, 3: None}
