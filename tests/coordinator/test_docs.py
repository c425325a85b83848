"""The table of ``docs/coordinator.md`` names code and tests that exist."""

from __future__ import annotations

import importlib
import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
ROWS = re.findall(
    r"^\| ([A-E]\d) \| [^|]+ \| ([^|]+) \| `(test_\w+_)…` \|$",
    (ROOT / "docs" / "coordinator.md").read_text(encoding="utf-8"),
    re.M,
)
TESTS = re.findall(
    r"^def (test_\w+)",
    "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_rows_*.py")),
    re.M,
)


def test_every_system_has_a_row() -> None:
    systems = {"A": 7, "B": 5, "C": 6, "D": 3, "E": 3}
    expected = [f"{letter}{number}" for letter, count in systems.items() for number in range(1, count + 1)]
    assert [row for row, _, _ in ROWS] == expected


@pytest.mark.parametrize(("row", "code", "prefix"), ROWS, ids=[row for row, _, _ in ROWS])
def test_a_row_names_code_and_tests_that_exist(row: str, code: str, prefix: str) -> None:
    assert prefix == f"test_{row.lower()}_"
    assert any(name.startswith(prefix) for name in TESTS)
    for part in code.split("; "):
        file, *names = re.findall(r"`([^`]+)`", part)
        path = os.path.normpath(f"coordinator_core/coordinator/{file}")
        module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
        owner = None
        for name in names:
            head, _, attribute = name.partition(".")
            if attribute:
                owner = getattr(module, head)
                assert hasattr(owner, attribute), name
            else:
                assert hasattr(module, head) or (owner is not None and hasattr(owner, head)), name


def test_every_row_test_belongs_to_a_row() -> None:
    prefixes = tuple(prefix for _, _, prefix in ROWS)
    assert [name for name in TESTS if not name.startswith(prefixes)] == []
