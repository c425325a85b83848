"""Directory of a compacted partition: its segments, and the files beside them."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from coordinator_core import files, storage
from coordinator_core.lifecycle.compact_scan import LogScan
from coordinator_core.lifecycle.compact_write import SegmentSink, Sink
from coordinator_core.log.discovery import PARTITION_METADATA_FILE
from coordinator_core.log.segments import LEADER_EPOCH_FILE, SegmentWriter, leader_epoch_text, partition_directory_name
from coordinator_core.log.types import PartitionLog, SegmentFile

T = TypeVar("T")


def adopt(attempt: str, target: str, offsets_partition: int) -> None:
    """Let the directory that an attempt has written below ``attempt`` be that below ``target``, unless another attempt
    has put its own there: all write the same bytes."""
    source, place = (storage.join(path, partition_directory_name(offsets_partition)) for path in (attempt, target))
    if not storage.is_local(target):
        written = storage.list_directory(source, missing_ok=True)
        if not written and not storage.exists(place):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        storage.make_directory(place, parents=False)
        for entry in written:
            files.move(entry.path, storage.join(place, entry.name))
        return
    try:
        storage.local_path(source).rename(storage.local_path(place))
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT) or not storage.exists(place):
            raise


def base_offset(scan: LogScan) -> int:
    """Name of the first segment of the output. A log without any batch keeps its end."""
    if scan.last_base_offset < 0:
        return max(scan.start_offset, *(segment.base_offset for segment in scan.log.segments))
    return scan.segments[0].segment.base_offset


def write_segments(
    offsets_partition: int, target: Path, first_offset: int, segment_bytes: int, write: Callable[[Sink], T]
) -> tuple[T, PartitionLog]:
    """What ``write`` gives to its sink, as the segments of a directory below ``target``; what was there is gone.

    ``target`` is not made: a task that comes late must not make it again.
    """
    directory = target / partition_directory_name(offsets_partition)
    if directory.exists():
        shutil.rmtree(directory)
    writer = SegmentWriter(directory, offsets_partition, first_offset, segment_bytes=segment_bytes)
    written = write(SegmentSink(writer))
    return written, output_log(offsets_partition, str(directory), writer.finish())


def output_log(offsets_partition: int, directory: str, segments: Sequence[SegmentFile]) -> PartitionLog:
    """The log of an output directory."""
    return PartitionLog(offsets_partition, directory, tuple(segments), log_start_offset=None, clean_shutdown=False)


def has_leader_epochs(log: PartitionLog) -> bool:
    """Whether the input has the file of its leader epochs."""
    return storage.exists(storage.join(log.directory, LEADER_EPOCH_FILE))


def write_beside(log: PartitionLog, directory: Path, epochs: Sequence[tuple[int, int]] | None) -> None:
    """Write the files beside the segments: leader epochs with their first offsets (``None``: the input's file), and
    the input's partition metadata."""
    if epochs is None:
        (directory / LEADER_EPOCH_FILE).write_bytes(storage.read(storage.join(log.directory, LEADER_EPOCH_FILE)))
    elif epochs:
        (directory / LEADER_EPOCH_FILE).write_text(leader_epoch_text(epochs))
    metadata = storage.join(log.directory, PARTITION_METADATA_FILE)
    if storage.exists(metadata):
        (directory / PARTITION_METADATA_FILE).write_bytes(storage.read(metadata))
