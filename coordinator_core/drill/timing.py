"""Times in which a cluster notices that a broker is gone, and clients find the new coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from coordinator_core.coordinator.errors import Errors
from coordinator_core.coordinator.find_coordinator import look_up
from coordinator_core.coordinator.topology import NO_NODE, Node
from coordinator_core.drill.model import Band
from coordinator_core.errors import UsageError

PROPAGATION_MS = 1_000
"""Longest time, in milliseconds, from the controller's decision until the new leader begins to load."""

_ENDLESS_MS = 1 << 40


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Settings of brokers and controllers that decide when a loss is noticed; Kafka's defaults."""

    broker_session_timeout_ms: int = 9_000
    broker_heartbeat_interval_ms: int = 2_000
    controller_quorum_fetch_timeout_ms: int = 2_000
    controller_quorum_election_timeout_ms: int = 1_000
    controller_quorum_election_backoff_max_ms: int = 1_000
    zookeeper_session_timeout_ms: int = 18_000
    zookeeper: bool = False

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> ClusterSettings:
        """Settings from a broker's ``server.properties``. Raises :class:`UsageError` for a value that is no number."""
        values: dict[str, int] = {}
        for setting in fields(cls):
            name = setting.name.replace("_", ".")
            if setting.type != "int" or name not in properties:
                continue
            try:
                values[setting.name] = int(properties[name])
            except ValueError:
                raise UsageError(f"{name}: not a whole number: {properties[name]!r}") from None
        return cls(**values, zookeeper="process.roles" not in properties and "zookeeper.connect" in properties)


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Settings of clients that decide when they ask again; Kafka's defaults."""

    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000


def moved_after(settings: ClusterSettings, *, orderly: bool, controller_lost: bool | None) -> Band:
    """Band of the time from the loss or shutdown of the old leader until the new one begins to load.

    A broker whose last heartbeat was up to an interval ago is fenced when its session is over, looked at
    eight times a session (``QuorumController.maybeFenceStaleBrokerPeriodNs``). A new active controller
    first has to be elected, and gives every broker a new session. ``controller_lost`` is ``None`` where it
    is not known which controller is active. A broker in controlled shutdown asks the controller, and waits
    until its partitions have moved.
    """
    if orderly:
        return Band(0, settings.broker_heartbeat_interval_ms + PROPAGATION_MS)
    if settings.zookeeper:
        session = settings.zookeeper_session_timeout_ms
        # Sessions are kept alive every third of their time, and end at the server's next tick (2 s).
        return Band(session - session // 3, session + 2_000 + PROPAGATION_MS)
    session = settings.broker_session_timeout_ms
    fenced = Band(session - settings.broker_heartbeat_interval_ms, session + session // 8 + PROPAGATION_MS)
    if controller_lost is False:
        return fenced
    election = (
        settings.controller_quorum_fetch_timeout_ms
        + 2 * settings.controller_quorum_election_timeout_ms
        + settings.controller_quorum_election_backoff_max_ms
    )
    latest = session + session // 8 + PROPAGATION_MS + election
    return Band(session if controller_lost else fenced.low, latest)


def outage(available: Band, client: ClientSettings) -> Band:
    """Band from the loss until a client that keeps asking is served by a coordinator that is ``available``."""
    low = _found_ms(available.low, client.retry_backoff_ms)
    high = None if available.high is None else _found_ms(available.high, client.retry_backoff_max_ms)
    return Band(low, high)


def _found_ms(available_ms: int, retry_backoff_ms: int) -> int:
    def ask(_node_id: int, now_ms: int) -> tuple[Errors, Node]:
        found = now_ms >= available_ms
        return (Errors.NONE, Node(0, "", 0)) if found else (Errors.COORDINATOR_NOT_AVAILABLE, NO_NODE)

    return look_up(ask, [(0, 0)], 0, _ENDLESS_MS, retry_backoff_ms=retry_backoff_ms).at_ms
