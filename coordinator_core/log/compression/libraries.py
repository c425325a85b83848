"""The codec libraries of the system, by their public C interfaces.

Kernels decompress batch after batch with them, without the interpreter. Where a library is missing its codec
goes through the Python packages (:mod:`coordinator_core.log.compression`), to the same result.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import sys
from functools import cache

_NAMES = {
    "lz4": ("liblz4.so.1", "liblz4.1.dylib"),
    "zstd": ("libzstd.so.1", "libzstd.1.dylib"),
}


@cache
def function_address(library: str, name: str) -> int:
    """Address of a function of ``lz4`` or ``zstd``; 0 where there is no such library."""
    loaded = _library(library)
    function = getattr(loaded, name, None) if loaded is not None else None
    return 0 if function is None else ctypes.cast(function, ctypes.c_void_p).value or 0


@cache
def _library(name: str) -> ctypes.CDLL | None:
    linux, macos = _NAMES[name]
    # The name with its version says which interface it has; looking it up runs compilers, so that comes last.
    for candidate in (linux if sys.platform != "darwin" else macos, None):
        path = candidate or ctypes.util.find_library(name)
        if path is not None:
            try:
                return ctypes.CDLL(path)
            except OSError:
                continue
    return None
