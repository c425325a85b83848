"""Fixtures that tests of runs share."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator_core.fold.cache import FoldCache
from coordinator_core.log.discovery import discover
from coordinator_core.log.types import Snapshot

from ..cases import case
from ..rules.logs import HEALTHY, commit, consumer_group, consumer_member, empty_group, one
from .logs import cut_into_batches


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published run with a few groups, which no test changes."""
    records = (*HEALTHY, empty_group("e"), commit("e", "u"), *consumer_group("k"), *consumer_member("k"))
    return Path(one(*records).publish(tmp_path_factory.mktemp("run")).path)


@pytest.fixture
def cache(tmp_path: Path) -> FoldCache:
    return FoldCache(str(tmp_path / "folds"), min_segment_bytes=0)


@pytest.fixture
def log(tmp_path: Path) -> Snapshot:
    """A partition of many segments, no two with the same bytes."""
    cut = cut_into_batches(case("k431-txn"), tmp_path / "log")
    largest = max(cut.partitions, key=lambda partition: len(partition.segments))
    return discover([largest.directory])
