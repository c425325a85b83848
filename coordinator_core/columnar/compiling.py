"""Compiled kernels: compiled on first use, kept on disk, so that the next process starts warm."""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
import threading
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core import config as numba_config
from numba.extending import register_jitable

config: Any = numba_config
"""Numba's settings, which it declares at run time."""

_CACHE_FORMAT = 1
_COMPILED_MODULES = ("bytestrings", "compiling", "finishing", "intrinsics", "kernels", "tables")
"""The modules that compiled code is made from."""


class KernelCacheWarning(UserWarning):
    """Compiled code cannot be kept, so that every process compiles anew."""


def cache_directory() -> Path:
    """Where compiled kernels are kept: below ``NUMBA_CACHE_DIR``, else below the user's cache directory.

    The last part of the path names all sources that were compiled: numba itself looks only at the file of the
    outermost function, and would run stale code after a change in another.
    """
    base = os.environ.get("NUMBA_CACHE_DIR")
    if base is None:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        base = os.path.join(home, "regroup", "kernels")
    return Path(base) / f"regroup-{_source_digest()}"


def _source_digest() -> str:
    digest = hashlib.sha256()
    digest.update(
        repr((_CACHE_FORMAT, numba.__version__, llvmlite.__version__, platform.python_version())).encode()
    )
    package = Path(__file__).parent
    for name in _COMPILED_MODULES:
        digest.update((package / f"{name}.py").read_bytes() + b"\0")
    return digest.hexdigest()[:16]


@cache
def usable_cache_directory() -> Path | None:
    """The cache directory, created; ``None``, after one warning, when it cannot be written."""
    try:
        directory = cache_directory()
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        warnings.warn(
            f"compiled kernels cannot be kept ({error}): every process will spend some seconds compiling "
            "them; set NUMBA_CACHE_DIR to a writable directory",
            KernelCacheWarning,
            stacklevel=2,
        )
        return None
    return directory


class Kernel:
    """A function that is compiled (or loaded from the cache) when it is first called.

    It runs without the interpreter lock. The signature is fixed: a second set of argument types would mean a
    second, hidden compilation.
    """

    _compiling = threading.Lock()

    def __init__(self, function: Callable[..., Any], signature: Any) -> None:
        self.py_func = function
        self._signature = signature
        self._compiled: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        compiled = self._compiled
        if compiled is None:
            compiled = self.compile()
        return compiled(*arguments)

    def compile(self) -> Callable[..., Any]:
        """The compiled function; the first call of all may take some seconds."""
        with self._compiling:
            if self._compiled is None:
                self._compiled = _compile(self.py_func, self._signature)
            return self._compiled


def kernel(signature: Any) -> Callable[[Callable[..., Any]], Kernel]:
    """Decorator that makes a :class:`Kernel` of a function."""

    def wrap(function: Callable[..., Any]) -> Kernel:
        return Kernel(function, signature)

    return wrap


def inlined(function: Callable[..., Any]) -> Any:
    """Decorator of functions that kernels call for every record: they become part of the kernel.

    A call would count references to every array it passes, with atomic instructions.
    """
    return register_jitable(forceinline=True)(function)


def called(function: Callable[..., Any]) -> Any:
    """Decorator of functions that kernels call now and then."""
    return register_jitable(function)


def _compile(function: Callable[..., Any], signature: Any) -> Callable[..., Any]:
    directory = usable_cache_directory()
    if directory is not None:
        before = config.CACHE_DIR
        config.CACHE_DIR = str(directory)
        try:
            return _njit(function, signature, cache=True)
        except (RuntimeError, OSError) as error:
            # For instance sources inside a zip archive, for which numba knows no cache.
            warnings.warn(
                f"kernel {function.__name__} cannot be kept ({error})", KernelCacheWarning, stacklevel=2
            )
        finally:
            config.CACHE_DIR = before
    return _njit(function, signature, cache=False)


def _njit(function: Callable[..., Any], signature: Any, *, cache: bool) -> Callable[..., Any]:
    compiled: Callable[..., Any] = numba.njit(signature, nogil=True, cache=cache, error_model="numpy")(
        function
    )
    return compiled
