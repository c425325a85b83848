"""Zeroes behind the records of a preallocated segment, which some releases do not bear."""

from __future__ import annotations

from collections.abc import Iterator

from coordinator_core import storage
from coordinator_core.errors import DamagedInputError, UsageError
from coordinator_core.history.model import PartitionHistory
from coordinator_core.investigate.bugs import BUGS, Bug
from coordinator_core.investigate.model import Case, Explanation
from coordinator_core.log.types import PartitionLog, SegmentFile
from coordinator_core.log.windows import SegmentWindows
from coordinator_core.releases import Loader
from coordinator_core.rules.model import Severity

_LEAST = 61
"""Bytes of a batch without records: no batch ends with so many zeroes."""
_STEP = 1 << 16


def explain_preallocated(history: PartitionHistory, log: PartitionLog, case: Case) -> Iterator[Explanation]:
    """Segments of a local copy that end with zeroes; merely of releases that stumble over them."""
    load, clean = BUGS["KAFKA-13664"], BUGS["KAFKA-5431"]
    profile = case.profile
    *closed, active = log.segments or (None,)
    if active is None:
        return
    if profile.loader is Loader.JAVA and load.fits(profile.release) and (zeroes := _zeroes_of(active)):
        yield _explained(
            history,
            active,
            zeroes,
            load,
            f"Kafka {profile.release} does not load offsets partition {history.offsets_partition} when its leader "
            "moves to a broker with such a segment: it reads on into the zeroes. Its groups have no "
            "coordinator then, until the leader moves again.",
            [
                "kafka-configs.sh --bootstrap-server HOST:9092 --alter --entity-type topics --entity-name "
                "__consumer_offsets --add-config preallocate=false,segment.ms=60000 (then take segment.ms back: it "
                "only makes a new segment begin)",
                "Of a partition that is not loaded now: restart its leader, which cuts the zeroes off when it stops "
                "cleanly, or move the leader.",
            ],
        )
    if clean.fits(profile.release):
        for segment in closed:
            if zeroes := _zeroes_of(segment):
                yield _explained(
                    history,
                    segment,
                    zeroes,
                    clean,
                    f"The cleaner of {profile.release} dies there (CorruptRecordException in log-cleaner.log), and "
                    "nothing is removed any more.",
                    [clean.advice],
                )
                return


def _explained(
    history: PartitionHistory, segment: SegmentFile, zeroes: int, bug: Bug, what: str, now: list[str]
) -> Explanation:
    name = storage.split(segment.path)[1]
    return Explanation(
        "preallocated-segment",
        Severity.WARNING,
        f"{name} of offsets partition {history.offsets_partition} ends with {_size(zeroes)} of zeroes behind its "
        f"records: log.preallocate is set. {what} This is {bug.id}.",
        history.last_ms,
        offsets_partition=history.offsets_partition,
        not_this=["No record is damaged or lost: the zeroes are room for records to come."],
        now=now,
        bug=bug.id,
    )


def _size(zeroes: int) -> str:
    """Without the last bytes of the batch before, which may be zeroes, too."""
    return f"{zeroes >> 10:,} KiB" if zeroes >> 10 else f"some {zeroes} bytes"


def _zeroes_of(segment: SegmentFile) -> int:
    """Zero bytes at the end of a local file; 0 where they may belong to a batch."""
    if not storage.is_local(segment.path):
        return 0
    try:
        zeroes, size = _trailing_zeroes(SegmentWindows(segment))
    except (UsageError, DamagedInputError):
        return 0  # The log has been read; a file that has changed since tells no more.
    return zeroes if _LEAST <= zeroes < size else 0


def _trailing_zeroes(windows: SegmentWindows) -> tuple[int, int]:
    """Zero bytes at the end of a file, and its size."""
    zeroes, end = 0, windows.size
    while end > 0:
        begin = max(0, end - _STEP)
        view, first = windows.covering(begin, end - begin)
        data = bytes(view[begin - first : end - first])
        kept = len(data.rstrip(b"\0"))
        zeroes += len(data) - kept
        if kept:
            break
        end = begin
    windows.release()
    return zeroes, windows.size
