"""File system operations of publishing, beyond those of :mod:`coordinator_core.storage`.

Locally there are directories that only one process can create.  An object store has none; there a run id must simply
not be used twice at the same time.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from coordinator_core import conditional, storage
from coordinator_core.errors import not_written
from coordinator_core.jsontext import parse_json

_TRIES = 10
_TIME = re.compile(r"\d{8}T\d{6,12}Z", re.ASCII)
_NUMBER = re.compile(r"(\d{1,18})", re.ASCII)


def create_directory(path: str) -> list[Path]:
    """Create ``path``, which must not exist; ``FileExistsError`` when it does.

    Returns the local directories above it that were missing, and were made (``storage.remove_empty``). Of two processes
    that create the same local directory exactly one succeeds.
    """
    if storage.is_local(path):
        local = storage.local_path(path)
        made: list[Path] = []
        try:
            for _ in range(_TRIES):
                storage.make_missing(local.parent, made)
                # Another process that ends badly removes the directories that it has made above.
                with suppress(FileNotFoundError):
                    local.mkdir()
                    return list(dict.fromkeys(made))
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        except BaseException as error:
            storage.remove_empty(made)
            if isinstance(error, FileExistsError) or not isinstance(error, OSError):
                raise
            raise not_written(path, error) from error
    if storage.exists(path):
        raise FileExistsError(path)
    storage.make_directory(path)
    return []


def move(source: str, target: str) -> None:
    """Move a file inside one file system."""
    system, inner = storage.filesystem(source)
    system.move(inner, storage.filesystem(target)[1])


def move_directory(source: str, target: str, *, last: str) -> None:
    """Move a directory inside one file system; does nothing where ``source`` is gone, and goes on after a kill.

    Locally it is renamed. In an object store, which cannot, its files are moved, that of the name ``last`` behind the
    others: what has none is not whole.
    """
    if storage.is_local(source):
        if storage.exists(source):
            storage.make_directory(storage.split(target)[0])
            storage.local_path(source).rename(storage.local_path(target))
        return
    found = sorted(storage.files_below(source), key=lambda item: item[0] == last)
    for name, entry in found:
        move(entry.path, storage.join(target, *name.split("/")))


def read_json(path: str) -> Any:
    """Content of a JSON file; ``ValueError`` when it is none."""
    return parse_json(bytes(storage.read(path)))


def sha256(path: str) -> str:
    """SHA-256 (hex) of the content of a file."""
    return hashlib.sha256(storage.read(path)).hexdigest()


def write_json(path: str, document: Any) -> None:
    """Write a JSON file so that a reader sees all of it or, until then, the file before."""
    storage.write_text(path, _json_text(document))


def _json_text(document: Any) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def recency(named: Mapping[str, Any]) -> tuple[int, bool, str, list[int | str]]:
    """Order of runs, or compacted logs, of one cluster by time, the newest last: by what their manifests, or
    ``latest.json``, say.

    Of attempts for one ``now_ms`` a complete one is newer than one that went on past damage; ids of attempts go up, by
    the time that Regroup's own begin with, and numbers in them as numbers.
    """
    is_whole = named["complete"] if "complete" in named else not named.get("partial")
    run_id = str(named.get("run_id") or named["path"].rpartition("/")[2])
    time = match[0] if (match := _TIME.match(run_id)) else ""
    parts = _NUMBER.split(run_id[len(time) :])
    # Every second part is a number.
    return int(named["now_ms"]), bool(is_whole), time, [int(one) if at % 2 else one for at, one in enumerate(parts)]


def let_latest(path: str, named: Mapping[str, Any]) -> bool:
    """Have ``latest.json`` at ``path`` be ``named``, unless it names a newer run (:func:`recency`); whether it is."""

    def change(found: bytes | None) -> bytes | None:
        try:
            is_newer = recency(parse_json(found or b"")) > recency(named)
        except (ValueError, KeyError, TypeError, AttributeError):
            # What names nothing, or nothing that can be read, is replaced.
            is_newer = False
        return None if is_newer else _json_text(named).encode("utf-8", "backslashreplace")

    return conditional.update(path, change)
