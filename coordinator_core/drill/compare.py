"""Comparison of the prediction of a drill with its observation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from coordinator_core.drill.model import (
    Band,
    GroupPrediction,
    OffsetChange,
    PartitionPrediction,
    Prediction,
    ServedGroup,
)
from coordinator_core.drill.observed import Observed, ObservedGroup, ObservedPartition
from coordinator_core.groups.model import GroupType
from coordinator_core.jsontext import to_json


class Match(StrEnum):
    """``NOT_COMPARED``: one side does not say."""

    MISS = "miss"
    NOT_COMPARED = "not_compared"
    AS_PREDICTED = "as_predicted"


class Verdict(StrEnum):
    """``INCOMPLETE``: the drill did not come to its end, or was not done."""

    AS_PREDICTED = "as_predicted"
    MISSES = "misses"
    INCOMPLETE = "incomplete"


@dataclass(frozen=True, slots=True)
class ComparedClaim:
    """One claim: ``what`` is the field of the prediction of a ``partition`` or ``group`` (``of``)."""

    of: str
    name: int | str
    what: str
    predicted: Any
    observed: Any
    match: Match


@dataclass(frozen=True, slots=True)
class Comparison:
    """``rows`` have the misses first. ``groups_not_predicted`` were not in the log of the prediction."""

    verdict: Verdict
    rows: tuple[ComparedClaim, ...]
    groups_not_predicted: tuple[str, ...]

    def count(self, match: Match) -> int:
        return sum(row.match is match for row in self.rows)

    @property
    def misses(self) -> tuple[ComparedClaim, ...]:
        return tuple(row for row in self.rows if row.match is Match.MISS)


def compare(prediction: Prediction, seen: Observed) -> Comparison:
    """Exact for leaders, coordinators, rebalances and offsets; times must lie within their bands.

    Of a prediction of several steps the state after the last one is compared, rebalances and offsets of all.
    """
    rows = [*_partition_rows(prediction, seen), *_group_rows(prediction, seen)] if seen.complete else []
    order = list(Match)
    rows.sort(key=lambda row: (order.index(row.match), row.of == "group", _sortable(row.name), row.what))
    verdict = Verdict.AS_PREDICTED
    if not seen.complete or seen.outcome != "observed":
        verdict = Verdict.INCOMPLETE
    elif any(row.match is Match.MISS for row in rows):
        verdict = Verdict.MISSES
    predicted = {one.group_id for one in prediction.groups}
    unknown = tuple(one.group_id for one in seen.groups if one.group_id not in predicted)
    return Comparison(verdict, tuple(rows), unknown)


def _sortable(name: int | str) -> tuple[int, str]:
    return (name, "") if isinstance(name, int) else (0, name)


def _partition_rows(prediction: Prediction, seen: Observed) -> Iterator[ComparedClaim]:
    found = {one.offsets_partition: one for one in seen.partitions}
    first, last = prediction.first_leaders(), prediction.last_leaders()
    steps: dict[int, list[PartitionPrediction]] = {}
    for one in prediction.partitions:
        steps.setdefault(one.offsets_partition, []).append(one)
    for number, claims in sorted(steps.items()):
        mine = found.get(number)
        yield _exact("partition", number, "leader_before", first[number], mine and mine.leader_before, mine)
        yield _exact("partition", number, "leader_after", last[number], mine and mine.leader_after, mine)
        if mine is not None:
            yield from _load_rows(number, claims, mine)
            yield from _lost_rows(number, claims, mine)


def _load_rows(number: int, claims: list[PartitionPrediction], mine: ObservedPartition) -> Iterator[ComparedClaim]:
    bands = [one.load_ms for one in claims if one.load_ms is not None]
    if not bands:
        return
    # Which step a load belongs to is not known: each must lie within one of their bands.
    within = all(any(load in band for band in bands) for load in mine.load_ms) if mine.load_ms else None
    low, highs = min(band.low for band in bands), [band.high for band in bands]
    high = None if None in highs else max(high for high in highs if high is not None)
    yield ComparedClaim("partition", number, "load_ms", _band(Band(low, high)), list(mine.load_ms), _match(within))


def _lost_rows(number: int, claims: list[PartitionPrediction], mine: ObservedPartition) -> Iterator[ComparedClaim]:
    """Canaries commit after the prediction: their records may be lost besides."""
    told = [one.lost_records for one in claims if one.lost_records is not None]
    if not told or mine.lost_records is None:
        return
    lost = sum(told)
    fits = lost <= mine.lost_records <= lost + mine.canary_commits
    yield ComparedClaim("partition", number, "lost_records", lost, mine.lost_records, _match(fits))


def _group_rows(prediction: Prediction, seen: Observed) -> Iterator[ComparedClaim]:
    found = {one.group_id: one for one in seen.groups}
    outages = {one.offsets_partition: one.outage_ms for one in seen.partitions}
    steps: dict[str, list[GroupPrediction]] = {}
    for one in sorted(prediction.groups, key=lambda one: one.step):
        steps.setdefault(one.group_id, []).append(one)
    for group_id, claims in steps.items():
        mine = found.get(group_id)
        last = claims[-1]
        yield _exact(
            "group", group_id, "coordinator_after", last.coordinator_after, mine and mine.coordinator_after, mine
        )
        if mine is None:
            continue
        yield _rebalances(group_id, claims, mine)
        for what in ("regressed", "vanished"):
            predicted = _changes(change for one in claims for change in getattr(one, what))
            yield _exact("group", group_id, what, predicted, _changes(getattr(mine, what)), mine)
        yield from _served_rows(group_id, claims, mine)
        outage = outages.get(last.offsets_partition)
        if outage is not None and len(claims) == 1:
            match = _match(_overlap(last.outage_ms, outage))
            yield ComparedClaim("group", group_id, "outage_ms", _band(last.outage_ms), _band(outage), match)


def _served_rows(group_id: str, claims: list[GroupPrediction], mine: ObservedGroup) -> Iterator[ComparedClaim]:
    """Share and streams groups. One that rebalances is soon another than the one that was loaded."""
    served = claims[-1].served
    if served is not None:
        known = mine.served if all(one.rebalances is False for one in claims) else None
        for what in ("state", "epochs", "members"):
            yield _exact("group", group_id, what, _shown(served, what), known and _shown(known, what), known)
    if claims[-1].type is GroupType.SHARE:
        stay = all(one.start_offsets_stay for one in claims)
        back = None if mine.start_offsets is None else _changes(mine.start_offsets)
        match = _match(None if back is None or not stay else not back)
        yield ComparedClaim("group", group_id, "start_offsets", [] if stay else None, back, match)


def _shown(group: ServedGroup, what: str) -> Any:
    """One claim about a group; epochs are those of the group, its target assignment and its topology."""
    if what == "epochs":
        return [group.group_epoch, group.assignment_epoch, group.topology_epoch]
    return to_json(getattr(group, what))


def _rebalances(group_id: str, claims: list[GroupPrediction], mine: ObservedGroup) -> ComparedClaim:
    told = [one.rebalances for one in claims]
    predicted = True if True in told else None if None in told else False
    happened = bool(mine.generations)
    match = _match(None if predicted is None else predicted == happened)
    return ComparedClaim("group", group_id, "rebalances", predicted, happened, match)


def _match(holds: bool | None) -> Match:
    """``holds``: ``None`` where one side does not say."""
    return {None: Match.NOT_COMPARED, True: Match.AS_PREDICTED, False: Match.MISS}[holds]


def _exact(of: str, name: int | str, what: str, predicted: Any, observed: Any, known: object) -> ComparedClaim:
    if known is None:
        return ComparedClaim(of, name, what, predicted, None, Match.NOT_COMPARED)
    return ComparedClaim(of, name, what, predicted, observed, _match(predicted == observed))


def _changes(changes: Iterable[OffsetChange]) -> list[list[Any]]:
    return sorted(([one.topic, one.partition, one.before, one.after] for one in changes), key=lambda one: one[:2])


def _band(band: Band) -> list[int | None]:
    return [band.low, band.high]


def _overlap(one: Band, other: Band) -> bool:
    return (one.high is None or other.low <= one.high) and (other.high is None or one.low <= other.high)
