"""The directory of a capture: laid out as a log directory, whole only when its manifest says so.

``capture.incomplete`` stands in it from before the first byte is written until after the manifest is; whoever
finds it must not take the directory for a snapshot (``log.discovery`` refuses). So it does not matter when a
capture is killed.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from coordinator_core import storage
from coordinator_core.cluster.files import sync_directory
from coordinator_core.errors import UsageError, not_written
from coordinator_core.jsontext import parse_json
from coordinator_core.log.discovery import CAPTURE_MARKER, LOG_START_OFFSETS_FILE, TOPICS_FILE, TOPOLOGY_FILE
from coordinator_core.topology import is_topic_name

MANIFEST = "capture.json"
TOPOLOGY = TOPOLOGY_FILE
GROUPS = "groups.json"
CAPTURE_VERSION = 1
_NOTICE = "A capture is being written here, or was ended before it was whole. Run it again to finish it.\n"


class CaptureDirectory:
    """A capture's directory, ours alone while it is open."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    @contextmanager
    def opened(cls, path: str | Path) -> Iterator[CaptureDirectory]:
        """``UsageError`` when it holds anything but a capture, or when another capture writes to it."""
        directory = cls(Path(path))
        try:
            directory.path.mkdir(parents=True, exist_ok=True)
            handle = os.open(directory.path, os.O_RDONLY)
        except OSError as error:
            raise not_written(str(path), error) from None
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UsageError(f"{path}: another capture is writing to it") from None
            _refuse_others(str(path), os.listdir(directory.path))
            yield directory
        finally:
            os.close(handle)

    def previous(self) -> Mapping[str, Any] | None:
        """The manifest of the capture before this one, also when that is being renewed."""
        return _manifest(str(self.path))

    def upload(self, place: str) -> None:
        """Have this capture, which is whole, at a URI, instead of one that may be there; marked until it is whole."""
        marker, manifest = storage.join(place, CAPTURE_MARKER), storage.join(place, MANIFEST)
        storage.write_atomic(marker, _NOTICE.encode())
        for entry in storage.list_directory(place):
            if entry.name != CAPTURE_MARKER:
                storage.delete(entry.path)
        storage.upload(self.path, place, without=MANIFEST)
        storage.write_atomic(manifest, storage.read(str(self.path / MANIFEST)))
        storage.delete(marker)

    def begin(self) -> None:
        """Mark the directory as incomplete, until :meth:`finish`."""
        storage.write_atomic(str(self.path / CAPTURE_MARKER), _NOTICE.encode())
        sync_directory(self.path)

    def partition(self, topic: str, partition: int) -> Path:
        """Directory of a partition; ``UsageError`` for a name that no topic may have, so that it stays inside."""
        if not is_topic_name(topic) or partition < 0:
            raise UsageError(f"{topic!r}, partition {partition}: no topic of Kafka has this name")
        return self.path / f"{topic}-{partition}"

    def write(self, name: str, document: Any) -> None:
        text = json.dumps(document, indent=1, ensure_ascii=False, sort_keys=False)
        storage.write_text(str(self.path / name), text + "\n")

    def write_log_start_offsets(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Write log start offsets as a broker's checkpoint: a log may begin within its first segment, or in a batch."""
        rows = [f"{topic} {partition} {offset}\n" for (topic, partition), offset in sorted(offsets.items())]
        text = f"0\n{len(rows)}\n{''.join(rows)}"
        storage.write_atomic(str(self.path / LOG_START_OFFSETS_FILE), text.encode())

    def finish(self, manifest: Mapping[str, Any]) -> None:
        """The manifest, last of all; then the snapshot is whole."""
        sync_directory(self.path)
        self.write(MANIFEST, manifest)
        sync_directory(self.path)
        (self.path / CAPTURE_MARKER).unlink()
        sync_directory(self.path)


def uploaded(place: str) -> Mapping[str, Any] | None:
    """The manifest of the capture at a URI; ``UsageError`` when there is anything else."""
    _refuse_others(place, [entry.name for entry in storage.list_directory(place, missing_ok=True)])
    return _manifest(place)


def _refuse_others(path: str, names: Collection[str]) -> None:
    if names and MANIFEST not in names and CAPTURE_MARKER not in names:
        raise UsageError(f"{path}: is not empty, and not a capture")


def _manifest(directory: str) -> Mapping[str, Any] | None:
    path = storage.join(directory, MANIFEST)
    if not storage.exists(path):
        return None
    try:
        document: Mapping[str, Any] = parse_json(bytes(storage.read(path)).decode())
        version = document["capture_version"]
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"{path} is not a capture's manifest") from None
    if version != CAPTURE_VERSION:
        raise UsageError(f"{path}: a capture of version {version}, this is for {CAPTURE_VERSION}")
    return document


__all__ = ["CAPTURE_VERSION", "GROUPS", "MANIFEST", "TOPICS_FILE", "TOPOLOGY", "CaptureDirectory", "uploaded"]
