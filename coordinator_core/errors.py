"""Errors that reach the user, each with the exit code that ``docs/cli.md`` promises for it."""

from __future__ import annotations

import errno
import os
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any


class ExitCode(IntEnum):
    """Exit codes of every command and app."""

    CLEAN = 0
    FINDINGS = 1
    USAGE = 2
    DAMAGED_INPUT = 3
    APPLY_FAILED = 4
    INTERNAL = 5


class RegroupError(Exception):
    """Base of all errors that are reported as one line instead of a traceback."""

    exit_code: ExitCode = ExitCode.INTERNAL


class UsageError(RegroupError):
    """The request itself cannot be carried out: unknown path, option, group or release."""

    exit_code = ExitCode.USAGE


class StorageError(RegroupError):
    """Storage elsewhere does not answer (timeouts, throttling, faults of its servers): trying again may help."""

    exit_code = ExitCode.INTERNAL


class WriteError(RegroupError):
    """Output cannot be written: the disk is full, read-only or broken. Earlier output stays."""

    exit_code = ExitCode.APPLY_FAILED


_LACKS = (
    (MemoryError, "", "not enough memory"),
    (OSError, os.strerror(errno.ENOMEM), "not enough memory"),
    (OSError, os.strerror(errno.EMFILE), "too many open files"),
    # The dynamic linker's text for a library for which there is no room.
    (ImportError, "failed to map segment", "not enough memory"),
    (ImportError, "cannot allocate memory", "not enough memory"),
    (RuntimeError, "can't start new thread", "not enough memory, or too many threads"),
    # Arrow's.
    (Exception, "Failed to launch worker thread", "not enough memory, or too many threads"),
)
"""Errors by which a limit of the process shows: their class, words in them, and the name of the resource."""


def lack_behind(error: BaseException | None) -> str | None:
    """The resource that the process lacks, where the lack is the cause; the error may have led to others."""
    while error is not None:
        for kind, words, said in _LACKS:
            if isinstance(error, kind) and words in str(error):
                return said
        error = error.__cause__ or error.__context__
    return None


_DISK = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EBADF))
"""Errors that are no fault of the path; ``EBADF`` is standard output that was closed."""


def not_written(path: str, error: OSError) -> RegroupError:
    """The error for output to ``path``: the disk's fault, that of who named the path, or a lack of memory."""
    if error.errno == errno.ENOMEM:
        return RegroupError("not enough memory")
    if error.errno in _DISK:
        return WriteError(f"{path}: cannot be written: {os.strerror(error.errno)}")
    return UsageError(f"{path}: cannot be written: {error.strerror or error}")


@dataclass(frozen=True, slots=True)
class Damage:
    """One place of the input with bytes that Kafka would not write.

    ``byte_position`` is the position in the file at which the broken entry begins; ``record_offset``
    is the offset in the offsets log (of the entry, or of the first one that is missing), when known.
    """

    path: str
    byte_position: int
    record_offset: int | None
    kind: str
    detail: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        offset = "" if self.record_offset is None else f", record offset {self.record_offset}"
        return f"{self.path}: byte {self.byte_position}{offset}: {self.kind}: {self.detail}"


class DamagedInputError(RegroupError):
    """The input is damaged at ``damage`` and the operator did not ask to go on past it."""

    exit_code = ExitCode.DAMAGED_INPUT

    def __init__(self, damage: Damage) -> None:
        super().__init__(str(damage))
        self.damage = damage

    def __reduce__(self) -> tuple[type[DamagedInputError], tuple[Damage]]:
        return type(self), (self.damage,)
