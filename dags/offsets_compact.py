"""DAG ``offsets_compact``: a snapshot of ``__consumer_offsets`` becomes a compacted, proved log.

``offsets_compact`` has a form and compacts the log of any cluster of the cluster file on request. Each
cluster with a section ``compaction`` gets a DAG of its own besides, ``offsets_compact_<cluster>``, weekly
unless the section says otherwise.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, AssetAlias, Context, Param, task

from dags.common import compact
from dags.common.approval import Approval, check_approved, runs_at_once, take_turn
from dags.common.cluster_model import CompactionSettings
from dags.common.clusters import ClusterFile, load_clusters, timetable
from dags.common.form import check_fields, optional, snapshot_params
from dags.common.spark import SparkAppOperator

DOC = """
### Compact a copy of `__consumer_offsets` into a log that a broker loads

| task | does |
|---|---|
| `pin` | finds the segments of the snapshot and writes down which bytes this run reads |
| `forecast` | replays in Spark what is pinned, and says what has expired, and what will |
| `plan` | writes the plan: the pinned bytes, every option, every record that expires; its digest goes on |
| `approve` | asks a person, when something expires; else it is skipped |
| `compact` | carries out the plan in Spark, and proves every offsets partition by replaying both logs |
| `proof` | checks that what lies on the disk is what was proved, and what was approved |
| `publish` | moves the log to its place and emits the asset `regroup://<cluster>/compacted` |

Nothing is published before `publish`, and no earlier log is ever changed. A plan that is rejected, or that
nobody answers, ends the run without a new log. An input that changed after the plan was made fails.
"""

LOGS = AssetAlias("regroup-compacted", group="regroup")


class Compaction(SparkAppOperator):
    """The app ``compact``, with the plan that was approved."""

    template_fields = (*SparkAppOperator.template_fields, "planned", "approved")

    def __init__(self, *, planned: Any, approved: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.planned, self.approved = planned, approved

    def execute(self, context: Context) -> dict[str, Any]:
        check_approved(self.planned, self.approved)
        return super().execute(context)


def params(names: list[str]) -> dict[str, Param]:
    """The form."""
    return {
        **snapshot_params(names),
        "expire": optional("boolean", "Expire", "Tombstone expired offsets. Default: as the cluster file says."),
    }


def build(file: ClusterFile, name: str | None = None) -> DAG:
    """The DAG for one cluster on its schedule, or (no ``name``) for all of them on request."""
    cluster = file.clusters[name] if name else None
    clusters = [cluster] if cluster else file.clusters.values()
    settings = cluster.compaction if cluster else None
    with DAG(
        dag_id=f"offsets_compact_{name}" if name else "offsets_compact",
        description="Compact a snapshot of __consumer_offsets, with approval and proof",
        doc_md=DOC,
        schedule=timetable(settings.schedule) if settings else None,
        start_date=cluster.start_date if cluster else None,
        max_active_runs=1 if name else runs_at_once(list(file.clusters)),
        params=params([name] if name else list(file.clusters)),
        **file.dag_arguments(
            name, approval_hours=max((one.compaction or CompactionSettings()).approval_hours for one in clusters)
        ),
    ) as dag:

        @task(
            multiple_outputs=True,
            doc_md="Finds the segments and writes the snapshot manifest: which bytes this run reads.",
        )
        def pin(**context: Any) -> Any:
            check_fields(context)
            if name is None:
                take_turn(context["params"], context["dag_run"], context["ti"])
            return compact.pin(context["params"], context["dag_run"], context["ti"].try_number)

        @task(
            multiple_outputs=True,
            doc_md="Settles the plan in a file, whose digest stands for all of it.",
        )
        def plan(pinned: Any, forecasted: Any, *, params: Any, dag_run: Any) -> Any:
            return compact.plan(pinned, forecasted, params, dag_run)

        @task(doc_md="Checks the log on the disk against proof and approval.")
        def proof(planned: Any, compacted: Any) -> Any:
            return compact.prove(planned, compacted)

        @task(doc_md="Moves the log to its place and emits the asset event.", outlets=[LOGS])
        def publish(planned: Any, proved: Any, *, outlet_events: Any, params: Any) -> Any:
            found = compact.publish(planned, proved)
            cluster = load_clusters().clusters[params["cluster"]]
            outlet_events[LOGS].add(cluster.asset("compacted"), extra=found)
            return found

        pinned = pin()
        forecast = SparkAppOperator(
            task_id="forecast",
            app="forecast",
            application_args=pinned["forecast_args"],
            doc_md="Says in Spark what has expired, and what will.",
        )
        planned = plan(pinned, forecast.output)
        approve = Approval(
            task_id="approve",
            found=planned,
            doc_md="Asks a person, when something expires. Rejected or not answered: nothing is published.",
        )
        compacted = Compaction(
            task_id="compact",
            app="compact",
            planned=planned,
            approved=approve.output,
            application_args=planned["compact_args"],
            # Not asked is as good as approved; a rejection skips this task itself.
            trigger_rule="none_failed",
            doc_md="Carries out the plan in Spark, and proves every offsets partition.",
        )
        publish(planned, proof(planned, compacted.output))
    return dag


_file = load_clusters()
for _dag in [build(_file), *(build(_file, name) for name, c in _file.clusters.items() if c.compaction)]:
    globals()[_dag.dag_id] = _dag
