"""Folds of segments kept on disk, so that a run folds only what no run before it has folded.

An entry is the Arrow form of a fold (or a state of ``merge.cache``), its CRC-32C and its size; nothing in it is
ever run. A fold is named by a digest of all that it depends on: the SHA-256 of the segment's bytes, the rules,
where the log starts in it, the code that made it. So entries are never wrong, only unused; those go first when
the cache is full. The digests of a file are kept as well, under its path, size, inode and times: while these
stay, the file is not read again. Without locks: entries appear whole, and what is read stays readable when
another process removes it. Only this user may have written its files: a directory or an entry that belongs to somebody
else, or that others may write to, is left alone (``docs/decisions/fold-cache.md``).
"""

from __future__ import annotations

import hashlib
import importlib
import mmap
import os
import re
import shutil
import stat
import struct
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING

from coordinator_core import __version__, storage
from coordinator_core.fold.rules import FoldRules
from coordinator_core.log.types import SegmentFile
from coordinator_core.storage import is_private, user_cache

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    import pyarrow as pa

    from coordinator_core.fold.schema import SegmentFold

MAX_BYTES = 4 << 30
MAX_FREE_PART = 0.1
"""A cache takes at most so much, and at most this part of what its disk would have free without it."""

FOLD_CACHE_VARIABLE = "REGROUP_FOLD_CACHE"
"""Names the directory of the command line's cache; empty: none."""

_SUFFIX, _SEEN_SUFFIX = ".fold", ".seen"
_ENTRY = re.compile(r"[0-9a-f]{64}\.(fold|seen)")
_HALF_WRITTEN, _HALF_SUFFIX = ".fold-", ".tmp"
_TRAILER = struct.Struct("<IQ")
_ENTRY_PACKAGES = ("releases", "log", "records", "groups", "replay", "kernels", "fold", "merge")
_MIN_SEGMENT_BYTES = 1 << 18
_TRIM_BYTES = 1 << 28
_ABANDONED_SECONDS = 3600
_UNUSED_SECONDS = 60 * 24 * 3600
_SETTLED_NS = 2_000_000_000


class FoldCacheWarning(UserWarning):
    """Folds cannot be kept, so that every run folds everything."""


@dataclass(frozen=True, slots=True)
class Digests:
    """Digests of a segment's bytes, in hex: the fingerprint of runs and pins, and the SHA-256 of all bytes."""

    fingerprint: str
    content: str


class CorruptEntryError(Exception):
    """An entry had other bytes than were written, and was removed."""


def directory_of_environment() -> str:
    """The directory that :data:`FOLD_CACHE_VARIABLE` names; by default ``regroup/folds`` in the user's cache."""
    return os.environ.get(FOLD_CACHE_VARIABLE, user_cache("folds"))


def cache_of_environment() -> FoldCache | None:
    """The cache in :func:`directory_of_environment`; ``None`` where the variable is empty."""
    directory = directory_of_environment()
    return FoldCache(directory) if directory else None


@dataclass(frozen=True)
class Sighting:
    """State of a segment file by its inode, size and times: every write changes it."""

    name: str
    settled: bool
    """False shortly after a change: another one within a tick of the file system's clock would not show."""


