"""Due time of a committed offset: one formula, for a value and for a column of values.

Sources: ``OffsetManager.compact`` (0.8.2), ``GroupMetadataManager.deleteExpiredOffsets`` (0.9),
``GroupMetadata.removeExpiredOffsets`` (Scala, 0.10.1 on; KIP-211 from 2.1), ``OffsetExpirationConditionImpl``
and ``OffsetMetadataManager.cleanupExpiredOffsets`` (Java).
"""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, TypeVar, overload

import numpy as np
import numpy.typing as npt

from coordinator_core.groups.model import CommittedOffset
from coordinator_core.kernels.arrays import Int64s
from coordinator_core.releases import Clock

LONG_MAX = (1 << 63) - 1

Bools = npt.NDArray[np.bool_]
Times = TypeVar("Times", int, Int64s)
Flags = TypeVar("Flags", bool, Bools)


class Expiry(NamedTuple, Generic[Times, Flags]):
    """``due_ms``: the first moment at which a sweep removes the offset, epoch milliseconds; it means nothing
    where ``ever`` is false: at no time that a signed 64-bit clock shows. ``is_due``: that moment has come.
    ``is_explicit``: the value's own expire timestamp decided."""

    due_ms: Times
    ever: Flags
    is_due: Flags
    is_explicit: Flags


@overload
def expiry_of(
    clock: Clock, *, now_ms: int, retention_ms: int, base_ms: int, explicit_ms: int, is_explicit: bool
) -> Expiry[int, bool]: ...
@overload
def expiry_of(
    clock: Clock, *, now_ms: int, retention_ms: int, base_ms: Int64s, explicit_ms: Int64s, is_explicit: Bools
) -> Expiry[Int64s, Bools]: ...
def expiry_of(
    clock: Clock, *, now_ms: int, retention_ms: int, base_ms: Any, explicit_ms: Any, is_explicit: Any
) -> Expiry[Any, Any]:
    """Times at which offsets expire by ``clock``: of integers, or of int64 arrays of one shape, with equal results.

    ``now_ms``, ``retention_ms``: not negative. ``base_ms``: from when the offset ages. ``explicit_ms``: the
    value's own expire timestamp, which counts where ``is_explicit`` is true. All times in milliseconds.
    """
    if clock is Clock.COMMIT:
        is_explicit = is_explicit & False
    end = is_explicit * explicit_ms + (1 - is_explicit) * wrapped(base_ms + retention_ms)
    if clock is Clock.GROUP:
        # The broker subtracts in 64 bits: an age that overflows is negative, and never old enough.
        ages = (base_ms <= LONG_MAX - retention_ms) & (base_ms >= now_ms - LONG_MAX)
        due, ever = end, is_explicit | ages
    else:
        # Here it adds in 64 bits, and an offset expires once its time is over, not when it comes.
        ever = end != LONG_MAX
        due = end + ever
    return Expiry(due, ever, ever & (due <= now_ms), is_explicit)


def expiry_of_commit(
    offset: CommittedOffset, clock: Clock, *, now_ms: int, retention_ms: int, base_ms: int | None = None
) -> Expiry[int, bool]:
    """:func:`expiry_of` a committed offset that ages from ``base_ms`` on; ``None``: from its commit on."""
    explicit_ms = offset.expire_timestamp_ms
    return expiry_of(
        clock,
        now_ms=now_ms,
        retention_ms=retention_ms,
        base_ms=offset.commit_timestamp_ms if base_ms is None else base_ms,
        explicit_ms=explicit_ms or 0,
        is_explicit=explicit_ms is not None,
    )


def wrapped(total: Any) -> Any:
    """The sum ``total`` as a signed 64-bit integer; arrays are that already, and too narrow for the modulus."""
    over = total > LONG_MAX
    return total - over * LONG_MAX - over * LONG_MAX - over * 2
