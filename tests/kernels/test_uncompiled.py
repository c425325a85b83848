"""Names that the kernels use as the Python that they are written in: a missing one shows when its line runs."""

from __future__ import annotations

import builtins
import dis
import importlib
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from types import CodeType

import pytest

import coordinator_core.kernels

KERNELS = Path(coordinator_core.kernels.__file__).parent
COMPILED = (KERNELS / "compiled.pyx").read_text()
EXTERN = COMPILED[COMPILED.index('extern from "native.h"') : COMPILED.index("\n\ncrc32c_init")]
NATIVE = set(re.findall(r"(\w+)\(", EXTERN))
"""C functions, which only branches on ``cython.compiled`` call."""


def missing_names(code: CodeType, known: Collection[str]) -> Iterator[str]:
    """Global names in the code, and in functions and classes in it, that are not ``known``."""
    own = {each.argval for each in dis.get_instructions(code) if each.opname == "STORE_NAME"}
    for each in dis.get_instructions(code):
        if each.opname in ("LOAD_GLOBAL", "LOAD_NAME") and each.argval not in {*known, *own}:
            yield each.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from missing_names(constant, known)


@pytest.mark.parametrize("name", re.findall(r'include "(\w+)\.pxi"', COMPILED.replace('"layout.pxi"', "")))
def test_a_kernel_module_has_all_names_that_it_uses(name: str) -> None:
    module = importlib.import_module(f"coordinator_core.kernels.{name}")
    code = compile((KERNELS / f"{name}.py").read_text(), name, "exec")
    assert not set(missing_names(code, {*vars(module), *vars(builtins), *NATIVE}))


def test_a_missing_name_is_found() -> None:
    code = compile("class Table:\n    rows = 1\n    def used(self, other):\n        return rows + other", "", "exec")
    assert set(missing_names(code, vars(builtins))) == {"rows"}