class FoldCache:
    """The folds under one local directory. Can be pickled and used by many threads.

    ``max_bytes`` is for all entries together (default: :data:`MAX_BYTES`, or :data:`MAX_FREE_PART` of the
    disk). Segments below ``min_segment_bytes`` are folded faster than their folds are looked up.
    """

    def __init__(
        self, directory: str, *, max_bytes: int | None = None, min_segment_bytes: int = _MIN_SEGMENT_BYTES
    ) -> None:
        # Loaded here, not by the threads that ask.
        importlib.import_module("coordinator_core.fold.schema")
        self.directory = directory
        self._arguments = max_bytes, min_segment_bytes
        self._written = _TRIM_BYTES
        self._lock = threading.Lock()
        self._usable: bool | None = None

    def __reduce__(self) -> tuple[object, ...]:
        max_bytes, min_segment_bytes = self._arguments
        return partial(FoldCache, max_bytes=max_bytes, min_segment_bytes=min_segment_bytes), (self.directory,)

    def admits(self, segment: SegmentFile) -> bool:
        """Whether the segment is large enough for its fold to be kept."""
        return segment.size >= self._arguments[1]

    def key(self, segment: SegmentFile, content: str, rules: FoldRules, start_offset: int) -> str | None:
        """Name of the fold of a segment in a log that starts at ``start_offset``; ``None`` to keep none.

        ``content`` is the SHA-256 of its bytes: CRCs are easily made to fit other bytes.
        """
        if not self.admits(segment):
            return None
        cut = max(start_offset, segment.base_offset)
        facts = (source_digest(), content, segment.base_offset, segment.size, cut, rules)
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    def seen(self, segment: SegmentFile) -> Sighting | None:
        """State of the file now, for :meth:`digests` and :meth:`note`; ``None`` if small, remote or shortened."""
        if not self.admits(segment) or not storage.is_local(segment.path):
            return None
        try:
            status = os.stat(storage.local_path(segment.path))
        except OSError:
            return None
        if status.st_size < segment.size:
            return None
        place = (segment.path, segment.size, status.st_dev, status.st_ino)
        facts = (*place, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        settled = time.time_ns() - status.st_ctime_ns > _SETTLED_NS
        return Sighting(hashlib.sha256(repr(facts).encode()).hexdigest() + _SEEN_SUFFIX, settled)

    def digests(self, sighting: Sighting) -> Digests | None:
        """Digests noted for a file in the state ``sighting``; ``None`` for none."""
        try:
            noted = self.read(sighting.name)
        except CorruptEntryError:
            return None
        words = b"" if noted is None else noted.to_pybytes()
        return Digests(*words.decode().split()) if words.count(b" ") == 1 else None

    def note(self, sighting: Sighting | None, digests: Digests) -> None:
        """Note the digests of a file that was in the state ``sighting`` before it was read."""
        if sighting is not None and sighting.settled and not self._path(sighting.name).exists():
            self.write(sighting.name, lambda file: file.write(f"{digests.fingerprint} {digests.content}".encode()))

    def get(self, key: str, segment: SegmentFile, end_offset: int | None) -> SegmentFold | None:
        """The kept fold of ``segment``; ``None`` for none, or one with record offsets from ``end_offset`` on.

        Raises :class:`CorruptEntryError` when it had to remove the entry.
        """
        data = self.read(key)
        if data is None:
            return None
        import pyarrow as pa

        from coordinator_core.fold.schema import SegmentFold

        place = {"path": segment.path, "offsets_partition": segment.offsets_partition}
        try:
            # Beside the kept state of a merge nobody will ask for more than the head.
            fold = SegmentFold.read_ipc_lazily(pa.BufferReader(data), **place)
        except ValueError as error:
            raise self._removed(key) from error
        if end_offset is not None and fold.next_offset is not None and fold.next_offset > end_offset:
            return None
        return fold

    def put(self, key: str, fold: SegmentFold) -> None:
        """Keep a fold under the name ``key``."""
        # A quarter of the bytes: that costs less than it saves in writing them.
        self.write(key, partial(fold.write_ipc, compression="lz4"))

    def read(self, key: str) -> pa.Buffer | None:
        """Bytes that were written as ``key``, mapped; ``None`` for none.

        Raises :class:`CorruptEntryError` when it had to remove the entry.
        """
        if not self._is_ours():
            return None
        path = self._path(key)
        try:
            data = _mapped(path)
            if data is None:
                return None
            os.utime(path)
        except OSError:
            return None
        content = _content(data)
        if content is None:
            raise self._removed(key)
        return content

    def write(self, key: str, write: Callable[[pa.NativeFile], None]) -> None:
        """Keep the bytes that ``write`` writes. Warns once when that fails, and does not use the cache any more."""
        if not self._is_ours():
            return
        path = self._path(key)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            size = _write(path, write)
        except OSError as error:
            self._usable = False
            warnings.warn(f"folds cannot be kept ({error})", FoldCacheWarning, stacklevel=2)
            return
        with self._lock:
            self._written += size
            due = self._written > _TRIM_BYTES
            if due:
                self._written = 0
        if due:
            self.trim()

    def _is_ours(self) -> bool:
        """Whether nobody but this user can have put anything into the directory; it need not exist yet.

        Looked at once; said once when it is not.
        """
        if self._usable is None:
            try:
                self._usable = is_private(os.stat(self.directory))
            except OSError:
                return True
            if not self._usable:
                reason = f"{self.directory} belongs to another user, or others may write to it"
                warnings.warn(f"folds are neither kept nor used ({reason})", FoldCacheWarning, stacklevel=3)
        return self._usable

    def _removed(self, key: str) -> CorruptEntryError:
        self._path(key).unlink(missing_ok=True)
        return CorruptEntryError(key)

    def trim(self) -> None:
        """Remove entries unused for two months, leftovers of killed writers, and the oldest entries above the limit.

        Other files in the directory stay: any directory can be named as the cache.
        """
        now = time.time()
        entries = []
        for path, status in self._files():
            is_entry = _ENTRY.fullmatch(path.name) is not None
            if now - status.st_mtime > (_UNUSED_SECONDS if is_entry else _ABANDONED_SECONDS):
                path.unlink(missing_ok=True)
            elif is_entry:
                entries.append((status.st_mtime, status.st_size, path))
        used = sum(size for _, size, _ in entries)
        limit = self._limit(used)
        for _, size, path in sorted(entries):
            if used <= limit:
                break
            path.unlink(missing_ok=True)
            used -= size

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Entries, and leftovers of writers."""
        with suppress(OSError), os.scandir(self.directory) as found:
            for item in found:
                is_half = item.name.startswith(_HALF_WRITTEN) and item.name.endswith(_HALF_SUFFIX)
                if is_half or _ENTRY.fullmatch(item.name):
                    with suppress(OSError):
                        yield Path(item.path), item.stat()

    def _limit(self, used: int) -> int:
        """Bytes that all entries may take when they take ``used`` now."""
        if self._arguments[0] is not None:
            return self._arguments[0]
        with suppress(OSError):
            directory = Path(self.directory)
            existing = next(path for path in (directory, *directory.parents) if path.exists())
            return min(MAX_BYTES, int(MAX_FREE_PART * (shutil.disk_usage(existing).free + used)))
        return MAX_BYTES

    def _path(self, key: str) -> Path:
        return Path(self.directory, key if key.endswith(_SEEN_SUFFIX) else key + _SUFFIX)


def _mapped(path: Path) -> pa.Buffer | None:
    """The bytes of an entry; ``None`` for a file that somebody else may have written."""
    # Loaded here, as what follows: a process without a cache folds sooner.
    import pyarrow as pa

    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or not is_private(status):
            return None
        # Empty files cannot be mapped.
        return pa.py_buffer(mmap.mmap(handle, 0, access=mmap.ACCESS_READ) if status.st_size else b"")
    finally:
        os.close(handle)


def _write(path: Path, write: Callable[[pa.NativeFile], None]) -> int:
    """Write an entry, so that others see all of it or nothing; returns its size."""
    import pyarrow as pa

    handle, temporary = tempfile.mkstemp(prefix=_HALF_WRITTEN, suffix=_HALF_SUFFIX, dir=path.parent)
    os.close(handle)
    try:
        with pa.OSFile(temporary, "wb") as file:
            write(file)
            size: int = file.tell()
        with pa.memory_map(temporary) as file:
            checksum = _checksum(file.read_buffer())
        with open(temporary, "ab") as trailer:
            trailer.write(_TRAILER.pack(checksum, size))
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return size


def _content(data: pa.Buffer) -> pa.Buffer | None:
    """Entry that :func:`_write` wrote; ``None`` for anything else."""
    size = data.size - _TRAILER.size
    if size < 0:
        return None
    content = data.slice(0, size)
    return content if _TRAILER.unpack(data.slice(size)) == (_checksum(content), size) else None


def _checksum(content: pa.Buffer) -> int:
    from crc32c import crc32c

    return crc32c(content)


@cache
def source_digest() -> str:
    """Digest of the code that folds are made by, compiled or not, so that no release reads the folds of another."""
    from importlib.resources import files

    digest = hashlib.sha256(f"{__version__}\0".encode())
    for package in _ENTRY_PACKAGES:
        for name, source in sorted(_sources(files(f"coordinator_core.{package}"), package)):
            digest.update(f"{name}\0".encode() + source + b"\0")
    return digest.hexdigest()


def _sources(package: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    for item in package.iterdir():
        if item.name.endswith((".py", *EXTENSION_SUFFIXES)):
            yield f"{name}.{item.name}", item.read_bytes()
        elif item.is_dir():
            yield from _sources(item, f"{name}.{item.name}")
