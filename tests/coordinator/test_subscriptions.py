"""Subscriptions of classic members that cannot be read (KAFKA-20570)."""

from __future__ import annotations

from base64 import b64encode

import pytest

from tests.coordinator.brokers import Simulation

UNREADABLE = {
    "a negative number of topics": b"\0\0\xff\xff\xff\xff",
    "more topics than bytes": b"\0\0\0\0\0\5",
    "a name that exceeds the bytes": b"\0\0\0\0\0\1\0\x09x",
}


@pytest.mark.parametrize("what", UNREADABLE)
@pytest.mark.parametrize(("release", "answered"), [("4.3.1", []), ("4.4.0", ["NONE"])])
def test_nobody_answers_a_join_whose_subscription_is_unreadable_before_4_4(
    release: str, answered: list[str], what: str
) -> None:
    """Seen on brokers of both releases: the initial rebalance of 4.3.1 ends in an exception."""
    simulation = Simulation(java=True, release=release)
    answers = simulation.join(subscription=b64encode(UNREADABLE[what]).decode())
    simulation.advance(60)
    assert [answer["error"] for answer in answers] == answered
