"""Changes of a group as steps of a sequence of events."""

from __future__ import annotations

from coordinator_core.history.model import Change, ChangeKind
from coordinator_core.history.signs import name_of
from coordinator_core.investigate.model import Event
from coordinator_core.investigate.words import count

_SHOWN = 3
_WHAT = {
    ChangeKind.GENERATION: "generation {}",
    ChangeKind.EPOCH: "group epoch {}",
    ChangeKind.EMPTY: "group becomes Empty, generation {}",
    ChangeKind.DELETED: "group is deleted, generation {}",
    ChangeKind.REFUSED: "record is refused",
}


def step(change: Change) -> Event:
    """Changes by the record: members that came and went, and why an epoch was bumped."""
    text = _WHAT[change.kind].format(change.generation)
    if change.members:
        text += f", {count(len(change.members), 'member')}"
    for name, members in (("joined", change.joined), ("left", change.left)):
        if members:
            more = f" and {len(members) - _SHOWN} more" if len(members) > _SHOWN else ""
            text += f"; {name}: {', '.join(map(name_of, members[:_SHOWN]))}{more}"
    if change.kind is ChangeKind.EPOCH and change.cause:
        text += f"; cause: {change.cause}"
    return Event(change.place, text)
