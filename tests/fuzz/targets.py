"""Targets of the fuzzer: each takes an input to compiled code and says what must hold.

A target is a function of bytes and of a source of further choices (rules, sizes of tables, what changes
between two passes). It returns one word on what became of the input, and raises ``WrongResultError`` when a
result is not that of the plain readers. Any other exception is a finding as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.fuzz import (
    agreement_targets,
    command_targets,
    file_targets,
    fold_targets,
    log_targets,
    packing_targets,
    partition_targets,
    rearranged_targets,
    segments,
    table_targets,
    trace_targets,
    wire_targets,
)
from tests.fuzz.hostile import Hostile


@dataclass(frozen=True)
class Target:
    """``share`` is its part of all inputs; ``generate`` makes one, ``vary`` one like another."""

    run: Callable[[bytes, Random], str]
    share: float
    generate: Callable[[Hostile], bytes] = segments.segment
    vary: Callable[[Hostile, bytes], bytes] = segments.variant


TARGETS: dict[str, Target] = {
    "passes": Target(fold_targets.passes, 0.40),
    "headers": Target(fold_targets.headers, 0.15),
    "unpacking": Target(fold_targets.unpacking, 0.13, segments.packed_segment),
    "commits": Target(fold_targets.commits, 0.08, fold_targets.make_values, fold_targets.vary_values),
    "packing": Target(packing_targets.packing, 0.02, packing_targets.make_versions, packing_targets.vary_versions),
    "compaction": Target(log_targets.compaction, 0.08),
    "dump": Target(log_targets.dump, 0.08),
    "inference": Target(fold_targets.inference, 0.02),
    "fold": Target(fold_targets.fold, 0.02),
    "groups": Target(fold_targets.fold, 0.03, segments.segment_of_groups),
    "commands": Target(command_targets.commands, 0.002),
    "shifting_fold": Target(fold_targets.shifting_fold, 0.01),
    "partition": Target(partition_targets.partition, 0.005),
    "run_directory": Target(file_targets.run_directory, 0.001, file_targets.make_file, file_targets.vary_file),
    "run_tables": Target(table_targets.run_tables, 0.001, table_targets.make_table, table_targets.vary_table),
    "capture": Target(wire_targets.capture, 0.0002),
    "cluster_file": Target(file_targets.cluster_file, 0.002, file_targets.make_clusters, file_targets.vary_clusters),
    "traces": Target(trace_targets.traces, 0.002, trace_targets.make_trace, trace_targets.vary_trace),
    "agreement": Target(agreement_targets.agreement, 0.0004, vary=agreement_targets.make_another),
    "rearranged": Target(
        rearranged_targets.rearranged, 0.005, rearranged_targets.make_sound, rearranged_targets.make_sound
    ),
}
