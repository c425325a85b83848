"""Kinds of damage of a log made of records of a consumer: its files are sound, facts are missing."""

from __future__ import annotations

from coordinator_core.errors import Damage, DamagedInputError, UsageError
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import Snapshot

RECORDS_ONLY = "records_only"
"""A partition of records that were read committed."""

TRANSACTIONS_UNKNOWN = "transactions_unknown"
"""A partition of records that were read uncommitted."""


def is_unknown(damage: Damage) -> bool:
    """Whether the files are sound, and only facts are missing that records of a consumer lack."""
    return damage.kind in (RECORDS_ONLY, TRANSACTIONS_UNKNOWN)


def directory_damage(snapshot: Snapshot, on_damage: OnDamage) -> list[Damage]:
    """Damage of the directories themselves, for what shows single records, also those of a consumer.

    Under ``FAIL`` the first is raised that :func:`is_unknown` does not know.
    """
    for damage in snapshot.damage:
        if on_damage is OnDamage.FAIL and not is_unknown(damage):
            raise DamagedInputError(damage)
    return list(snapshot.damage)


def refuse_records(snapshot: Snapshot) -> None:
    """``UsageError`` for a snapshot made of records, also in part: for what makes logs for brokers."""
    for damage in snapshot.damage:
        if is_unknown(damage):
            raise UsageError(f"{damage.path}: {damage.kind}: no log to start a broker on")
