"""Places of the product that open a file for writing, found in its source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from tests.test_project import CODE, ROOT, tracked

_CALLS = {
    *("write_text", "write_bytes", "write_atomic", "new_directory", "mkstemp", "mkdtemp", "NamedTemporaryFile"),
    *("truncate", "ftruncate", "open_output_stream", "output_file", "OSFile", "FileOutputStream", "ParquetWriter"),
    "ParquetOutput",
}
_NAMED = re.compile(r"\btests/[\w/]+\.py(?:::\w+)?")


@cache
def writers() -> set[str]:
    """``file:Class.function`` of each, below the root of the project."""
    products = tuple(f"{name}/" for name in CODE if name != "tests")
    files = [name for name in tracked() if name.startswith(products) and name.endswith(".py")]
    trees = {name: ast.parse((ROOT / name).read_text("utf-8")) for name in files}
    return {f"{name}:{where}" for name, tree in trees.items() for where in _places(tree, "<module>")}


def _places(node: ast.AST, where: str) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        inside = where
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inside = child.name if where == "<module>" else f"{where}.{child.name}"
        elif isinstance(child, ast.Call) and _writes(child):
            yield where
        yield from _places(child, inside)


def _writes(call: ast.Call) -> bool:
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    if name == "open":
        text = ast.unparse(call)
        words = [str(each.value) for each in ast.walk(call) if isinstance(each, ast.Constant)]
        modes = any(set(word) <= set("rwaxbt+") and set(word) & set("wax+") for word in words)
        return modes or any(flag in text for flag in ("O_WRONLY", "O_RDWR", "O_CREAT"))
    return name in _CALLS or (name.startswith("copy") and ast.unparse(call.func).startswith("shutil.copy"))


def missing_tests(text: str) -> list[str]:
    """Tests that ``text`` names (``tests/….py::test_…``) and that do not exist."""
    return [name for name in _NAMED.findall(text) if not _exists(name)]


def _exists(name: str) -> bool:
    path, _, function = name.partition("::")
    return (ROOT / path).is_file() and (not function or f"def {function}(" in (ROOT / path).read_text("utf-8"))
