"""Builds the kernels: one extension module of the sources in ``coordinator_core/kernels``.

``REGROUP_CHECKED_KERNELS=1`` builds them with bounds checks and the sanitizers of the C compiler, into
``build/checked``, beside the ordinary ones (``make check-kernels``). Where no C compiler finds ``Python.h``,
the package is installed all the same, and runs the same sources uncompiled. An error in a kernel is an error.
"""

from __future__ import annotations

import os
import re
import runpy
import sys
from enum import IntEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

ROOT = Path(__file__).parent
KERNELS = ROOT / "coordinator_core" / "kernels"
MADE = ROOT / "build" / "kernels"
"""Files made of the sources for Cython and the C compiler."""

LAYOUTS = (ROOT / "coordinator_core" / "log" / "layout.py", KERNELS / "layout.py")

C_TYPES = {"i64": "long long", "i32": "int", "i16": "short", "i8": "signed char", "u8": "unsigned char"}

CHECKED = bool(os.environ.get("REGROUP_CHECKED_KERNELS"))
CHECKED_BUILD = "build/checked"
# Symbols stay for profilers. Debugging information, which Python's own flags ask for, takes a third of the time.
OPTIMIZED = ["-O3", "-fwrapv", "-g0"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
SANITIZED = ["-O1", "-g", "-fwrapv", "-fno-omit-frame-pointer", *SANITIZERS]


def write_layout() -> None:
    """Write ``layout.h`` and ``layout.pxi``: the declarations of the layout modules, for C and for Cython.

    An enumeration becomes a constant struct, so that equal names of two enumerations stay apart.
    """
    c = ["/* Made by setup.py. */", "#ifndef REGROUP_LAYOUT_H", "#define REGROUP_LAYOUT_H"]
    declared = ["# Made by setup.py.", 'cdef extern from "layout.h" nogil:']
    vectors = []
    for path in LAYOUTS:
        for name, value in runpy.run_path(str(path)).items():
            if isinstance(value, int) and name.isupper():
                fits = value < 1 << 63
                word, suffix = ("long long", "LL") if fits else ("unsigned long long", "ULL")
                c.append(f"static const {word} {name} = {value}{suffix};")
                declared.append(f"    const {'Int' if fits else 'Word'} {name}")
            elif isinstance(value, type) and issubclass(value, IntEnum) and value is not IntEnum:
                names = ", ".join(member.name for member in value)
                values = ", ".join(str(int(member)) for member in value)
                c.append(f"static const struct {name}_values {{ long long {names}; }} {name} =")
                c.append(f"    {{ {values} }};")
                declared.append(f"    struct {name}_values:")
                declared.append(f"        Int {names}")
                declared.append(f"    const {name}_values {name}")
            elif isinstance(value, type) and value.__mro__[1].__name__ == "Struct":
                fields = value.__annotations__
                c.append("typedef struct {")
                declared.append(f"    ctypedef struct {name}:")
                for field, kind in fields.items():
                    c.append(f"    {C_TYPES[kind]} {field};")
                    declared.append(f"        {C_TYPES[kind]} {field}")
                c.append(f"}} {name};")
                vectors.append(f"ctypedef {name}[::1] {name}Rows")
    c.append("#endif")
    _write(MADE / "layout.h", "\n".join(c) + "\n")
    _write(MADE / "layout.pxi", "\n".join([*declared, *vectors]) + "\n")


def write_sources() -> None:
    """Write a copy of each kernel module in which every C function is ``nogil``, too, unless it is for Python's objects
    (``@cython.returns``).

    Cython wants a decorator for that at each of them. It takes the place of the empty line above the function,
    so that a line has the same number in the copy.
    """
    for path in KERNELS.glob("*.py"):
        c_functions = re.compile(r"^( *)(?=@cython\.(cfunc|ccall)\n(?! *@cython\.returns))", re.MULTILINE)
        text = c_functions.sub(r"\1@cython.nogil\n\1@cython.inline\n\1", path.read_text())
        _write(MADE / f"{path.stem}.pxi", text)


def _write(path: Path, text: str) -> None:
    """Leave a file with this text alone, so that nothing is compiled again for it."""
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def extensions() -> list[Extension]:
    """The kernels, as C source."""
    write_sources()
    write_layout()
    made = [*sorted(MADE.glob("*.pxi")), MADE / "layout.h", KERNELS / "native.h"]
    kernels = Extension(
        "coordinator_core.kernels.compiled",
        ["coordinator_core/kernels/compiled.pyx"],
        depends=[str(path) for path in made],
        extra_compile_args=SANITIZED if CHECKED else OPTIMIZED,
        extra_link_args=SANITIZERS if CHECKED else [],
        include_dirs=[str(KERNELS), str(MADE)],
    )
    options = {
        # Here and not in compiled.pyx, which would win. A bounds error must pass through every function.
        "compiler_directives": {
            "boundscheck": CHECKED,
            "legacy_implicit_noexcept": not CHECKED,
            "show_performance_hints": not CHECKED,
        },
        "include_path": [str(MADE)],
        "build_dir": CHECKED_BUILD if CHECKED else None,
    }
    return list(cythonize([kernels], show_all_warnings=False, **options))


class BuildKernels(build_ext):
    """Compiles the kernels, or says that nothing can be compiled here."""

    def build_extensions(self) -> None:
        if not self._can_compile():
            print("regroup: no C compiler finds Python.h; kernels will run uncompiled", file=sys.stderr)
            self.extensions = []
        super().build_extensions()

    def _can_compile(self) -> bool:
        with TemporaryDirectory() as directory:
            probe = Path(directory, "probe.c")
            probe.write_text("#include <Python.h>\n")
            try:
                self.compiler.compile([str(probe)], output_dir=directory)
            except CompileError:
                return False
        return True


OPTIONS: dict[str, Any] = {"build_ext": {"build_lib": CHECKED_BUILD, "build_temp": CHECKED_BUILD}}

setup(ext_modules=extensions(), cmdclass={"build_ext": BuildKernels}, options=OPTIONS if CHECKED else {})
