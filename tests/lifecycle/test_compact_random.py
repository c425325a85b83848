"""Compaction of random logs: what the sequential replay makes of them stays, whatever they hold."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coordinator_core.groups.model import CommittedOffset, PartitionState, TransactionOutcome
from coordinator_core.lifecycle.compact import CompactionOptions, CompactionReport, compact_partition
from coordinator_core.lifecycle.compact_plan import CompactionRules
from coordinator_core.lifecycle.compact_write import OutputFormat
from coordinator_core.log.discovery import discover
from coordinator_core.log.types import ControlType, PartitionLog
from coordinator_core.releases import Profile, profile_for
from tests.examples import examples
from tests.fold.parity import write_log
from tests.fold.random_logs import Log, contended_logs, encoded_key, logs, offset_value
from tests.log.builders import build_batch, build_control_batch, build_message
from tests.replay.reference import replay_partition

NOW_MS = 1_700_000_000_500
PROFILE = profile_for("J3")
random_logs = examples(8)


def compacted(
    log: PartitionLog, target: Path, output: OutputFormat, *, now_ms: int = NOW_MS, profile: Profile = PROFILE
) -> tuple[PartitionLog, CompactionReport]:
    options = CompactionOptions(profile, CompactionRules(now_ms), output)
    target.mkdir()
    report = compact_partition(log, target, options)
    (result,) = discover([str(target)]).partitions
    return result, report


def answers(state: PartitionState, *, with_record_offsets: bool) -> object:
    """Facts that a broker could be asked for and, on request, their places in the log."""

    def plain(offset: CommittedOffset) -> CommittedOffset:
        changed = offset._replace(ordering_offset=0)
        return changed if with_record_offsets else changed._replace(record_offset=0)

    open_transactions = [
        (item.producer_id, item.producer_epoch, item.keys, item.groups)
        for item in state.transactions
        if item.outcome is TransactionOutcome.OPEN
    ]
    return (
        {offset_key: plain(offset) for offset_key, offset in state.offsets.items()},
        {
            producer: {offset_key: plain(offset) for offset_key, offset in offset_keys.items()}
            for producer, offset_keys in state.pending.items()
        },
        sorted(open_transactions),
        state.groups if with_record_offsets else sorted(state.groups),
    )


KEY = encoded_key(b"g", b"t", 0)
WIDER_THAN_ITS_RECORDS = Log(
    batches=(
        build_message(0, KEY, offset_value(3, 1, b""), magic=0),
        build_batch(1, [(KEY, None)], producer_id=3, transactional=True, last_offset_delta=1),
        build_batch(3, [(KEY, offset_value(3, 2, b""))], last_offset_delta=1),
        build_control_batch(5, ControlType.ABORT, producer_id=3),
    ),
    starts=(0, 1, 3, 5),
    end=6,
)
"""A batch that is emptied beside a message of an old format, so that it is not the kernel that writes it."""


@pytest.mark.parametrize("name", ["J3", "S4"])
@random_logs
@example(log=WIDER_THAN_ITS_RECORDS, cuts=set(), renumber=True)
@given(log=logs, cuts=st.sets(st.integers(1, 13), max_size=3), renumber=st.booleans())
def test_the_state_stays(name: str, log: Log, cuts: set[int], renumber: bool) -> None:
    profile = profile_for(name)
    with tempfile.TemporaryDirectory() as directory:
        pieces = write_log(Path(directory), log, (cut for cut in cuts if cut < len(log.batches)))
        output = OutputFormat(renumber=renumber)
        result, _ = compacted(pieces, Path(directory) / "out", output, profile=profile)
        before = replay_partition(pieces, profile, damage=[])
        after = replay_partition(result, profile, damage=[])
        exact = not renumber
        assert answers(after, with_record_offsets=exact) == answers(before, with_record_offsets=exact)
        old = len(before.load_failures)
        assert len(after.load_failures) <= old or not profile.tolerates_missing_groups


@random_logs
@given(log=contended_logs)
def test_transactions_in_every_order(log: Log) -> None:
    with tempfile.TemporaryDirectory() as directory:
        whole = write_log(Path(directory), log)
        result, _ = compacted(whole, Path(directory) / "out", OutputFormat())
        for name in ("J3", "J0", "S4"):
            profile = profile_for(name)
            before = replay_partition(whole, profile, damage=[])
            after = replay_partition(result, profile, damage=[])
            assert answers(after, with_record_offsets=True) == answers(before, with_record_offsets=True), name
