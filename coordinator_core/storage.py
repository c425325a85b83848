"""Files by local path or URI (``s3://``, ``gs://``, ``hdfs://``, ``file://``), over ``pyarrow.fs``.

A path is always a ``str`` as the operator wrote it; :func:`join` and :func:`list_directory` keep its
form, so that printed paths can be pasted back.
"""

from __future__ import annotations

import errno
import mmap
import os
import re
import secrets
import shutil
import stat as stat_modes
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from io import BufferedWriter
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from coordinator_core.errors import RegroupError, StorageError, UsageError, lack_behind, not_written

_MOST_AT_ONCE, _LARGE, _PORTION = 1 << 30, 1 << 20, 8 << 20
_OBJECT_STORES = ("s3", "gs", "gcs", "abfs", "abfss")
"""Schemes of their URIs."""
_UPLOADING = ("s3", "gcs", "abfs")
"""File systems that show a file only when all of it is there."""
_CONTENT_TYPES = {".html": "text/html; charset=utf-8", ".json": "application/json"}
"""Of files that people open in a browser, which would store them otherwise."""
_SYNCED_BYTES = 16 << 20
_MOST_LINKS = 40
"""Links that Linux follows in a path."""
_URI = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+://")
_PLAIN = "/!$&'()*+,;=:@"
"""What, beside letters, digits and ``_.-~``, stands for itself in the path of a URI (RFC 3986)."""
_PASSING = re.compile(
    r"AWS Error (NETWORK_CONNECTION|INTERNAL_FAILURE|SERVICE_UNAVAILABLE|SLOW_DOWN|THROTTLING|REQUEST_TIMEOUT)\b"
    r"|HTTP status (5\d\d|429)\b"
    r"|google::cloud::Status\((UNAVAILABLE|DEADLINE_EXCEEDED|RESOURCE_EXHAUSTED|INTERNAL|ABORTED)\b"
)
"""Errors of pyarrow after which a later try may succeed: S3 (``ErrorToStatus`` in Arrow's ``s3_internal.h``), GCS."""
_REFUSED = re.compile(
    r"AWS Error (?!NO_SUCH_KEY|RESOURCE_NOT_FOUND)[A-Z_]+\b"
    r"|google::cloud::Status\((PERMISSION_DENIED|UNAUTHENTICATED)\b"
)
"""Errors of pyarrow by which a store refuses to answer: rights, credentials. They say nothing of the file."""


def user_cache(name: str) -> str:
    """Path of a cache of this user: ``regroup/<name>`` in the cache directory."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(home, "regroup", name)


def is_private(status: os.stat_result) -> bool:
    """Whether a file or directory is this user's, and no one else may write to it."""
    return status.st_uid == os.geteuid() and not status.st_mode & (stat_modes.S_IWGRP | stat_modes.S_IWOTH)


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or directory. ``size`` in bytes, 0 for directories.

    ``modified_ns`` (epoch nanoseconds) changes when the file is written; object stores tell whole seconds.
    """

    name: str
    path: str
    is_directory: bool
    size: int
    modified_ns: int | None = None


def is_local(path: str) -> bool:
    """Whether ``path`` is a local path or a ``file://`` URI."""
    return not _URI.match(path) or path.lower().startswith("file://")


def local_path(path: str) -> Path:
    """The local file behind a path or ``file://`` URI."""
    _check_named(path)
    return Path(_decoded(urlsplit(path).path)) if _URI.match(path) else Path(path)


def _check_named(path: str) -> None:
    """To Python the empty path is the working directory; in a command line it is a variable that is not set."""
    if path == "":
        raise UsageError("an empty path: name a file or directory")


def _encoded(name: str) -> str:
    """The name of a local file in a ``file://`` URI, which is percent-encoded; URIs of object stores are not."""
    return quote(name, safe=_PLAIN, errors="surrogateescape")


def _decoded(name: str) -> str:
    return unquote(name, errors="surrogateescape")


