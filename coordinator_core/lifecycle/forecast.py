"""Numbers of an expiry sweep over an offsets partition that is columns, and its tombstones in blocks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from coordinator_core.lifecycle.expiring import Tombstones, sweep_columns
from coordinator_core.lifecycle.plan import Kept, TombstoneKind
from coordinator_core.merge.schema import MergedPartition
from coordinator_core.releases import Profile

_BLOCK_ROWS = 1 << 15


@dataclass(frozen=True)
class Forecast:
    """Numbers of an :class:`~coordinator_core.lifecycle.plan.ExpiryPlan`.

    ``offsets``, ``groups`` and ``tombstones`` are due, ``later`` will be; ``sha256`` is its digest, ``kept`` counts by
    reason.
    """

    offsets_partition: int
    offsets: int
    groups: int
    tombstones: int
    sha256: str
    later: int
    kept: Mapping[Kept, int]
    failure: str | None


Take = Callable[[Tombstones], None]


def forecast(
    merged: MergedPartition, profile: Profile, *, now_ms: int, offsets_retention_ms: int, due: Take, later: Take
) -> Forecast:
    """Forecast of an offsets partition.

    ``due`` is given the tombstones that are due, in the order of writing, and ``later`` those to come, one group after
    the other, each group's by the time at which they expire. Where the sweep fails, there are none.
    """
    state = replace(merged, offsets=_NoRows()).to_state(whole_metadata=False)
    blocks = merged.offsets.blocks(_BLOCK_ROWS)
    swept = sweep_columns(state, blocks, profile, now_ms=now_ms, offsets_retention_ms=offsets_retention_ms)
    digest = hashlib.sha256()
    offsets = groups = tombstones = to_come = 0
    for block in swept.due():
        for key in (keys := block.digested_keys()).to_pylist():
            digest.update(key)
        tombstones += len(keys)
        offsets += len(block.group)
        groups += sum(one.kind is TombstoneKind.GROUP for one in block.others)
        due(block)
    for block in swept.later():
        to_come += len(block.order)
        later(block)
    return Forecast(
        offsets_partition=merged.offsets_partition,
        offsets=offsets,
        groups=groups,
        tombstones=tombstones,
        sha256=digest.hexdigest(),
        later=to_come,
        kept=swept.kept,
        failure=swept.failure,
    )


class _NoRows:
    num_rows = 0

    def blocks(self, block_rows: int = 0) -> Iterator[pa.Table]:
        return iter(())
