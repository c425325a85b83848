"""Reads the field ``given`` off the replies and records of a trace that has none yet.

A recording shows chance and outside events only by their effects. ``--write-given`` writes them down once, for a person
to look at; from then on the same replies and records are compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from coordinator_core.coordinator.requests import LeaveGroup
from coordinator_core.coordinator.trace.given import Given, Load
from coordinator_core.coordinator.trace.member_ids import generated_ids
from coordinator_core.coordinator.trace.play import play
from coordinator_core.coordinator.trace.read import Trace
from coordinator_core.groups.model import GroupState

Json = dict[str, Any]

CAUSE_MS = 120
"""A request is taken to cause a record that follows it within this time."""
LOAD_IN_PROGRESS, NOT_COORDINATOR = 14, 16
_REMOVING = frozenset(
    {"DeleteGroups", "OffsetDelete", "DeleteTopics", "JoinGroup", "ConsumerGroupHeartbeat", "StreamsGroupHeartbeat"}
)
_SILENT = frozenset({"Heartbeat", "FindCoordinator", "ListGroups"})
"""APIs that answer without an error while a partition is not there or is loading."""
_INVALID_SESSION_TIMEOUT = 26
SCALA_HEAD_START_MS = 1_000
"""Time from the end of a Scala coordinator's load to its first request after a start."""
UUID_CHARACTERS = 36


def observed(trace: Trace) -> Given:
    """The field ``given`` as the replies and records of ``trace`` show it."""
    end_t = max((line.end_t for line in trace.lines if line.has_time), default=0.0)
    given = Given(
        end_t=end_t,
        sweep_t=_sweep_t(trace, end_t),
        transaction_cleanup_t=_transaction_cleanup_t(trace),
        loads=tuple(_load_after(trace, line.number) for line in trace.of_kind("killed")),
        member_ids=_member_ids(trace),
        leave_orders=dict(_leave_orders(trace)),
    )
    return replace(given, topic_deletions=_topic_deletions(trace, given))


def _sweep_t(trace: Trace, end_t: float) -> float | None:
    """The time of a tombstone that no request caused; any time where sweeps ran and removed nothing."""
    sent = [line.t for line in trace.of_kind("send") if line.fields["api"] in _REMOVING]
    for line in trace.of_kind("records"):
        for record in line.fields["records"]:
            caused = any(0 <= record["t"] + 1 - t <= CAUSE_MS for t in sent)
            if _is_group_tombstone(record) and not caused:
                return float(record["t"])
    ran = trace.settings.offsets_retention_check_interval_ms < end_t
    return 0.0 if ran else None


def _is_group_tombstone(record: Json) -> bool:
    """Whether ``record`` is a tombstone of an offset or a group; those of members come with members that leave."""
    return record.get("value", 0) is None and record.get("key", {}).get("type") in (1, 2, 3, 17)


def _transaction_cleanup_t(trace: Trace) -> float | None:
    """The time of an ABORT that no request caused: its transaction was begun, and no request ended it since."""
    requests = _transaction_requests(trace)
    for line in trace.of_kind("records"):
        for record in line.fields["records"]:
            if record.get("control") == "ABORT":
                earlier = [ends for t, ends in requests.get(record.get("producerId"), ()) if t <= record["t"] + 1]
                if earlier and not earlier[-1]:
                    return float(record["t"])
    return None


def _transaction_requests(trace: Trace) -> dict[Any, list[tuple[float, bool]]]:
    """When requests began or ended transactions, by producer id: the time, and whether it ended one.

    Of an InitProducerId the recording has the last attempt, but the first one ends the transaction: it came after the
    line before.
    """
    replies = {line.fields["reply"]: line.fields["body"] for line in trace.of_kind("reply")}
    producers: dict[Any, Any] = {}
    found: dict[Any, list[tuple[float, bool]]] = {}
    line_t = 0.0
    for line in trace.of_kind("send", "reply"):
        before_t, line_t = line_t, line.t
        api = line.fields.get("api")
        body = replies.get(line.fields.get("send", -1), {})
        refused = not body or any(_error_codes(body))
        transactional_id = line.fields["body"].get("transactionalId")
        if api == "InitProducerId":
            if not refused:
                producers[transactional_id] = body.get("producerId")
            event = (before_t, True)
        elif api == "EndTxn" and not refused:
            event = (line.t, True)
        elif (api == "AddOffsetsToTxn" and not refused) or (api == "TxnOffsetCommit" and line.fields["version"] >= 5):
            event = (line.t, False)
        else:
            continue
        found.setdefault(producers.get(transactional_id), []).append(event)
    return found


def _load_after(trace: Trace, number: int) -> Load:
    """Begin and end of the load after the kill in line ``number``."""
    later = [line for line in trace.lines if line.number > number and line.has_time]
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
            if name == "errorCode" and isinstance(value, int):
                yield value
            else:
                yield from _error_codes(value)
    elif isinstance(item, list):
        for value in item:
            yield from _error_codes(value)


def _member_ids(trace: Trace) -> dict[int, str]:
    """Random parts of member ids by request: without client id or instance id."""
    by_heartbeat = {line.fields["send"] for line in trace.of_kind("send") if line.fields["api"] != "JoinGroup"}
    found = {}
    for request, name in sorted(generated_ids(trace).items()):
        if name in trace.variables:
            member_id = str(trace.variables[name])
            found[request] = member_id if request in by_heartbeat else member_id[-UUID_CHARACTERS:]
    return found


def _leave_orders(trace: Trace) -> Iterable[tuple[int, tuple[int, ...]]]:
    """Recordings show the members of a LeaveGroup sorted; the answer kept the order in which they were sent."""
    answers = {line.fields["reply"]: line.fields["body"].get("members", []) for line in trace.of_kind("reply")}
    for line in trace.of_kind("send"):
        request = trace.request(line) if line.fields["api"] == "LeaveGroup" else None
        if not isinstance(request, LeaveGroup):
            continue
        shown = [tuple(member) for member in request.members]
        order = []
        for member in answers.get(line.fields["send"], []):
            free = [at for at, one in enumerate(shown) if one == _identity(member) and at not in order]
            order += free[:1]
        if len(order) == len(shown) and order != sorted(order):
            yield line.fields["send"], tuple(order)


def _identity(member: Json) -> tuple[str, str | None]:
    return member["memberId"], member.get("groupInstanceId")


def _topic_deletions(trace: Trace, given: Given) -> tuple[float, ...]:
    """A Scala broker cleans all groups when any topic is deleted, and writes nothing about one without records.

    So an Empty group without offsets is Dead in the answer that comes next, and nobody in the recording did it.
    """
    described = {line.fields["send"]: line for line in trace.of_kind("send") if line.fields["api"] == "DescribeGroups"}
    dead = {
        (line.fields["reply"], group["groupId"])
        for line in trace.of_kind("reply")
        if line.fields["reply"] in described
        for group in line.fields["body"].get("groups", ())
        if group.get("groupState") == GroupState.DEAD
    }
    if trace.is_java or not dead:
        return ()
    for reply in play(trace, given).replies:
        for group in reply.body.get("groups", ()) if reply.request in described else ():
            if (reply.request, group["groupId"]) in dead and group["groupState"] == GroupState.EMPTY:
                return (described[reply.request].t - 1,)
    return ()
