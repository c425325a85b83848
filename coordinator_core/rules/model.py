"""A rule: texts for the finding, its reason and its remedy, and the function that finds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import pyarrow as pa

from coordinator_core.durations import DAY_MS, HOUR_MS, MINUTE_MS
from coordinator_core.releases import Profile, profile_names
from coordinator_core.rules.needs import Need
from coordinator_core.runs.schemas import TABLES

if TYPE_CHECKING:
    from coordinator_core.rules.facts import Facts


class Severity(IntEnum):
    """``CRITICAL``: groups lose or repeat work, or a broker will.  ``WARNING``: metadata and offsets do not
    agree, somebody should look.  ``INFO``: worth knowing; healthy clusters have such things."""

    INFO = 1
    WARNING = 2
    CRITICAL = 3

    @property
    def label(self) -> str:
        return self.name.lower()

    @classmethod
    def of(cls, label: str) -> Severity:
        return cls[label.upper()]


@dataclass(frozen=True, slots=True)
class Threshold:
    """A number that decides, with Kafka's default where it is a broker setting."""

    default: float
    meaning: str


THRESHOLDS: Mapping[str, Threshold] = {
    "offsets_retention_ms": Threshold(
        7 * DAY_MS, "`offsets.retention.minutes` of the brokers; by default a day before 2.0"
    ),
    "expiry_grace_ms": Threshold(
        1_200_000, "R60: two rounds of `offsets.retention.check.interval.ms`, in which a sweep must have come"
    ),
    "offset_metadata_max_bytes": Threshold(4096, "`offset.metadata.max.bytes` of the brokers"),
    "max_message_bytes": Threshold(1_048_588, "`max.message.bytes` of `__consumer_offsets`"),
    "transaction_max_timeout_ms": Threshold(900_000, "`transaction.max.timeout.ms` of the brokers"),
    "clock_skew_ms": Threshold(MINUTE_MS, "how far a commit may be ahead of the run's `now_ms`"),
    "silent_share": Threshold(0.5, "R40: share of the retention that an active group may be silent"),
    "storm_commits_per_second": Threshold(200, "R41: commit records of one group in a second, on average"),
    "storm_commits_of_partition_per_second": Threshold(1, "R41: as many of each partition that the group commits"),
    "storm_commits": Threshold(10_000, "R41: commit records that a group must have in the log"),
    "record_size_share": Threshold(0.8, "R23: share of `max_message_bytes` that a group record may take"),
    "blocked_records": Threshold(10_000, "R53: records behind the oldest open transaction"),
    "leader_share": Threshold(2, "R86: times its fair share of the offsets partitions that a broker may lead"),
    "cleaner_idle_ms": Threshold(6 * HOUR_MS, "R87: how long what can be cleaned may stay as it is"),
    "generations_ahead": Threshold(100, "R91: generations of a group above the number of records that there were"),
    "stopped_ms": Threshold(
        HOUR_MS,
        "R46: how long a partition's commits lag behind others of its owner; R48: how long they repeat one offset",
    ),
    "stopped_lag": Threshold(1000, "R46, R48: records that such a partition has to be read"),
    "metadata_share": Threshold(0.8, "R47: share of `offset_metadata_max_bytes`"),
    "offsets_load_buffer_bytes": Threshold(5 << 20, "`offsets.load.buffer.size` of the brokers"),
    "load_buffer_share": Threshold(0.8, "R79: share of `offsets_load_buffer_bytes` that a batch may take"),
    "findings_per_rule": Threshold(
        50_000, "findings of one rule beyond which those of a group, and of one mute, become one with a count"
    ),
}

Limits = Mapping[str, float]
"""Values of ``THRESHOLDS``, by name."""

Find = Callable[["Facts", Limits], pa.Table]
"""Rows that break the rule: columns of ``findings.SUBJECT``, and any others, which are the evidence."""


@dataclass(frozen=True)
class Rule:
    """One rule of the catalogue.

    ``message`` is a template over the columns of the table that ``find`` returns; ``{keys:offset}`` says ``1 offset``
    or ``2 offsets``.  ``applies`` says of a profile whether the rule is one for it (``None``: for all).  ``also`` are
    the codes that the notes on Kafka's format give the same thing (D1 to D18).  A rule that is ``across`` looks at all
    offsets partitions at once; of any other it is the same to ask it about some of them, and then about the rest.  One
    that is ``of_partition`` looks at all groups of an offsets partition at once (:attr:`by_group`).
    """

    code: str
    name: str
    severity: Severity
    summary: str
    why: str
    evidence: str
    remedy: str
    message: str
    reads: tuple[str, ...]
    find: Find
    needs: tuple[Need, ...] = ()
    thresholds: tuple[str, ...] = ()
    applies: Callable[[Profile], bool] | None = None
    across: bool = False
    of_partition: bool = False
    also: tuple[str, ...] = ()

    @property
    def by_group(self) -> bool:
        """Whether it is the same to ask about some groups of an offsets partition, and then about the rest: of rules
        that read nothing but rows of groups, unless they say otherwise."""
        of_groups = bool(self.reads) and all("group_id" in TABLES[name].arrow.names for name in self.reads)
        return of_groups and not (self.across or self.of_partition)

    @property
    def profiles(self) -> tuple[str, ...] | None:
        """Names of the profile families that the rule applies to; ``None``: all."""
        return None if self.applies is None else profile_names(self.applies)