def filesystem(path: str) -> tuple[Any, str]:
    """The ``pyarrow.fs.FileSystem`` of ``path`` and the path within it, for writers such as Parquet's."""
    import pyarrow.fs

    if is_local(path):
        return pyarrow.fs.LocalFileSystem(), str(local_path(path).absolute())
    main, _, query = path.partition("?")
    scheme, _, rest = main.partition("://")
    root, slash, _ = rest.partition("/")
    # First, since it refuses credentials, which other errors would repeat.
    found, prefix = _remote(f"{scheme}://{root}/", query)
    return found, f"{prefix.rstrip('/')}{slash}{below_root(path)}".rstrip("/")


def input_file(path: str) -> Any:
    """The ``pyarrow.NativeFile`` that reads ``path``."""
    system, inner = filesystem(path)
    return system.open_input_file(inner)


@contextmanager
def output_file(path: str) -> Iterator[Any]:
    """The ``pyarrow.NativeFile`` that writes ``path``; raises as :func:`writing`."""
    system, inner = filesystem(path)
    with writing(path), system.open_output_stream(inner) as file:
        yield file


@contextmanager
def reading(path: str) -> Iterator[None]:
    """An ``OSError`` of the block is one of reading ``path``; raises as :func:`read`."""
    try:
        yield
    except OSError as error:
        if lack_behind(error) is not None:
            raise
        raise unreadable(path, error) from error


@contextmanager
def writing(path: str) -> Iterator[None]:
    """An ``OSError`` of the block is one of writing ``path``: ``StorageError``, or what
    :func:`~coordinator_core.errors.not_written` says."""
    try:
        yield
    except OSError as error:
        raise _not_written(path, error) from error


def is_object(path: str) -> bool:
    """Whether ``path`` is a URI of an object store."""
    return path.partition("://")[0].lower() in _OBJECT_STORES and not is_local(path)


def below_root(path: str) -> str:
    """The path of a URI below its root (bucket, host): the key of an object.

    ``UsageError`` for a key with an empty component, which Arrow's file systems refuse.
    """
    # ``urlsplit`` would cut it at a ``#``.
    inner = path.partition("?")[0].partition("://")[2].partition("/")[2].rstrip("/")
    if is_object(path) and "//" in f"/{inner}":
        raise UsageError(f"{path}: two slashes with no name between them")
    return inner


@lru_cache(maxsize=32)
def _remote(root: str, query: str) -> tuple[Any, str]:
    import pyarrow
    import pyarrow.fs

    if urlsplit(root).password is not None:
        raise UsageError(
            "a URI with credentials: paths are printed and end up in manifests; leave them to the environment"
        )
    uri = f"{root}?{query}" if query else root
    try:
        found: tuple[Any, str] = pyarrow.fs.FileSystem.from_uri(uri)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise _passing(uri, error) or UsageError(f"{uri}: {error}") from error
    return found


def join(base: str, *parts: str) -> str:
    """``base`` with path components behind it; a URI's query stays at the end."""
    _check_named(base)
    if not _URI.match(base):
        return os.path.join(base, *parts)
    main, mark, query = base.partition("?")
    return "/".join([main.rstrip("/"), *(map(_encoded, parts) if is_local(base) else parts)]) + mark + query


def split(path: str) -> tuple[str, str]:
    """Parent and last component of a path."""
    main, mark, query = path.partition("?") if _URI.match(path) else (path, "", "")
    parent, _, name = main.rstrip("/").rpartition("/")
    if not _URI.match(path):
        return parent or ("/" if main.startswith("/") else "."), name
    return parent + mark + query, _decoded(name) if is_local(path) else name


def stat(path: str) -> Entry | None:
    """Status of ``path``; ``None`` when nothing is there.

    Raises ``UsageError`` where an object store refuses, ``StorageError`` where it does not answer.
    """
    name = split(path)[1]
    if is_local(path):
        file = local_path(path)
        try:
            return _local_entry(name, path, file.is_dir(), file.stat())
        except (OSError, ValueError):
            return None
    import pyarrow.fs

    remote, inner = filesystem(path)
    try:
        info = remote.get_file_info(inner)
    except OSError as error:
        raise unreadable(path, error) from error
    if info.type == pyarrow.fs.FileType.NotFound:
        return None
    return _remote_entry(name, path, info)


def _local_entry(name: str, path: str, is_directory: bool, status: os.stat_result) -> Entry:
    return Entry(name, path, is_directory, 0 if is_directory else status.st_size, status.st_mtime_ns)


