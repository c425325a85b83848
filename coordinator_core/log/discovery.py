"""Finds the segments of the offsets topic under the paths an operator names, as a starting broker would.

Source of the rules on ``.deleted``, ``.cleaned`` and ``.swap`` files: ``LogLoader``
(``removeTempFilesAndCollectSwapFiles`` and ``load``); of the rest: ``LogManager`` and ``LocalLog``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from coordinator_core import storage
from coordinator_core.errors import Damage, UsageError
from coordinator_core.jsontext import parse_json
from coordinator_core.log.beside import name_of, parent_of
from coordinator_core.log.layout import LAST_OFFSET
from coordinator_core.log.reader import last_batch, last_entry
from coordinator_core.log.types import OFFSETS_TOPIC, PartitionLog, SegmentFile, Snapshot
from coordinator_core.properties import parse_properties
from coordinator_core.storage import Entry
from coordinator_core.untrusted import is_utf8

CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
LOG_START_OFFSETS_FILE = "log-start-offset-checkpoint"
RECOVERY_POINTS_FILE = "recovery-point-offset-checkpoint"
CLEANED_OFFSETS_FILE = "cleaner-offset-checkpoint"
META_PROPERTIES_FILE = "meta.properties"
PARTITION_METADATA_FILE = "partition.metadata"
CAPTURE_MARKER = "capture.incomplete"
"""File that ``regroup capture`` keeps in its directory until the capture is complete."""
CAPTURE_MANIFEST = "capture.json"
"""File of a capture that says of which cluster and topics it is."""
TOPICS_FILE = "topics.json"
"""File in which ``regroup capture`` lists the cluster's topics."""
TOPOLOGY_FILE = "topology.json"
"""File in which ``regroup capture`` says who holds and leads which partition."""
RECORDS_FILE = "records.json"
"""File in which ``regroup import-records`` lists the parts of a log that records do not hold."""

FILES_BESIDE = frozenset(
    {
        CAPTURE_MANIFEST,
        CAPTURE_MARKER,
        CLEAN_SHUTDOWN_FILE,
        CLEANED_OFFSETS_FILE,
        LOG_START_OFFSETS_FILE,
        META_PROPERTIES_FILE,
        RECORDS_FILE,
        RECOVERY_POINTS_FILE,
        TOPICS_FILE,
        TOPOLOGY_FILE,
    }
)
"""Names of files that are read beside partition directories."""

_MAX_DEPTH = 4
"""Levels below a named directory at which log dirs are looked for (``<cluster>/<broker>/data/<log dir>``)."""

_PARTITION_DIRECTORY = re.compile(r"^(?P<topic>.+)-(?P<partition>\d{1,10})$")
_OFFSETS_DIRECTORY = re.compile(rf"^{OFFSETS_TOPIC}-\d+$")
_RETIRED_DIRECTORY = re.compile(r"^(?P<topic>.+)-\d+\.[0-9A-Za-z]+-(?P<why>delete|future|stray)$")
_RETIRED_REASONS = {
    "delete": "its broker is deleting it",
    "future": "being moved between log dirs, not yet the live replica",
    "stray": "not assigned to its broker any more",
}
_BROKER_ID = re.compile(r"\s*(-?\d{1,10})\s*")
_SEGMENT = re.compile(r"^(\d{20})\.log$")
_SWAP_SEGMENT = re.compile(r"^(\d{20})\.log\.swap$")
_CLEANED = re.compile(r"^(\d{1,20})\..*\.cleaned$")
NO_FILE_OF_A_LOG, PACKED = "not a file of a log", "a compressed segment"
UNNUMBERED = "its name is not a base offset of 20 digits"
NO_PARTITION = "no partition of Kafka has that number, which is at most 2147483647"

_IGNORED_FILES = (
    (re.compile(r"\.deleted$"), "superseded, waits for deletion"),
    (re.compile(r"\.cleaned$"), "unfinished output of the log cleaner"),
    (re.compile(r"\.swap$"), "index of a swapped segment"),
    (re.compile(r"\.log\.(gz|zst|xz|bz2|lz4|zip)$"), PACKED),
    (re.compile(r"\.log$"), UNNUMBERED),
    (re.compile(r"\.(index|timeindex|txnindex)$"), "index, says nothing that the segment does not"),
    (re.compile(r"\.snapshot$"), "producer snapshot, rebuilt from the segments"),
    (re.compile(r"checkpoint$"), "checkpoint"),
    (re.compile(r"^partition\.metadata$"), "topic id of the partition"),
)


