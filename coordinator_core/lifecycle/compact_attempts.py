"""Compaction that is proved, and done again with the records that its proof misses."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from coordinator_core.lifecycle.compact_plan import Extra
from coordinator_core.lifecycle.compact_proof import (
    Behind,
    Difference,
    ProofFailedError,
    Subjects,
    records_behind,
    subject,
    the_first_of,
)
from coordinator_core.lifecycle.compact_scan import LogScan
from coordinator_core.log.batch import batch_records

_ATTEMPTS = 3


class Steps(Protocol):
    """Steps of the compaction of one partition."""

    @property
    def offsets_partition(self) -> int: ...

    @property
    def end_offset(self) -> int:
        """Where compaction ends."""

    def write(self, extra: Extra) -> None:
        """Write the output, with these records besides."""

    def differences(self) -> list[Difference]:
        """Differences between the input and the output, by record offsets of the input."""

    def behind(self, subjects: Subjects) -> Sequence[Behind]:
        """Records of all keys that the subjects depend on."""

    def records_of(self, groups: Collection[str]) -> Extra:
        """Every record of these groups before :attr:`end_offset`."""

    def is_stable(self, extra: Extra) -> bool:
        """Whether a second compaction would leave the output as it is."""


@dataclass(frozen=True)
class Proved:
    """Records that had to stay for the proof, and why: a line for each answer that would have changed."""

    extra: Extra
    told: tuple[str, ...]


def until_proved(steps: Steps) -> Proved:
    """Write the output and prove it. Raises :class:`ProofFailedError`."""
    number = steps.offsets_partition
    extra: Extra = frozenset()
    told: list[str] = []
    for attempt in range(_ATTEMPTS):
        steps.write(extra)
        found = sorted(steps.differences(), key=str)
        if not found:
            break
        subjects = Subjects.of(found)
        behind = steps.behind(subjects)
        if attempt == 0:
            protected = records_behind(subjects, behind, steps.end_offset)
        else:
            # A line that cannot be shortened stays as it is.
            protected = extra | steps.records_of(subjects.all_groups.union(*(part.stopped for part in behind)))
        if protected == extra or attempt + 1 == _ATTEMPTS:
            raise ProofFailedError(
                f"offsets partition {number}: the output replays to another state: {the_first_of(found)}"
            )
        extra = protected
        told += [str(difference) for difference in found]
    if not steps.is_stable(extra):
        raise ProofFailedError(f"offsets partition {number}: a second compaction would change the output")
    return Proved(extra, tuple(told))


def records_of_groups(scan: LogScan, groups: Collection[str], end_offset: int) -> Extra:
    """Every record of these groups before ``end_offset``."""
    return frozenset(
        record.offset
        for scanned in scan.segments
        for batch in scanned.batches()
        if scan.start_offset <= batch.last_offset and batch.base_offset < end_offset and not batch.is_control
        for record in batch_records(batch, path=scanned.segment.path)
        if record.key is not None and subject(record.key)[1] in groups
    )
