"""Reading less gives the same: batches of other groups that are passed, and all groups a portion at a time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.errors import Damage
from coordinator_core.fold.passing import Passing, Portion
from coordinator_core.history.judge import Judge
from coordinator_core.history.lessons import Lessons
from coordinator_core.history.model import Deletions, PartitionHistory
from coordinator_core.history.parts import Asked as HistoryAsked
from coordinator_core.history.parts import history_parts
from coordinator_core.history.read import HistoryReader, read_history
from coordinator_core.investigate import investigate as portions
from coordinator_core.investigate.investigate import investigate, size_of
from coordinator_core.investigate.model import Case as Asked
from coordinator_core.lifecycle.half_cleaned import group_histories
from coordinator_core.log import reader, windows
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import OnDamage, read_records
from coordinator_core.log.types import Codec, ControlType, PartitionLog, Snapshot
from coordinator_core.records.codec import encode_key, encode_value
from coordinator_core.releases import Profile, profile_for_release
from coordinator_core.reports.investigation import investigation_document
from coordinator_core.runs.local import merged_partitions
from tests.cases import CASES, FEW_CASES, Case, cross_section
from tests.examples import one_in
from tests.history.incidents import Incident
from tests.history.logs import case_histories
from tests.history.page import ALL
from tests.log.builders import build_batch, build_control_batch

NOW = 1_790_000_000_000
SOME_GROUPS = 1
FAST_HOLES = {(None, Codec.NONE), (None, Codec.ZSTD), (0.5, Codec.SNAPPY)}


def read(
    log: PartitionLog, profile: Profile, groups: Sequence[str] | Portion, on_damage: OnDamage, *, passes: bool
) -> tuple[PartitionHistory, dict[int, Any], list[Damage]]:
    deletions, damage = Deletions(), list[Damage]()
    if passes:
        found = read_history(
            log, profile, groups=groups, deletions=deletions, topic_names={}, on_damage=on_damage, damage=damage
        )
    else:
        reader = HistoryReader(log, profile, Passing(groups, wants_tombstones=True), deletions, {}, None)
        for segment, batch, records in read_records(log, on_damage=on_damage, damage=damage):
            reader.batch(segment, batch, records)
        found = reader.finish()
    return found, deletions.instants, damage


def check_passes(snapshot: Snapshot, profile: Profile, on_damage: OnDamage = OnDamage.SALVAGE) -> None:
    for log in snapshot.partitions:
        whole = read_history(log, profile, groups=None, deletions=None, topic_names={}, on_damage=on_damage, damage=[])
        choices = [[], ["no such group"], *([one] for one in list(whole.groups)[:SOME_GROUPS]), Portion(1, 3)]
        for groups in choices:
            with_passes = read(log, profile, groups, on_damage, passes=True)
            assert with_passes == read(log, profile, groups, on_damage, passes=False), groups
        parts = [read(log, profile, Portion(number, 3), on_damage, passes=True)[0].groups for number in range(3)]
        assert sorted(chain(*parts)) == sorted(whole.groups)


def document(snapshot: Snapshot, profile: Profile, **how: int) -> dict[str, Any]:
    found = investigate(
        snapshot,
        Asked(profile, NOW, None),
        groups=None,
        since_ms=None,
        on_damage=OnDamage.SALVAGE,
        damage=[],
        **how,
    )
    return investigation_document(found, profile=profile.label, now_ms=NOW, history=False)


def check_portions(snapshot: Snapshot, profile: Profile) -> None:
    at_once = document(snapshot, profile)
    portion_records = max(3, size_of(snapshot) // 600)
    assert document(snapshot, profile, large_bytes=-1, portion_records=portion_records) == at_once


@pytest.mark.parametrize("case", cross_section(CASES, FEW_CASES))
def test_logs_of_brokers(case: Case) -> None:
    snapshot = discover([str(path) for path in case.paths])
    profile = profile_for_release(case.release, case.coordinator)
    check_passes(snapshot, profile)
    check_portions(snapshot, profile)


@pytest.mark.parametrize(
    "incident", one_in(10, [one for one in ALL if one.id != "cleaner-died"]), ids=lambda one: one.id
)
def test_incidents(incident: Incident, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if groups that lost offsets are all read a second time."""
    snapshot = discover([str(incident.build(tmp_path / "log", True))])
    profile = profile_for_release(incident.release, "new" if "new" in incident.arguments else None)
    check_portions(snapshot, profile)
    monkeypatch.setattr(portions, "_FEW_TIMES", 0)
    check_portions(snapshot, profile)


