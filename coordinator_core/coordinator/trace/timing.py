"""Moments of a recording that no request causes: sweeps, clean-ups of transactions, loads.

Their phase is the broker's, not the model's: they are read off the recording, and in its absence assumed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from coordinator_core.coordinator.trace.read import Line, Trace

Json = dict[str, Any]

CAUSE_MS = 120
"""A record this soon after a request that can cause it is taken to be caused by it."""
LOAD_IN_PROGRESS, NOT_COORDINATOR = 14, 16
_REMOVING = frozenset({"DeleteGroups", "OffsetDelete", "DeleteTopics", "JoinGroup", "ConsumerGroupHeartbeat"})
_ENDING = frozenset({"EndTxn", "InitProducerId"})
_SILENT = frozenset({"Heartbeat", "FindCoordinator", "ListGroups"})
"""APIs that answer without an error while a partition is not there or is loading."""
_INVALID_SESSION_TIMEOUT = 26
SCALA_HEAD_START_MS = 1_000
"""How long before it takes requests a Scala coordinator has loaded after a start."""


@dataclass(frozen=True, slots=True)
class Load:
    """When a load began and ended, milliseconds since the first request."""

    begin_t: float
    end_t: float


def sweep_phase(trace: Trace) -> int | None:
    """The time of a tombstone that no request caused."""
    return _uncaused(trace, _REMOVING, _is_group_tombstone)


def _is_group_tombstone(record: Json) -> bool:
    """Of an offset or a group; those of members come with members that leave."""
    return record.get("value", 0) is None and record["key"]["type"] in (1, 2, 3)


def transaction_cleanup_phase(trace: Trace) -> int | None:
    """The time of an ABORT that no request caused."""
    return _uncaused(trace, _ENDING, lambda record: record.get("control") == "ABORT")


def _uncaused(trace: Trace, causes: frozenset[str], wanted: Any) -> int | None:
    sent = [line.t for line in trace.of_kind("send") if line.fields["api"] in causes]
    for line in trace.of_kind("records"):
        for record in line.fields["records"]:
            if wanted(record) and not any(0 <= record["t"] + 1 - t <= CAUSE_MS for t in sent):
                t: int = record["t"]
                return t
    return None


def load_after(trace: Trace, number: int) -> Load:
    """When the broker that was killed in line ``number`` had its partitions again."""
    later = [line for line in trace.lines if line.number > number]
    accepts = next((line.t for line in later if line.kind == "accepts"), later[0].t if later else 0.0)
    if not trace.is_java:
        return Load(accepts - SCALA_HEAD_START_MS, accepts - SCALA_HEAD_START_MS)
    sends = {line.fields["send"]: line for line in later if line.kind == "send"}
    begin_t: float | None = None
    first_t: float | None = None
    last_t = accepts
    for line in later:
        request = sends.get(line.fields.get("reply", -1)) if line.kind == "reply" else None
        if request is None:
            continue
        codes = set(_error_codes(line.fields["body"]))
        if codes & {LOAD_IN_PROGRESS, NOT_COORDINATOR}:
            if LOAD_IN_PROGRESS in codes and begin_t is None:
                # A heartbeat before it that found nothing amiss was answered while it loaded, too.
                begin_t = (request.t if first_t is None else first_t) - 1
            last_t, first_t = line.t, None
        elif request.fields["api"] != "FindCoordinator" and _INVALID_SESSION_TIMEOUT not in codes:
            first_t = request.t if first_t is None else first_t
            if request.fields["api"] not in _SILENT:
                break
    # The clock has whole milliseconds.
    end_t = last_t if first_t is None else max(min(last_t, first_t - 2), first_t - 5)
    return Load(end_t if begin_t is None else begin_t, end_t)


def _error_codes(item: Any) -> Iterable[int]:
    if isinstance(item, dict):
        for name, value in item.items():
            if name == "errorCode":
                yield value
            else:
                yield from _error_codes(value)
    elif isinstance(item, list):
        for value in item:
            yield from _error_codes(value)


def waiting_at(trace: Trace, number: int) -> set[int]:
    """Requests that had no answer when the broker was killed: nobody answers them any more."""
    before: list[Line] = [line for line in trace.lines if line.number < number]
    sent = {line.fields["send"] for line in before if line.kind == "send"}
    return sent - {line.fields["reply"] for line in before if line.kind == "reply"}
