"""Object code of kernels: loaded with LLVM alone, kept on disk.

An entry of the cache is a file: the SHA-256 of the object code, and the object code. Its name has a digest of
all that the code depends on, the processor too: a cache in a home directory is shared by many machines.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import platform
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm

from coordinator_core.storage import user_cache

ENTRY = "regroup_kernel"
"""The function in the object code: int64 of a pointer to int64 words (``types.Signature.words``)."""

_CACHE_FORMAT = 1
_COMPILER_PACKAGES = ("numba", "numpy")
_UNUSED_SECONDS = 60 * 24 * 3600
_TOUCH_SECONDS = 24 * 3600
_LOCK_SECONDS = 120.0

Entry = Callable[[int], int]


class KernelCacheWarning(UserWarning):
    """Compiled code cannot be kept, so that every process compiles anew."""


@cache
def host() -> tuple[str, str]:
    """Name and features of this processor, as LLVM spells them."""
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def host_has(feature: str) -> bool:
    """Whether this processor has a feature, by LLVM's name."""
    return f"+{feature}" in host()[1].split(",")


def environment_digest() -> str:
    """Digest of what object code depends on besides its source: processor, compiler, format."""
    from importlib.metadata import version

    compilers = [version(package) for package in _COMPILER_PACKAGES]
    facts = (_CACHE_FORMAT, host(), llvmlite.__version__, compilers, platform.python_version())
    return hashlib.sha256(repr(facts).encode()).hexdigest()


@cache
def _jit() -> llvm.LLJIT:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.create_lljit_compiler()


_LOADED: list[llvm.ResourceTracker] = []
"""Code lives as long as its tracker."""


def load(name: str, code: bytes) -> Entry:
    """The :data:`ENTRY` of ``code`` as a function that runs without the interpreter lock."""
    library = llvm.JITLibraryBuilder().add_object_img(code).add_current_process().export_symbol(ENTRY)
    tracker = library.link(_jit(), f"{name}.{len(_LOADED)}")
    _LOADED.append(tracker)
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(tracker[ENTRY])


def cache_directory() -> Path:
    """Where object code is kept: ``REGROUP_KERNEL_CACHE``, else below the user's cache directory."""
    return Path(os.environ.get("REGROUP_KERNEL_CACHE") or user_cache("kernels"))


@cache
def usable_cache_directory() -> Path | None:
    """The cache directory, created; ``None``, after one warning, when it cannot be written."""
    directory = cache_directory()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        warnings.warn(
            f"compiled kernels cannot be kept ({error}): every process will spend some seconds compiling "
            "them; set REGROUP_KERNEL_CACHE to a writable directory",
            KernelCacheWarning,
            stacklevel=2,
        )
        return None
    return directory


def cached(name: str, key: str, make: Callable[[], bytes]) -> bytes:
    """The object code kept under ``name`` and ``key``, else what ``make`` returns, which is then kept.

    Of several processes that need it one makes it while the others wait, for two minutes at most.
    """
    path = cache_directory() / f"{name}-{key[:32]}.o"
    code = cached_code(path)
    if code is not None:
        return code
    directory = usable_cache_directory()
    if directory is None:
        return make()
    with _locked(directory / ".lock"):
        code = cached_code(path)
        if code is None:
            code = make()
            with suppress(OSError):
                _write(path, code)
                _remove_unused(directory)
    return code


def cached_code(path: Path) -> bytes | None:
    """The object code at ``path``; ``None`` when there is none, or not what was written."""
    try:
        data = path.read_bytes()
        if time.time() - path.stat().st_mtime > _TOUCH_SECONDS:
            os.utime(path)
    except OSError:
        return None
    digest, code = data[:32], data[32:]
    return code if hashlib.sha256(code).digest() == digest else None


def _write(path: Path, code: bytes) -> None:
    handle, temporary = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(code).digest() + code)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _remove_unused(directory: Path) -> None:
    """Delete what no process has used for two months: entries of old releases, leftovers of killed ones."""
    oldest = time.time() - _UNUSED_SECONDS
    for path in directory.iterdir():
        with suppress(OSError):
            if path.stat().st_mtime < oldest:
                path.unlink()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock file, or give up waiting for it: then work is done twice, and nothing else happens."""
    try:
        file = path.open("a")
    except OSError:
        yield
        return
    with file:
        deadline = time.monotonic() + _LOCK_SECONDS
        while time.monotonic() < deadline:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                time.sleep(0.05)
        yield
