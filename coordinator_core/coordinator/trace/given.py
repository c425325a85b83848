"""Input of the model from a recording: chance and outside events, which no request decides.

It is the field ``given`` of a trace's first line. Nothing of it is read off replies or records while they are compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Load:
    """Begin and end of the load of partitions after a restart, in ms since the first request."""

    begin_t: float
    end_t: float


@dataclass(frozen=True, slots=True)
class Given:
    """Times are milliseconds since the first request; keys of the maps are numbers of requests.

    ``end_t``: end of the recording. ``sweep_t``, ``transaction_cleanup_t``: one moment of the retention sweep and
    of the clean-up of timed-out transactions; the others follow from their intervals. ``loads``: one for each
    restart. ``topic_deletions``: when somebody else deleted a topic. ``member_ids``: the random part of the member
    id that a request made the broker generate. ``leave_orders``: positions of a LeaveGroup's members in the order
    in which they were sent.
    """

    end_t: float | None = None
    sweep_t: float | None = None
    transaction_cleanup_t: float | None = None
    loads: tuple[Load, ...] = ()
    topic_deletions: tuple[float, ...] = ()
    member_ids: Mapping[int, str] = field(default_factory=dict)
    leave_orders: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def from_json(cls, fields: Any) -> Given:
        """The field as a trace has it; ``ValueError`` names the part that is not as it should be."""
        if not isinstance(fields, dict):
            raise ValueError("given: not a JSON object")
        parts = dict(fields)
        try:
            found = cls(
                end_t=_time(parts.pop("end_t", None)),
                sweep_t=_time(parts.pop("sweep_t", None)),
                transaction_cleanup_t=_time(parts.pop("transaction_cleanup_t", None)),
                loads=tuple(Load(**{name: float(t) for name, t in load.items()}) for load in parts.pop("loads", ())),
                topic_deletions=tuple(float(t) for t in parts.pop("topic_deletions", ())),
                member_ids={int(number): str(text) for number, text in parts.pop("member_ids", {}).items()},
                leave_orders={int(number): tuple(order) for number, order in parts.pop("leave_orders", {}).items()},
            )
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(f"given: {error}") from None
        if any(sorted(order) != list(range(len(order))) for order in found.leave_orders.values()):
            raise ValueError("given: leave_orders: not an order of positions")
        if parts:
            raise ValueError(f"given: unknown: {', '.join(sorted(parts))}")
        return found

    def as_json(self) -> Json:
        """The field; what is not given is left out."""
        fields: Json = {
            "end_t": self.end_t,
            "sweep_t": self.sweep_t,
            "transaction_cleanup_t": self.transaction_cleanup_t,
            "loads": [{"begin_t": load.begin_t, "end_t": load.end_t} for load in self.loads],
            "topic_deletions": list(self.topic_deletions),
            "member_ids": {str(number): text for number, text in self.member_ids.items()},
            "leave_orders": {str(number): list(order) for number, order in self.leave_orders.items()},
        }
        return {name: value for name, value in fields.items() if value not in (None, [], {})}


def _time(value: Any) -> float | None:
    return None if value is None else float(value)
