"""The recorded traces: see ``tests/traces/README.md``."""

from __future__ import annotations

from pathlib import Path

DIRECTORY = Path(__file__).parent.parent / "traces"
TRACES = sorted(DIRECTORY.rglob("*.jsonl"))


def name(path: Path) -> str:
    return str(path.relative_to(DIRECTORY).with_suffix(""))


def trace(name_: str) -> Path:
    return DIRECTORY / f"{name_}.jsonl"
