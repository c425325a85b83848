"""Scenarios: the steps of a drill, and the brokers that each takes away."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from coordinator_core.errors import UsageError
from coordinator_core.jsontext import FormError, from_json, parse_json
from coordinator_core.untrusted import INT32_END, whole_number


class Kind(StrEnum):
    """Kinds of scenarios, by the names of ``--scenario``."""

    LOSE_BROKERS = "lose-brokers"
    LOSE_RACK = "lose-rack"
    ROLLING_RESTART = "rolling-restart"
    UNCLEAN_ELECTION = "unclean-election"


@dataclass(frozen=True, slots=True)
class Scenario:
    """A failure, or an orderly restart.

    ``brokers`` are those lost, all at once; in a rolling restart those restarted, in this order (none: all,
    by id). ``rack`` is the rack lost. An unclean election is the loss of ``brokers`` where
    ``unclean.leader.election.enable`` lets a replica lead that is not in sync. With
    ``preferred_leaders`` a rolling restart ends with the election of preferred leaders.
    """

    kind: Kind
    brokers: tuple[int, ...] = ()
    rack: str | None = None
    preferred_leaders: bool = False

    def __post_init__(self) -> None:
        wrong = None
        if self.kind is Kind.LOSE_RACK:
            if self.rack is None or self.brokers:
                wrong = "takes a rack and no brokers"
        elif self.rack is not None:
            wrong = "takes no rack"
        elif not self.brokers and self.kind is not Kind.ROLLING_RESTART:
            wrong = "takes the ids of brokers"
        elif len(set(self.brokers)) < len(self.brokers):
            wrong = "names a broker twice"
        if self.preferred_leaders and self.kind is not Kind.ROLLING_RESTART:
            wrong = "ends without an election of preferred leaders"
        if wrong:
            raise UsageError(f"scenario {self.kind.value} {wrong}")

    @property
    def unclean(self) -> bool:
        return self.kind is Kind.UNCLEAN_ELECTION

    @property
    def orderly(self) -> bool:
        """Brokers stop by a controlled shutdown: their partitions move before they go."""
        return self.kind is Kind.ROLLING_RESTART

    def __str__(self) -> str:
        what = self.rack if self.rack is not None else ",".join(map(str, self.brokers))
        return f"{self.kind.value}={what}" if what else self.kind.value

    @classmethod
    def parse(cls, text: str) -> Scenario:
        """A scenario as JSON, or in short: ``lose-brokers=1,2``, ``lose-rack=a``, ``rolling-restart``.

        Raises :class:`UsageError` for anything else.
        """
        if text.lstrip().startswith("{"):
            try:
                return from_json(cls, parse_json(text))
            except FormError as error:
                raise UsageError(f"scenario: {error}") from None
            except ValueError as error:
                raise UsageError(f"scenario: not JSON: {error}") from None
        name, _, what = text.strip().partition("=")
        try:
            kind = Kind(name)
        except ValueError:
            known = ", ".join(one.value for one in Kind)
            raise UsageError(f"scenario {name!r} is none of {known}") from None
        if kind is Kind.LOSE_RACK:
            return cls(kind, rack=what or None)
        brokers = [whole_number(one.strip(), INT32_END) for one in what.split(",")] if what else []
        if None in brokers:
            raise UsageError(f"scenario {name}: {what!r} is not a list of broker ids")
        return cls(kind, tuple(one for one in brokers if one is not None))
