"""A streams member on its way to its target tasks: revoke, then acknowledge, then assign.

Source: ``CurrentAssignmentBuilder`` of streams groups. A task waits for the process that has it, not for the member.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from coordinator_core.coordinator.errors import ApiError, Errors
from coordinator_core.coordinator.java.consumer_group import epochs_of
from coordinator_core.coordinator.java.streams_group import LiveStreamsGroup
from coordinator_core.coordinator.java.streams_member import NO_TASKS, LiveStreamsMember, Since, Task, tasks_of
from coordinator_core.groups.model import MemberState, TaskAssignment, Tasks

KINDS = ("active", "standby", "warmup")


def reconcile(
    group: LiveStreamsGroup,
    member: LiveStreamsMember,
    target_epoch: int,
    target: TaskAssignment,
    owned: TaskAssignment | None,
    *,
    in_place: bool = False,
) -> LiveStreamsMember:
    """The member after this heartbeat; the same object when nothing changes. ``owned`` None: nothing new.

    ``in_place``: ``StreamsRules.changes_roles_in_place``.
    """
    if member.is_reconciled_to(target_epoch):
        return member
    epoch = member.member_epoch
    if member.state is MemberState.UNREVOKED_TASKS:
        if _owns(owned, member.pending_revocation):
            return member
        epoch += 1
    elif member.state is MemberState.UNKNOWN:
        if owned != NO_TASKS:
            raise ApiError(Errors.FENCED_MEMBER_EPOCH)
        epoch = target_epoch
    kept, lost, added, unreleased = {}, {}, {}, False
    for kind in KINDS:
        current = _since(member, kind, target_epoch)
        blocked = _blocked_by_others(group, member, kind) if in_place else _blocked(group, member.process_id, kind)
        kept[kind], lost[kind], added[kind], waits = _difference(current, getattr(target, kind), target_epoch, blocked)
        unreleased = unreleased or waits
    if in_place:
        _change_roles(member, target, target_epoch, owned, kept, lost, added)
    revoked = _assignment(lost)
    if revoked != NO_TASKS and _owns(owned, revoked):
        return replace(
            member,
            state=MemberState.UNREVOKED_TASKS,
            previous_member_epoch=member.member_epoch,
            member_epoch=epoch,
            assigned=_assignment(kept),
            active_epochs=epochs_of(kept["active"]),
            pending_revocation=revoked,
            revoking_epochs=epochs_of(lost["active"]),
        )
    merged = {kind: _merged(kept[kind], added[kind]) for kind in KINDS}
    return replace(
        member,
        state=MemberState.UNRELEASED_TASKS if unreleased else MemberState.STABLE,
        previous_member_epoch=member.member_epoch,
        member_epoch=target_epoch,
        assigned=_assignment(merged),
        active_epochs=epochs_of(merged["active"]),
        pending_revocation=TaskAssignment(),
        revoking_epochs={},
    )


def _owns(owned: TaskAssignment | None, revoked: TaskAssignment) -> bool:
    """Silence counts as still owning."""
    if owned is None:
        return True
    return any(set(tasks_of(getattr(owned, kind))) & set(tasks_of(getattr(revoked, kind))) for kind in KINDS)


def _since(member: LiveStreamsMember, kind: str, epoch: int) -> Since:
    """Only active tasks have epochs of their own."""
    if kind == "active":
        return member.active_since()
    tasks: Tasks = getattr(member.assigned, kind)
    return {name: dict.fromkeys(partitions, epoch) for name, partitions in tasks.items()}


def _blocked(group: LiveStreamsGroup, process_id: str, kind: str) -> Callable[[Task], bool]:
    """Whether a task has to be released first: an active one by every process, and any by the member's own."""

    def blocked(task: Task) -> bool:
        holder = group.active_processes.get(task)
        if holder is not None and (kind == "active" or holder == process_id):
            return True
        return any(process_id in found.get(task, ()) for found in (group.standby_processes, group.warmup_processes))

    return blocked


def _blocked_by_others(group: LiveStreamsGroup, member: LiveStreamsMember, kind: str) -> Callable[[Task], bool]:
    """Like :func:`_blocked`; what the member itself has in another role, it need not release."""
    process_id = member.process_id
    own = {one: set(tasks_of(getattr(member.assigned, one))) for one in KINDS}

    def blocked(task: Task) -> bool:
        holder = group.active_processes.get(task)
        if kind == "active" and holder is not None:
            return True
        if holder == process_id and not (kind == "standby" and task in own["active"]):
            return True
        return any(
            process_id in found.get(task, ()) and (one == kind or task not in own[one])
            for one, found in (("standby", group.standby_processes), ("warmup", group.warmup_processes))
        )

    return blocked


def _change_roles(
    member: LiveStreamsMember,
    target: TaskAssignment,
    epoch: int,
    owned: TaskAssignment | None,
    kept: dict[str, Since],
    lost: dict[str, Since],
    added: dict[str, Since],
) -> None:
    """Move a member's own tasks between ``kept``, ``lost`` and ``added`` that it goes on to have in another role.

    Sources: ``demoteActiveTasksToStandby``, ``applyPromotionsToActive``. An active task is still given up, while its
    standby task is there already; a standby task stays until it becomes active. No target of 4.4 has warm-up tasks.
    """
    for task in tasks_of(member.assigned.active):
        if _take(added["standby"], task):
            _put(kept["standby"], task, epoch)
    wanted = set(tasks_of(target.active))
    promoted = [task for task in tasks_of(member.assigned.standby) if task in wanted]
    for task in promoted:
        _take(lost["standby"], task)
    revoked = _assignment(lost)
    revokes = revoked != NO_TASKS and _owns(owned, revoked)
    for name, partition in promoted:
        if revokes or partition not in added["active"].get(name, {}):
            _put(kept["standby"], (name, partition), epoch)


def _take(tasks: Since, task: Task) -> bool:
    """Remove a task; whether it was there."""
    name, partition = task
    found = tasks.get(name, {}).pop(partition, None) is not None
    if name in tasks and not tasks[name]:
        del tasks[name]
    return found


def _put(tasks: Since, task: Task, epoch: int) -> None:
    tasks.setdefault(task[0], {})[task[1]] = epoch


def _difference(
    current: Since, target: Tasks, epoch: int, blocked: Callable[[Task], bool]
) -> tuple[Since, Since, Since, bool]:
    """Tasks that stay, go and come, and whether others have to be released first."""
    kept: Since = {}
    lost: Since = {}
    added: Since = {}
    waits = False
    for subtopology in dict.fromkeys([*current, *target]):
        have, wanted = current.get(subtopology, {}), set(target.get(subtopology, ()))
        missing = sorted(wanted - have.keys())
        free = [partition for partition in missing if not blocked((subtopology, partition))]
        waits = waits or free != missing
        for found, part in (
            (kept, {partition: since for partition, since in have.items() if partition in wanted}),
            (lost, {partition: since for partition, since in have.items() if partition not in wanted}),
            (added, dict.fromkeys(free, epoch)),
        ):
            if part:
                found[subtopology] = part
    return kept, lost, added, waits


def _merged(kept: Since, added: Since) -> Since:
    return {name: kept.get(name, {}) | added.get(name, {}) for name in {*kept, *added}}


def _assignment(since: dict[str, Since]) -> TaskAssignment:
    return TaskAssignment(*({name: tuple(sorted(found)) for name, found in since[kind].items()} for kind in KINDS))
