"""Figures of a run that its report tells and that follow its committed offsets: of parts of the run, added up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coordinator_core.durations import DAY_MS
from coordinator_core.kernels.arrays import Int64s
from coordinator_core.rules.differences import ADDED, CHANGED, REMOVED, difference, unchanged
from coordinator_core.rules.facts import Facts, Part
from coordinator_core.rules.lag import Lag, lag_of_part, lag_together

EXAMPLES = 20
"""Changed groups that are told; what is left out is counted."""

DAYS = 14

_ORDER = {REMOVED: 0, ADDED: 1, CHANGED: 2}


@dataclass(frozen=True)
class Changes:
    """Changes since another run: numbers of groups and offsets by what became of them, and the first changed groups.

    Of a part of a run a table that is the same in both whole runs has no ``counts``.
    """

    counts: Mapping[str, Mapping[str, int]]
    groups: Sequence[Mapping[str, Any]]

    @classmethod
    def of(cls, facts: Facts) -> Changes | None:
        if facts.previous is None:
            return None
        found = difference(facts.previous.run, facts.run)
        tables = {"groups": found.groups, "offsets": found.offsets}
        counts = {name: table.counts for name, table in tables.items() if table is not None}
        return cls(counts, [] if found.groups is None else _first(found.groups.changes("group")))

    @classmethod
    def together(cls, parts: Iterable[Changes]) -> Changes:
        sums: dict[str, Counter[str]] = {}
        groups: list[Mapping[str, Any]] = []
        for part in parts:
            groups += part.groups
            for name, counts in part.counts.items():
                sums.setdefault(name, Counter()).update(counts)
        return cls({name: dict(counts) for name, counts in sums.items()}, _first(groups))


def _first(groups: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    def place(change: Mapping[str, Any]) -> tuple[int, int, str]:
        return _ORDER[change["change"]], change["offsets_partition"], change["group_id"]

    return sorted(groups, key=place)[:EXAMPLES]


@dataclass(frozen=True)
class Figures:
    """``lag`` and ``changes`` are ``None`` where topics or a previous run are not known. ``ages`` counts committed
    offsets by days since their commit, the last of :data:`DAYS` with all that are older."""

    lag: Lag | None
    changes: Changes | None
    ages: Int64s


def figures_of(facts: Facts) -> Figures:
    """Figures of a run, or of some of its offsets partitions; in memory are those of a part at a time."""
    return figures_of_parts(facts.each_part(lambda part: figures_of_part(part, facts)))


def figures_of_part(part: Part, whole: Facts) -> Figures | None:
    """Figures of a part of ``whole``; ``None`` where another part has its groups."""
    if not part.has_groups:
        return None
    facts = part.facts
    return Figures(lag_of_part(facts, is_whole=facts is whole), Changes.of(facts), _ages(facts))


def figures_of_parts(parts: Iterable[Figures | None]) -> Figures:
    """Figures of what was asked in these parts."""
    found = [figures for figures in parts if figures is not None]
    return found[0] if len(found) == 1 else figures_together(found)


def _ages(facts: Facts) -> Int64s:
    by_day = np.zeros(DAYS, np.int64)
    for time in facts.offsets.blocks_of("commit_timestamp_ms"):
        age = facts.now_ms // DAY_MS - time[time > 0] // DAY_MS
        by_day += np.bincount(np.clip(age, 0, DAYS - 1), minlength=DAYS)
    return by_day


def figures_together(parts: Sequence[Figures]) -> Figures:
    """Figures of a run from those of its parts, which have no group in common."""
    lags = [part.lag for part in parts if part.lag is not None]
    changes = [part.changes for part in parts if part.changes is not None]
    return Figures(
        lag_together(lags) if lags else None,
        Changes.together(changes) if changes else None,
        np.sum([part.ages for part in parts], axis=0, dtype=np.int64),
    )


def changes_in(facts: Facts, changes: Changes) -> dict[str, Mapping[str, int]]:
    """Numbers of all tables of a whole run."""
    return {name: changes.counts.get(name) or unchanged(facts.run, name) for name in ("groups", "offsets")}
