"""Files beside a log, and files that a run leads back to: nobody should have to name a file that is there.

A capture holds ``topics.json`` and ``topology.json``; a log directory may hold ``__transaction_state-<n>`` too. A run
names the logs that it was made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from coordinator_core import storage
from coordinator_core.errors import UsageError
from coordinator_core.log.beside import directories_beside, file_beside
from coordinator_core.log.discovery import TOPICS_FILE, TOPOLOGY_FILE
from coordinator_core.rules.topics import read_topics
from coordinator_core.rules.transaction_log import transaction_directories
from coordinator_core.runs.inputs import snapshot_of_run
from coordinator_core.runs.read import Run

FOUND_LOG_BYTES = 64 << 20
"""A log that was found, not named, is walked over up to this size a process: some 13 s and 600 MB of memory."""


@dataclass(frozen=True, slots=True)
class Beside:
    """Paths of the files that were found; ``notes`` name files that cannot be used, and why.

    ``log_bytes`` are those of the whole log, ``partition_bytes`` those of its largest partition.
    """

    topics: str | None = None
    topology: str | None = None
    transaction_log: tuple[str, ...] = ()
    log: tuple[str, ...] = ()
    log_bytes: int = 0
    partition_bytes: int = 0
    notes: tuple[str, ...] = ()

    def too_large(self, *, in_tasks: bool) -> str | None:
        """Why the log is not walked over unless it is named: a process would have too much of it.

        ``in_tasks``: a process takes some offsets partitions, not all.
        """
        size = self.partition_bytes if in_tasks else self.log_bytes
        if size <= FOUND_LOG_BYTES:
            return None
        what = "a log with a partition" if in_tasks else "the log"
        return f"{what} of {size >> 20} MB is walked over only when named: --log {self.log[0]}"


def beside_log(paths: Sequence[str]) -> Beside:
    """Files beside the log at ``paths``: in its log directory, or in the directory that holds several."""
    notes = []
    topics = file_beside(paths, TOPICS_FILE)
    transactions = {path: transaction_directories(path) for path in directories_beside(paths)}
    transaction_log = tuple(path for path, found in transactions.items() if found)
    try:
        if topics is not None:
            read_topics(topics)
    except UsageError as error:
        topics = None
        notes.append(f"{error}; it is not used")
    numbers = {number for found in transactions.values() for _, number in found}
    if numbers != set(range(len(numbers))):
        # A broker holds its replicas only; a transaction that is not in them may still be known elsewhere.
        notes.append(f"{transaction_log[0]} holds some partitions of the transaction log only; it is not used")
        transaction_log = ()
    return Beside(topics, file_beside(paths, TOPOLOGY_FILE), transaction_log, tuple(paths), notes=tuple(notes))


def beside_run(run: Run) -> Beside:
    """Files that ``run`` leads to: its log, as long as that holds the segments of the run, and the files beside it.

    Files beside a log that has been written to since the run are of another time, and are not used.
    """
    inputs = run.manifest["inputs"]
    sources = tuple(run.manifest["sources"])
    sizes = [storage.stat(entry["path"]) for entry in inputs]
    if not inputs or any(size is None for size in sizes):
        return Beside()
    change = [0 if size is None else size.size - int(entry["bytes"]) for size, entry in zip(sizes, inputs, strict=True)]
    if min(change) < 0:
        return Beside(notes=("the log that the run was made of has been rewritten since",))
    partitions = run.log_bytes
    found = Beside(log=sources, log_bytes=partitions.total(), partition_bytes=max(partitions.values()))
    if max(change) > 0:
        notes = ("the log has grown since the run was made: the files beside it are of another time",)
        return replace(found, notes=notes)
    return replace(beside_log(sources), log_bytes=found.log_bytes, partition_bytes=found.partition_bytes)


def walked_over(run: Run, found: Beside, *, in_tasks: bool) -> Beside:
    """``found`` beside ``run`` with the log only if it is to be walked over; ``notes`` say why it is not.

    Where its bytes are not those that the run has read, the files beside it are of another time, too.
    """
    if not found.log:
        return replace(found, notes=())
    too_large = found.too_large(in_tasks=in_tasks)
    if too_large is not None:
        return replace(found, log=(), notes=(too_large,))
    try:
        snapshot_of_run(run)
    except UsageError as error:
        return Beside(notes=(str(error),))
    return replace(found, notes=())