_ARCHIVES = (
    (b"\x1f\x8b", 0, "a gzip'd file or archive"),
    (b"\x28\xb5\x2f\xfd", 0, "a zstd-compressed file or archive"),
    (b"PK\x03\x04", 0, "a zip archive"),
    (b"ustar", 257, "a tar archive"),
)
"""First bytes, where they stand, and what has them."""
_MAGIC_BYTES = 262


@dataclass
class _LogDir:
    """Facts about the partitions of one log directory, from the broker's files in it."""

    broker_id: int | None = None
    cluster_id: str | None = None
    is_read: bool = False
    """Whether a partition in it is read, or would be but for another replica."""

    clean_shutdown: bool = False
    log_start_offsets: dict[int, int] = field(default_factory=dict)
    recovery_points: dict[int, int] = field(default_factory=dict)
    cleaned_offsets: dict[int, int] = field(default_factory=dict)


def discover(paths: Sequence[str]) -> Snapshot:
    """Pin the segments found under ``paths``.

    Each path is a log dir, a directory that holds log dirs (one per broker), a partition directory or a
    ``.log`` file; local or a URI.  Of several replicas of a partition the one is taken whose log reaches
    furthest: the highest leader epoch of its last batch, then the highest log end offset, which is the one
    that would lead.  Raises ``UsageError`` when a path does not exist or holds no segment.
    """
    search = _Search()
    for path in paths:
        search.add(path)
    return search.snapshot(tuple(paths))


