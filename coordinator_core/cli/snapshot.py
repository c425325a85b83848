"""The snapshot at the paths of a command line, and what to say where there is none, or where nothing is in it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from coordinator_core import storage
from coordinator_core.cli.options import note
from coordinator_core.errors import DamagedInputError, UsageError
from coordinator_core.log.discovery import PACKED, UNNUMBERED, discover
from coordinator_core.log.reader import read_records
from coordinator_core.log.types import PartitionLog, Snapshot
from coordinator_core.runs.place import LATEST, directories_of, is_run

_FEW_BYTES = 1 << 12
"""Bytes of a partition that may have batches and no record: the cleaner leaves empty ones behind."""


def find_snapshot(paths: Sequence[str]) -> Snapshot:
    """Result of :func:`discover`; where it fails and a path leads to runs, the error says which path to name."""
    try:
        return discover(paths)
    except UsageError:
        for path in paths:
            if (instead := _instead(path)) is not None:
                raise UsageError(f"{path} {instead}") from None
        raise


def warn_about_snapshot(snapshot: Snapshot) -> None:
    """Warn of a log that may seem to hold less than it does.

    One of which nothing was copied but the names of its files is as clean as one without groups, and segments that
    are compressed, or have other names, leave a gap that a cleaner might have left.
    """
    for reason, what, remedy in (
        (PACKED, "compressed segments", "unpack them"),
        (UNNUMBERED, "files named .log", "a segment has the 20 digits of its first record offset as name"),
    ):
        left = [path for path, why in snapshot.ignored if why == reason]
        if left:
            note(f"regroup: warning: {what} are not read ({len(left)}, such as {left[0]}): {remedy}")
    if not any(map(_has_record, snapshot.partitions)):
        note(f"regroup: warning: {', '.join(snapshot.sources)} holds no record: nothing is known of any group")


def _has_record(log: PartitionLog) -> bool:
    # One of more bytes is not read for that: the file may change before its reader opens it. What is wrong with a
    # damaged one is for its readers to say.
    if log.size > _FEW_BYTES:
        return True
    try:
        return bool(log.size) and any(records for _, _, records in read_records(log, damage=[]))
    except DamagedInputError:
        return True


def _instead(path: str) -> str | None:
    """What ``path`` is, and what to name in its place, where it leads to runs."""
    # Loaded here: a replay loads the Arrow behind runs while it folds.
    from coordinator_core.runs.read import RunError, open_run, resolve_latest

    above, name = storage.split(path)
    directory = above if name == LATEST else path
    found = storage.stat(directory)
    if found is None or not found.is_directory:
        return None
    if is_run(directory):
        return f"is a run: name the log that it was made of, {', '.join(open_run(directory).manifest['sources'])}"
    below = directories_of(directory)
    newest: str | None = None
    for cluster in (directory, *below):
        with suppress(RunError):
            newest = newest or resolve_latest(*storage.split(cluster)).path
    # The file that names the newest run may be broken, or name a run that is gone.
    clusters = (one for one in (directory, *below) if storage.exists(storage.join(one, LATEST)))
    # A cluster whose gate was never open has no such file.
    windows = (directory, *reversed(below), *(window for one in clusters for window in reversed(directories_of(one))))
    newest = newest or next((run for one in windows for run in reversed(directories_of(one)) if is_run(run)), None)
    return None if newest is None else f"is no run, but there are runs below: name one, such as {newest}"
