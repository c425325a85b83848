"""The log that a run was made of, as far as the run has read it."""

from __future__ import annotations

from dataclasses import replace

from coordinator_core.errors import UsageError
from coordinator_core.log.discovery import discover
from coordinator_core.log.types import SegmentFile, Snapshot
from coordinator_core.runs.read import Run


def snapshot_of_run(run: Run) -> Snapshot:
    """The segments that ``run`` has read, with the sizes in bytes that they had then.

    Batches written behind them since are left out. Raises :class:`UsageError` where one is gone or has become shorter.
    """
    read: dict[int, list[SegmentFile]] = {}
    for entry in run.manifest["inputs"]:
        number = int(entry["offsets_partition"])
        segment = SegmentFile(entry["path"], number, int(entry["base_offset"]), int(entry["bytes"]))
        read.setdefault(number, []).append(segment)
    snapshot = discover(tuple(run.manifest["sources"]))
    logs = {log.offsets_partition: log for log in snapshot.partitions}
    partitions = []
    for number, segments in sorted(read.items()):
        sizes = {} if number not in logs else {segment.path: segment.size for segment in logs[number].segments}
        for segment in segments:
            if sizes.get(segment.path, -1) < segment.size:
                raise UsageError(
                    f"{run.path}: the log that the run was made of has been rewritten since: {segment.path}"
                )
        partitions.append(replace(logs[number], segments=tuple(segments)))
    return replace(snapshot, partitions=tuple(partitions))
