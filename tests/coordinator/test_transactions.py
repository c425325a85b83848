"""Replies to a producer that ends a transaction more than once."""

from __future__ import annotations

import pytest

from tests.coordinator.brokers import Simulation

PROFILES = pytest.mark.parametrize("java", [False, True], ids=["3.9.2", "4.3.1"])


@PROFILES
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_the_same_end_again_is_fine_and_the_other_one_is_not(java: bool, commit: bool) -> None:
    simulation = Simulation(java=java)
    who = simulation.begin_transaction()
    assert simulation.ask("EndTxn", 3, who | {"committed": commit})["error"] == "NONE"
    simulation.advance(10)
    assert simulation.ask("EndTxn", 3, who | {"committed": commit})["error"] == "NONE"
    assert simulation.ask("EndTxn", 3, who | {"committed": not commit})["error"] == "INVALID_TXN_STATE"


@PROFILES
def test_a_new_producer_finds_the_markers_of_the_old_one_written(java: bool) -> None:
    simulation = Simulation(java=java)
    simulation.begin_transaction()
    init = {"transactionalId": "tx", "transactionTimeoutMs": 60_000}
    assert simulation.ask("InitProducerId", 4, init)["producerEpoch"] == 2
    simulation.advance(0)
    assert simulation.fetch(stable=True) == [(-1, "NONE")]
