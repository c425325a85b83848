"""The directory of a capture: laid out as a log directory, whole only when its manifest says so.

``capture.incomplete`` stands in it from before the first byte is written until after the manifest is; whoever
finds it must not take the directory for a snapshot (``log.discovery`` refuses). So it does not matter when a
capture is killed. It says of which cluster and topics the capture is: the next one finishes no other.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypedDict

from coordinator_core import storage
from coordinator_core.claims import Claim
from coordinator_core.cluster.files import sync_directory
from coordinator_core.errors import ExitCode, RegroupError, UsageError, not_written
from coordinator_core.jsontext import from_json, parse_json
from coordinator_core.log.discovery import (
    CAPTURE_MANIFEST,
    CAPTURE_MARKER,
    LOG_START_OFFSETS_FILE,
)
from coordinator_core.topology import TopicInfo, is_topic_name

GROUPS = "groups.json"
CAPTURE_VERSION = 1
_NOTICE = "A capture is being written here, or was ended before it was whole. Run it again to finish it.\n"
_PARTITION_DIRECTORY = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)")
_SEGMENT = re.compile(r"\d{20}\.log")


class _Segment(TypedDict):
    base_offset: int
    bytes: int
    fingerprint: str


class _Partition(TypedDict):
    partition: int
    segments: list[_Segment]


class _Topic(TypedDict):
    topic: str
    topic_id: str | None
    partitions: list[_Partition]


class Manifest(TypedDict):
    """What the next capture into the directory relies on; other fields are for people."""

    capture_version: int
    cluster_id: str | None
    topics: list[_Topic]


class CaptureBusyError(RegroupError):
    """Another capture writes to the directory. It ends: trying again helps."""

    exit_code = ExitCode.INTERNAL


class CaptureDirectory:
    """A capture's local directory, ours alone while it is open; ``place`` is the path that users gave."""

    def __init__(self, path: Path, place: str | None = None) -> None:
        self.path = path
        self.place = str(path) if place is None else place

    @classmethod
    @contextmanager
    def opened(cls, path: str | Path) -> Iterator[CaptureDirectory]:
        """The directory at a path, or a copy of the one at a URI, which is uploaded when the block ends well.

        ``UsageError`` when it holds anything but a capture, ``CaptureBusyError`` when another capture writes to it.
        """
        if not storage.is_local(str(path)):
            with cls._copied(str(path)) as copied:
                yield copied
            return
        directory = cls(storage.local_path(str(path)), str(path))
        try:
            directory.path.mkdir(parents=True, exist_ok=True)
            handle = os.open(directory.path, os.O_RDONLY)
        except OSError as error:
            raise not_written(str(path), error) from None
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise CaptureBusyError(f"{path}: another capture is writing to it") from None
            _refuse_others(str(path), os.listdir(directory.path))
            yield directory
        finally:
            os.close(handle)

    def previous(self) -> Manifest | None:
        """The manifest of the capture before this one, also when that is being renewed."""
        return _manifest(self.path, self.place)

    def begun(self) -> Manifest | None:
        """What the marker of a capture that was killed says, without segments; ``None`` where it says nothing."""
        marker = self.path / CAPTURE_MARKER
        if not marker.exists():
            return None
        try:
            return from_json(Manifest, parse_json(bytes(storage.read(str(marker))).decode()))
        except ValueError:
            return None

    @classmethod
    @contextmanager
    def _copied(cls, place: str) -> Iterator[CaptureDirectory]:
        parent, name = storage.split(place)
        with ExitStack() as stack:
            try:
                # Not inside: a broker refuses a log directory with directories of other names.
                writers = storage.join(parent, f"{name}.writers")
                claim = stack.enter_context(Claim(writers, "another capture", CaptureBusyError))
            except CaptureBusyError as error:
                raise CaptureBusyError(f"{place}: {error}") from None
            claim.forget_earlier()
            _refuse_others(place, [entry.name for entry in storage.list_directory(place, missing_ok=True)])
            directory = cls(Path(stack.enter_context(TemporaryDirectory(prefix="regroup-"))), place)
            storage.download(place, directory.path)
            before = directory._versions()
            yield directory
            directory._upload(before, claim)

    def _versions(self) -> dict[str, storage.Version]:
        """The version of each file, by its path below the directory."""
        found: dict[str, storage.Version] = {}
        for file in self.path.rglob("*"):
            if file.is_file():
                with storage.LocalFile(str(file)) as opened:
                    found[str(file.relative_to(self.path))] = opened.version
        return found

    def _upload(self, before: Mapping[str, storage.Version], claim: Claim) -> None:
        """Have this capture at its URI, marked until it is whole there; ``before`` is there already."""
        marker, manifest = storage.join(self.place, CAPTURE_MARKER), storage.join(self.place, CAPTURE_MANIFEST)
        storage.write_atomic(marker, _NOTICE.encode())
        now = self._versions()
        for gone in sorted(before.keys() - now.keys() - {CAPTURE_MARKER}):
            storage.delete(storage.join(self.place, *gone.split("/")))
        unchanged = {name for name, version in now.items() if before.get(name) == version}
        storage.upload(self.path, self.place, without=CAPTURE_MANIFEST, unchanged=unchanged)
        if (other := claim.taken_by()) is not None:
            raise CaptureBusyError(f"{self.place}: taken over: {other}")
        storage.write_atomic(manifest, storage.read(str(self.path / CAPTURE_MANIFEST)))
        storage.delete(marker)

    def begin(self, cluster_id: str | None, topics: Collection[TopicInfo]) -> None:
        """Mark the directory as incomplete, until :meth:`finish`, and drop what is not of these topics.

        Kept are partitions of topics that the manifest or the marker names: of others it is unknown which cluster they
        are of.
        """
        earlier = [one for one in (self.previous(), self.begun()) if one is not None]
        named = {topic["topic"] for one in earlier for topic in one["topics"]}
        held = [topic for topic in topics if topic.name in named]
        kept = {f"{topic.name}-{each.partition}" for topic in held for each in topic.partitions}
        # Until the others are gone, the marker names nothing.
        storage.write_atomic(str(self.path / CAPTURE_MARKER), _NOTICE.encode())
        sync_directory(self.path)
        self._drop_partitions(kept)
        (self.path / GROUPS).unlink(missing_ok=True)
        self.write(
            CAPTURE_MARKER,
            {
                "notice": _NOTICE.strip(),
                "capture_version": CAPTURE_VERSION,
                "cluster_id": cluster_id,
                "topics": [{"topic": each.name, "topic_id": each.topic_id, "partitions": []} for each in topics],
            },
        )
        sync_directory(self.path)

    def _drop_partitions(self, kept: Collection[str]) -> None:
        """Delete the segments of other partitions than ``kept``, and their directories when nothing else is in them."""
        for directory in list(self.path.iterdir()):
            match = _PARTITION_DIRECTORY.fullmatch(directory.name)
            if directory.name in kept or not match or not is_topic_name(match["topic"]) or not _is_directory(directory):
                continue
            for file in list(directory.iterdir()):
                if _SEGMENT.fullmatch(file.name):
                    file.unlink()
            sync_directory(directory)
            if not any(directory.iterdir()):
                directory.rmdir()

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
        self.write(CAPTURE_MANIFEST, manifest)
        sync_directory(self.path)
        (self.path / CAPTURE_MARKER).unlink()
        sync_directory(self.path)


def _is_directory(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _refuse_others(path: str, names: Collection[str]) -> None:
    if names and CAPTURE_MANIFEST not in names and CAPTURE_MARKER not in names:
        raise UsageError(f"{path}: is not empty, and not a capture")


def _manifest(directory: Path, place: str) -> Manifest | None:
    file, path = directory / CAPTURE_MANIFEST, storage.join(place, CAPTURE_MANIFEST)
    if not file.exists():
        return None
    try:
        document = parse_json(bytes(storage.read(str(file))).decode())
        version = document["capture_version"]
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"{path} is not a capture's manifest") from None
    if version != CAPTURE_VERSION:
        raise UsageError(f"{path}: a capture of version {version}, this is for {CAPTURE_VERSION}")
    try:
        return from_json(Manifest, document)
    except ValueError as error:
        raise UsageError(f"{path} is not a capture's manifest: {error}") from None
