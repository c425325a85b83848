"""A partition compacted in parts: the directory and the report of a compaction in one place, whatever the parts."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core import storage
from coordinator_core.lifecycle.compact import CompactionOptions, CompactionReport, compact_partition
from coordinator_core.lifecycle.compact_parts import compact_in_parts
from coordinator_core.lifecycle.compact_plan import CompactionRules
from coordinator_core.lifecycle.compact_proof import ProofFailedError
from coordinator_core.lifecycle.compact_tasks import PartSizes
from coordinator_core.lifecycle.compact_write import OutputFormat
from coordinator_core.log.discovery import discover
from coordinator_core.log.types import Codec, PartitionLog
from coordinator_core.releases import profile_for, profile_for_release
from tests.cases import case as case_of
from tests.examples import examples
from tests.fold.parity import write_log
from tests.fold.random_logs import Log, contended_logs, logs
from tests.lifecycle.test_compact_random import NOW_MS
from tests.log.object_store import object_store

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


def in_parts(log: PartitionLog, target: Path, options: CompactionOptions, sizes: PartSizes = SMALL) -> CompactionReport:
    target.mkdir()
    return compact_in_parts(log, str(target), options, elsewhere, sizes)


def files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("name", "retention_ms"),
    [
        ("k431-txn", None),
        ("k431-expired/C", 3600_000),
        ("kmix-0102-241/mixed", None),
        *(
            pytest.param(name, 3600_000, marks=pytest.mark.full)
            for name in ("k431-mixed", "k431-txn", "k0102/after", "k241/cleaned")
        ),
        *(pytest.param(name, None, marks=pytest.mark.full) for name in ("k431-mixed", "k392-classic", "k082/after")),
    ],
)
def test_the_result_is_that_of_one_place(name: str, retention_ms: int | None, tmp_path: Path) -> None:
    case = case_of(name)
    options = CompactionOptions(
        profile_for_release(case.release, case.coordinator),
        CompactionRules(1_900_000_000_000),
        segment_bytes=20_000,
        offsets_retention_ms=retention_ms,
    )
    for log in discover([str(path) for path in case.paths]).partitions:
        there, here = (tmp_path / f"{log.offsets_partition}-{name}" for name in ("parts", "one"))
        assert in_parts(log, there, options) == compact_partition(log, here, options)
        assert files(there) == files(here)


@pytest.mark.parametrize("is_local", [True, pytest.param(False, marks=pytest.mark.real)])
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
    assert report == compact_partition(log, tmp_path / "once", options)
    assert files(tmp_path / "twice") == files(tmp_path / "once")


@pytest.mark.parametrize("sizes", [SMALL, PartSizes(segments=300, newest=100_000, folds=100_000), PartSizes()])
@examples(8)
@given(
    log=st.one_of(logs, contended_logs),
    cuts=st.sets(st.integers(1, 13), max_size=4),
    end_offset=st.one_of(st.none(), st.integers(0, 14)),
    convert=st.booleans(),
    codec=st.sampled_from([None, Codec.NONE, Codec.ZSTD]),
    retention_ms=st.sampled_from([None, 1, 1000]),
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
    name: str,
) -> None:
    rules = CompactionRules(NOW_MS, end_offset=end_offset)
    output = OutputFormat(convert=convert, codec=codec)
    options = CompactionOptions(profile_for(name), rules, output, offsets_retention_ms=retention_ms)
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        (place / "log").mkdir()
        written = write_log(place / "log", log, (cut for cut in cuts if cut < len(log.batches)))
        results = []
        for target, function in ((place / "one", compact_partition), (place / "parts", in_parts)):
            try:
                more = {"sizes": sizes} if function is in_parts else {}
                results.append((function(written, target, options, **more), files(target)))
            except ProofFailedError as error:
                results.append((str(error), None))
        assert results[0] == results[1]