def test_several_processes_say_the_same(tmp_path: Path) -> None:
    """Groups that lost offsets are read twice, the second time with a judge of why they went."""
    (incident,) = (one for one in ALL if one.id == "groups-deleted-by-a-job")
    snapshot = discover([str(incident.build(tmp_path / "log", True))])
    profile = profile_for_release(incident.release)
    found = document(snapshot, profile, large_bytes=-1, portion_records=3, workers=2)
    assert found == document(snapshot, profile)
    assert found["explanations"]


@pytest.mark.parametrize(
    ("damaged_at", "codec"),
    [
        pytest.param(damaged_at, codec, marks=() if (damaged_at, codec) in FAST_HOLES else pytest.mark.full)
        for damaged_at in (None, 0.1, 0.5, 0.9)
        for codec in Codec
    ],
)
def test_codecs_holes_and_damage(
    codec: Codec, damaged_at: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cleaned log of many small groups, of one codec and then plain, under two leader epochs; in small windows."""
    monkeypatch.setattr(windows, "_WINDOW", 6000)
    monkeypatch.setattr(reader, "_NEAR", 200)
    data = bytearray()
    offset = 0
    for number in range(400):
        group = f"group-{number % 23}"
        offset += (0, 0, 5, 1)[number % 4]
        keys = [encode_key(1, {"group": group, "topic": "orders", "partition": one}) for one in range(3)]
        value = {"offset": number, "metadata": "", "commitTimestamp": NOW + number, "leaderEpoch": 1}
        records = [(key, None if number % 31 == 7 else encode_value(1, 3, value)) for key in keys]
        producer_id = 9 if number % 50 == 3 else -1
        data += build_batch(
            offset,
            records,
            timestamp=NOW + number,
            codec=codec if number < 300 else Codec.NONE,
            leader_epoch=number // 200,
            last_offset_delta=4 if number % 9 == 0 else 2,
            producer_id=producer_id,
            producer_epoch=0 if producer_id > 0 else -1,
            transactional=producer_id > 0,
        )
        offset += 5 if number % 9 == 0 else 3
        if producer_id > 0:
            data += build_control_batch(offset, ControlType.COMMIT, producer_id=9, timestamp=NOW + number)
            offset += 1
    if damaged_at is not None:
        data[int(damaged_at * len(data))] ^= 0x55
    place = tmp_path / "__consumer_offsets-0"
    place.mkdir()
    (place / f"{0:020d}.log").write_bytes(data)
    snapshot, profile = discover([str(tmp_path)]), profile_for_release("3.9.2")
    for on_damage in (OnDamage.SALVAGE, OnDamage.RECOVER):
        check_passes(snapshot, profile, on_damage)
    check_portions(snapshot, profile)


@pytest.mark.parametrize(
    "case", one_in(2, [one for one in CASES if "torn" not in one.name][::4]), ids=lambda case: case.name
)
def test_one_group_needs_few_tombstones_of_others(case: Case) -> None:
    """Only those near its own are read: causes are the same as from all of them."""
    snapshot = discover([str(path) for path in case.paths])
    profile = profile_for_release(case.release, case.coordinator)
    asked = Asked(profile, NOW, None)
    lost = [one.group_id for one in case_histories(case).values() if one.removals][:SOME_GROUPS]
    for group_id in lost:
        found = investigate(snapshot, asked, groups=[group_id], since_ms=None, on_damage=OnDamage.SALVAGE, damage=[])
        (group,) = found.groups
        lessons = Lessons(is_partial=True)
        whole = [
            each
            for log in snapshot.partitions
            for each in read_history(
                log,
                profile,
                groups=[group_id],
                deletions=lessons.deletions,
                topic_names=snapshot.topic_names,
                damage=[],
            ).groups.values()
        ]
        for merged, _ in merged_partitions(snapshot, profile, on_damage=OnDamage.SALVAGE):
            lessons.learn_elsewhere(merged, [group_id])
        Judge(profile, lessons.deletions, lessons=lessons).judge(whole)
        assert [one.end for one in group.removals] == [one.end for each in whole for one in each.removals]


def test_cleanings_of_one_group_are_those_of_all() -> None:
    (case,) = (case for case in CASES if case.name == "k431-mixed")
    for log in discover([str(path) for path in case.paths]).partitions:
        whole = group_histories(log, on_damage=OnDamage.SALVAGE, damage=[])
        for one in whole[:SOME_GROUPS]:
            some = group_histories(log, on_damage=OnDamage.SALVAGE, damage=[], groups=[one.group_id])
            assert [each.records for each in some] == [one.records]


def test_most_batches_are_passed(tmp_path: Path) -> None:
    """Else the comparisons above would say nothing."""
    data = b"".join(
        build_batch(number, [(encode_key(1, {"group": f"group-{number % 23}", "topic": "t", "partition": 0}), b"")])
        for number in range(400)
    )
    (tmp_path / "__consumer_offsets-0").mkdir()
    (tmp_path / "__consumer_offsets-0" / f"{0:020d}.log").write_bytes(data)
    (log,) = discover([str(tmp_path)]).partitions
    left = list(Passing(["group-5"]).read(log, on_damage=OnDamage.FAIL, damage=[]))
    assert [batch.base_offset for _, batch, _ in left] == [0, *range(5, 400, 23)]


def test_ids_that_are_no_utf8_are_read_as_java_reads_them(tmp_path: Path) -> None:
    """Several byte strings are one group then."""
    value = encode_value(1, 3, {"offset": 7, "metadata": "", "commitTimestamp": NOW, "leaderEpoch": 1})
    names = "orders", "orders-?", "orders-!", "orders-\ufffd"
    keys = [encode_key(1, {"group": name, "topic": "t", "partition": at}) for at, name in enumerate(names)]
    spoilt = [key.replace(b"?", b"\xff").replace(b"!", b"\xc3") for key in keys]
    place = tmp_path / "__consumer_offsets-0"
    place.mkdir()
    batches = [build_batch(at, [(key, value)], timestamp=NOW) for at, key in enumerate(spoilt)]
    (place / f"{0:020d}.log").write_bytes(b"".join(batches))
    snapshot, profile = discover([str(tmp_path)]), profile_for_release("3.9.2")
    (log,) = snapshot.partitions
    whole = read_history(
        log, profile, groups=None, deletions=None, topic_names={}, on_damage=OnDamage.FAIL, damage=[]
    ).groups
    assert {name: len(group.versions) for name, group in whole.items()} == {"orders": 1, "orders-\ufffd": 3}
    for name, group in whole.items():
        found, _, _ = read(log, profile, [name], OnDamage.FAIL, passes=True)
        assert found.groups == {name: group}
    rows = [row for part in history_parts(snapshot, HistoryAsked(profile), []) for row in part.table.to_pylist()]
    assert sorted((row["partition"], row["group_id"]) for row in rows) == [
        (0, "orders"),
        *((at, "orders-\ufffd") for at in (1, 2, 3)),
    ]


def test_a_wrong_offset_at_the_end_of_a_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What shows that it is wrong is the batch behind it, which is in the next window."""
    key = encode_key(1, {"group": "group", "topic": "orders", "partition": 0})
    value = encode_value(1, 3, {"offset": 7, "metadata": "", "commitTimestamp": NOW, "leaderEpoch": 1})
    batches = [build_batch(number, [(key, value)], timestamp=NOW) for number in (0, 1, 2, 9, 3, 4)]
    place = tmp_path / "__consumer_offsets-0"
    place.mkdir()
    (place / f"{0:020d}.log").write_bytes(b"".join(batches))
    monkeypatch.setattr(windows, "_WINDOW", 4 * len(batches[0]))
    monkeypatch.setattr(reader, "_NEAR", 1)
    (log,) = discover([str(tmp_path)]).partitions
    _, _, damage = read(log, profile_for_release("3.9.2"), ["other"], OnDamage.SALVAGE, passes=True)
    assert [(one.kind, one.record_offset) for one in damage] == [("offset_order", 9)]
