"""A partition compacted in parts: the directory and the report of a compaction in one place, whatever the parts."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow.fs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core import storage
from coordinator_core.errors import RegroupError
from coordinator_core.lifecycle.compact import CompactionOptions, CompactionReport, compact_partition
from coordinator_core.lifecycle.compact_output import adopt
from coordinator_core.lifecycle.compact_parts import compact_in_parts
from coordinator_core.lifecycle.compact_plan import CompactionRules
from coordinator_core.lifecycle.compact_proof import ProofFailedError
from coordinator_core.lifecycle.compact_scan import LogScan
from coordinator_core.lifecycle.compact_tasks import PartSizes
from coordinator_core.lifecycle.compact_write import OutputFormat
from coordinator_core.log.discovery import discover
from coordinator_core.log.types import Codec, ControlType, PartitionLog
from coordinator_core.releases import profile_for, profile_for_release
from tests.cases import case as case_of
from tests.examples import examples
from tests.fold.parity import write_log
from tests.fold.random_logs import Log, contended_logs, logs
from tests.lifecycle.test_compact_random import NOW_MS
from tests.log.builders import build_batch, build_control_batch, build_wrapper, write_partition
from tests.log.object_store import object_store
from tests.replay.histories import OffsetKey, encoded_key, offset_value

T = TypeVar("T")
R = TypeVar("R")
SMALL = PartSizes(segments=1, newest=2000, folds=4000)


def elsewhere(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """As tasks: what goes there and comes back is pickled."""
    call: Any = pickle.loads(pickle.dumps(function))
    return [pickle.loads(pickle.dumps(call(pickle.loads(pickle.dumps(item))))) for item in items]


def again(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """As tasks of which Spark begins two attempts each, and takes the first answer."""
    answers = elsewhere(function, items)
    elsewhere(function, items)
    return answers


def in_one_place(log: PartitionLog, target: Path, options: CompactionOptions) -> CompactionReport:
    target.mkdir()
    return compact_partition(log, target, options)


def in_parts(log: PartitionLog, target: Path, options: CompactionOptions, sizes: PartSizes = SMALL) -> CompactionReport:
    target.mkdir()
    return compact_in_parts(log, str(target), options, elsewhere, sizes)


def files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("name", "retention_ms", "most"),
    [
        ("k431-txn", None, 2),
        ("k431-expired/C", 3600_000, 2),
        ("kmix-0102-241/mixed", None, 1),
        *(
            pytest.param(name, 3600_000, None, marks=pytest.mark.full)
            for name in ("k431-mixed", "k431-txn", "k431-expired/C", "k0102/after", "k241/cleaned")
        ),
        *(
            pytest.param(name, None, None, marks=pytest.mark.full)
            for name in ("k431-mixed", "k431-txn", "k392-classic", "k082/after")
        ),
    ],
)
def test_the_result_is_that_of_one_place(name: str, retention_ms: int | None, most: int | None, tmp_path: Path) -> None:
    """Of the ``most`` largest partitions, or of all."""
    case = case_of(name)
    options = CompactionOptions(
        profile_for_release(case.release, case.coordinator),
        CompactionRules(1_900_000_000_000),
        segment_bytes=20_000,
        offsets_retention_ms=retention_ms,
    )
    logs = discover([str(path) for path in case.paths]).partitions
    for log in sorted(logs, key=lambda log: log.size, reverse=True)[:most]:
        there, here = (tmp_path / f"{log.offsets_partition}-{name}" for name in ("parts", "one"))
        assert in_parts(log, there, options) == in_one_place(log, here, options)
        assert files(there) == files(here)


@pytest.mark.parametrize("is_local", [True, pytest.param(False, marks=pytest.mark.full)])
def test_another_attempt_of_a_task_changes_nothing(is_local: bool, tmp_path: Path) -> None:
    case = case_of("k431-expired/C")
    rules = CompactionRules(1_900_000_000_000)
    profile = profile_for_release(case.release, case.coordinator)
    options = CompactionOptions(profile, rules, offsets_retention_ms=3600_000)
    log = max(discover([str(path) for path in case.paths]).partitions, key=lambda log: log.size)
    with nullcontext() if is_local else object_store() as store:
        target = str(tmp_path / "twice") if store is None else store.uri("twice")
        storage.make_directory(target)
        report = compact_in_parts(log, target, options, again, SMALL)
        if not is_local:
            storage.download(target, tmp_path / "twice")
    assert report == in_one_place(log, tmp_path / "once", options)
    assert files(tmp_path / "twice") == files(tmp_path / "once")


def alike(log: PartitionLog, directory: Path, options: CompactionOptions) -> tuple[PartitionLog, CompactionReport]:
    """The log compacted, in one place and in parts, which makes no difference."""
    here, there = directory / "one", directory / "parts"
    report = in_one_place(log, here, options)
    assert in_parts(log, there, options) == report
    assert files(there) == files(here)
    (result,) = discover([str(there)]).partitions
    return result, report


def test_records_of_a_wrapper_below_the_name_of_its_segment_are_in_its_part(tmp_path: Path) -> None:
    """A segment is named by the offset of the wrapper, which is that of its last record."""
    items = [(encoded_key(OffsetKey("g", "t", number)), offset_value(number, version=1)) for number in range(8)]
    wrappers = [build_wrapper(first, items[first : first + 2], codec=Codec.GZIP) for first in range(0, 8, 2)]
    write_partition(tmp_path / "log", {0: b"".join(wrappers)})
    (log,) = discover([str(tmp_path / "log")]).partitions
    options = CompactionOptions(profile_for("S1"), CompactionRules(NOW_MS), segment_bytes=200)
    result, report = alike(log, tmp_path, options)
    assert [segment.base_offset for segment in result.segments] == [0, 3, 5, 7]
    (tmp_path / "again").mkdir()
    _, second = alike(result, tmp_path / "again", options)
    assert (second.output_records, second.segments) == (8, report.segments)


@pytest.mark.parametrize("first", [b"", build_batch(0, [(b"\0\1", b"")])], ids=["empty", "all superseded"])
def test_the_first_batch_may_be_far_behind_the_first_segment(first: bytes, tmp_path: Path) -> None:
    """Further than a segment goes: offsets in its index are relative, of 32 bits."""
    far = 1 << 32
    write_partition(tmp_path / "log", {0: first, far: build_batch(far, [(b"\0\1", b"")])})
    (log,) = discover([str(tmp_path / "log")]).partitions
    result, report = alike(log, tmp_path, CompactionOptions(profile_for("J3"), CompactionRules(NOW_MS)))
    assert [segment.base_offset for segment in result.segments] == [far]
    assert (report.log_start_offset, report.log_end_offset) == (far, far + 1)


def test_the_profile_that_the_log_is_compacted_for_is_always_compared(tmp_path: Path) -> None:
    """Also where it cannot read all commits; profiles are compared as if they tolerated what 4.0 does not."""
    profile = replace(profile_for("S1"), tolerates_missing_share_groups=False)
    key = encoded_key(OffsetKey("g", "t", 0))
    write_partition(tmp_path / "log", {0: build_batch(0, [(key, offset_value(0, version=3))])})
    (log,) = discover([str(tmp_path / "log")]).partitions
    _, report = alike(log, tmp_path, CompactionOptions(profile, CompactionRules(NOW_MS)))
    assert report.proved_profiles[0].startswith("S1 ")


@pytest.fixture
def big_log() -> PartitionLog:
    logs = discover([str(path) for path in case_of("k431-txn").paths]).partitions
    return max(logs, key=lambda log: log.size)


OPTIONS = CompactionOptions(profile_for("J3"), CompactionRules(1_900_000_000_000), segment_bytes=1000)


@pytest.mark.parametrize("uri", [pytest.param("hdfs://nn/out", marks=pytest.mark.full), "hdfs://nn/out?user=one"])
def test_files_elsewhere_that_have_directories(
    uri: str, big_log: PartitionLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in HDFS. What a URI asks for behind ``?`` is no part of the name of a file."""
    system = pyarrow.fs.SubTreeFileSystem(str(tmp_path), pyarrow.fs.LocalFileSystem())
    monkeypatch.setattr(storage, "_remote", lambda root, query: (system, ""))
    report = compact_in_parts(big_log, uri, OPTIONS, elsewhere, SMALL)
    assert report == in_one_place(big_log, tmp_path / "one", OPTIONS)
    assert files(tmp_path / "out") == files(tmp_path / "one")
    with pytest.raises(FileNotFoundError):
        adopt(storage.join(uri, "nothing"), uri, big_log.offsets_partition + 1)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {f"__consumer_offsets-{big_log.offsets_partition}"}


