"""Recordings in which something is not as it was: played or refused with a reason, and the same way each time."""

from __future__ import annotations

import io
import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from coordinator_core.cli.app import run as regroup
from tests.fuzz.checks import WrongResultError
from tests.fuzz.file_targets import places, with_others
from tests.fuzz.hostile import Hostile, changed

_TRACES = Path(__file__).parent.parent / "traces"
_MOST_BYTES = 12_000
"""Of small recordings each place is reached sooner."""
_MOST_TIMERS, _MOST_PARTITIONS = 1_000, 200
"""Smaller limits than those of a user, so that inputs meet them and end soon."""
_WORDS = (("--check",), ("--check",), (), ("--write-given",), ("--check", "--time-tolerance-ms", "0"))
_TEXTS = (
    "0",
    "1",
    "-1",
    "5",
    "200",
    "2147483647",
    "2147483648",
    str(1 << 63),
    "1.5",
    "x",
    "",
    "$m1",
    "$p1",
    "$topic:t1",
)


@cache
def _recordings() -> tuple[bytes, ...]:
    paths = sorted(path for path in _TRACES.rglob("*.jsonl") if path.stat().st_size < _MOST_BYTES)
    return tuple(path.read_bytes() for path in paths)


def make_trace(hostile: Hostile) -> bytes:
    return hostile.pick(_recordings())


def vary_trace(hostile: Hostile, data: bytes) -> bytes:
    """The trace with lines that are others, come again, are gone or stand elsewhere."""
    lines = data.splitlines()
    for _ in range(hostile.pick((1, 1, 1, 2, 4))):
        at = hostile.random.randrange(len(lines)) if lines else 0
        match hostile.random.randrange(12) if lines else 0:
            case 0:
                lines.insert(at, hostile.pick(hostile.pick(_recordings()).splitlines()))
            case 1:
                lines.insert(hostile.random.randrange(len(lines)), lines[at])
            case 2:
                del lines[at]
            case 3:
                lines.insert(hostile.random.randrange(len(lines)), lines.pop(at))
            case 4:
                lines[at] = changed(lines[at], hostile.random)
            case 5:
                lines[0] = _other(lines[0], _with_another_head, hostile)
            case 6 | 7:
                lines[at] = _other(lines[at], lambda document, _: with_others(document, hostile.random), hostile)
            case _:
                lines[at] = _other(lines[at], partial(_with_like_values, hostile.pick(lines)), hostile)
    return b"\n".join(lines)


def _other(line: bytes, change: Any, hostile: Hostile) -> bytes:
    try:
        document = json.loads(line)
    except ValueError:
        return line
    if not isinstance(document, dict) or not document:
        return line
    return json.dumps(change(document, hostile)).encode()


def _with_another_head(document: Any, hostile: Hostile) -> Any:
    """Another setting, or none of what the field ``given`` gives."""
    settings = document.get("settings")
    if not isinstance(settings, dict) or not settings or hostile.chance(0.2):
        return {name: value for name, value in document.items() if name != "given"}
    settings[hostile.pick(sorted(settings))] = hostile.pick(_TEXTS)
    return document


def _with_like_values(other: bytes, document: Any, hostile: Hostile) -> Any:
    """Numbers, and texts of this or another line: values that have the type which the model expects."""
    found = [(holder, key) for holder, key in places(document) if isinstance(holder[key], str | int | float)]
    if not found:
        return document
    texts = [text.decode(errors="replace") for text in re.findall(rb'"([^"\\]+)"', other)]
    for _ in range(hostile.pick((1, 1, 3))):
        holder, key = hostile.pick(found)
        value = holder[key]
        if isinstance(value, bool):
            holder[key] = not value
        elif isinstance(value, str):
            holder[key] = hostile.pick([*texts, *_TEXTS])
        else:
            holder[key] = hostile.pick((0, 1, -1, value + 1, 5, 60_000, 0x7FFF, (1 << 31) - 1, -(1 << 31), 10**11))
    return document


def traces(data: bytes, choices: Random) -> str:
    """``simulate`` ends with a documented exit code and at most one error, twice the same way, and soon."""
    words = choices.choice(_WORDS)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "trace.jsonl")
        with _small_limits():
            first, second = (_outcome(path, data, words) for _ in range(2))
    code, _, said = first
    is_error = said.startswith("regroup: error: ") and said.count("\n") == 1
    if code not in (0, 1, 2, 3) or is_error != (code > 1):
        raise WrongResultError(f"simulate {' '.join(words)} ends with {code}:\n{said}")
    if first != second:
        raise WrongResultError(f"simulate {' '.join(words)} has two answers:\n  {first}\n  {second}")
    return str(code)


@contextmanager
def _small_limits() -> Iterator[None]:
    play, read = (import_module(f"coordinator_core.coordinator.trace.{name}") for name in ("play", "read"))
    metadata = import_module("coordinator_core.coordinator.metadata")
    with (
        patch.object(play, "MOST_TIMERS", _MOST_TIMERS),
        patch.object(read, "MOST_PARTITIONS", _MOST_PARTITIONS),
        patch.object(metadata, "MOST_PARTITIONS", _MOST_PARTITIONS),
    ):
        yield


def _outcome(path: Path, data: bytes, words: tuple[str, ...]) -> tuple[int, bytes, str]:
    """Exit code, output (of ``--write-given`` the file), and what was said."""
    path.write_bytes(data)
    out, error = io.BytesIO(), io.StringIO()
    with redirect_stdout(io.TextIOWrapper(out, write_through=True)) as text, redirect_stderr(error):
        code = int(regroup(["simulate", *words, str(path)]))
        text.detach()
    return code, path.read_bytes() if "--write-given" in words else out.getvalue(), error.getvalue()
