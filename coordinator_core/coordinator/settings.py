"""Broker settings that group coordinators depend on, by Kafka's own names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, cast

from coordinator_core.durations import MINUTE_MS
from coordinator_core.jsontext import Int32, Matching, Within, reader

_Positive = Annotated[int, Within(1, (1 << 31) - 1)]
_Natural = Annotated[int, Within(0, (1 << 31) - 1)]
_SharedMembers = Annotated[int, Within(1, 1_000)]
_RegexRefresh = Annotated[int, Within(10_000, (1 << 31) - 1)]
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
_Policy = Annotated[str, Matching("disabled|downgrade|upgrade|bidirectional", "a migration policy")]


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Values in Kafka's units; the defaults are those of 4.3 and 4.4 (the same in 3.9 where it has the setting).

    Bounds are those of Kafka's ``ConfigDef`` (``GroupCoordinatorConfig``).
    """

    offsets_topic_num_partitions: _Positive = 50
    offset_metadata_max_bytes: Int32 = 4096
    offsets_load_buffer_size: _Positive = 5_242_880
    offsets_retention_minutes: _Positive = 10_080
    offsets_retention_check_interval_ms: Annotated[int, Within(1, (1 << 63) - 1)] = 600_000
    group_min_session_timeout_ms: Int32 = 6_000
    group_max_session_timeout_ms: Int32 = 1_800_000
    group_max_size: _Positive = 2_147_483_647
    group_initial_rebalance_delay_ms: Int32 = 3_000
    group_consumer_session_timeout_ms: _Positive = 45_000
    group_consumer_heartbeat_interval_ms: _Positive = 5_000
    group_consumer_max_size: _Positive = 2_147_483_647
    group_consumer_assignment_interval_ms: _Natural = 1_000
    group_consumer_migration_policy: _Policy = "bidirectional"
    group_consumer_regex_refresh_interval_ms: _RegexRefresh = 600_000
    group_share_heartbeat_interval_ms: _Positive = 5_000
    group_share_session_timeout_ms: _Positive = 45_000
    group_share_max_size: _SharedMembers = 200
    group_share_assignment_interval_ms: _Natural = 1_000
    group_share_initialize_retry_interval_ms: _Positive = 30_000
    group_streams_session_timeout_ms: _Positive = 45_000
    group_streams_heartbeat_interval_ms: _Positive = 5_000
    group_streams_max_size: _Positive = 2_147_483_647
    group_streams_num_standby_replicas: _Natural = 0
    group_streams_initial_rebalance_delay_ms: _Natural = 3_000
    group_streams_assignment_interval_ms: _Natural = 1_000
    group_streams_task_offset_interval_ms: _Positive = 60_000
    group_streams_acceptable_recovery_lag: Annotated[int, Within(0, (1 << 63) - 1)] = 10_000
    group_streams_num_warmup_replicas: _Natural = 2
    transaction_abort_timed_out_transaction_cleanup_interval_ms: _Positive = 10_000
    transaction_max_timeout_ms: _Positive = 900_000

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> BrokerSettings:
        """Settings from a broker's properties; those that no coordinator reads are passed over.

        Raises ``ValueError`` naming the setting whose value Kafka does not take.
        """
        values: dict[str, int | str] = {}
        for name, default in cls().as_dict().items():
            text = properties.get(dotted(name))
            if text is None:
                continue
            values[dotted(name)] = text.lower() if isinstance(default, str) else setting_number(dotted(name), text)
        found: BrokerSettings = reader(cast(Any, cls), dotted)(values)
        return found

    def as_dict(self) -> dict[str, int | str]:
        return {name: getattr(self, name) for name in self.__slots__}

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * MINUTE_MS


def setting_number(name: str, text: str) -> int:
    """The value of an ``INT`` or ``LONG``, as ``ConfigDef.parseType`` reads it; ``ValueError`` names the setting."""
    if _NUMBER.fullmatch(text.strip()) is None:
        raise ValueError(f"{name}: not a whole number: {text!r}")
    return int(text)


def dotted(name: str) -> str:
    """The name of a setting as Kafka spells it."""
    return name.replace("_", ".")
