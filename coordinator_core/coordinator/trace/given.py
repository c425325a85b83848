"""Input of the model from a recording: chance and outside events, which no request decides.

It is the field ``given`` of a trace's first line. Nothing of it is read off replies or records while they are compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from coordinator_core.jsontext import Within, from_json, to_json

Json = dict[str, Any]

MOST_MS = 10**12
"""Times of a trace are at most so far from its start: 31 years."""
Ms = Annotated[float, Within(-MOST_MS, MOST_MS)]


@dataclass(frozen=True, slots=True)
class Load:
    """Begin and end of the load of partitions after a restart, in ms since the first request."""

    begin_t: Ms
    end_t: Ms


@dataclass(frozen=True, slots=True)
class Given:
    """Times are milliseconds since the first request; keys of the maps are numbers of requests.

    ``end_t``: end of the recording. ``sweep_t``, ``transaction_cleanup_t``: one moment of the retention sweep and
    of the clean-up of timed-out transactions; the others follow from their intervals. ``loads``: one for each
    restart. ``topic_deletions``: when somebody else deleted a topic. ``member_ids``: the random part of the member
    id that a request made the broker generate. ``leave_orders``: positions of a LeaveGroup's members in the order
    in which they were sent.
    """

    end_t: Ms | None = None
    sweep_t: Ms | None = None
    transaction_cleanup_t: Ms | None = None
    loads: tuple[Load, ...] = ()
    topic_deletions: tuple[Ms, ...] = ()
    member_ids: Mapping[int, str] = field(default_factory=dict)
    leave_orders: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def from_json(cls, fields: Any) -> Given:
        """The field as a trace has it; ``ValueError`` names the part that is not as it should be."""
        try:
            found = from_json(cls, fields)
        except ValueError as error:
            raise ValueError(f"given: {error}") from None
        if any(sorted(order) != list(range(len(order))) for order in found.leave_orders.values()):
            raise ValueError("given: leave_orders: not an order of positions")
        return found

    def as_json(self) -> Json:
        """The field, without facts that are not given."""
        return {name: value for name, value in to_json(self).items() if value not in (None, [], {})}
