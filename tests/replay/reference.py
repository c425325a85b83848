"""The reference replay of a whole offsets partition."""

from __future__ import annotations

from coordinator_core.errors import Damage
from coordinator_core.groups.model import PartitionState
from coordinator_core.log.reader import OnDamage, read_records
from coordinator_core.log.types import PartitionLog
from coordinator_core.releases import Profile
from coordinator_core.replay.sequential import SequentialReplayer


def replay_partition(
    log: PartitionLog, profile: Profile, *, on_damage: OnDamage = OnDamage.FAIL, damage: list[Damage]
) -> PartitionState:
    """State of one offsets partition; raises :class:`DamagedInputError` as ``read_records`` does."""
    replayer = SequentialReplayer(profile, log.offsets_partition)
    for _, batch, records in read_records(log, on_damage=on_damage, damage=damage):
        replayer.replay_batch(batch, records)
    return replayer.finish()