def _remote_entry(name: str, path: str, info: Any) -> Entry:
    import pyarrow.fs

    is_directory = info.type == pyarrow.fs.FileType.Directory
    return Entry(name, path, is_directory, 0 if is_directory else info.size, info.mtime_ns)


def exists(path: str) -> bool:
    """Whether a file or directory is at ``path``; raises as :func:`stat`."""
    return stat(path) is not None


def list_directory(path: str, *, missing_ok: bool = False) -> list[Entry]:
    """Entries of a directory, sorted by name; links are followed, dangling ones are left out.

    With ``missing_ok`` a directory of an object store that is not there has none. Raises ``UsageError`` when it cannot
    be read, ``StorageError`` where the storage does not answer.
    """
    entries: list[Entry] = []
    try:
        if is_local(path):
            with os.scandir(local_path(path)) as found:
                for item in found:
                    with suppress(OSError):
                        entries.append(_local_entry(item.name, join(path, item.name), item.is_dir(), item.stat()))
        else:
            import pyarrow.fs

            remote, inner = filesystem(path)
            for info in remote.get_file_info(pyarrow.fs.FileSelector(inner, allow_not_found=missing_ok)):
                name = info.base_name
                entries.append(_remote_entry(name, join(path, name), info))
    except OSError as error:
        raise unreadable(path, error) from error
    return sorted(entries, key=lambda entry: entry.name)


def read(path: str, size: int | None = None) -> memoryview:
    """The file, or its first ``size`` bytes, as unsigned bytes.

    A local file is copied, never mapped: cutting a mapped file ends the processes that read it. Raises ``UsageError``
    when the file cannot be read, ``StorageError`` where the storage does not answer.
    """
    try:
        if is_local(path):
            with LocalFile(path) as file:
                wanted = file.version.size if size is None else min(size, file.version.size)
                out = memory(wanted)
                return out[: file.read_into(out, 0)]
        with input_file(path) as stream:
            # Arrow's buffers are of signed bytes.
            return memoryview(stream.read_buffer(size)).cast("B")
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error


def memory(size: int) -> memoryview:
    """So many bytes of new memory, in large pages where the system has them."""
    if size < _LARGE:
        return memoryview(bytearray(size))
    area = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):
        area.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(area)


def _passing(path: str, error: Exception) -> StorageError | None:
    """The error where storage elsewhere does not answer, or not now; ``None`` where trying again would not help."""
    if is_local(path) or not _PASSING.search(str(error)):
        return None
    return StorageError(f"{path}: the storage does not answer: {error}")


def raise_refused(path: str, error: Exception) -> None:
    """Raises ``StorageError`` where a later try may succeed, ``UsageError`` where reading is not allowed; for callers
    to whom any other error means damage."""
    refused = isinstance(error, PermissionError) or (not is_local(path) and _REFUSED.search(str(error)))
    if refused or _passing(path, error) is not None:
        raise unreadable(path, error) from error


def unreadable(path: str, error: Exception) -> RegroupError:
    """The error of a failed read: ``StorageError`` where a later try may succeed, else ``UsageError``."""
    said = getattr(error, "strerror", None) or error
    return _passing(path, error) or UsageError(f"{path}: cannot be read: {said}")


def _not_written(path: str, error: OSError) -> RegroupError:
    return _passing(path, error) or not_written(path, error)


class Version(NamedTuple):
    """Version of a file by its file system: every write changes it, once its clock has moved on."""

    device: int
    inode: int
    size: int
    modified_ns: int


