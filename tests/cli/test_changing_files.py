"""A segment that changes while it is read: damage with a position, or the answer for one of both; never a signal."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from coordinator_core import storage
from coordinator_core.log import windows
from coordinator_core.log.types import Codec
from tests.cli.test_damaged_input import outcome, write_segment
from tests.log.builders import build_batch
from tests.replay.histories import OffsetKey, encoded_key, offset_value

NAME = "00000000000000000000.log"


@cache
def batches(first: int, count: int, committed: int, codec: Codec = Codec.NONE) -> bytes:
    return b"".join(
        build_batch(
            base,
            [(encoded_key(OffsetKey("g", "t", number)), offset_value(committed + base)) for number in range(10)],
            codec=codec,
        )
        for base in range(first, first + 10 * count, 10)
    )


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 3)


def rewritten(path: Path) -> None:
    path.write_bytes(batches(0, 200, 7))


def cleaned(path: Path) -> None:
    swap = path.with_suffix(".swap")
    swap.write_bytes(batches(0, 200, 7)[-2000:])
    swap.replace(path)


def one_byte(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-20, os.SEEK_END)
        file.write(b"\xff")


def gone(path: Path) -> None:
    path.unlink()


def grown(path: Path) -> None:
    with path.open("ab") as file:
        file.write(batches(2000, 3, 1))


def change_after(
    monkeypatch: pytest.MonkeyPatch, path: Path, change: Callable[[Path], None], reads: int
) -> Callable[[], bool]:
    """Have ``path`` changed once it was read so often; returns whether that was done."""
    real, done = storage.LocalFile.read_into, 0

    def read_into(self: storage.LocalFile, out: memoryview, position: int) -> int:
        nonlocal done
        count = real(self, out, position)
        if self.version.inode == inode:
            done += 1
            if done == reads:
                change(path)
        return count

    inode = path.stat().st_ino
    monkeypatch.setattr(storage.LocalFile, "read_into", read_into)
    monkeypatch.setattr(windows, "_WINDOW", 4096)
    monkeypatch.setattr(windows, "_FEW", 1024)
    return lambda: done >= reads


@pytest.mark.parametrize("codec", [Codec.NONE, pytest.param(Codec.LZ4, marks=pytest.mark.full)])
@pytest.mark.parametrize("change", [cut, rewritten, cleaned, one_byte, gone, grown])
@pytest.mark.parametrize(
    "command",
    [
        "describe",
        "describe --salvage",
        "describe --partial",
        "stats",
        "verify",
        "dump",
        "compact",
        "expire",
        "history",
        "investigate --group g",
    ],
)
def test_a_segment_changes_while_it_is_read(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    command: str,
    change: Callable[[Path], None],
    codec: Codec,
) -> None:
    data = batches(0, 200, 1, codec)
    write_segment(tmp_path, data)
    path = tmp_path / "__consumer_offsets-0" / NAME
    whole = []
    for reads in (-1, 0, 1, 2, 3, 5, 9):
        path.write_bytes(data)
        if reads == 0:
            change(path)
        words = [*command.split(), str(tmp_path), "--kafka-version", "4.3.1", "--now-ms", "1700000000000"]
        if command in ("verify", "dump"):
            words = [*command.split(), str(tmp_path)]
        if command in ("compact", "history"):
            words += ["--output", str(tmp_path / f"out{reads}")]
        with pytest.MonkeyPatch.context() as monkeypatch:
            was_done = change_after(monkeypatch, path, change, reads) if reads > 0 else None
            code, out, err = outcome(words, capfd)
        out = out.replace(f"out{reads}", "out")
        if was_done is None:
            assert code in (0, 2, 3), err
            whole.append((code, out))
        elif not was_done():
            break
        elif (code, out) not in whole:
            assert code == (2 if "cannot be read" in err else 3), err
            assert "cannot be read" in err or re.search(r"\.log: byte \d+", err), err
            assert "Traceback" not in err
            assert not (tmp_path / f"out{reads}").exists()
