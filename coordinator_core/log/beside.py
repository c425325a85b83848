"""Files beside a log: in its log directory, or in the directory that holds several."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator_core import storage
from coordinator_core.log.types import OFFSETS_TOPIC


def file_beside(paths: Sequence[str], name: str) -> str | None:
    """Path of the first file of this name beside the log at ``paths``; ``None`` where there is none."""
    candidates = (storage.join(path, name) for path in directories_beside(paths))
    return next((path for path in candidates if storage.exists(path)), None)


def directories_beside(paths: Sequence[str]) -> list[str]:
    """Directories in which files beside a log may be: those named, and the log directory of a partition."""
    found: dict[str, None] = {}
    for path in paths:
        entry = storage.stat(path)
        if entry is not None:
            directory = path if entry.is_directory else storage.split(path)[0]
            parent, name = storage.split(directory)
            found |= dict.fromkeys((directory, parent) if name.startswith(f"{OFFSETS_TOPIC}-") else (directory,))
    return list(found)
