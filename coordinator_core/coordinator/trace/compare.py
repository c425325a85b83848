"""Compares the model's replies and records with the broker's, which a recording holds."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from coordinator_core.coordinator.trace.play import Played
from coordinator_core.coordinator.trace.read import Line, Trace
from coordinator_core.coordinator.trace.variables import natural_key
from coordinator_core.durations import numbered

Json = dict[str, Any]

TOLERANCE_MS = 250
"""Brokers are a little late; deadlines in the traces are kept farther than this from other requests."""
_NOT_COMPARED = frozenset({"errorMessage", "finalizedFeaturesEpoch"})
"""Texts, and a count of all changes of a cluster's metadata."""
_MISSING = object()


@dataclass(frozen=True, slots=True)
class Difference:
    """One field in which the model and the recording differ."""

    path: str
    line: int
    field: str
    expected: str
    got: str

    def __str__(self) -> str:
        return f"{self.path}: line {self.line}: {self.field}: expected {self.expected}, got {self.got}"


def differences(trace: Trace, played: Played, tolerance_ms: int = TOLERANCE_MS) -> Iterator[Difference]:
    """All differences: answers, then records.

    A field marked nondeterministic differed between two recordings, by chance that the field ``given`` tells: it is
    compared where the trace has that field, and passed over where it has not.
    """
    yield from _replies(trace, played, tolerance_ms)
    yield from _records(trace, played, tolerance_ms)


def _replies(trace: Trace, played: Played, tolerance_ms: int) -> Iterator[Difference]:
    got = {reply.request: reply for reply in played.replies}
    sent = {line.fields["send"]: line for line in trace.of_kind("send")}
    lost = {request: line.t for line in trace.of_kind("closed") for request in line.fields["lost"]}
    answered = set()
    for line in trace.of_kind("reply"):
        number = line.fields["reply"]
        answered.add(number)
        reply = got.get(number)
        what = f"reply {number}"
        if reply is None:
            yield Difference(trace.path, line.number, what, _text(line.fields["body"]), "no answer")
            continue
        ignored = _ignored(trace, line)
        for path, expected, actual in _unequal(line.fields["body"], reply.body, "body", ignored, tolerance_ms):
            yield Difference(trace.path, line.number, f"{what} {path}", _text(expected), _text(actual))
        if abs(reply.t - line.t) > tolerance_ms and not ignored:
            yield Difference(trace.path, line.number, f"{what} t", f"{line.t} ms", f"{reply.t} ms")
    for number, reply in got.items():
        # An answer on its way when the connection was closed may have been lost with it.
        if number not in answered and reply.t < lost.get(number, math.inf) - tolerance_ms:
            yield Difference(trace.path, sent[number].number, f"reply {number}", "no answer", _text(reply.body))


def _records(trace: Trace, played: Played, tolerance_ms: int) -> Iterator[Difference]:
    got = {line["partition"]: line["records"] for line in played.records}
    for line in trace.of_kind("records"):
        partition = line.fields["partition"]
        expected = _removals_by_member(line.fields["records"])
        actual = _removals_by_member(got.get(partition, []))
        ignored = _ignored(trace, line)
        for path, one, other in _unequal(expected, actual, "records", ignored, tolerance_ms):
            what = f"partition {partition} {path}"
            yield Difference(trace.path, line.number, what, _text(one), _text(other))
    recorded = {line.fields["partition"] for line in trace.of_kind("records")}
    for partition, records in got.items():
        if records and partition not in recorded:
            yield Difference(trace.path, 1, f"partition {partition}", "no records", numbered(len(records), "record"))


def _removals_by_member(records: list[Json]) -> list[Json]:
    """The records with members that one LeaveGroup removes from a consumer group sorted by their id.

    A broker keeps them in a set. Their hash codes contain that of an enum constant, which each start changes.
    """
    found: list[Json] = []
    run: list[list[Json]] = []
    position = 0
    while position < len(records):
        removal = records[position : position + 3]
        if _is_removal(removal) and (not run or run[0][0]["t"] == removal[0]["t"]):
            run.append(removal)
            position += 3
            continue
        found += _flushed(run)
        if not _is_removal(removal):
            found.append(records[position])
            position += 1
    return found + _flushed(run)


def _is_removal(records: list[Json]) -> bool:
    """Tombstones of current assignment, target assignment and member of one member."""
    if [record.get("key", {}).get("type") for record in records] != [8, 7, 5]:
        return False
    members = {record["key"]["data"].get("memberId") for record in records}
    return len(members - {None}) == len(members) == 1 and all(record.get("value", 0) is None for record in records)


def _flushed(run: list[list[Json]]) -> list[Json]:
    ordered = sorted(run, key=lambda removal: natural_key(removal[0]["key"]["data"]["memberId"]))
    run.clear()
    return [record for removal in ordered for record in removal]


def _ignored(trace: Trace, line: Line) -> frozenset[str]:
    """Paths as a trace marks them; ``[len 1/2]`` at the end means the list as a whole."""
    paths = line.fields.get("nondeterministic", ()) if trace.given is None else ()
    return frozenset(re.sub(r"\[len [^\]]*\]$", "", path) for path in paths)


def _unequal(
    expected: Any, got: Any, path: str, ignored: frozenset[str], tolerance_ms: int
) -> Iterator[tuple[str, Any, Any]]:
    name = path.rpartition(".")[2]
    if path in ignored or name in _NOT_COMPARED:
        return
    if isinstance(expected, dict) and isinstance(got, dict):
        for key in dict.fromkeys([*expected, *got]):
            yield from _unequal(
                expected.get(key, _MISSING), got.get(key, _MISSING), f"{path}.{key}", ignored, tolerance_ms
            )
    elif isinstance(expected, list) and isinstance(got, list):
        for index in range(max(len(expected), len(got))):
            yield from _unequal(
                expected[index] if index < len(expected) else _MISSING,
                got[index] if index < len(got) else _MISSING,
                f"{path}[{index}]",
                ignored,
                tolerance_ms,
            )
    elif name == "t" and isinstance(expected, int | float) and isinstance(got, int | float):
        if abs(expected - got) > tolerance_ms:
            yield path, expected, got
    elif expected != got or type(expected) is not type(got):
        yield path, expected, got


def _text(value: Any) -> str:
    return "nothing" if value is _MISSING else json.dumps(value, ensure_ascii=False)