class LocalFile:
    """A local regular file, open for reading. Raises ``OSError``, for pipes and devices as well."""

    def __init__(self, path: str) -> None:
        # Opening a pipe would wait for its writer.
        self._handle = os.open(local_path(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(self._handle)
            if not stat_modes.S_ISREG(status.st_mode):
                raise OSError("not a regular file")
        except BaseException:
            os.close(self._handle)
            raise
        self.version = Version(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)

    def __enter__(self) -> LocalFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)

    def read_into(self, out: memoryview, position: int) -> int:
        """Fill ``out`` with the bytes from ``position`` on; how many there were."""
        done = 0
        while done < len(out):
            count = os.preadv(self._handle, [out[done : done + _MOST_AT_ONCE]], position + done)
            if count == 0:
                break
            done += count
        return done


def read_text(path: str) -> str:
    """The text of a file, with U+FFFD for bytes that are no UTF-8; raises as :func:`read`."""
    return bytes(read(path)).decode("utf-8", "replace")


def read_utf8(path: str | Path) -> str:
    """The text of a file that somebody named, without a byte order mark at its start, as Excel writes it.

    ``UsageError`` when it is not UTF-8, or no regular file (without end).
    """
    try:
        return bytes(read(str(path))).decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise unreadable(str(path), error) from None


def write_text(path: str, text: str | Iterable[str]) -> None:
    """Write a file of text, whole or in portions, as :func:`write_atomic` does.

    Text that is no UTF-8, a name of a file say, is written as ``\\udcff``: visible in a text, and in JSON the escape of
    the same text.
    """
    portions = [text] if isinstance(text, str) else text
    write_atomic(path, (portion.encode("utf-8", "backslashreplace") for portion in portions))


def write_atomic(path: str, data: bytes | memoryview | Iterable[bytes]) -> None:
    """Write a file, whole or in portions, so that readers see all of it or nothing.

    Locally, and in HDFS, a temporary file is renamed over ``path``, whose directory is made when it is missing, and
    locally goes again when nothing is written; an object store shows an object only when its upload is complete. A pipe
    or a device stays what it is, and gets the bytes as they come; so does what this process has open, such as
    ``/dev/stdout``: a file that it is redirected to gets them behind what is written there.
    """
    portions = [data] if isinstance(data, bytes | memoryview) else data
    try:
        if not is_local(path):
            _write_remote(*filesystem(path), portions)
            return
        target = local_path(path)
        if (opened := _descriptor(target)) is not None or _is_stream(target):
            # Opened by its name, a file would begin anew, and the one who has it open would write over it.
            with target.open("wb") if opened is None else os.fdopen(os.dup(opened), "wb") as file:
                file.writelines(portions)
            return
        with _directory_for(target):
            handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
            try:
                with os.fdopen(handle, "wb") as file:
                    _write_through(file, portions)
                os.chmod(temporary, 0o666 & ~_umask())
                os.replace(temporary, target)
                sync(str(target.parent))
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(temporary)
                raise
    except OSError as error:
        raise _not_written(path, error) from error


def _descriptor(target: Path) -> int | None:
    """The descriptor of this process that a path such as ``/dev/stdout``, ``/dev/fd/3`` or a link to it names."""
    for _ in range(_MOST_LINKS):
        if os.path.realpath(target.parent) == f"/proc/{os.getpid()}/fd" and target.name.isdecimal():
            return int(target.name)
        if not target.is_symlink():
            return None
        target = target.parent / os.readlink(target)
    return None


def _is_stream(target: Path) -> bool:
    """Whether the path leads to a pipe, a device, or what a process has open: no other file may take its place."""
    try:
        mode = target.stat().st_mode
    except OSError:
        return False
    is_open_file = target.is_symlink() and os.readlink(target).startswith("/proc/")
    return is_open_file or not (stat_modes.S_ISREG(mode) or stat_modes.S_ISDIR(mode))


def is_unfinished(name: str) -> bool:
    """Whether a file has the name that :func:`write_atomic` gives before all is written: a killed writer leaves it."""
    return name.startswith(".")


def _write_through(file: BufferedWriter, portions: Iterable[bytes | memoryview]) -> None:
    """Write the portions, on disk at the end. The disk is at work while the next ones are made."""
    unsynced = 0
    for portion in portions:
        unsynced += file.write(portion)
        if unsynced >= _SYNCED_BYTES:
            file.flush()
            os.fsync(file.fileno())
            unsynced = 0
    file.flush()
    os.fsync(file.fileno())


def _write_remote(remote: Any, inner: str, portions: Iterable[bytes | memoryview]) -> None:
    place = inner
    content_type = _CONTENT_TYPES.get(os.path.splitext(inner)[1])
    metadata = None if content_type is None else {"Content-Type": content_type}
    if remote.type_name not in _UPLOADING:
        above, _, name = inner.rpartition("/")
        remote.create_dir(above, recursive=True)
        place = f"{above}/.{name}.{secrets.token_hex(8)}"
    stream = remote.open_output_stream(place, metadata=metadata)
    try:
        with stream:
            for portion in portions:
                stream.write(portion)
        if place != inner:
            remote.move(place, inner)
    except BaseException:
        # A stream that is closed, and pyarrow cannot leave it open, shows the bytes so far.
        with suppress(OSError):
            remote.delete_file(place)
        raise


@contextmanager
def new_directory(path: str, *, over_empty: bool = False) -> Iterator[Path]:
    """A local directory to fill. Once the block has ended well it is ``path``, otherwise nothing is left.

    It is made beside ``path`` and renamed, so that half of it is never taken for a whole one. Raises
    :class:`UsageError` when ``path`` is there already, but for an empty directory with ``over_empty``, when another
    process has made it meanwhile, or when it cannot be made, and what :func:`~coordinator_core.errors.not_written` says
    for an ``OSError`` in the block.
    """
    if not is_local(path):
        raise UsageError(f"{path}: a log is written to local directories only")
    target = local_path(path).absolute()
    try:
        _refuse_existing(target, path, over_empty)
        with _directory_for(target):
            making = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
            try:
                making.chmod(0o777 & ~_umask())
                yield making
                _sync_tree(making)
                _rename_to_new(making, target, path, over_empty)
                sync(str(target.parent))
            finally:
                shutil.rmtree(making, ignore_errors=True)
    except OSError as error:
        raise _not_written(path, error) from error


def _rename_to_new(making: Path, target: Path, path: str, over_empty: bool) -> None:
    try:
        _refuse_existing(target, path, over_empty)
        making.rename(target)
    except (UsageError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        raise UsageError(f"{path}: another process has written there meanwhile, and it is not overwritten") from None


def make_missing(directory: Path, made: list[Path]) -> None:
    """Make a directory and those above it that are missing, and append the ones that are made to ``made``."""
    missing = []
    while not directory.exists():
        missing.append(directory)
        directory = directory.parent
    for each in reversed(missing):
        # Noted first: an interrupt may come right behind it.
        made.append(each)
        try:
            each.mkdir()
        except FileExistsError:
            made.pop()


def remove_empty(made: Sequence[Path]) -> None:
    """Remove what :func:`make_missing` has made, as far as nobody has put anything there."""
    for each in reversed(made):
        with suppress(OSError):
            each.rmdir()


@contextmanager
def _directory_for(target: Path) -> Iterator[None]:
    """The directory of a file, made when it is missing; it goes again when the block does not end well."""
    made: list[Path] = []
    try:
        make_missing(target.parent, made)
        yield
    except BaseException:
        remove_empty(made)
        raise


@contextmanager
def directory_of(path: str) -> Iterator[Path]:
    """A local directory to write into: ``path`` itself, or one that is uploaded when the block has ended well."""
    if is_local(path):
        yield local_path(path)
        return
    with tempfile.TemporaryDirectory(prefix="regroup-") as made:
        yield Path(made)
        upload(Path(made), path)


def upload(source: Path, path: str, *, without: str = "", unchanged: Collection[str] = ()) -> None:
    """Copy the files below a local directory into one of an object store, sorted by path.

    Left out are those with the name ``without`` and those whose paths below ``source`` are in ``unchanged``.
    """
    for file in sorted(one for one in source.rglob("*") if one.is_file() and one.name != without):
        below = file.relative_to(source)
        if str(below) not in unchanged:
            with file.open("rb") as content:
                write_atomic(join(path, *below.parts), iter(partial(content.read, _PORTION), b""))


def download(path: str, target: Path) -> None:
    """Copy the files below a directory of an object store into a local one."""
    for name, entry in files_below(path):
        remote, inner = filesystem(entry.path)
        file = target / name
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with remote.open_input_stream(inner) as content, file.open("wb") as copy:
                shutil.copyfileobj(content, copy, _PORTION)
        except OSError as error:
            raise unreadable(entry.path, error) from error


def files_below(path: str) -> Iterator[tuple[str, Entry]]:
    """Files of :func:`entries_below`."""
    return ((name, entry) for name, entry in entries_below(path) if not entry.is_directory)


def entries_below(path: str) -> Iterator[tuple[str, Entry]]:
    """Files and directories below a directory, with their paths from there, sorted by these.

    One that is not there, or is deleted meanwhile by another process, has none. An object store is sent a request for
    each 1000 objects, however many directories they are in.
    """
    if is_object(path):
        yield from _objects_below(path)
        return
    for entry in entries_in(path):
        yield entry.name, entry
        if entry.is_directory:
            yield from ((f"{entry.name}/{name}", below) for name, below in entries_below(entry.path))


def entries_in(path: str) -> list[Entry]:
    """:func:`list_directory` of one that need not be there, or may be deleted meanwhile by another process."""
    try:
        return list_directory(path, missing_ok=True)
    except UsageError:
        if exists(path):
            raise
        return []


def _objects_below(path: str) -> Iterator[tuple[str, Entry]]:
    import pyarrow.fs

    store, inner = filesystem(path)
    try:
        infos = store.get_file_info(pyarrow.fs.FileSelector(inner, recursive=True, allow_not_found=True))
    except OSError as error:
        raise unreadable(path, error) from error
    found = ((tuple(info.path[len(inner) + 1 :].split("/")), info) for info in infos)
    for names, info in sorted(found, key=itemgetter(0)):
        yield "/".join(names), _remote_entry(names[-1], join(path, *names), info)


def sync(path: str) -> None:
    """Have a local file, or the names in a directory, on the disk before anything that is written later."""
    handle = os.open(local_path(path), os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_tree(directory: Path) -> None:
    for parent, _, names in os.walk(directory):
        for name in (*names, "."):
            sync(os.path.join(parent, name))


def _refuse_existing(target: Path, path: str, over_empty: bool) -> None:
    if target.exists() and not (over_empty and target.is_dir() and not any(target.iterdir())):
        wanted = "an empty directory" if over_empty else "overwritten"
        raise UsageError(f"{path}: exists already, and is not {wanted}")


def _umask() -> int:
    """The umask of this process. Reading it requires setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def make_directory(path: str, *, parents: bool = True) -> None:
    """Make a directory and its parents; existing ones are fine.

    Without ``parents`` they must be there, and an object store is asked for nothing: its files need no directory, and
    it would be sent a request for every parent.
    """
    try:
        if is_local(path):
            local_path(path).mkdir(parents=parents, exist_ok=True)
        else:
            remote, inner = filesystem(path)
            if parents or remote.type_name not in _UPLOADING:
                remote.create_dir(inner, recursive=True)
    except OSError as error:
        raise _not_written(path, error) from error


def delete(path: str) -> None:
    """Delete a file, or a directory with all it holds; nothing there is fine, also when another process deletes it."""
    found = stat(path)
    if found is None:
        return
    try:
        if is_local(path):
            while os.path.lexists(local := local_path(path)):
                with suppress(FileNotFoundError):
                    shutil.rmtree(local) if found.is_directory else local.unlink()
        else:
            remote, inner = filesystem(path)
            remote.delete_dir(inner) if found.is_directory else remote.delete_file(inner)
    except OSError as error:
        raise _not_written(path, error) from error


_BEING_DELETED = re.compile(r"_(.+-)?[0-9a-f]{16}")
"""Names of :func:`delete_while_written`; earlier versions had the former name in them."""


def is_being_deleted(name: str) -> bool:
    """Whether a directory has the name under which one is deleted: it is left where that was killed."""
    return _BEING_DELETED.fullmatch(name) is not None


def delete_while_written(path: str) -> None:
    """Delete a local directory, or one of an object store, into which other processes may still write.

    A local one gets another name first: from then on its name leads nowhere, and nothing is added while it is deleted.
    That name is short, since ``path`` may have the longest that there is, and is the one of :func:`is_being_deleted`.
    """
    if is_local(path):
        gone = join(split(path)[0], f"_{os.urandom(8).hex()}")
        with suppress(FileNotFoundError):
            os.rename(local_path(path), local_path(gone))
        path = gone
    delete(path)
