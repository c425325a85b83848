"""The run before a run, and the newest one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby

from coordinator_core import storage
from coordinator_core.errors import UsageError
from coordinator_core.files import recency
from coordinator_core.runs.place import DAY_WINDOW, OF_SNAPSHOT, directories_of
from coordinator_core.runs.read import Run, RunError, open_run, resolve_latest

_FURTHER = 31
"""A scheduled run has the window of the start of its interval and the now of its end, a run on request that of its time
for both: of a week with less than so many runs on request the scheduled one is found."""


def previous_run(run: Run) -> Run | None:
    """The newest published run of the same cluster with an earlier ``now_ms``; ``None`` when there is none.

    It is looked for beside ``run``. Runs that this version cannot read are passed over.
    """
    window, _ = storage.split(run.path.rstrip("/"))
    return _newest_of_windows(storage.split(window)[0], before_ms=run.now_ms)


def newest_run(output: str, cluster: str) -> Run | None:
    """The newest published run of a cluster, with any verdict of the gate; ``None`` when there is none."""
    place = storage.join(output, cluster)
    if storage.stat(place) is None:
        return None
    found = [_newest_of_windows(place)]
    with suppress(RunError):
        found.append(resolve_latest(output, cluster))
    return _newest(run for run in found if run is not None)


def check_previous(run: Run, before: Run) -> None:
    """:class:`UsageError` unless ``before`` can be a run before ``run``: of the same cluster, and no newer one.

    A snapshot that is replayed for one command is of no cluster.
    """
    owner, cluster = before.manifest["cluster"], run.manifest["cluster"]
    is_snapshot = tuple(run.manifest[name] for name in ("cluster", "window", "run_id")) == OF_SNAPSHOT
    if owner != cluster and not is_snapshot:
        raise UsageError(f"{before.path} is a run of cluster {owner!r}, not of {cluster!r}, so not the run before")
    if before.now_ms > run.now_ms:
        raise UsageError(f"the now of {before.path}, {before.now_ms}, is later than {run.now_ms}, that of {run.path}")


def _newest_of_windows(cluster: str, *, before_ms: float = math.inf) -> Run | None:
    """A cluster may have thousands of windows in an object store. Those of days, by their names, are looked at from the
    last day backwards, and :data:`_FURTHER` behind the first day that has a run; the name of any other window says
    nothing.
    """
    days = {path: DAY_WINDOW.match(storage.split(path)[1]) for path in directories_of(cluster)}
    found = [run for path, day in days.items() if day is None and (run := _newest(_runs_of(path, before_ms)))]
    dated = sorted(((day[0], path) for path, day in days.items() if day), reverse=True)
    further: int | None = None
    for _, windows in groupby(dated, key=lambda item: item[0]):
        paths = [path for _, path in windows]
        if further is not None:
            paths = paths[:further]
            further -= len(paths)
        newest = _newest(run for path in paths for run in _runs_of(path, before_ms))
        if newest is not None:
            found.append(newest)
            further = _FURTHER if further is None else further
        if further == 0:
            break
    return _newest(iter(found))


def _newest(runs: Iterator[Run]) -> Run | None:
    return max(runs, key=lambda run: recency(run.manifest), default=None)


def _runs_of(window: str, before_ms: float) -> Iterator[Run]:
    for path in directories_of(window):
        with suppress(RunError):
            if (run := open_run(path)).now_ms < before_ms:
                yield run
