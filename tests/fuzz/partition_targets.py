"""Partitions of several segments: sequential replay, folds in parts, and shards as the Spark engine merges them."""

from __future__ import annotations

import struct
import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random

from coordinator_core.errors import Damage, DamagedInputError
from coordinator_core.fold.rules import FoldRules
from coordinator_core.fold.segments import fold_partition
from coordinator_core.log.limits import Limits
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import PartitionLog, SegmentFile
from tests.fold.parity import PROFILES, differences, merge_folds, sequential_outcome
from tests.fold.test_shards import merged_in_shards
from tests.fuzz.checks import WrongResultError, require_equal
from tests.fuzz.segments import entries_of

_IN_PARTS = Limits(kept_floor_bytes=0, kept_ratio=0)
_SHARDS = 3


def partition(data: bytes, choices: Random) -> str:
    """All ways of reading a log: at once, in parts, in shards."""
    profile = PROFILES[choices.choice(list(PROFILES))]
    on_damage = choices.choice((OnDamage.FAIL, OnDamage.SALVAGE, OnDamage.RECOVER, OnDamage.RECOVER))
    with tempfile.TemporaryDirectory() as place:
        log = log_in(Path(place), data, choices)
        expected, expected_damage = sequential_outcome(log, profile, on_damage)
        found: list[Damage] = []
        limits = choices.choice((Limits(), _IN_PARTS))
        rules = FoldRules.of(profile)
        try:
            folds = list(fold_partition(log, rules=rules, limits=limits, on_damage=on_damage, damage=found))
        except DamagedInputError as error:
            require_equal(error.damage, expected, "damage")
            return error.damage.kind
        # Whether the log reaches its start offset is asked of a whole partition.
        if isinstance(expected, Damage):
            require_equal(expected.kind, "log_start_offset", "damage")
            return expected.kind
        for name in (found, expected_damage):
            name[:] = [each for each in name if each.kind != "log_start_offset"]
        require_equal(found, expected_damage, "damage")
        states = [merge_folds(folds, profile, 0)]
        if folds:
            states.append(merged_in_shards(folds, profile, _SHARDS, Path(place)).to_state())
        for state in states:
            wrong = differences(expected, state)
            if wrong:
                raise WrongResultError("\n".join(wrong))
    return on_damage.value


def log_in(place: Path, data: bytes, choices: Random) -> PartitionLog:
    """Up to four segments with the entries of ``data``, of which some come again."""
    entries = list(entries_of(data))
    torn = data[sum(map(len, entries)) :]
    if entries and choices.random() < 0.3:
        entries = choices.choices(entries, k=2 * len(entries))
    cuts = {0, *(choices.randrange(len(entries) + 1) for _ in range(choices.randrange(4)))}
    bounds = [*sorted(cuts), len(entries)]
    segments: dict[int, SegmentFile] = {}
    for begin, end in pairwise(bounds):
        part = b"".join(entries[begin:end]) + (torn if end == len(entries) else b"")
        base = struct.unpack_from(">q", part)[0] if len(part) >= 8 and choices.random() < 0.8 else 0
        base = min(max(base - choices.choice((0, 0, 0, 3)), 0), (1 << 63) - 1)
        path = place / f"{base:020d}.log"
        path.write_bytes(part)
        segments[base] = SegmentFile(str(path), 0, base, len(part))
    ordered = [segments[base] for base in sorted(segments)]
    log = PartitionLog(0, str(place), tuple(ordered), None, clean_shutdown=choices.random() < 0.5)
    last = ordered[-1].base_offset
    return replace(log, log_start_offset=choices.choice((None, None, 2)), recovery_point=choices.choice((None, last)))