class _Search:
    def __init__(self) -> None:
        self.replicas: list[PartitionLog] = []
        self.ignored: list[tuple[str, str]] = []
        self.damage: list[Damage] = []
        self.topic_names: dict[str, str] = {}
        self._log_dirs: dict[str, _LogDir] = {}
        self._named_files: dict[str, list[SegmentFile]] = {}
        self._seen: set[str] = set()
        self._named = ""
        """The directory that is searched, as the operator named it."""

    def add(self, path: str) -> None:
        found = storage.stat(path)
        if found is None:
            raise UsageError(f"{path}: no such file or directory")
        if not self._is_new(path):
            return
        _check_whole(_log_dir_of(path if found.is_directory else storage.split(path)[0]))
        if not found.is_directory:
            self._add_file(found)
            return
        replicas, ignored = len(self.replicas), len(self.ignored)
        self._named = path
        self._add_directory(path, 0)
        if len(self.replicas) == replicas:
            files = self.ignored[ignored:] or [
                (entry.path, NO_FILE_OF_A_LOG) for entry in storage.list_directory(path) if not entry.is_directory
            ]
            raise UsageError(f"{path}: no segment of {OFFSETS_TOPIC} found{_reasons(files)}")

    def snapshot(self, sources: tuple[str, ...]) -> Snapshot:
        for directory, segments in self._named_files.items():
            log_dir = self._log_dir(parent_of(directory))
            log_dir.is_read = True
            self.replicas.append(
                PartitionLog(
                    segments[0].offsets_partition,
                    directory,
                    tuple(sorted(segments, key=lambda segment: segment.base_offset)),
                    # A segment named as a file is read from its first byte on.
                    log_start_offset=None,
                    clean_shutdown=log_dir.clean_shutdown,
                    broker_id=log_dir.broker_id,
                    recovery_point=log_dir.recovery_points.get(segments[0].offsets_partition),
                )
            )
        by_partition: dict[int, list[PartitionLog]] = {}
        for replica in self.replicas:
            by_partition.setdefault(replica.offsets_partition, []).append(replica)
        chosen = [self._furthest(by_partition[partition]) for partition in sorted(by_partition)]
        if not chosen:
            raise UsageError(f"{', '.join(sources)}: no segment found{_reasons(self.ignored)}")
        cluster_id = self._cluster_id()
        for log in chosen:
            if not is_utf8(log.directory):
                raise UsageError(f"{log.directory}: a path that is not UTF-8; give the directory another name")
        return Snapshot(
            sources,
            tuple(chosen),
            tuple(sorted(self.ignored)),
            tuple(self.damage),
            dict(sorted(self.topic_names.items())),
            cluster_id,
        )

    def _cluster_id(self) -> str | None:
        """The cluster of the logs. Groups of several clusters would be made one state that none of them has."""
        read = [(path, one.cluster_id) for path, one in self._log_dirs.items() if one.is_read]
        told = [(path, cluster_id) for path, cluster_id in read if cluster_id is not None]
        for path, cluster_id in told[1:]:
            if cluster_id != told[0][1]:
                raise UsageError(
                    f"logs of different clusters: {told[0][0]} is of cluster {told[0][1]}, {path} of {cluster_id}; "
                    "name those of one cluster"
                )
        return told[0][1] if told else None

    def _is_new(self, path: str) -> bool:
        identity = os.path.realpath(storage.local_path(path)) if storage.is_local(path) else path.rstrip("/")
        new = identity not in self._seen
        self._seen.add(identity)
        return new

    def _add_file(self, file: Entry) -> None:
        directory = storage.split(file.path)[0]
        if not file.name.endswith(".log"):
            self.ignored.append((file.path, _reason(file.name)))
            return
        topic, partition = _parse_directory_name(name_of(directory))
        if topic != OFFSETS_TOPIC:
            if _is_no_partition(name_of(directory)):
                raise UsageError(f"{directory}: {NO_PARTITION}")
            if topic is not None and topic.startswith("__"):
                raise UsageError(f"{file.path}: a segment of {topic}, not of {OFFSETS_TOPIC}")
            partition = 0
        named = _numbered(_SEGMENT, file.name)
        base_offset = int(named[1]) if named else _first_offset(file.path)
        segment = SegmentFile(file.path, partition, base_offset, file.size, file.modified_ns)
        self._named_files.setdefault(directory, []).append(segment)

    def _add_directory(self, path: str, depth: int) -> None:
        try:
            entries = storage.list_directory(path)
        except UsageError as error:
            if not depth:
                raise
            raise UsageError(f"{self._named}: log directories are looked for below it: {error}") from None
        if depth and any(entry.name == CAPTURE_MARKER for entry in entries):
            _check_whole(path)
        if _is_log_dir(entries):
            self._add_log_dir(path, entries)
        elif has_segments(entries):
            if depth or _is_no_partition(name_of(path)):
                why = NO_PARTITION if _is_no_partition(name_of(path)) else "segments outside a log dir"
                self.ignored.append((path, why))
            else:
                self._add_named_partition(path, entries)
        elif depth < _MAX_DEPTH:
            for entry in entries:
                if entry.is_directory and self._is_new(entry.path):
                    self._add_directory(entry.path, depth + 1)

    def _add_named_partition(self, path: str, entries: list[Entry]) -> None:
        name = name_of(path)
        retired = _RETIRED_DIRECTORY.match(name)
        if retired:
            self.ignored.append((path, _RETIRED_REASONS[retired["why"]]))
            return
        topic, partition = _parse_directory_name(name)
        parent = parent_of(path)
        if topic != OFFSETS_TOPIC:
            beside = storage.stat(parent) is not None and _is_log_dir(storage.list_directory(parent))
            if topic is not None and (topic.startswith("__") or beside):
                self.ignored.append((path, f"partition of {topic}"))
                return
            partition = 0
        self._add_partition(path, partition, entries, self._log_dir(parent))

    def _add_log_dir(self, path: str, entries: list[Entry]) -> None:
        log_dir = self._log_dir(path)
        named_topics: set[str] = set()
        if any(entry.name == TOPICS_FILE for entry in entries):
            self._read_topics(storage.join(path, TOPICS_FILE))
        for entry in entries:
            if not entry.is_directory:
                continue
            retired = _RETIRED_DIRECTORY.match(entry.name)
            if retired:
                self._read_topic_id(entry.path, retired["topic"], named_topics)
                self.ignored.append((entry.path, _RETIRED_REASONS[retired["why"]]))
                continue
            topic, partition = _parse_directory_name(entry.name)
            if topic is None:
                if _is_no_partition(entry.name):
                    self.ignored.append((entry.path, NO_PARTITION))
                continue
            self._read_topic_id(entry.path, topic, named_topics)
            if topic != OFFSETS_TOPIC:
                self.ignored.append((entry.path, f"partition of {topic}"))
            elif self._is_new(entry.path):
                self._add_partition(entry.path, partition, storage.list_directory(entry.path), log_dir)

    def _add_partition(self, path: str, partition: int, entries: list[Entry], log_dir: _LogDir) -> None:
        segments, ignored = resolve_segments(entries)
        self.ignored.extend(ignored)
        if not segments:
            self.ignored.append((path, "no segment"))
            return
        log_dir.is_read = True
        self.replicas.append(
            PartitionLog(
                partition,
                path,
                tuple(SegmentFile(one.path, partition, base, one.size, one.modified_ns) for base, one in segments),
                log_start_offset=log_dir.log_start_offsets.get(partition),
                clean_shutdown=log_dir.clean_shutdown,
                broker_id=log_dir.broker_id,
                recovery_point=log_dir.recovery_points.get(partition),
                cleaned_offset=log_dir.cleaned_offsets.get(partition),
            )
        )

    def _furthest(self, replicas: list[PartitionLog]) -> PartitionLog:
        if len(replicas) == 1:
            return replicas[0]
        reaches = [_reach(replica) for replica in replicas]
        best = max(range(len(replicas)), key=reaches.__getitem__)
        taken = "{} with leader epoch {} and log end offset {}".format(replicas[best].directory, *reaches[best])
        for index, replica in enumerate(replicas):
            if index != best:
                epoch, end = reaches[index]
                why = f"replica with leader epoch {epoch} and log end offset {end}; taken is {taken}"
                self.ignored.append((replica.directory, why))
        return replicas[best]

    def _read_topic_id(self, directory: str, topic: str, done: set[str]) -> None:
        if topic in done or not is_utf8(topic):
            return
        path = storage.join(directory, PARTITION_METADATA_FILE)
        if not storage.exists(path):
            return
        match = re.search(r"^topic_id:\s*(\S+)\s*$", storage.read_text(path), re.MULTILINE)
        if match:
            done.add(topic)
            self.topic_names.setdefault(match[1], topic)

    def _read_topics(self, path: str) -> None:
        """Names of topics as a capture wrote them down; damage when it is not such a file."""
        try:
            topics = parse_json(storage.read_text(path))["topics"]
            names = {topic["topic_id"]: topic["name"] for topic in topics if topic["topic_id"]}
            wrong = [text for pair in names.items() for text in pair if not (isinstance(text, str) and is_utf8(text))]
            if wrong:
                raise ValueError(f"{wrong[0]!r} is no name")
        except (ValueError, KeyError, TypeError) as error:
            self.damage.append(Damage(path, 0, None, "bad_topics", f"no capture writes this: {error!r}"))
            return
        for topic_id, name in names.items():
            self.topic_names.setdefault(topic_id, name)

    def _read_unknowns(self, log_dir: str) -> None:
        """Damage of partitions that were made of records: the facts that records lack."""
        path = storage.join(log_dir, RECORDS_FILE)
        if not storage.exists(path):
            return
        try:
            unknowns = [entry["unknown"] for entry in parse_json(storage.read_text(path))["partitions"]]
            self.damage += [
                Damage(
                    storage.join(log_dir, *str(one["path"]).split("/")),
                    0,
                    int(one["record_offset"]),
                    str(one["kind"]),
                    str(one["detail"]),
                )
                for one in unknowns
            ]
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            detail = f"no import of records writes this: {error!r}"
            self.damage.append(Damage(path, 0, None, "bad_records_manifest", detail))

    def _log_dir(self, path: str) -> _LogDir:
        known = self._log_dirs.get(path)
        if known is not None:
            return known
        log_dir = self._log_dirs[path] = _LogDir()
        if storage.stat(path) is None:
            return log_dir
        log_dir.clean_shutdown = storage.exists(storage.join(path, CLEAN_SHUTDOWN_FILE))
        log_dir.log_start_offsets = self._checkpoint(storage.join(path, LOG_START_OFFSETS_FILE))
        log_dir.recovery_points = self._checkpoint(storage.join(path, RECOVERY_POINTS_FILE))
        log_dir.cleaned_offsets = self._checkpoint(storage.join(path, CLEANED_OFFSETS_FILE))
        self._read_unknowns(path)
        meta = storage.join(path, META_PROPERTIES_FILE)
        if storage.exists(meta):
            properties = parse_properties(storage.read_text(meta))
            match = _BROKER_ID.fullmatch(properties.get("node.id", properties.get("broker.id", "")))
            log_dir.broker_id = int(match[1]) if match else None
            # Brokers before 0.10.1 (KIP-78) write no id of the cluster.
            cluster_id = properties.get("cluster.id", "").strip()
            log_dir.cluster_id = cluster_id if cluster_id and is_utf8(cluster_id) else None
        else:
            log_dir.cluster_id = self._captured_cluster(storage.join(path, CAPTURE_MANIFEST))
        return log_dir

    def _captured_cluster(self, path: str) -> str | None:
        """The cluster that a capture is of; damage when its manifest has another value there."""
        if not storage.exists(path):
            return None
        try:
            document = parse_json(storage.read_text(path))
        except ValueError:
            return None
        found = document.get("cluster_id") if isinstance(document, dict) else None
        if found is None or (isinstance(found, str) and is_utf8(found)):
            return found
        # Other programs write files of that name, too.
        if "capture_version" in document:
            detail = f"no capture writes this: {found!r} is no id of a cluster"
            self.damage.append(Damage(path, 0, None, "bad_capture_manifest", detail))
        return None

    def _checkpoint(self, path: str) -> dict[int, int]:
        """A malformed checkpoint is damage, but a broker starts as if it were not there."""
        if not storage.exists(path):
            return {}
        text = storage.read_text(path)
        try:
            return parse_checkpoint(text)
        except ValueError as error:
            self.damage.append(Damage(path, 0, None, "bad_checkpoint", str(error)))
            return {}


