"""Logs of real brokers compacted: the state stays, and what is left is what the broker's own cleaner left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coordinator_core.lifecycle import compact
from coordinator_core.lifecycle.compact import CompactionOptions, CompactionReport, compact_partition
from coordinator_core.lifecycle.compact_plan import CompactionRules
from coordinator_core.lifecycle.compact_proof import ProofFailedError
from coordinator_core.lifecycle.compact_publish import compact_logs
from coordinator_core.lifecycle.compact_scan import scan_log
from coordinator_core.lifecycle.compact_states import CommitClass, states_of
from coordinator_core.lifecycle.compact_write import OutputFormat
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import read_records
from coordinator_core.log.types import PartitionLog
from coordinator_core.releases import profile_for, profile_for_release
from tests.cases import CORPUS
from tests.cases import case as case_of
from tests.lifecycle.test_compact_random import answers
from tests.replay.reference import replay_partition

COMPACTED = CORPUS / "k431-compacted"
ONE_OF_EACH = (
    pytest.param("k431-mixed", marks=pytest.mark.full),
    pytest.param("k431-txn", marks=pytest.mark.full),
    "k431-expired/C",
    pytest.param("k431-cluster", marks=pytest.mark.full),
    pytest.param("k392-classic", marks=pytest.mark.full),
    pytest.param("k011/plain", marks=pytest.mark.full),
    "k241/cleaned",
    pytest.param("k0102/after", marks=pytest.mark.full),
    "k082/after",
    "kmix-0102-241/mixed",
)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_logs_of_every_kind_keep_their_state(name: str, tmp_path: Path) -> None:
    case = case_of(name)
    profile = profile_for_release(case.release, case.coordinator)
    logs = discover([str(path) for path in case.paths]).partitions
    target = tmp_path / "out"
    target.mkdir()
    reports = compact_logs(logs, target, CompactionOptions(profile, CompactionRules(1_900_000_000_000)))
    assert sum(report.output_records for report in reports) <= sum(report.input_records for report in reports)
    results = {log.offsets_partition: log for log in discover([str(target)]).partitions}
    assert sorted(results) == [log.offsets_partition for log in logs]
    for log in logs:
        before = replay_partition(log, profile, damage=[])
        after = replay_partition(results[log.offsets_partition], profile, damage=[])
        assert answers(after, with_record_offsets=True) == answers(before, with_record_offsets=True)
        ends = [scan_log(each).log_end_offset for each in (log, results[log.offsets_partition])]
        assert ends[0] == ends[1]


@pytest.mark.parametrize(
    ("name", "retention_ms"), [pytest.param("k431-txn", None, marks=pytest.mark.full), ("k241/cleaned", 3600_000)]
)
def test_committed_offsets_in_files_are_compared_alike(
    name: str, retention_ms: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they are of a large partition; a difference is found in them, too."""
    case = case_of(name)
    profile = profile_for_release(case.release, case.coordinator)
    logs = discover([str(path) for path in case.paths]).partitions
    options = CompactionOptions(profile, CompactionRules(1_900_000_000_000), offsets_retention_ms=retention_ms)
    for name in ("in memory", "in files", "another"):
        (tmp_path / name).mkdir()
    in_memory = compact_logs(logs, tmp_path / "in memory", options)
    monkeypatch.setattr(compact, "_LARGE_ROWS", -1)
    assert compact_logs(logs, tmp_path / "in files", options) == in_memory
    large, largest = sorted(logs, key=lambda log: log.size)[-2:]

    def of_another(log: PartitionLog, *rules: Any, **more: Any) -> list[CommitClass]:
        return states_of(large if log.directory.startswith(str(tmp_path)) else log, *rules, **more)

    monkeypatch.setattr(compact, "states_of", of_another)
    with pytest.raises(ProofFailedError, match=r"replays to another state: .*committed offset"):
        compact_logs([largest], tmp_path / "another", options)


def records_of(log: PartitionLog, *, markers: bool = True) -> dict[int, tuple[bytes | None, bytes | None, int]]:
    return {
        record.offset: (record.key, record.value, record.timestamp_ms)
        for _, batch, records in read_records(log)
        for record in records
        if markers or not batch.is_control
    }


def one(snapshot: str, offsets_partition: int) -> PartitionLog:
    logs = discover([str(COMPACTED / snapshot / "log")]).partitions
    return next(log for log in logs if log.offsets_partition == offsets_partition)


