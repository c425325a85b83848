"""DAGs of very many clusters: how many there are, and what Airflow's DAG processor takes to read each DAG file.

``python -m tests.scale.many_clusters 10 100 1000`` prints a line of JSON for each DAG file and number of clusters, all
with a schedule.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = (
    "offsets_load",
    "offsets_reconcile",
    "offsets_compact",
    "offsets_maintain",
    "offsets_restore",
    "failover_drill",
)


def write_clusters(path: Path, count: int) -> None:
    """A cluster file of so many clusters, each with what the file of a real one has."""
    clusters = {
        f"cluster-{number:04}": {
            "source": f"s3://backup/cluster-{number:04}/{{window}}",
            "kafka_version": "4.3.1",
            "schedule": "30 2 * * *",
            "spark": {"connection": "spark_eu", "executor_memory": "512m"},
        }
        for number in range(count)
    }
    # Every document of JSON is one of YAML.
    path.write_text(json.dumps({"defaults": {"output": "s3://regroup/runs"}, "clusters": clusters}))


def measure(name: str, count: int) -> dict[str, object]:
    """Read one DAG file in this process, as the DAG processor does, once Airflow itself is there."""
    from airflow.sdk import DAG

    began = time.process_time()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    module = __import__(f"dags.{name}", fromlist=["dags"])
    dags = [value for value in vars(module).values() if isinstance(value, DAG)]
    return {
        "file": name,
        "clusters": count,
        "dags": len(dags),
        "tasks": sum(len(dag.tasks) for dag in dags),
        "cpu_seconds": round(time.process_time() - began, 2),
        "more_bytes": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024,
    }


def main(counts: list[int]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        for count in counts:
            clusters = Path(directory) / f"{count}.yaml"
            write_clusters(clusters, count)
            for name in FILES:
                environment = {**os.environ, "AIRFLOW_HOME": directory, "REGROUP_CLUSTERS": str(clusters)}
                command = [sys.executable, "-m", __spec__.name, name, str(count)]
                subprocess.run(command, cwd=ROOT, env=environment, check=True)


if __name__ == "__main__":
    if sys.argv[1].isdigit():
        main([int(argument) for argument in sys.argv[1:]])
    else:
        print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))), flush=True)
