"""Contents of a generated log."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from coordinator_core.log.types import Codec

START_MS = 1_760_000_000_000
TOPICS = 300
TOPIC_STEP = 17
"""Topics of a group are this far apart; it and TOPICS have no common divisor, so that none comes twice."""


def topic_name(number: int) -> str:
    return f"prod.orders.events-{number:03}"


def topic_id(topic: str) -> uuid.UUID:
    """Id of a topic in a generated log."""
    return uuid.uuid5(uuid.NAMESPACE_DNS, topic)


@dataclass(frozen=True)
class Workload:
    """Contents to write. Bytes, groups and offset keys are those of one offsets partition."""

    name: str
    target_bytes: int
    """Size before compression; the last transactions end beyond it."""
    groups: int = 5_000
    offset_keys: int = 176_000
    """Distinct committed offsets that are committed in turn."""
    records_per_batch: int = 25
    transactional: float = 0.0
    """Share of batches that belong to a transaction."""
    aborted: float = 0.1
    """Share of transactions that abort."""
    tombstones: float = 0.0
    """Share of commits outside transactions that delete their offset key instead."""
    tombstone_batches: float = 0.0
    """Share of commits outside transactions that are sweeps instead: batches of nothing but tombstones."""
    metadata_every: int = 200
    """A group record is written after so many batches; 1 is the most churn."""
    group_batches: float = 0.0
    """Share of batches that are group records. When set, groups rebalance (``rebalances.py``) instead of
    writing all their records again and again, and ``metadata_every`` means nothing."""
    codec: Codec = Codec.NONE
    segment_bytes: int = 100 * 1024 * 1024
    partitions: int = 1
    seed: int = 7
    smallest_batch: int | None = None
    """If set, batches have from this to ``records_per_batch`` records, small ones more often."""
    shuffled: bool = False
    """The partitions of a commit come in any order."""
    group_skew: float = 0.0
    """Zipf exponent: the n-th group has ``n ** -group_skew`` of the offset keys and commits of the first."""
    partition_skew: float = 0.0
    """Zipf exponent of the bytes, offset keys and groups of the offsets partitions; the first is full size."""
    in_turn: bool = False
    """Groups commit one after the other, all their offset keys, so that no offset key is written twice before every one
    was written: a log of fewer commits than offset keys holds nothing dead."""
    consumer_groups: float = 0.0
    """Share of groups that are of KIP-848; their group records are written before anything else."""
    members: int = 1
    """Most members of a group."""
    members_of_first_group: int = 0
    """If set, the first group has so many members."""
    value_versions: tuple[int, ...] = (3,)
    """Versions of OffsetCommitValue, one a batch, equally often."""
    legacy_offset_keys: float = 0.0
    """Share of offset keys that are written under key type 0 as often as under type 1."""
    topics_per_group: int = 1
    commit_metadata: int = 0
    """Most bytes of the committer's own text."""
    commits_with_metadata: float = 1.0
    """Share of commits that have such a text; with all of them it may be empty."""
    varied_names: bool = False
    """Names of groups short and long, also with characters of more than one byte."""
    producers: int = 1_000
    """Producer ids of transactions, used again and again."""
    transaction_batches: int = 20
    """A transaction is ended at most so many batches after its commits."""
    steps: int = 0
    """If set, consumers go forward: a commit is at most so many records behind the last one. Else each is anywhere,
    so that nearly all values of an offset key are jumps ahead or back."""
    first_offset: int = 0
    """Offset of the first record; where it is not 0, the log begins as if its first segments had been deleted."""

    def __post_init__(self) -> None:
        if self.producers <= self.transaction_batches + 1:
            raise ValueError("a producer would begin a transaction in another one of its own")
        if self.group_batches and (self.in_turn or self.members_of_first_group):
            raise ValueError("a group that rebalances commits when it has members, of which it has a few")

    def of_partition(self, number: int) -> Workload:
        """The part of one offsets partition."""
        weight = (number + 1) ** -self.partition_skew
        sizes = {
            name: max(1, round(getattr(self, name) * weight)) for name in ("target_bytes", "groups", "offset_keys")
        }
        return Workload(**{**self.__dict__, **sizes})

    def are_consumer_groups(self, groups: int) -> npt.NDArray[np.bool_]:
        """Groups of KIP-848: spread evenly; not the first group, unless all are."""
        is_one: npt.NDArray[np.bool_] = np.diff(np.floor(np.arange(groups + 1) * self.consumer_groups)) > 0
        return is_one
