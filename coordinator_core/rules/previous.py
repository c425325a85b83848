"""The run before a run, and the newest one."""

from __future__ import annotations

import math
from contextlib import suppress

from coordinator_core import storage
from coordinator_core.runs.place import directories_of, is_run
from coordinator_core.runs.read import Run, RunError, open_run, resolve_latest


def previous_run(run: Run) -> Run | None:
    """The newest published run of the same cluster with an earlier ``now_ms``; ``None`` when there is none.

    It is looked for beside ``run``, from the last window (by name) backwards, and no further than the first
    window that has one.  Runs that this version cannot read are passed over.
    """
    window, _ = storage.split(run.path.rstrip("/"))
    return _newest_of_windows(storage.split(window)[0], before_ms=run.now_ms)


def newest_run(output: str, cluster: str) -> Run | None:
    """The newest published run of a cluster, with any verdict of the gate; ``None`` when there is none.

    It is that of the last window (by name) that has one, or that of ``latest.json``: windows may have any name.
    """
    found = [_newest_of_windows(storage.join(output, cluster))]
    with suppress(RunError):
        found.append(resolve_latest(output, cluster))
    return max((run for run in found if run is not None), key=lambda run: run.now_ms, default=None)


def _newest_of_windows(cluster: str, *, before_ms: float = math.inf) -> Run | None:
    for directory in reversed(directories_of(cluster)):
        earlier = [
            found
            for path in directories_of(directory)
            if is_run(path) and (found := _opened(path)) is not None and found.now_ms < before_ms
        ]
        if earlier:
            return max(earlier, key=lambda found: (found.now_ms, found.path))
    return None


def _opened(path: str) -> Run | None:
    try:
        return open_run(path)
    except RunError:
        return None