def as_the_cleaner(
    log: PartitionLog, target: Path, *, now_ms: int, end_offset: int, delete_retention_ms: int = 86_400_000
) -> tuple[PartitionLog, CompactionReport]:
    rules = CompactionRules(now_ms, delete_retention_ms, end_offset=end_offset)
    target.mkdir()
    report = compact_partition(log, target, CompactionOptions(profile_for("J3"), rules))
    (result,) = discover([str(target)]).partitions
    return result, report


@pytest.mark.parametrize(("offsets_partition", "end_offset"), [(0, 13245), (1, 6619)])
def test_the_same_records_survive_as_after_one_pass_of_the_cleaner(
    tmp_path: Path, offsets_partition: int, end_offset: int
) -> None:
    """``end_offset``: where the pass ended, at the active segment or that of the last stable offset."""
    log = one("A-uncleaned", offsets_partition)
    ours, report = as_the_cleaner(log, tmp_path / "out", now_ms=1795251390429, end_offset=end_offset)
    theirs = one("B-cleaned-default", offsets_partition)
    assert records_of(ours) == records_of(theirs)
    assert report.protected_records == 0
    # End markers have their horizon already, which takes five bytes in each of their records.
    markers = sum(batch.is_control for _, batch, _ in read_records(theirs))
    assert report.output_bytes <= sum(segment.size for segment in theirs.segments) + 5 * markers


def test_tombstones_go_as_after_the_second_pass(tmp_path: Path) -> None:
    """From the log after the first pass and more writes, with a retention of a second that is over."""
    first, _ = as_the_cleaner(
        one("A-uncleaned", 0),
        tmp_path / "first",
        now_ms=1795251402000,
        end_offset=13245,
        delete_retention_ms=1000,
    )
    second, _ = as_the_cleaner(
        first, tmp_path / "second", now_ms=1795251450000, end_offset=13245, delete_retention_ms=1000
    )
    # There the second pass has only begun to count the time of the markers.
    theirs = records_of(one("C-cleaned-short", 0), markers=False)
    ours = records_of(second, markers=False)
    in_both = [offset for offset in ours if offset < 13245]
    superseded = {key for offset, (key, _, _) in theirs.items() if offset >= 13245}
    # What later writes superseded is gone there, and not here.
    assert [offset for offset in in_both if ours[offset][0] not in superseded] == [
        offset for offset in theirs if offset < 13245
    ]


def test_releases_drop_out_of_the_proof_where_they_cannot_read_on(tmp_path: Path) -> None:
    """The first segments hold values of version 1 only, those of later brokers come behind them."""
    logs = discover([str(path) for path in case_of("kmix-0102-241/mixed").paths]).partitions
    options = CompactionOptions(profile_for("J3"), CompactionRules(1_900_000_000_000))
    (report,) = compact_logs(logs, tmp_path, options)
    names = {label.split()[0] for label in report.proved_profiles}
    assert names == {"J0", "J1", "J2", "J3", "J4", "S2", "S3", "S4"}


@pytest.mark.parametrize("snapshot", ["plain", "cleaned"])
@pytest.mark.parametrize("convert", [False, True])
def test_compressed_logs_of_old_formats(tmp_path: Path, snapshot: str, convert: bool) -> None:
    logs = discover([str(CORPUS / "k0102-codecs" / snapshot / "log")]).partitions
    options = CompactionOptions(profile_for("S1"), CompactionRules(1), OutputFormat(convert=convert))
    compact_logs(logs, tmp_path, options)
    formats = set()
    for log in discover([str(tmp_path)]).partitions:
        formats |= {batch.magic for _, batch, _ in read_records(log)}
    assert (1 in formats) is not convert
    assert (2 in formats) is convert or not convert


def test_segments_are_as_large_as_asked_for(tmp_path: Path) -> None:
    options = CompactionOptions(profile_for("J3"), CompactionRules(1795251390429), segment_bytes=4096)
    report = compact_partition(one("A-uncleaned", 0), tmp_path, options)
    (log,) = discover([str(tmp_path)]).partitions
    assert len(log.segments) == report.output_segments > 5
    sizes = np.array([segment.size for segment in log.segments])
    largest = max(batch.size for _, batch, _ in read_records(log))
    assert (sizes <= max(4096, largest)).all()
