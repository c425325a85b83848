"""Files beside a log: in its log directory, or in the directory that holds several."""

from __future__ import annotations

import os
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
            is_partition = name_of(directory).startswith(f"{OFFSETS_TOPIC}-")
            found |= dict.fromkeys((directory, parent_of(directory)) if is_partition else (directory,))
    return list(found)


def name_of(directory: str) -> str:
    """Name of a directory, also of one that is given as ``.`` or ``..``."""
    if storage.is_local(directory):
        return os.path.basename(os.path.abspath(storage.local_path(directory)))
    return storage.split(directory)[1]


def parent_of(directory: str) -> str:
    """The directory in which one lies that may be given as ``.`` or ``..``."""
    parent, name = storage.split(directory)
    return parent if name == name_of(directory) else storage.join(directory, "..")
