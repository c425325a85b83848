"""Events that a reader of a journal relies on: the fields of each, for the check when it is read.

Listed fields must be there, in this form; other fields of an event (``docs/drill.md``) are for people. The keys are
kinds of events, with the ``stage`` behind it where one has several.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypedDict

from coordinator_core.drill.journal import Shapes
from coordinator_core.drill.model import ServedGroup


class Outcome(StrEnum):
    """Outcome of a drill. Only ``OBSERVED`` can be compared as a whole."""

    OBSERVED = "observed"
    NOT_STEADY = "not_steady"
    """Nothing was done to the cluster."""
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    KILLED = "killed"
    """Written by the command that recovers the cluster after the drill was killed."""


class _GroupId(TypedDict):
    group_id: str


class _Begun(TypedDict):
    bootstrap_server: str
    recover_command: str


class _Drill(_Begun):
    drill_id: str
    cluster_id: str | None
    fault_command: str | None
    pids: list[int]


class _Predicted(_Drill, total=False):
    scenario: str
    predicted_at_ms: int


class _Recoverable(_Begun):
    host: str
    pid: int
    canaries: list[_GroupId]


class _Text(TypedDict):
    text: str


class _Steady(TypedDict):
    steady: bool
    problems: list[str]


class _Ended(TypedDict):
    exit_code: int | None
    output: str


class _Rollback(TypedDict):
    by: str


class _RollbackEnded(_Ended, _Rollback):
    pass


class _Restored(TypedDict):
    restored: bool
    reason: str | None


class _Verdict(TypedDict):
    outcome: Outcome
    reason: str | None
    recovered: bool


class _Phase(TypedDict):
    phase: str


class _Partition(_Phase):
    offsets_partition: int
    leader: int | None
    isr: list[int]


class _Offset(TypedDict):
    group_id: str
    topic: str
    partition: int
    before: int | None
    after: int | None


class _Behind(_Offset):
    behind_ms: float


class _GroupState(_Phase):
    group_id: str
    coordinator: int | None


class _Group(_GroupState, total=False):
    served: ServedGroup | None
    start_offsets: list[tuple[str, int, int]] | None


class _Probe(TypedDict):
    offsets_partition: int
    api: str
    broker: int | None
    answer: str
    latency_ms: float


class _Log(_Phase):
    offsets_partition: int
    pinned_end_offset: int
    shared_end_offset: int


class _Generation(_Phase):
    group_id: str
    generation: int | None


class _Load(_Phase):
    offsets_partition: int
    broker: int
    load_ms: int


RECOVERED: Shapes = {"drill": _Recoverable, "partition": _Partition, "verdict": _Verdict}
"""Events that a recovery needs: nothing else may keep it from the recover command."""

COMPARED: Shapes = {
    "drill": _Predicted,
    "hypothesis": _Text,
    "steady_state": _Steady,
    "method ended": _Ended,
    "rollback begins": _Rollback,
    "rollback ended": _RollbackEnded,
    "restored": _Restored,
    "verdict": _Verdict,
    "settled": _Phase,
    "partition": _Partition,
    "group": _Group,
    "backwards": _Offset,
    "behind": _Behind,
    "probe": _Probe,
    "log": _Log,
    "generation": _Generation,
    "load": _Load,
    "trouble": _Text,
}
"""Events that a comparison with a prediction reads."""


class _Restore(TypedDict):
    plan_digest: str


class _Captured(TypedDict):
    ends: dict[int, int]


class _GroupError(TypedDict):
    topic: str | None
    partition: int | None


class _GroupEnds(_GroupId):
    errors: list[_GroupError]


RESTORED: Shapes = {"restore": _Restore, "captured": _Captured, "begin": _GroupId, "end": _GroupEnds}
"""Events that verify, resumption and rollback of an applied plan read."""
