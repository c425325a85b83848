"""The run before a run."""

from __future__ import annotations

from coordinator_core import storage
from coordinator_core.runs.read import Run, RunError, is_run, open_run


def previous_run(run: Run) -> Run | None:
    """The newest published run of the same cluster with an earlier ``now_ms``; ``None`` when there is none.

    It is looked for beside ``run``, from the last window (by name) backwards, and no further than the first
    window that has one.  Runs that this version cannot read are passed over.
    """
    window, _ = storage.split(run.path.rstrip("/"))
    cluster, _ = storage.split(window)
    for directory in reversed(_directories(cluster)):
        earlier = [
            found
            for path in _directories(directory)
            if is_run(path) and (found := _opened(path)) is not None and found.now_ms < run.now_ms
        ]
        if earlier:
            return max(earlier, key=lambda found: (found.now_ms, found.path))
    return None


def _directories(path: str) -> list[str]:
    """Directories of windows or runs; names with an underscore are for other things."""
    return [
        entry.path
        for entry in storage.list_directory(path)
        if entry.is_directory and not entry.name.startswith(("_", "."))
    ]


def _opened(path: str) -> Run | None:
    try:
        return open_run(path)
    except RunError:
        return None
