"""Compiled kernels: compiled on first use, kept on disk, so that the next process starts warm.

Numba compiles them and is imported for nothing else: importing it takes longer than to fold 100 MB.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

from coordinator_core.columnar import objects
from coordinator_core.columnar.types import Signature

__all__ = ["Kernel", "called", "inlined", "kernel", "sources", "take_helpers"]

_PACKAGE = __package__ + "."
_IMPORTS = re.compile(rf"^from {__package__}(?:\.(\w+))? import ([\w, ]*)", re.MULTILINE)
_ALWAYS = (
    *(_PACKAGE + name for name in ("compiling", "lowering", "objects", "types")),
    "coordinator_core.log.layout",
)
"""What all compiled code depends on, whether it imports it or not."""

_helpers: list[tuple[Callable[..., Any], bool]] = []


class Kernel:
    """A function that is compiled (or loaded from the cache) when it is first called.

    It runs without the interpreter lock.
    """

    _compiling = threading.Lock()

    def __init__(self, function: Callable[..., Any], signature: Signature) -> None:
        self.py_func = function
        self.signature = signature
        self._entry: objects.Entry | None = None

    def __call__(self, *arguments: Any) -> int:
        entry = self._entry or self.compile()
        words = self.signature.words(arguments)
        return entry(words.ctypes.data)

    def compile(self) -> objects.Entry:
        """The compiled function; the first call of all may take some seconds."""
        with self._compiling:
            if self._entry is None:
                module = self.py_func.__module__
                name = f"{module.rpartition('.')[2]}.{self.py_func.__name__}"
                self._entry = objects.load(name, objects.cached(name, _key(module), self._object_code))
            return self._entry

    def _object_code(self) -> bytes:
        from coordinator_core.columnar.lowering import object_code

        return object_code(self.py_func, self.signature)


def kernel(signature: Signature) -> Callable[[Callable[..., Any]], Kernel]:
    """Decorator that makes a :class:`Kernel` of a function."""

    def wrap(function: Callable[..., Any]) -> Kernel:
        return Kernel(function, signature)

    return wrap


def inlined(function: Callable[..., Any]) -> Any:
    """Decorator of functions that kernels call for every record: they become part of the kernel."""
    _helpers.append((function, True))
    return function


def called(function: Callable[..., Any]) -> Any:
    """Decorator of functions that kernels call now and then."""
    _helpers.append((function, False))
    return function


def take_helpers() -> list[tuple[Callable[..., Any], bool]]:
    """Functions that were declared since the last call, each with whether it is inlined."""
    taken = _helpers.copy()
    _helpers.clear()
    return taken


@cache
def sources(module: str) -> dict[str, str]:
    """Source text, by module, of all that code compiled from ``module`` may depend on: what it imports."""
    found: dict[str, str] = {}
    wanted = {module, *_ALWAYS}
    while wanted:
        name = wanted.pop()
        found[name] = _source(name)
        for package, names in _IMPORTS.findall(found[name]):
            imported = [package] if package else [name.split()[0] for name in names.split(",")]
            wanted |= {_PACKAGE + part for part in imported} - found.keys()
    return found


def _source(module: str) -> str:
    """Also of a module in a zip archive."""
    loader = getattr(find_spec(module), "loader", None)
    return (loader.get_source(module) if loader else None) or ""


@cache
def _key(module: str) -> str:
    digest = hashlib.sha256(objects.environment_digest().encode())
    for name, source in sorted(sources(module).items()):
        digest.update(f"{name}\0{source}\0".encode())
    return digest.hexdigest()
