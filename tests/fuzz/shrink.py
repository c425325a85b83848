"""Smaller inputs that find the same: ``python -m tests.fuzz.shrink TARGET FILE…`` writes them in place."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz import corpus
from tests.fuzz.campaign import Input, failure_of
from tests.fuzz.segments import entries_of, resealed


def shrunk(target: str, given: Input) -> Input:
    """An input that fails at the same place, from which nothing more can be left out.

    Only for what is an exception: a process that dies takes the search with it.
    """
    place = _place(target, given)
    if place is None:
        raise ValueError("the input finds nothing")
    smaller: Input | None = given
    while smaller is not None:
        given = smaller
        tries = (Input(data, given.seed) for data in _smaller(given.data))
        smaller = next((each for each in tries if _place(target, each) == place), None)
    return given


def _place(target: str, given: Input) -> str | None:
    report = failure_of(target, given)[1]
    return None if report is None else report.partition(":")[0]


def _smaller(data: bytes) -> Iterator[bytes]:
    """Without an entry, without some bytes of an entry that is sealed again, without some bytes at all."""
    entries = list(entries_of(data))
    for at in range(len(entries)):
        yield b"".join(entries[:at] + entries[at + 1 :])
    for at, entry in enumerate(entries):
        for shorter in _cut(entry, 21):
            yield b"".join([*entries[:at], resealed(shorter), *entries[at + 1 :]])
    yield from _cut(data, 0)


def _cut(data: bytes, start: int) -> Iterator[bytes]:
    step = len(data)
    while step:
        for at in range(start, len(data), step):
            yield data[:at] + data[at + step :]
        step //= 2


if __name__ == "__main__":
    for name in sys.argv[2:]:
        path = Path(name)
        smallest = shrunk(sys.argv[1], corpus.read(path))
        corpus.write(path.parent, path.name, smallest)
        print(f"{path}: {len(smallest.data)} bytes")
