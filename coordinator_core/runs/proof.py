"""Digests of the files of a run: told by its manifest, and checked when the files are read."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from coordinator_core import storage
from coordinator_core.errors import Damage, DamagedInputError, lack_behind

_SMALL_BYTES = 16 << 20
"""Files up to this size are digested whole when they are read; of larger ones the footer is, and Parquet's
own checksums tell of the pages that are read."""
_SMALL_AGAIN_BYTES = 1 << 20
"""The same of a file that was digested whole before: one read of a store takes no longer than two of a part."""
_CHUNK_BYTES = 1 << 20
_TAIL = struct.Struct("<I4s")
"""The end of a Parquet file: bytes of its footer, and the magic number."""

FileProof = Mapping[str, Any]
"""``bytes``, and in hex the SHA-256 of the file, ``sha256``, and of its Parquet footer, ``footer_sha256``."""


def proof_of(path: str) -> FileProof:
    """Manifest's entry of a Parquet file that was written; a local file is on the disk then."""
    with _opened(path) as file, storage.reading(path):
        found = {"bytes": file.size(), "sha256": _sha256(file), "footer_sha256": _footer_sha256(file)}
    if storage.is_local(path):
        # Before the manifest, which says that the rows are there.
        for place in (path, storage.split(path)[0]):
            storage.sync(place)
    return found


def check_file(path: str, proof: FileProof) -> None:
    """:class:`DamagedInputError` unless the file is, byte for byte, the published one."""
    with _opened(path) as file, storage.reading(path):
        _check_size(path, file, proof)
        _check(path, "its content", _sha256(file), proof["sha256"])


def open_parquet(path: str, proof: FileProof | None, *, is_again: bool = False, **options: Any) -> pq.ParquetFile:
    """A file of a run, to be closed; ``options`` are those of ``ParquetFile``. ``is_again``: it was opened before.

    :class:`DamagedInputError` when it differs from the published one (a large file: in size or footer), and when it is
    no Parquet. Runs of earlier versions tell no ``proof``.
    """
    file = _opened(path)
    try:
        source = file
        if proof is not None:
            _check_size(path, file, proof)
            if file.size() <= (_SMALL_AGAIN_BYTES if is_again else _SMALL_BYTES):
                with storage.reading(path):
                    data = file.read()
                _check(path, "its content", hashlib.sha256(data).hexdigest(), proof["sha256"])
                source = pa.BufferReader(data)
            else:
                with storage.reading(path):
                    footer = _footer_sha256(file)
                _check(path, "its footer", footer, proof["footer_sha256"])
                file.seek(0)
        with parsing(path):
            return pq.ParquetFile(source, page_checksum_verification=proof is not None, **options)
    except BaseException:
        file.close()
        raise


@contextmanager
def parsing(path: str) -> Iterator[None]:
    """:class:`DamagedInputError` for bytes that Arrow cannot read, even with the right digest: a writer can make both.

    Errors of the file system, and a lack of memory, are raised as they are.
    """
    try:
        yield
    except (ValueError, OSError, pa.ArrowException) as error:
        if lack_behind(error) is not None or getattr(error, "errno", None) is not None:
            raise
        storage.raise_refused(path, error)
        raise DamagedInputError(Damage(path, 0, None, "unreadable_table", str(error))) from None


def _opened(path: str) -> pa.NativeFile:
    system, inner = storage.filesystem(path)
    try:
        return system.open_input_file(inner)
    except FileNotFoundError:
        raise _changed(path, "the file is gone") from None
    except (OSError, pa.ArrowInvalid) as error:
        if lack_behind(error) is not None:
            raise
        storage.raise_refused(path, error)
        raise _changed(path, f"the file cannot be opened: {error}") from None


def _check_size(path: str, file: pa.NativeFile, proof: FileProof) -> None:
    if file.size() != proof["bytes"]:
        raise _changed(path, f"it has {file.size()} bytes, {proof['bytes']} were published")


def _check(path: str, what: str, found: str, published: str) -> None:
    if found != published:
        raise _changed(path, f"the SHA-256 of {what} is {found}, published was {published}")


def _changed(path: str, detail: str) -> DamagedInputError:
    return DamagedInputError(Damage(path, 0, None, "changed_since_published", detail))


def _sha256(file: pa.NativeFile) -> str:
    digest = hashlib.sha256()
    for chunk in _chunks(file):
        digest.update(chunk)
    return digest.hexdigest()


def _chunks(file: pa.NativeFile) -> Iterator[bytes]:
    file.seek(0)
    while chunk := file.read(_CHUNK_BYTES):
        yield chunk


def _footer_sha256(file: pa.NativeFile) -> str:
    size = file.size()
    tail = file.read_at(min(_TAIL.size, size), max(0, size - _TAIL.size))
    footer = _TAIL.unpack(tail)[0] if len(tail) == _TAIL.size else 0
    begin = max(0, size - _TAIL.size - footer)
    return hashlib.sha256(file.read_at(size - begin, begin)).hexdigest()
