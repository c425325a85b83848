"""A rebalance that does not end: no record says so, and the group looks as if it were Stable."""

from __future__ import annotations

from coordinator_core.durations import span
from coordinator_core.history.model import Change, ChangeKind, GroupHistory
from coordinator_core.history.signs import name_of
from coordinator_core.investigate.bugs import BUGS
from coordinator_core.investigate.model import Case
from coordinator_core.investigate.words import described

NO_REBALANCE_ENDED = (
    "No rebalance has ended since: no generation came after the last one. One that hangs would not be in the log."
)


def hanging_steps(group: GroupHistory, last: Change, case: Case) -> list[str]:
    """Steps that tell a hanging rebalance from members that hang; ``last`` is the newest generation."""
    steps = [f"See its state: {described(group, '--state')}"]
    if last.kind is not ChangeKind.GENERATION:
        return steps
    known = [member for member in last.members if member.rebalance_timeout_ms is not None]
    slowest = max(known, key=lambda member: member.rebalance_timeout_ms or 0, default=None)
    waits = "the rebalance timeout of its members (max.poll.interval.ms)"
    if slowest is not None and slowest.rebalance_timeout_ms is not None:
        waits = f"{span(slowest.rebalance_timeout_ms)}, the max.poll.interval.ms of {name_of(slowest)}"
    steps.append(
        f"PreparingRebalance: a member does not rejoin, and the others wait for up to {waits}. Restart the one that "
        "--members shows and whose log has no 'Revoke' or '(Re-)joining'."
    )
    bug = BUGS["KAFKA-12890"]
    is_known = bug.fits(case.profile.release)
    steps.append(
        "CompletingRebalance: the leader of the group has sent no assignment (SyncGroup)"
        + (f"; {case.profile.release} waits for it for ever ({bug.id}): {bug.remedy}." if is_known else ": restart it.")
    )
    return steps
