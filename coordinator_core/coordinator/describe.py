"""DescribeGroups and ListGroups, which both coordinators answer alike."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from coordinator_core.coordinator.classic import LiveClassicGroup, State
from coordinator_core.coordinator.replies import Reply, described_group


class Listed(Protocol):
    """Fields of a group of any type that ListGroups shows."""

    group_id: str

    @property
    def type(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def protocol_type(self) -> str | None: ...


def classic_description(group: LiveClassicGroup) -> Reply:
    """Members' metadata and the protocol are shown in Stable only; assignments depend on the release."""
    stable = group.is_in(State.STABLE)
    protocol = group.protocol_name or ""
    shows_assignment = stable or group.rules.shows_assignment_outside_stable
    return described_group(
        group.group_id,
        groupState=group.state,
        protocolType=group.protocol_type or "",
        protocolData=protocol if stable else "",
        members=[
            {
                "memberId": member.member_id,
                "groupInstanceId": member.instance_id,
                "clientId": member.client_id,
                "clientHost": member.client_host,
                "memberMetadata": member.metadata(protocol) if stable else b"",
                "memberAssignment": member.assignment if shows_assignment else b"",
            }
            for member in group.members.values()
        ],
    )


def listed(groups: Iterable[Listed], request: dict[str, Any]) -> list[Reply]:
    """Groups in the states and of the types asked for, both compared without regard to case."""
    states = {state.lower().strip() for state in request.get("statesFilter") or ()}
    types = {type_.lower() for type_ in request.get("typesFilter") or ()}
    return [
        {
            "groupId": group.group_id,
            "protocolType": group.protocol_type or "",
            "groupState": str(group.state),
            "groupType": group.type.lower(),
        }
        for group in groups
        if (not states or group.state.lower() in states) and (not types or group.type.lower() in types)
    ]
