"""Bands of time: when a loss is noticed, how long loads take, when a client is served."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.coordinator.errors import Errors
from coordinator_core.coordinator.find_coordinator import look_up
from coordinator_core.coordinator.topology import NO_NODE, Node
from coordinator_core.drill.loading import (
    LoadSample,
    calibrated,
    load_band,
    machine_calibration,
    server_log_samples,
)
from coordinator_core.drill.model import Band
from coordinator_core.drill.timing import ClientSettings, ClusterSettings, moved_after, outage

KRAFT = ClusterSettings()


def test_a_dead_broker_is_fenced_when_its_session_is_over() -> None:
    fenced = moved_after(KRAFT, orderly=False, controller_lost=False)
    assert (fenced.low, fenced.high) == (7_000, 11_125)
    elected = moved_after(KRAFT, orderly=False, controller_lost=True)
    assert (elected.low, elected.high) == (9_000, 16_125)
    either = moved_after(KRAFT, orderly=False, controller_lost=None)
    assert (either.low, either.high) == (fenced.low, elected.high)
    shorter = replace(KRAFT, broker_session_timeout_ms=4_000)
    assert moved_after(shorter, orderly=False, controller_lost=False) == Band(2_000, 5_500)
    assert moved_after(KRAFT, orderly=True, controller_lost=None) == Band(0, 3_000)


def test_zookeeper_clusters_are_told_by_their_properties() -> None:
    settings = ClusterSettings.from_properties({"zookeeper.connect": "z:2181", "zookeeper.session.timeout.ms": "6000"})
    assert moved_after(settings, orderly=False, controller_lost=None) == Band(4_000, 9_000)
    migrating = {"zookeeper.connect": "z:2181", "process.roles": "broker"}
    assert not ClusterSettings.from_properties(migrating).zookeeper


SAMPLES = st.lists(
    st.builds(
        lambda records, own, queued: LoadSample(records, own + queued, queued),
        st.integers(0, 10_000_000),
        st.integers(0, 60_000),
        st.integers(0, 60_000),
    ),
    min_size=1,
    max_size=12,
)


@given(SAMPLES)
def test_the_band_holds_every_load_that_it_was_made_of(samples: list[LoadSample]) -> None:
    calibration = calibrated(samples, "samples")
    for sample in samples:
        band = load_band(calibration, sample.records, [sample.records])
        assert band.low <= sample.own_ms or sample.records < 20_000
        assert band.high is not None
        assert sample.own_ms <= band.high


@given(st.integers(0, 10**7), st.lists(st.integers(0, 10**7), max_size=5))
def test_a_longer_queue_makes_the_band_longer(records: int, others: list[int]) -> None:
    calibration = machine_calibration()
    alone, queued = (
        load_band(calibration, records, [records]),
        load_band(calibration, records, [records, *others]),
    )
    assert queued.low == alone.low
    assert queued.high is not None
    assert alone.high is not None
    assert queued.high >= alone.high


def test_a_rate_is_told_by_large_loads_and_the_base_by_small_ones() -> None:
    samples = [LoadSample(10, 6.0), LoadSample(500_000, 505.0 + 40, 40), LoadSample(1_000_000, 1_005.0)]
    calibration = calibrated(samples, "samples")
    assert (calibration.base_ms, round(calibration.us_per_record, 2)) == (6.0, 1.0)
    assert calibrated([], "samples").method == "machine"


@pytest.mark.parametrize(
    ("line", "sample"),
    [
        (
            "Finished loading of metadata from __consumer_offsets-4 with epoch 1 in 12ms where 7ms was "
            "spent in the scheduler. Loaded 18 records which total to 1906 bytes.",
            LoadSample(18, 12.0, 7.0),
        ),
        (
            "Finished loading offsets and group metadata from __consumer_offsets-4 in 12 milliseconds for "
            "epoch 3, of which 7 milliseconds was spent in the scheduler.",
            LoadSample(99, 12.0, 7.0),
        ),
        (
            "Finished loading offsets and group metadata from __consumer_offsets-4 in 12 milliseconds.",
            LoadSample(99, 12.0),
        ),
        ("Finished loading offsets from [__consumer_offsets,4] in 12 milliseconds.", LoadSample(99, 12.0)),
        ("Finished loading offsets and group metadata from __consumer_offsets-5 in 1 milliseconds.", None),
        ("Finished loading 3 transaction metadata from __transaction_state-4 in 12 milliseconds", None),
        (f"Finished loading of metadata from __consumer_offsets-4 with epoch 1 in {'9' * 400}ms", None),
        (f"Finished loading of metadata from __consumer_offsets-{'4' * 400} with epoch 1 in 12ms", None),
        (
            f"Finished loading of metadata from __consumer_offsets-4 with epoch 1 in 12ms where {'9' * 400}ms was "
            f"spent in the scheduler. Loaded {'9' * 400} records which total to 1906 bytes.",
            LoadSample(99, 12.0),
        ),
    ],
)
def test_lines_of_all_releases_are_read(line: str, sample: LoadSample | None) -> None:
    assert server_log_samples([line], {4: 99}) == ([] if sample is None else [sample])


def test_a_client_is_served_at_its_next_try() -> None:
    client = ClientSettings()
    assert outage(Band(0, 0), client) == Band(1, 1)
    found = outage(Band(7_000, 11_125), client)
    assert 7_000 <= found.low < 7_000 + 102
    assert found.high is not None
    assert 11_125 <= found.high < 11_125 + 1_002
    assert outage(Band(5, None), client).high is None


@given(st.integers(0, 3_000), st.integers(0, 300))
def test_a_search_ends_as_that_of_the_client(available_ms: int, backoff_ms: int) -> None:
    def ask(_node_id: int, now_ms: int) -> tuple[Errors, Node]:
        found = now_ms >= available_ms
        return (Errors.NONE, Node(0, "", 0)) if found else (Errors.COORDINATOR_NOT_AVAILABLE, NO_NODE)

    at_ms = look_up(ask, [(0, 0)], 0, 1 << 40, retry_backoff_ms=backoff_ms).at_ms
    found = outage(Band(available_ms, available_ms), ClientSettings(backoff_ms, backoff_ms))
    assert (found.low, found.high) == (at_ms, at_ms)


def test_a_long_session_is_found_at_once() -> None:
    longest = replace(KRAFT, broker_session_timeout_ms=(1 << 31) - 1)
    found = outage(moved_after(longest, orderly=False, controller_lost=None), ClientSettings())
    assert 2_147_481_647 <= found.low < 2_147_481_647 + 102
