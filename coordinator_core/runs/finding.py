"""The snapshot at the paths that somebody names, and which path to name where it is a run that lies there."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from coordinator_core import storage
from coordinator_core.errors import UsageError
from coordinator_core.log.discovery import discover
from coordinator_core.log.types import Snapshot
from coordinator_core.runs.place import LATEST, directories_of, is_run


def find_snapshot(paths: Sequence[str]) -> Snapshot:
    """Result of :func:`discover`; where it fails and a path leads to runs, the error says which path to name."""
    try:
        return discover(paths)
    except UsageError:
        for path in paths:
            if (instead := _instead(path)) is not None:
                raise UsageError(f"{path} {instead}") from None
        raise


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
