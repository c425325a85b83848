"""Leftovers that a cleaner should have removed: emptied batches and end markers that pile up."""

from __future__ import annotations

from collections.abc import Iterator

from coordinator_core.durations import HOUR_MS, span
from coordinator_core.history.model import PartitionHistory
from coordinator_core.investigate.bugs import BUGS, Bug
from coordinator_core.investigate.model import Case, Event, Explanation
from coordinator_core.investigate.words import count, moment
from coordinator_core.log.types import PartitionLog
from coordinator_core.rules.model import Severity

_EMPTIED = 100
"""Empty batches of one producer: a cleaner has use for one, the last."""
_MARKERS = 1000
_OLD_MS = 72 * HOUR_MS
"""Three times the default of ``delete.retention.ms``: end markers without commits go after one and a cleaning."""


def explain_leftovers(history: PartitionHistory, log: PartitionLog, case: Case) -> Iterator[Explanation]:
    """Offsets partitions that are full of what has no use any more."""
    left = history.leftovers
    producer, most = max(left.emptied.items(), key=lambda one: one[1], default=(-1, 0))
    # The newest ones are of the rounds that would remove them.
    old = sum(number for hour, number in left.markers.items() if 0 <= hour * HOUR_MS <= history.last_ms - _OLD_MS)
    is_kept = producer >= 0 and most >= _EMPTIED
    if not is_kept and old < _MARKERS:
        if most >= _EMPTIED:
            yield _rounds(history, most, case)
        return
    bug = _bug(case, is_kept=is_kept)
    emptied, markers = sum(left.emptied.values()), sum(left.markers.values())
    assert left.place is not None
    verdict = (
        f"Offsets partition {history.offsets_partition} keeps {f'{emptied:,} empty batches and ' if emptied else ''}"
        f"{count(markers, 'end marker')} of transactions of which no commit is left: {left.size_bytes:,} of its "
        f"{log.size:,} bytes, since {moment(left.place.timestamp_ms)}."
    )
    if is_kept:
        verdict += f" {most:,} of the empty batches are of producer {producer}; a cleaner needs the last one."
    else:
        verdict += f" {old:,} of the markers are more than {span(_OLD_MS)} older than the newest record."
    if bug is not None:
        verdict += f" This is {bug.id}."
    yield Explanation(
        "transaction-leftovers-pile-up",
        Severity.WARNING,
        verdict,
        left.place.timestamp_ms,
        offsets_partition=history.offsets_partition,
        evidence=[Event(left.place, "first batch of a transaction of which nothing is left")],
        not_this=[
            "The cleaner is not dead: it has removed the commits of these transactions.",
            "No transaction hangs: these have their end markers.",
        ],
        now=[
            bug.advice
            if bug is not None
            else "Let the cleaner of this release run: it removes what an older one has left (log-cleaner.log).",
            "Until then a load reads all of it: regroup loads SNAPSHOT; without it: regroup compact SNAPSHOT --output "
            "DIR",
        ],
        bug=None if bug is None else bug.id,
    )


def _bug(case: Case, *, is_kept: bool) -> Bug | None:
    bug = BUGS["KAFKA-8335" if is_kept else "KAFKA-8522"]
    return bug if bug.fits(case.profile.release) else None


def _rounds(history: PartitionHistory, emptied: int, case: Case) -> Explanation:
    bug = BUGS["KAFKA-20452"]
    known = bug.fits(case.profile.release)
    left = history.leftovers
    assert left.place is not None
    return Explanation(
        "empty-batches",
        Severity.INFO,
        f"Offsets partition {history.offsets_partition} has {emptied:,} empty batches without a producer, "
        f"{left.size_bytes:,} bytes: the cleaner leaves one at the end of a round"
        + (f". This is {bug.id}." if known else "."),
        left.place.timestamp_ms,
        offsets_partition=history.offsets_partition,
        evidence=[Event(left.place, "first of them")],
        not_this=["No committed offset is lost by it, and a load passes them."],
        now=[bug.advice],
        bug=bug.id if known else None,
    )