def _log_dir_of(directory: str) -> str:
    """The log dir in which a partition directory lies; any other directory itself."""
    return parent_of(directory) if _PARTITION_DIRECTORY.match(name_of(directory)) else directory


def has_segments(entries: Sequence[Entry]) -> bool:
    """Whether there are segments, or such that take their places (``.swap``), among the entries of a directory."""
    return any(_numbered(_SEGMENT, entry.name) or _numbered(_SWAP_SEGMENT, entry.name) for entry in entries)


def _check_whole(directory: str) -> None:
    if storage.exists(storage.join(directory, CAPTURE_MARKER)):
        raise UsageError(
            f"{directory}: a capture that is not whole: it is being written, or was ended before its end; "
            "run regroup capture again to finish it"
        )


def parse_checkpoint(text: str) -> dict[int, int]:
    """Partition → offset for the offsets topic (``OffsetCheckpointFile``); ``ValueError`` when malformed.

    An empty file, which a killed broker may leave, holds no offsets.
    """
    lines = text.splitlines()
    if not lines:
        return {}
    if len(lines) < 2 or lines[0].strip() != "0":
        raise ValueError("not a checkpoint file of version 0")
    rows = [line.split() for line in lines[2:] if line.strip()]
    if int(lines[1]) != len(rows):
        raise ValueError(f"{len(rows)} lines instead of {lines[1].strip()}")
    offsets = {}
    for row in rows:
        if len(row) != 3:
            raise ValueError(f"line of {len(row)} words")
        if row[0] == OFFSETS_TOPIC:
            partition, offset = int(row[1]), int(row[2])
            if not (0 <= partition < 1 << 31 and -1 <= offset <= LAST_OFFSET):
                raise ValueError(f"partition {row[1][:20]} or offset {row[2][:20]} out of range")
            offsets[partition] = offset
    return offsets


