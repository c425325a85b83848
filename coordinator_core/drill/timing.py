"""Times in which a cluster notices that a broker is gone, and clients find the new coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, cast

from coordinator_core.coordinator.find_coordinator import REQUEST_MS
from coordinator_core.coordinator.settings import dotted, setting_number
from coordinator_core.drill.model import Band
from coordinator_core.jsontext import Within, reader

PROPAGATION_MS = 1_000
"""Longest time, in milliseconds, from the controller's decision until the new leader begins to load."""

_Timeout = Annotated[int, Within(1, (1 << 31) - 1)]
_Backoff = Annotated[int, Within(0, (1 << 31) - 1)]


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Settings of brokers and controllers that decide when a loss is noticed; Kafka's defaults."""

    broker_session_timeout_ms: _Timeout = 9_000
    broker_heartbeat_interval_ms: _Timeout = 2_000
    controller_quorum_fetch_timeout_ms: _Timeout = 2_000
    controller_quorum_election_timeout_ms: _Timeout = 1_000
    controller_quorum_election_backoff_max_ms: _Backoff = 1_000
    zookeeper_session_timeout_ms: _Timeout = 18_000
    zookeeper: bool = False

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> ClusterSettings:
        """Settings from a broker's ``server.properties``. ``ValueError`` for a value that is no number, or no time."""
        zookeeper = "process.roles" not in properties and "zookeeper.connect" in properties
        values: dict[str, int] = {"zookeeper": zookeeper}
        for name in (dotted(setting.name) for setting in fields(cls)):
            if name in properties and name not in values:
                values[name] = setting_number(name, properties[name])
        found: ClusterSettings = reader(cast(Any, cls), dotted)(values)
        return found


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
    """When ``find_coordinator.look_up`` from 0 on ends: its first request at or after ``available_ms`` is answered."""
    pause = REQUEST_MS + retry_backoff_ms
    return max(0, -(-available_ms // pause)) * pause + REQUEST_MS
