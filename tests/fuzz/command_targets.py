"""Commands on a hostile log: documented exit codes, and one answer on whether the log is sound."""

from __future__ import annotations

import io
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from random import Random

from coordinator_core.cli.app import run
from tests.fuzz.checks import WrongResultError, base_offset

_NOW = ["--now-ms", "1700000000000"]
_RELEASES = ("4.3.1", "3.9.2", "2.4.1", "0.11.0.3")
_ANSWERS = {"sound": {0, 1}, "damaged": {3}, "refused": {2}}
"""1: no coordinator of that release loads or sweeps the partition. 2: the segment's name is no record offset."""


def commands(data: bytes, choices: Random) -> str:
    """``replay``, ``stats``, ``compact``, ``expire``, ``dump`` and ``verify`` of one segment."""
    release = ["--kafka-version", choices.choice(_RELEASES)]
    with tempfile.TemporaryDirectory() as place:
        partition = Path(place, "log/__consumer_offsets-0")
        partition.mkdir(parents=True)
        (partition / f"{base_offset(data, choices):020d}.log").write_bytes(data)
        log = str(partition.parent)
        output = ["--output", str(Path(place, "out"))]
        codes = {
            "replay": _code("replay", log, *output, "--cluster", "c", "--run-id", "r", *release, *_NOW),
            "stats": _code("stats", log, *release, *_NOW),
            "compact": _code("compact", log, "--output", str(Path(place, "compacted")), *release, *_NOW),
            "expire": _code("expire", log, *release, *_NOW),
            "dump": _code("dump", log),
            "verify": _code("verify", log),
        }
    for word, agreed in _ANSWERS.items():
        if set(codes.values()) <= agreed:
            return word
    raise WrongResultError(f"exit codes {codes}")


def _code(*words: str) -> int:
    # What is printed goes through ``sys.stdout.buffer`` as well.
    with redirect_stdout(io.TextIOWrapper(io.BytesIO())), redirect_stderr(io.StringIO()):
        return int(run(list(words)))