def resolve_segments(
    entries: Sequence[Entry],
) -> tuple[list[tuple[int, Entry]], list[tuple[str, str]]]:
    """The segments of a partition directory that a broker would load, by base offset, and the other files
    with the reason why not.

    ``.swap`` segments at or above the smallest ``.cleaned`` base offset belong to an unfinished split and
    are left out; the others replace every segment whose base offset lies between the smallest of them and
    the end of the last.
    """
    ignored: list[tuple[str, str]] = []
    segments: dict[int, Entry] = {}
    swaps: dict[int, Entry] = {}
    cleaned: list[int] = []
    names = {entry.name for entry in entries}
    for entry in entries:
        if entry.is_directory:
            ignored.append((entry.path, "directory"))
        elif match := _numbered(_SEGMENT, entry.name):
            segments[int(match[1])] = entry
        elif match := _numbered(_SWAP_SEGMENT, entry.name):
            swaps[int(match[1])] = entry
        else:
            if match := _numbered(_CLEANED, entry.name):
                cleaned.append(int(match[1]))
            why = _reason(entry.name)
            is_copy = why == PACKED and os.path.splitext(entry.name)[0] in names
            ignored.append((entry.path, "compressed copy of a segment that is here" if is_copy else why))

    for base in sorted(swaps):
        if cleaned and base >= min(cleaned):
            ignored.append((swaps.pop(base).path, "swap of an unfinished split"))
    if swaps:
        first, end = min(swaps), max(_next_offset(base, entry) for base, entry in swaps.items())
        for base in sorted(segments):
            if first <= base < end or base in swaps:
                ignored.append((segments.pop(base).path, "replaced by a swap segment"))
        segments |= swaps
    return sorted(segments.items()), ignored


