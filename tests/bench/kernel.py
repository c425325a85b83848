"""``python -m tests.bench.kernel LOG``: CPU seconds of decode, CRC and fold alone, on one core.

Prints ``{"cpu_seconds": …, "bytes": …}``: the folds of all segments, one after the other, and the values of
each decoded (of which a replay decodes only those that stand after the merge), without start-up, merge and
publication.
"""

from __future__ import annotations

import json
import sys
import time

import pyarrow.compute as pc

from coordinator_core.cli.process import keep_freed_memory, start_light
from coordinator_core.columnar.commit_values import decoded
from coordinator_core.columnar.fold import fold_segment
from coordinator_core.log.discovery import discover
from coordinator_core.log.types import SegmentFile
from coordinator_core.replay.fold import VALUE, FoldRules
from coordinator_core.replay.profiles import profile_for_release


def main(log: str, release: str) -> None:
    start_light()
    keep_freed_memory()
    rules = FoldRules.of(profile_for_release(release))
    segments = discover([log]).segments

    def fold(segment: SegmentFile) -> float:
        began = time.thread_time()
        slots = fold_segment(segment, rules=rules).slots
        decoded(slots["value"].filter(pc.equal(slots["kind"], VALUE)).combine_chunks())
        return time.thread_time() - began

    fold(segments[0])  # kernels are loaded, and compiled when need be
    cpu_seconds = sum(map(fold, segments))
    print(json.dumps({"cpu_seconds": cpu_seconds, "bytes": sum(segment.size for segment in segments)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
