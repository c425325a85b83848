"""Member ids by the request that made the broker generate them.

Mostly the answer of that request shows the id. The id of a join without an answer shows where others see the member.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from coordinator_core.coordinator.requests import ConsumerGroupHeartbeat, JoinGroup
from coordinator_core.coordinator.trace.given import Given
from coordinator_core.coordinator.trace.read import Line, Trace
from coordinator_core.coordinator.trace.variables import Variables

UNKNOWN_MEMBER_ID = 25
"""Answers a join whose member was removed while it waited; all other errors refuse it without an id."""


@dataclass(frozen=True, slots=True)
class _Silent:
    """A join without an answer that shows its member id: line, request, group, prefix of the id."""

    number: int
    request: int
    group_id: str
    prefix: str
    is_static: bool


def generated_ids(trace: Trace) -> dict[int, str]:
    """Variables of member ids by request."""
    sends = {line.fields["send"]: line for line in trace.of_kind("send")}
    values = Variables(trace, Given()).value
    joins = {
        number: request
        for number, line in sends.items()
        if line.fields["api"] in ("JoinGroup", "ConsumerGroupHeartbeat")
        and isinstance(request := trace.request(line, values), JoinGroup | ConsumerGroupHeartbeat)
        and not request.member_id
    }
    found: dict[int, str] = {}
    refused: set[int] = set()
    for line in trace.of_kind("reply"):
        member_id = line.fields["body"].get("memberId")
        if line.fields["body"].get("errorCode") not in (0, UNKNOWN_MEMBER_ID):
            refused.add(line.fields["reply"])
        if line.fields["reply"] in joins and str(member_id).startswith("$m"):
            found[line.fields["reply"]] = str(member_id)
    silent = [
        _silent(sends[number], request) for number, request in joins.items() if number not in found.keys() | refused
    ]
    for name, (number, group_id) in _first_seen(trace, sends).items():
        if name in found.values():
            continue
        prefix = str(trace.variables.get(name, ""))[:-37]
        fitting = [one for one in silent if one.prefix == prefix and one.group_id == group_id and one.number < number]
        if fitting:
            # Each new join of a static member replaces the one before; dynamic members stay side by side.
            chosen = fitting[-1] if fitting[-1].is_static else fitting[0]
            silent.remove(chosen)
            found[chosen.request] = name
    return found


def _silent(line: Line, request: JoinGroup | ConsumerGroupHeartbeat) -> _Silent:
    instance_id = request.group_instance_id if isinstance(request, JoinGroup) else None
    return _Silent(
        number=line.number,
        request=line.fields["send"],
        group_id=request.group_id,
        prefix=line.fields["client"] if instance_id is None else instance_id,
        is_static=instance_id is not None,
    )


def _first_seen(trace: Trace, sends: dict[int, Line]) -> dict[str, tuple[int, str]]:
    """Line and group in which each member id appears first."""
    seen: dict[str, tuple[int, str]] = {}
    for line in trace.lines:
        if line.kind == "reply":
            request = sends.get(line.fields["reply"])
            group_id = request.fields["body"].get("groupId", "") if request else ""
            items = _members(line.fields["body"], group_id)
        elif line.kind == "records":
            items = (
                pair
                for record in line.fields["records"]
                if record.get("value")
                for pair in _members(record["value"], record.get("key", {}).get("data", {}).get("group", ""))
            )
        else:
            continue
        for name, group_id in items:
            seen.setdefault(name, (line.number, group_id))
    return seen


def _members(item: Any, group_id: str) -> Iterator[tuple[str, str]]:
    if isinstance(item, dict):
        group_id = item.get("groupId", group_id)
        for value in item.values():
            yield from _members(value, group_id)
    elif isinstance(item, list):
        for value in item:
            yield from _members(value, group_id)
    elif isinstance(item, str) and item.startswith("$m"):
        yield item, group_id
