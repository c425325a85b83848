"""Bounds of broker settings: those that ``GroupCoordinatorConfig.CONFIG_DEF`` of 4.3.1 and 4.4.0 has."""

from __future__ import annotations

import pytest

from coordinator_core.coordinator.settings import BrokerSettings, dotted


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("group_consumer_regex_refresh_interval_ms", 10_000, (1 << 31) - 1),
        ("group_share_initialize_retry_interval_ms", 1, (1 << 31) - 1),
        ("group_share_max_size", 1, 1_000),
        ("group_streams_acceptable_recovery_lag", 0, (1 << 63) - 1),
        ("group_consumer_assignment_interval_ms", 0, (1 << 31) - 1),
    ],
)
def test_bounds_are_those_of_kafka(name: str, least: int, most: int) -> None:
    for value in (least, most):
        assert getattr(BrokerSettings.from_properties({dotted(name): str(value)}), name) == value
    for value in (least - 1, most + 1):
        with pytest.raises(ValueError, match=dotted(name)):
            BrokerSettings.from_properties({dotted(name): str(value)})
