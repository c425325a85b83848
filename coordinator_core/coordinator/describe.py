"""DescribeGroups and ListGroups, which both coordinators answer alike."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from coordinator_core.coordinator.classic import LiveClassicGroup
from coordinator_core.coordinator.errors import Errors
from coordinator_core.coordinator.replies import DescribedGroup, DescribedMember, ListedGroup
from coordinator_core.coordinator.requests import ListGroups
from coordinator_core.groups.model import GroupState


class Listed(Protocol):
    """Fields of a group of any type that ListGroups shows."""

    group_id: str

    @property
    def type(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def protocol_type(self) -> str | None: ...


def classic_description(group: LiveClassicGroup) -> DescribedGroup:
    """Members' metadata and the protocol are shown in Stable only; assignments depend on the release."""
    stable = group.is_in(GroupState.STABLE)
    protocol = group.protocol_name or ""
    shows_assignment = stable or group.rules.shows_assignment_outside_stable
    return DescribedGroup(
        Errors.NONE,
        None,
        group.group_id,
        group_state=group.state,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol if stable else "",
        members=tuple(
            DescribedMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(protocol) if stable else b"",
                member_assignment=member.assignment if shows_assignment else b"",
            )
            for member in group.members.values()
        ),
    )


def listed(groups: Iterable[Listed], request: ListGroups) -> tuple[ListedGroup, ...]:
    """Groups in the states and of the types asked for, both compared without regard to case."""
    states = {state.lower().strip() for state in request.states_filter or ()}
    types = {type_.lower() for type_ in request.types_filter or ()}
    return tuple(
        ListedGroup(group.group_id, group.protocol_type or "", group.state, group.type)
        for group in groups
        if (not states or group.state.lower() in states) and (not types or group.type in types)
    )
