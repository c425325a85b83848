"""Replays of generated logs in a process of their own, whose memory is limited and measured."""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.generator import Truth
from tests.bench.truth import check_truth
from tests.launched import Launched, launched

SCALE = int(os.environ.get("REGROUP_SCALE", "1"))
"""The sizes of the tests are so many times larger; 7 makes ten million live offset keys."""

MIB = 1 << 20


@dataclass(frozen=True)
class Replayed:
    """A published run, its summary, and of the process that made it the largest resident set and the CPU seconds."""

    run: Path
    summary: dict[str, Any]
    peak_bytes: int
    cpu_seconds: float


def replay(log: Path, output: Path, *, data_bytes: int | None = None, engine: str = "local") -> Replayed:
    """``regroup replay`` of ``log`` into ``output``.

    With ``data_bytes`` the process is refused more memory of its own (heap, stacks; not mapped files).
    """
    arguments = ["replay", str(log), "--output", str(output), "--cluster", "scale", "--kafka-version", "4.3.1"]
    done = measured([*arguments, "--engine", engine, "--no-fold-cache"], data_bytes=data_bytes)
    summary = json.loads(done.stdout)
    return Replayed(Path(summary["run"]), summary, done.peak_bytes, done.cpu_seconds)


def measured(arguments: Sequence[str], *, data_bytes: int | None = None) -> Launched:
    """``regroup`` with these arguments and ``--format json``; ``data_bytes`` is that of :func:`replay`."""
    # Other allocators take address space ahead of need, which the limit counts.
    environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2"}
    command = [sys.executable, "-m", "coordinator_core", *arguments]

    def limit() -> None:
        if data_bytes is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (data_bytes, data_bytes))

    done = launched(
        [*command, "--format", "json"], env=environment if data_bytes is not None else None, preexec_fn=limit
    )
    assert done.code == 0, done.stdout + done.stderr
    return done


def replay_and_check(log: Path, truths: Sequence[Truth], output: Path, *, data_bytes: int | None = None) -> Replayed:
    """:func:`replay`, and that the run holds what was generated."""
    replayed = replay(log, output, data_bytes=data_bytes)
    check_truth(replayed.run, truths)
    assert replayed.summary["rows"]["offsets"] == sum(truth.live_offset_keys for truth in truths)
    return replayed
