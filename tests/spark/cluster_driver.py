"""A driver for the tests on a cluster: says which Python executors run, then replays.

``python -m tests.spark.cluster_driver MASTER LOG OUTPUT`` prints a line of JSON for each.
"""

from __future__ import annotations

import json
import os
import sys

from coordinator_core.log.discovery import discover
from coordinator_core.runs.place import RunPlace
from spark_apps.engine import in_tasks, replay
from spark_apps.session import Session

ONE_SEGMENT = 1
"""Bytes per task."""


def where(_: int) -> tuple[str, ...]:
    """Working directory, interpreter, and the files of three modules, in the process that this runs in."""
    import coordinator_core
    import spark_apps.tasks
    from coordinator_core.kernels import compiled

    modules = (coordinator_core, compiled, spark_apps.tasks)
    return os.getcwd(), sys.executable, *(str(module.__file__) for module in modules)


def main(master: str, log: str, output: str) -> None:
    from pyspark import cloudpickle

    # This module is not in the archive, so it has to travel with the task.
    cloudpickle.register_pickle_by_value(sys.modules[where.__module__])  # type: ignore[no-untyped-call]
    with Session("regroup-cluster-tests", master) as session:
        print(json.dumps(in_tasks(session.context, where, range(8))), flush=True)
        place = RunPlace(output, "c", "w", "r")
        manifest = replay(session, discover([log]), place, profile=None, now_ms=0, bytes_per_task=ONE_SEGMENT)
        print(json.dumps(manifest["state_hash"]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
