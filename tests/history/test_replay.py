"""The history is that of the replay: what it leaves standing is the state, what it counts is the log."""

from __future__ import annotations

import itertools

import pytest

from coordinator_core.history.model import Deletions
from coordinator_core.history.read import read_history
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import read_records
from coordinator_core.releases import profile_for_release
from tests.cases import CASES, Case, cross_section

SOUND = [case for case in CASES if "torn" not in case.name]


@pytest.mark.parametrize("case", cross_section(SOUND))
def test_what_stands_is_the_state(case: Case) -> None:
    snapshot = discover([str(path) for path in case.paths])
    profile = profile_for_release(case.release, case.coordinator)
    deletions = Deletions()
    for log in snapshot.partitions:
        history = read_history(
            log,
            profile,
            groups=None,
            deletions=deletions,
            topic_names=snapshot.topic_names,
            damage=[],
        )
        assert history.state is not None
        standing = {key: version.last for group in history.groups.values() for key, version in group.standing.items()}
        assert standing == history.state.offsets
        for group in history.groups.values():
            for key, versions in group.versions.items():
                # Values of a key follow each other without overlap; a removal ends the one before it.
                spans = [(one.valid_from, one.end) for one in versions]
                assert all(end is not None for _, end in spans[:-1]), key
                for (_, end), (begin, _) in itertools.pairwise(spans):
                    assert end is not None
                    assert end.place.record_offset <= begin.record_offset


@pytest.mark.parametrize("case", cross_section(SOUND))
def test_all_record_offsets_are_there_or_missing(case: Case) -> None:
    snapshot = discover([str(path) for path in case.paths])
    profile = profile_for_release(case.release, case.coordinator)
    for log in snapshot.partitions:
        history = read_history(log, profile, groups=None, deletions=Deletions(), topic_names={}, damage=[])
        records = sum(len(found) for _, batch, found in read_records(log) if not batch.is_control)
        ends = sum(batch.last_offset - batch.base_offset + 1 for _, batch, _ in read_records(log) if batch.is_control)
        whole = [batch for _, batch, _ in read_records(log)]
        if whole and all(batch.magic >= 2 for batch in whole):
            assert history.missing == history.end_offset - history.first_offset - records - ends
