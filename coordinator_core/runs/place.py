"""Path and name of a run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from coordinator_core import storage
from coordinator_core.durations import numbered, utc_text
from coordinator_core.errors import UsageError
from coordinator_core.log.types import Snapshot

MANIFEST = "manifest.json"
"""File of a run; a run without it is none yet."""
LATEST = "latest.json"
"""File of a cluster that names its newest run."""

PINS_DIRECTORY = "_pins"
"""Directory of a cluster's snapshot manifests, by window. Readers of windows, and of Parquet, pass over such names."""

FINDINGS_DIRECTORY, REPORTS_DIRECTORY, HISTORY_DIRECTORY = "_findings", "_reports", "_history"
TOMBSTONES_DIRECTORY = "_tombstones"
"""Directories of a window: findings, reports, tables ``history`` and tombstones of its runs, by run id."""
BESIDE_DIRECTORIES = (FINDINGS_DIRECTORY, REPORTS_DIRECTORY, HISTORY_DIRECTORY, TOMBSTONES_DIRECTORY)

CATALOGS_DIRECTORY = "_catalogs"
"""Directory of a window: which catalogues refer to files of its runs, by run id."""

RECONCILIATION = "reconciliation.json"
"""File in a directory of findings that names the run and the other inputs."""

DAY_WINDOW = re.compile(r"\d{4}-\d{2}-\d{2}(?=$|T\d{2}-\d{2}-\d{2}Z$)")
"""Day of a window that has the name that Regroup gives: a UTC day (:func:`default_window`), or a time (the DAGs)."""

OF_SNAPSHOT = ("snapshot", "now", "replayed")
"""Cluster, window and id of the run that a snapshot is replayed into for as long as a command needs it."""

_COMPONENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+=@-]*")


@dataclass(frozen=True)
class RunPlace:
    """Path of a run. Raises :class:`UsageError` for names that are no plain path components."""

    output: str
    cluster: str
    window: str
    run_id: str

    def __post_init__(self) -> None:
        for what in ("cluster", "window", "run_id"):
            check_component(what, getattr(self, what))
        check_window(self.window)

    @classmethod
    def of(cls, run_path: str) -> Self:
        """The place of the run at ``run_path``."""
        above, run_id = storage.split(run_path)
        above, window = storage.split(above)
        return cls(*storage.split(above), window, run_id)

    @property
    def cluster_path(self) -> str:
        return storage.join(self.output, self.cluster)

    @property
    def path(self) -> str:
        return storage.join(self.cluster_path, self.window, self.run_id)

    @property
    def relative_path(self) -> str:
        """Path from the directory of ``latest.json``."""
        return f"{self.window}/{self.run_id}"


def check_component(what: str, name: str) -> None:
    """:class:`UsageError` unless ``name`` is usable as one component of a path, on any file system."""
    if not _COMPONENT.fullmatch(name) or len(name) > 255:
        what = what.replace("_", " ")
        raise UsageError(f"{what} {name!r}: use letters, digits and . _ : + = @ - , beginning with a letter or digit")


def check_window(window: str) -> None:
    """:class:`UsageError` for the name of a file that a cluster has beside its windows."""
    if window == LATEST:
        raise UsageError(f"window {LATEST!r}: a file of that name tells the newest run; choose another key")


def is_run(path: str) -> bool:
    """Whether ``path`` is the directory of a published run."""
    return storage.exists(storage.join(path, MANIFEST))


def is_one_run(paths: Sequence[str]) -> bool:
    """Whether ``paths`` are one, the directory of a published run."""
    return len(paths) == 1 and is_run(paths[0])


def beside(run_path: str, directory: str, *names: str) -> str:
    """Path of what is kept about a run in ``directory`` of its window: ``<window>/<directory>/<run id>/<names>``."""
    window, run_id = storage.split(run_path)
    return storage.join(window, directory, run_id, *names)


def new_run_id() -> str:
    """A name no other run has: time of day, for people, and random digits."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{os.urandom(3).hex()}"


def default_window(now_ms: int) -> str:
    """The window of a run that was given none: the UTC day of ``now_ms`` (epoch ms); ``UsageError`` past year 9999."""
    day = utc_text(now_ms, "%Y-%m-%d")
    if day is None:
        raise UsageError(f"--now-ms {now_ms} is no time of this calendar; give --window")
    return day


def directories_of(path: str) -> list[str]:
    """Paths of the windows of a cluster, or of the runs of a window; none of one that another process deletes."""
    return [entry.path for entry in storage.entries_in(path) if may_hold_runs(entry)]


def may_hold_runs(entry: storage.Entry) -> bool:
    """Whether it may be a window, or a run; names with an underscore are for other things."""
    return entry.is_directory and not entry.name.startswith(("_", "."))


def absolute(path: str) -> str:
    """``path`` as a manifest keeps it: relative to no directory, since its readers may work in another one."""
    if not storage.is_local(path) or (local := storage.local_path(path)).is_absolute():
        return path
    return str(local.absolute())


def check_output_outside(output: str, sources: Iterable[str]) -> None:
    """:class:`UsageError` when ``output`` lies in one of ``sources``: a snapshot is never written to."""
    target = _canonical(output)
    for source in sources:
        directory = _canonical(source)
        # Options of a URI may name another store.
        if target[1] == directory[1] and f"{target[0]}/".startswith(f"{directory[0].rstrip('/')}/"):
            raise UsageError(f"the output {output} lies inside the snapshot {source}; choose another directory")


def check_sources(output: str, cluster: str, sources: Sequence[str]) -> None:
    """:class:`UsageError` when runs of ``cluster`` below ``output`` and one of ``sources`` lie in each other.

    What is in a run, or named as a pin, goes with it (:mod:`coordinator_core.runs.prune`), and a search for segments in
    a window passes through its runs. Captures and compacted logs lie beside the windows, in ``_`` directories.
    """
    check_output_outside(output, sources)
    own, options = _canonical(storage.join(output, cluster))
    for source in sources:
        directory, of_source = _canonical(source)
        if options != of_source or not f"{directory}/".startswith(f"{own}/"):
            continue
        first = directory[len(own) + 1 :].partition("/")[0]
        if first in ("", PINS_DIRECTORY) or _COMPONENT.fullmatch(first):
            raise UsageError(
                f"the snapshot {source} lies among the runs of cluster {cluster!r} in {output}; "
                "choose another output, or keep the snapshot elsewhere"
            )


def check_count(snapshot: Snapshot, offsets_topic_num_partitions: int | None) -> None:
    """:class:`UsageError` for a number of offsets partitions that the log itself contradicts: by that number all of its
    groups would lie in wrong partitions."""
    last = max((log.offsets_partition for log in snapshot.partitions), default=-1)
    if offsets_topic_num_partitions is not None and offsets_topic_num_partitions <= last:
        number = numbered(offsets_topic_num_partitions, "partition")
        raise UsageError(f"the offsets topic has more than {number}: the log has offsets partition {last}")


def source_directories(snapshot: Snapshot) -> list[str]:
    """Paths that a run of ``snapshot`` must not be published into."""
    return [*snapshot.sources, *(log.directory for log in snapshot.partitions)]


def _canonical(path: str) -> tuple[str, str]:
    """The path in its only form, and options of a URI."""
    if storage.is_local(path):
        return os.path.realpath(storage.local_path(path)), ""
    main, _, options = path.partition("?")
    scheme, _, rest = main.partition("://")
    return f"{scheme.lower()}://{re.sub('/+', '/', rest).rstrip('/')}", options
