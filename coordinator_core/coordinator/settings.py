"""Broker settings that group coordinators depend on, by Kafka's own names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Values in Kafka's units; the defaults are those of 4.3 and 4.4 (the same in 3.9 where it has the setting)."""

    offsets_topic_num_partitions: int = 50
    offset_metadata_max_bytes: int = 4096
    offsets_load_buffer_size: int = 5_242_880
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 2_147_483_647
    group_initial_rebalance_delay_ms: int = 3_000
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_max_size: int = 2_147_483_647
    group_consumer_assignment_interval_ms: int = 1_000
    group_consumer_migration_policy: str = "bidirectional"
    group_consumer_regex_refresh_interval_ms: int = 600_000
    group_share_heartbeat_interval_ms: int = 5_000
    group_share_session_timeout_ms: int = 45_000
    group_share_max_size: int = 200
    group_share_assignment_interval_ms: int = 1_000
    group_share_initialize_retry_interval_ms: int = 30_000
    group_streams_session_timeout_ms: int = 45_000
    group_streams_heartbeat_interval_ms: int = 5_000
    group_streams_max_size: int = 2_147_483_647
    group_streams_num_standby_replicas: int = 0
    group_streams_initial_rebalance_delay_ms: int = 3_000
    group_streams_assignment_interval_ms: int = 1_000
    group_streams_task_offset_interval_ms: int = 60_000
    group_streams_acceptable_recovery_lag: int = 10_000
    group_streams_num_warmup_replicas: int = 2
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> BrokerSettings:
        """Settings from a broker's properties; those that no coordinator reads are passed over.

        Raises ``ValueError`` naming the setting whose value is not what Kafka takes.
        """
        values: dict[str, int | str] = {}
        for name, default in cls().as_dict().items():
            text = properties.get(name.replace("_", "."))
            if text is None:
                continue
            if isinstance(default, str):
                values[name] = text.lower()
                continue
            try:
                values[name] = int(text)
            except ValueError:
                raise ValueError(f"{name.replace('_', '.')}: not a whole number: {text!r}") from None
        return cls(**values)  # type: ignore[arg-type]

    def as_dict(self) -> dict[str, int | str]:
        return {name: getattr(self, name) for name in self.__slots__}

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000
