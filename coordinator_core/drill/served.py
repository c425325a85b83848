"""Share and streams groups as a coordinator that has loaded them describes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from coordinator_core.drill.model import Assigned, ServedGroup, ServedMember
from coordinator_core.groups.model import Group, ShareGroup, ShareMember, StreamsGroup, StreamsMember


def served(group: Group | None) -> ServedGroup | None:
    """The group as ShareGroupDescribe or StreamsGroupDescribe shows it; ``None`` for other types, and for no group."""
    if not isinstance(group, ShareGroup | StreamsGroup):
        return None
    topology = group.topology if isinstance(group, StreamsGroup) else None
    epoch = None if topology is None else topology["epoch"]
    assert epoch is None or isinstance(epoch, int)
    members = (_member(group.members[one]) for one in sorted(group.members))
    return ServedGroup(group.state, group.group_epoch, group.assignment_epoch, epoch, tuple(members))


def _member(member: ShareMember | StreamsMember) -> ServedMember:
    if isinstance(member, ShareMember):
        return ServedMember(member.member_id, member.member_epoch, assigned(member.assigned))
    tasks = member.assigned
    kinds = (assigned(each) for each in (tasks.active, tasks.standby, tasks.warmup))
    return ServedMember(member.member_id, member.member_epoch, *kinds)


def assigned(partitions: Mapping[str, Iterable[int]]) -> Assigned:
    """Sorted, without empty entries: a record may keep one, a describe may show one."""
    found = ((name, tuple(sorted(partitions[name]))) for name in sorted(partitions))
    return {name: numbers for name, numbers in found if numbers}
