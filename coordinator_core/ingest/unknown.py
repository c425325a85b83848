"""Kinds of damage of a log made of records of a consumer: its files are sound, facts are missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coordinator_core.durations import numbered
from coordinator_core.errors import Damage, DamagedInputError, UsageError
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import Snapshot

RECORDS_ONLY = "records_only"
"""A partition of records that were read committed."""

TRANSACTIONS_UNKNOWN = "transactions_unknown"
"""A partition of records that were read uncommitted."""


_KINDS = (RECORDS_ONLY, TRANSACTIONS_UNKNOWN)


def is_unknown(damage: Damage) -> bool:
    """Whether the files are sound, and only facts are missing that records of a consumer lack."""
    return damage.kind in _KINDS


def partial_text(damage: Sequence[Mapping[str, Any]]) -> str:
    """Why a run is partial, by the entries of ``damage`` in its manifest."""
    unknown = sum(entry["kind"] in _KINDS for entry in damage)
    places = len(damage) - unknown
    texts = [f"{numbered(places, 'damaged place')} in the log"] if places else []
    if unknown:
        texts.append(f"{numbered(unknown, 'offsets partition')} made of records of a consumer")
    return ", ".join(texts)


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
