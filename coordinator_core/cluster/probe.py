"""Comparison of the captured files with the cluster: batches spread over the files are fetched again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from coordinator_core.cluster.client import Client, by_broker, fetch_request
from coordinator_core.cluster.errors import ClusterError
from coordinator_core.cluster.fetch import Fetching
from coordinator_core.cluster.files import Sample

SAMPLES = 8
"""Batches of a partition that are compared. The log cleaner leaves a batch alone only when none of its
records was superseded, so in an offsets log it hardly passes by all of them."""

_SPARE_BYTES = 64 << 20
"""The first batch of an answer comes whole, whatever its size; the others must still fit."""


def rewritten(client: Client, topic: str, states: Sequence[Fetching]) -> set[int]:
    """Partitions of which a sampled batch at or above the log start offset is not the leader's any more.

    A partition that cannot be asked for now (no leader, error) is not among them.
    """
    changed: set[int] = set()
    held = {state.partition: state for state in states}
    samples = {state.partition: _spread(state) for state in states}

    def one(broker: int, partitions: list[int]) -> None:
        for turn in range(SAMPLES):
            asked = {
                partition: samples[partition][turn]
                for partition in partitions
                if turn < len(samples[partition]) and partition not in changed
            }
            if not asked:
                return
            wanted = [
                # The first is looked for from the log start on: nothing may have come before it.
                (partition, -1, sample.base_offset if turn else held[partition].start_offset, sample.size)
                for partition, sample in sorted(asked.items())
            ]
            most = sum(sample.size for sample in asked.values()) + _SPARE_BYTES
            answer = client.ask(
                lambda wanted=wanted, most=most: fetch_request(  # type: ignore[misc]
                    topic, wanted, max_bytes=most, max_wait_ms=0
                ),
                broker,
            )
            throttled = answer.throttle_time_ms > 0
            for each in (each for found in answer.responses for each in found.partitions):
                if not _same(each, held[each.partition_index], asked[each.partition_index], throttled):
                    changed.add(each.partition_index)
            if throttled:
                time.sleep(answer.throttle_time_ms / 1000)

    # When a broker goes away, whether its log was rewritten is for the next capture to see.
    with suppress(ClusterError):
        by_broker({state.partition: state.leader for state in states}, one)
    return changed


def _same(answer: Any, state: Fetching, sample: Sample, throttled: bool) -> bool:
    records = bytes(answer.records or b"")
    if answer.error_code or (throttled and not records):
        return True
    return records[: sample.size] == state.files.read(sample)


def _spread(state: Fetching) -> list[Sample]:
    """A part of the partition's samples: the first, the last, and evenly spread ones between them."""
    usable = [sample for sample in state.files.samples if sample.end_offset > state.start_offset]
    if len(usable) <= SAMPLES:
        return usable
    step = (len(usable) - 1) / (SAMPLES - 1)
    return [usable[round(index * step)] for index in range(SAMPLES)]
