"""A copy of the tree to change, and the ``diff`` blocks of CONTRIBUTING.md, applied to it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DATA = ("corpus", "traces")


def copied_tree(target: Path) -> Path:
    """The core and the tests without kernels; logs and traces, which nobody changes, are links."""
    left_out = shutil.ignore_patterns("*.so", *DATA)
    for name in ("coordinator_core", "tests"):
        shutil.copytree(ROOT / name, target / name, ignore=left_out)
    for name in DATA:
        (target / "tests" / name).symlink_to(ROOT / "tests" / name)
    for name in ("docs", "pyproject.toml"):
        (target / name).symlink_to(ROOT / name)
    return target


def section(title: str) -> str:
    """The text of a section of CONTRIBUTING.md."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (found,) = re.findall(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    return str(found)


def apply_blocks(tree: Path, title: str) -> None:
    """Apply each ``diff`` block of the section: a path, then lines that begin with a space, ``+`` or ``-``.

    The lines without ``+`` must stand in the file exactly once. A block of new lines only makes a new file.
    """
    blocks = re.findall(r"^( *)```diff\n(.*?)^ *```", section(title), re.DOTALL | re.MULTILINE)
    assert blocks, title
    for indent, block in blocks:
        path, *lines = _without(indent, block).splitlines()
        before = "".join(line[1:] + "\n" for line in lines if not line.startswith("+"))
        after = "".join(line[1:] + "\n" for line in lines if not line.startswith("-"))
        file = tree / path
        if before:
            text = file.read_text(encoding="utf-8")
            assert text.count(before) == 1, f"{text.count(before)} times in {path}:\n{before}"
            file.write_text(text.replace(before, after), encoding="utf-8")
        else:
            assert not file.exists(), path
            file.write_text(after, encoding="utf-8")


def _without(indent: str, block: str) -> str:
    return "".join(line.removeprefix(indent) for line in block.splitlines(keepends=True))


def python(tree: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python on the copy, with kernels that are not compiled: they are those of the copy."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), "REGROUP_UNCOMPILED_KERNELS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
