"""Forecast of an expiry sweep over an offsets partition that is columns: numbers, and its tombstones in tables."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.fold.arrow import column
from coordinator_core.kernels.arrays import Int64s
from coordinator_core.lifecycle.due import Bools
from coordinator_core.lifecycle.expiring import KINDS, REASONS, Swept, Tombstones, sweep_columns
from coordinator_core.lifecycle.plan import Kept, Reason, TombstoneKind
from coordinator_core.lifecycle.publish_expiry import TOMBSTONES
from coordinator_core.merge.schema import MergedPartition
from coordinator_core.releases import Profile

_TEXTS = pa.dictionary(pa.int32(), pa.string())

FORECAST = pa.schema(
    field.with_type(_TEXTS) if field.type == pa.string() else field
    for field in TOMBSTONES
    if field.name not in ("position", "key")
)
"""Columns of a forecast, texts as dictionaries.

Rows are by offsets partition and group: tombstones of its committed offsets by topic and partition, then its own. Those
that are ``due`` are in the order of writing."""

MOST_GROUPS = 10
"""Groups of which a forecast says how many tombstones they get."""


@dataclass(frozen=True)
class GroupLoss:
    """Due tombstones of a group; whether the group itself expires."""

    group_id: str
    tombstones: int
    expires: bool


@dataclass(frozen=True)
class Forecast:
    """Numbers of an :class:`~coordinator_core.lifecycle.plan.ExpiryPlan`.

    ``committed_offsets`` and ``groups`` stand now; ``expired_offsets``, ``expired_groups`` and ``tombstones`` are due,
    ``later`` will be; ``sha256`` is the digest of the plan, ``kept`` counts by reason. ``reasons`` counts due
    tombstones by reason and kind, ``losing`` the groups that they are of; ``most`` are those with most of them.
    """

    offsets_partition: int
    committed_offsets: int
    groups: int
    expired_offsets: int
    expired_groups: int
    tombstones: int
    sha256: str
    later: int
    kept: Mapping[Kept, int]
    failure: str | None
    reasons: Mapping[tuple[Reason, TombstoneKind], int]
    losing: int
    most: Sequence[GroupLoss]


def forecast(
    merged: MergedPartition,
    profile: Profile,
    *,
    now_ms: int,
    offsets_retention_ms: int,
    take: Callable[[pa.Table], None],
) -> Forecast:
    """Forecast of an offsets partition; ``take`` is given its tombstones, in tables with the columns :data:`FORECAST`.

    Where the sweep fails, there are none.
    """
    state = merged.without_offsets()
    swept = sweep_columns(merged, state, profile, now_ms=now_ms, offsets_retention_ms=offsets_retention_ms)
    digest = hashlib.sha256()
    tombstones = later = 0
    reasons: Counter[tuple[Reason, TombstoneKind]] = Counter()
    of_groups = np.zeros(len(swept.offsets.group_ids), np.int64)
    for places in swept.places():
        is_due = swept.is_due(places)
        block = swept.tombstones(places)
        take(_table(block, is_due))
        later += len(block) - int(is_due.sum())
        if not is_due.any():
            continue
        due = block if is_due.all() else swept.tombstones(places[is_due])
        for key in due.digested_keys().to_pylist():
            digest.update(key)
        tombstones += len(due)
        for numbers in (due.group, due.group_of_other):
            of_groups += np.bincount(numbers, minlength=len(of_groups))
        for number, count in enumerate(np.bincount(due.reason).tolist()):
            reasons[REASONS[number], TombstoneKind.OFFSET] += count
        reasons.update((one.reason, one.kind) for one in due.others)
    return Forecast(
        offsets_partition=merged.offsets_partition,
        committed_offsets=merged.offsets.num_rows,
        groups=len(state.groups),
        expired_offsets=sum(count for (_, kind), count in reasons.items() if kind is TombstoneKind.OFFSET),
        expired_groups=sum(count for (_, kind), count in reasons.items() if kind is TombstoneKind.GROUP),
        tombstones=tombstones,
        sha256=digest.hexdigest(),
        later=later,
        kept=swept.kept,
        failure=swept.failure,
        reasons=+reasons,
        losing=int(np.count_nonzero(of_groups)),
        most=_most(swept, of_groups),
    )


def _most(swept: Swept, of_groups: Int64s) -> list[GroupLoss]:
    numbers = np.argsort(-of_groups, kind="stable")[:MOST_GROUPS]
    gone = {
        one.group_id for one in swept.others if one.kind is TombstoneKind.GROUP and one.expires_at_ms <= swept.now_ms
    }
    losses = zip(numbers.tolist(), of_groups[numbers].tolist(), strict=True)
    group_ids = swept.offsets.group_ids
    return [GroupLoss(group_ids[number], count, group_ids[number] in gone) for number, count in losses if count]


def _table(block: Tombstones, is_due: Bools) -> pa.Table:
    """Rows of :data:`FORECAST`."""

    def numbers(of_offsets: npt.NDArray[Any], of_others: Sequence[Any], is_null: Bools | None = None) -> pa.Array:
        values = block.in_order(of_offsets, [one or 0 for one in of_others])
        absent = np.zeros(len(of_offsets), np.bool_) if is_null is None else is_null
        return column(values, block.in_order(absent, [one is None for one in of_others]))

    others = block.others
    nobody = [None] * len(others)
    kinds = block.in_order(np.zeros(len(block.group), np.int8), [KINDS.index(one.kind) for one in others])
    reasons = block.in_order(block.reason, [REASONS.index(one.reason) for one in others])
    made = {
        "offsets_partition": column(np.full(len(block), block.offsets_partition, np.int32)),
        "due": column(is_due),
        "kind": pa.DictionaryArray.from_arrays(kinds, [str(one) for one in KINDS]),
        "group_id": _texts(block.group_ids, column(block.in_order(block.group, block.group_of_other.tolist()))),
        "topic": _texts(block.topics, numbers(block.topic, nobody)),
        "partition": numbers(block.partition, nobody),
        "reason": pa.DictionaryArray.from_arrays(reasons, [str(one) for one in REASONS]),
        "base_timestamp_ms": numbers(block.base_ms, [one.base_timestamp_ms for one in others], ~block.has_base),
        "expires_at_ms": numbers(block.expires_at_ms, [one.expires_at_ms for one in others]),
        "record_offset": numbers(block.record_offset, [one.record_offset for one in others]),
    }
    return pa.table([made[field.name].cast(field.type) for field in FORECAST], schema=FORECAST)


def _texts(texts: pa.Array, numbers: pa.Array) -> pa.Array:
    """The ``texts`` with these numbers as a dictionary, which has no others."""
    is_used = np.zeros(len(texts) + 1, np.bool_)
    places = pc.fill_null(numbers, len(texts)).to_numpy()
    is_used[places] = True
    is_used[-1] = False
    indices = column((np.cumsum(is_used, dtype=np.int32) - 1)[places], numbers.is_null().to_numpy(zero_copy_only=False))
    return pa.DictionaryArray.from_arrays(indices, texts.filter(pa.array(is_used[:-1])))