def test_an_attempt_that_comes_late_makes_nothing(big_log: PartitionLog, tmp_path: Path) -> None:
    """When the partition is done, and its directory may be published already."""
    calls: list[Callable[[], object]] = []

    def run(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        calls.extend(partial(function, item) for item in items)
        return elsewhere(function, items)

    target = tmp_path / "out"
    target.mkdir()
    compact_in_parts(big_log, str(target), OPTIONS, run, SMALL)
    published = sorted(target.rglob("*"))
    for late in calls:
        with suppress(OSError, RegroupError):
            late()
        assert sorted(target.rglob("*")) == published


def test_a_part_is_given_the_aborted_batches_that_it_has(tmp_path: Path) -> None:
    key = encoded_key(OffsetKey("g", "t", 0))
    given_to: list[tuple[int, list[int]]] = []

    def run(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        for item in items:
            match item:
                case (LogScan() as scan, np.ndarray() as aborted):
                    given_to.append((scan.segments[0].segment.base_offset, aborted.tolist()))
        return elsewhere(function, items)

    segments = {
        base: build_batch(base, [(key, offset_value(base))], producer_id=5, transactional=True)
        + build_control_batch(base + 1, ControlType.ABORT, producer_id=5)
        for base in (0, 2, 4)
    }
    write_partition(tmp_path / "log", segments)
    (log,) = discover([str(tmp_path / "log")]).partitions
    (tmp_path / "out").mkdir()
    compact_in_parts(log, str(tmp_path / "out"), OPTIONS, run, SMALL)
    assert given_to[:3] == [(0, [0]), (2, [2]), (4, [4])]


@pytest.mark.parametrize(
    "sizes",
    [
        SMALL,
        pytest.param(PartSizes(segments=300, newest=100_000, folds=100_000), marks=pytest.mark.full),
        pytest.param(PartSizes(), marks=pytest.mark.full),
    ],
)
@examples(8)
@given(
    log=st.one_of(logs, contended_logs),
    cuts=st.sets(st.integers(1, 13), max_size=4),
    end_offset=st.one_of(st.none(), st.integers(0, 14)),
    convert=st.booleans(),
    codec=st.sampled_from([None, Codec.NONE, Codec.ZSTD]),
    retention_ms=st.sampled_from([None, 1, 1000]),
    segment_bytes=st.sampled_from([1, 200, 100 << 20]),
    name=st.sampled_from(["J3", "S4"]),
)
def test_random_logs(
    sizes: PartSizes,
    log: Log,
    cuts: set[int],
    end_offset: int | None,
    convert: bool,
    codec: Codec | None,
    retention_ms: int | None,
    segment_bytes: int,
    name: str,
) -> None:
    rules = CompactionRules(NOW_MS, end_offset=end_offset)
    output = OutputFormat(convert=convert, codec=codec)
    options = CompactionOptions(profile_for(name), rules, output, segment_bytes, retention_ms)
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        (place / "log").mkdir()
        written = write_log(place / "log", log, (cut for cut in cuts if cut < len(log.batches)))
        results = []
        for target, function in ((place / "one", in_one_place), (place / "parts", in_parts)):
            try:
                more = {"sizes": sizes} if function is in_parts else {}
                results.append((function(written, target, options, **more), files(target)))
            except ProofFailedError as error:
                results.append((str(error), None))
        assert results[0] == results[1]
