"""State before the first and after the last step of a prediction."""

from __future__ import annotations

from coordinator_core.drill.model import Prediction


def first_leaders(prediction: Prediction) -> dict[int, int | None]:
    """Leader of each offsets partition before the first step."""
    found: dict[int, int | None] = {}
    for each in sorted(prediction.partitions, key=lambda one: one.step):
        found.setdefault(each.offsets_partition, each.leader_before)
    return found


def last_leaders(prediction: Prediction) -> dict[int, int | None]:
    """Leader of each offsets partition after the last step."""
    ordered = sorted(prediction.partitions, key=lambda one: one.step)
    return {each.offsets_partition: each.leader_after for each in ordered}
