"""``python -m tests.bench.kernel LOG``: CPU seconds of decode, CRC and fold alone, on one core.

Prints ``{"cpu_seconds": …, "bytes": …}``: the folds of all segments, in the runs that the local engine makes,
and the values of each run decoded (of which a replay decodes only those that stand after the merge), without
start-up, merge and publication.
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial

import pyarrow.compute as pc

from coordinator_core.fold.rules import FoldRules
from coordinator_core.fold.schema import VALUE
from coordinator_core.fold.segments import Piece, fold_run
from coordinator_core.fold.tasks import FoldTask, fold_tasks, in_runs, most_run_bytes
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.windows import SegmentWindows
from coordinator_core.merge.commit_values import decoded
from coordinator_core.process.allocator import keep_freed_memory
from coordinator_core.process.interpreter import start_light
from coordinator_core.releases import profile_for_release


def main(log: str, release: str) -> None:
    start_light()
    keep_freed_memory()
    rules = FoldRules.of(profile_for_release(release))
    most_bytes = partial(most_run_bytes, rules=rules)
    tasks = in_runs(fold_tasks(discover([log]), OnDamage.FAIL), most_bytes)

    def fold(task: FoldTask) -> float:
        pieces = [Piece(segment, SegmentWindows(segment), end_offset) for segment, end_offset in task.ranges]
        began = time.thread_time()
        folds = fold_run(pieces, rules=rules)
        assert folds is not None
        offset_keys = folds[-1].offset_keys
        decoded(offset_keys["value"].filter(pc.equal(offset_keys["kind"], VALUE)).combine_chunks())
        return time.thread_time() - began

    fold(tasks[-1])  # kernels are loaded, and compiled when need be
    cpu_seconds = sum(map(fold, tasks))
    print(json.dumps({"cpu_seconds": cpu_seconds, "bytes": sum(task.size for task in tasks)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
