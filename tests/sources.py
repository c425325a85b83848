"""Sources of the project, each parsed once in a process: what they import."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path


def import_statements(source: str) -> Iterator[ast.Import | ast.ImportFrom]:
    """All of them, within functions and under ``if`` too. Expressions hold none, and are not looked at."""
    nodes: list[ast.AST] = [ast.parse(source)]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif not isinstance(node, ast.expr):
            nodes += ast.iter_child_nodes(node)


@cache
def imports_of(path: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """Import statements of a file that no test changes."""
    return tuple(import_statements(path.read_text(encoding="utf-8")))
