"""Replies to a producer that ends a transaction more than once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coordinator_core.coordinator.timers import Clock
from coordinator_core.coordinator.trace import observed, read_trace
from coordinator_core.coordinator.transactions import EXHAUSTED_EPOCH, Producer, Transactions
from tests.coordinator.brokers import Simulation
from tests.coordinator.traces import trace

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


def exhausted(clock: Clock, markers: list[tuple[int, int, int, bool]]) -> Transactions:
    """Transactions with the producer 1 of ``tx``, which has its last epoch; the next producer ids are 2, 3."""
    ids = iter((1, 2, 3))
    found = Transactions(
        clock, lambda *marker: markers.append(marker), lambda: next(ids), 10_000, 900_000, version_2=True
    )
    found.init_producer_id("tx", 60_000, Producer())
    found._by_id["tx"].epoch = EXHAUSTED_EPOCH
    return found


def test_a_new_producer_id_follows_the_last_epoch() -> None:
    """A broker of 4.3.1, asked 32768 times: 32766 is followed by a new producer id with epoch 0."""
    markers: list[tuple[int, int, int, bool]] = []
    clock = Clock(0)
    transactions = exhausted(clock, markers)
    transactions.add_offsets("tx", 1, EXHAUSTED_EPOCH, 4)
    assert transactions.end("tx", 1, EXHAUSTED_EPOCH, True, 5) == (0, 2, 0)
    clock.advance(10)
    assert markers == [(4, 1, EXHAUSTED_EPOCH + 1, True)]
    assert transactions.end("tx", 1, EXHAUSTED_EPOCH, True, 5) == (0, 2, 0)
    assert transactions.init_producer_id("tx", 60_000, Producer(1, EXHAUSTED_EPOCH)) == (0, 2, 0)
    assert transactions.end("tx", 2, 0, False, 5) == (0, 2, 1)


@pytest.mark.parametrize("producer", [Producer(), Producer(1, EXHAUSTED_EPOCH)])
def test_a_producer_that_begins_anew_gets_a_new_id_after_the_last_epoch(producer: Producer) -> None:
    assert exhausted(Clock(0), []).init_producer_id("tx", 60_000, producer) == (0, 2, 0)


@pytest.mark.parametrize("name", ["txn-init-producer-id", "txn-abort-only-pending-group"])
def test_an_abort_long_after_its_request_is_no_clean_up(name: str, tmp_path: Path) -> None:
    """A busy broker writes a marker when it gets to it. Of an InitProducerId the last attempt is in the recording."""
    lines = [json.loads(line) for line in trace(f"scripted/4.3.1/{name}").read_text().splitlines()]
    for timed in (*lines, *(record for line in lines for record in line.get("records", ()))):
        timed |= {"t": 30 * timed["t"]} if "t" in timed else {}
    path = tmp_path / "slow.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert observed(read_trace(path)).transaction_cleanup_t is None


def test_an_abort_of_a_clean_up_is_found() -> None:
    recording = read_trace(trace("scripted/4.3.1/txn-timeout"))
    assert recording.given is not None
    assert observed(recording).transaction_cleanup_t == recording.given.transaction_cleanup_t is not None