def _next_offset(base_offset: int, segment: Entry) -> int:
    last = last_entry(SegmentFile(segment.path, 0, base_offset, segment.size))
    return base_offset if last is None else last.next_offset


def _reach(log: PartitionLog) -> tuple[int, int]:
    """Leader epoch of the last batch and log end offset."""
    last = last_batch(log)
    return (-1, log.segments[-1].base_offset) if last is None else (last.partition_leader_epoch, last.next_offset)


def _first_offset(path: str) -> int:
    """Base offset of the first entry of a segment file without an offset in its name; 0 without entries."""
    head = bytes(storage.read(path, 8))
    return max(0, int.from_bytes(head, "big", signed=True)) if len(head) == 8 else 0


def _is_log_dir(entries: Sequence[Entry]) -> bool:
    for entry in entries:
        if entry.is_directory:
            topic = _parse_directory_name(entry.name)[0]
            retired = _RETIRED_DIRECTORY.match(entry.name)
            if topic == OFFSETS_TOPIC or (retired and retired["topic"] == OFFSETS_TOPIC):
                return True
        elif entry.name in (META_PROPERTIES_FILE, RECOVERY_POINTS_FILE):
            return True
    return False


def _parse_directory_name(name: str) -> tuple[str | None, int]:
    match = _PARTITION_DIRECTORY.match(name)
    # A partition is an int32.
    return (match["topic"], int(match["partition"])) if match and int(match["partition"]) < 1 << 31 else (None, 0)


def _is_no_partition(name: str) -> bool:
    """Whether a directory is named as one of the offsets topic whose partition is no int32."""
    return bool(_OFFSETS_DIRECTORY.match(name)) and _parse_directory_name(name)[0] is None


def _numbered(pattern: re.Pattern[str], name: str) -> re.Match[str] | None:
    """The match of a name with a record offset in it, which is an int64."""
    match = pattern.match(name)
    return match if match and int(match[1]) <= LAST_OFFSET else None


def _reason(file_name: str) -> str:
    return next((why for pattern, why in _IGNORED_FILES if pattern.search(file_name)), NO_FILE_OF_A_LOG)


def _reasons(ignored: Sequence[tuple[str, str]]) -> str:
    """Why nothing of the first files is read. Archives among them are told by their first bytes."""
    told = (f"{path}: {_packed(path, why)}" for path, why in ignored[:3])
    return f" ({'; '.join(told)})" if ignored else ""


def _packed(path: str, why: str) -> str:
    """Why it is not read, by its first bytes where its name says that it may be an archive."""
    if why not in (NO_FILE_OF_A_LOG, PACKED):
        return why
    try:
        head = bytes(storage.read(path, _MAGIC_BYTES))
    except UsageError:
        return why
    what = next((what for magic, at, what in _ARCHIVES if head[at : at + len(magic)] == magic), why)
    return why if what == NO_FILE_OF_A_LOG else f"{what}: unpack it first"
