"""DAG ``offsets_load``: a snapshot of ``__consumer_offsets`` becomes a published run.

``offsets_load`` has a form and loads any cluster of the cluster file on request. Each cluster that has a
schedule gets a DAG of its own besides, ``offsets_load_<cluster>``, with the same tasks.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, AssetAlias, task

from dags.common import load
from dags.common.clusters import ClusterFile, load_clusters, timetable
from dags.common.form import check_fields, snapshot_params
from dags.common.spark import SparkAppOperator

DOC = """
### Load consumer group state from a copy of `__consumer_offsets`

| task | does |
|---|---|
| `pin` | finds the segments of the snapshot and writes down which bytes this run reads |
| `replay` | rebuilds groups, members and committed offsets in Spark and publishes them as a run |
| `summary` | logs what was found and emits the asset `regroup://<cluster>/offsets`: there is a run, not yet judged |

A run never replaces an earlier one: every attempt writes to a directory of its own, which counts only once
its `manifest.json` is there. Damaged input fails at once, with the file and the position in the log; trouble
of the machinery is retried. To go on past damage, trigger with `partial`: the run says that it is partial.
"""

RUNS = AssetAlias("regroup-offsets", group="regroup")


def build(file: ClusterFile, name: str | None = None) -> DAG:
    """The DAG for one cluster on its schedule, or (no ``name``) for all of them on request."""
    cluster = file.clusters[name] if name else None
    with DAG(
        dag_id=f"offsets_load_{name}" if name else "offsets_load",
        description="Replay a snapshot of __consumer_offsets and publish the state of its groups",
        doc_md=DOC,
        schedule=timetable(cluster.schedule) if cluster else None,
        start_date=cluster.start_date if cluster else None,
        max_active_runs=1,
        params=snapshot_params([name] if name else list(file.clusters)),
        **file.dag_arguments(name),
    ) as dag:

        @task(
            multiple_outputs=True,
            doc_md="Finds the segments and writes the snapshot manifest: which bytes this run reads.",
        )
        def pin(**context: Any) -> Any:
            check_fields(context)
            return load.pin(context["params"], context["dag_run"], context["ti"].try_number)

        @task(doc_md="Logs the run's summary and emits the asset event.", outlets=[RUNS])
        def summary(pinned: Any, replayed: Any, *, outlet_events: Any, params: Any) -> Any:
            found = load.summary(pinned, replayed)
            cluster = load_clusters().clusters[params["cluster"]]
            outlet_events[RUNS].add(cluster.asset("offsets"), extra=found)
            return found

        pinned = pin()
        replay = SparkAppOperator(
            task_id="replay",
            app="replay",
            application_args=pinned["replay_args"],
            doc_md="Replays the pinned bytes in Spark and publishes the tables, the manifest last.",
        )
        summary(pinned, replay.output)
    return dag


_file = load_clusters()
for _dag in [build(_file), *(build(_file, name) for name, c in _file.clusters.items() if c.schedule)]:
    globals()[_dag.dag_id] = _dag
