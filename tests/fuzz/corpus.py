"""Inputs that found something, as files: the seed of the target's choices, then the bytes.

A file is named ``<target>.<what it is>``; tests give each to every target.
"""

from __future__ import annotations

from pathlib import Path

from tests.fuzz.campaign import Input

DIRECTORY = Path(__file__).parent / "corpus"
_SEED_BYTES = 16


def write(directory: Path, name: str, given: Input) -> Path:
    path = directory / name
    path.write_bytes(given.seed.to_bytes(_SEED_BYTES, "big") + given.data)
    return path


def read(path: Path) -> Input:
    data = path.read_bytes()
    return Input(data[_SEED_BYTES:], int.from_bytes(data[:_SEED_BYTES], "big"))


def files() -> list[Path]:
    return sorted(DIRECTORY.iterdir())
