"""DAG ``failover_drill``: predict what losing brokers does, do it when a person approves, compare.

It has every cluster of the cluster file that has a section ``drill``; without one there is no DAG.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

# The stubs of airflow.sdk do not have the deadlines that the module has.
from airflow.sdk import DAG, DeadlineAlert, DeadlineReference, Param, SyncCallback, task  # type: ignore[attr-defined]

from dags.common import drill
from dags.common.approval import Approval, check_approved, runs_at_once, take_turn
from dags.common.cluster_model import DrillSettings
from dags.common.clusters import load_clusters
from dags.common.form import check_fields, flag, optional

DOC = """
### A failover drill: predicted, approved, done, compared

| task | does |
|---|---|
| `predict` | captures the offsets topic and says what the scenario does to every group |
| `approve` | asks a person; skipped, with all that follows, when only the prediction is wanted |
| `steady_state` | fails when the cluster is not in the state that the prediction begins with |
| `fault_and_observe` | runs the fault command; probes before, during and after; recovers |
| `recover` | teardown: recovers when the drill was killed; does nothing when it recovered by itself |
| `compare` | predicted beside observed, misses first: `drill.html` and `drill.json` beside the journal |
| `report` | logs the result; fails unless all came as predicted |

The commands come from the cluster file alone. Nothing that breaks a cluster is retried.
"""


def params(names: list[str]) -> dict[str, Param]:
    """The form."""
    return {
        "cluster": Param(names[0], type="string", enum=names, title="Cluster"),
        "scenario": Param(
            "lose-brokers=1",
            type="string",
            pattern=r"^[^\x00]+$",
            title="Scenario",
            description="lose-brokers=1,2, lose-rack=a, rolling-restart, unclean-election=1, or JSON.",
        ),
        "rto_seconds": optional(
            "integer",
            "RTO",
            "Seconds within which groups are to be served. Default: as the cluster file says.",
            minimum=1,
        ),
        "rpo_seconds": optional(
            "integer", "RPO", "Commits of at most so many seconds may be lost. Default: none.", minimum=0
        ),
        "execute": flag("Execute", "Do it, once approved; else predict only."),
    }


def build(settings: dict[str, DrillSettings]) -> DAG:
    """The DAG, for clusters by name."""
    objectives = {name: one.rto_seconds for name, one in settings.items()}
    longest = max(timedelta(hours=one.approval_hours, seconds=one.rto_seconds) for one in settings.values())
    file = load_clusters()
    with DAG(
        dag_id="failover_drill",
        description="Predict a failover, do it when approved, and compare",
        doc_md=DOC,
        schedule=None,
        max_active_runs=runs_at_once(list(settings)),
        params=params(list(settings)),
        **file.dag_arguments(tag="drill", limited=False),
        deadline=DeadlineAlert(
            reference=DeadlineReference.DAGRUN_QUEUED_AT,
            interval=longest,
            callback=SyncCallback(drill.deadline_missed, {"cluster_rto_seconds": objectives}),
            name="RTO",
        ),
    ) as dag:

        @task(doc_md="Captures the offsets topic, and predicts.")
        def predict(**context: Any) -> Any:
            check_fields(context)
            take_turn(context["params"], context["dag_run"], context["ti"])
            return drill.predict(context["params"], context["dag_run"], context["ti"].try_number)

        @task(doc_md="Fails when the cluster is not in the predicted state.")
        def steady_state(predicted: Any, approved: Any, *, params: Any, dag_run: Any, ti: Any) -> Any:
            check_approved(predicted, approved)
            take_turn(params, dag_run, ti)
            return drill.steady_state(predicted, params)

        @task(retries=0, doc_md="Breaks the cluster, observes, recovers.")
        def fault_and_observe(predicted: Any, approved: Any, *, params: Any) -> Any:
            check_approved(predicted, approved)
            return drill.fault_and_observe(predicted, params)

        @task(doc_md="Recovers the cluster after a killed drill.")
        def recover(predicted: Any, *, params: Any) -> Any:
            return drill.recover(predicted, params)

        @task(trigger_rule="all_done", doc_md="Compares prediction and observation.")
        def compare(predicted: Any, approved: Any) -> Any:
            return drill.compare(predicted, approved)

        @task(retries=0, doc_md="Logs the result; fails unless all came as predicted.")
        def report(compared: Any) -> Any:
            return drill.report(compared)

        predicted = predict()
        approve = Approval(
            task_id="approve",
            found=predicted,
            doc_md="Asks a person. Rejected or not answered: nothing is done.",
        )
        # The setup comes before anything breaks: a teardown runs only after a setup that succeeded.
        steady = steady_state(predicted, approve.output).as_setup()
        observed = fault_and_observe(predicted, approve.output)
        mended = recover(predicted).as_teardown(setups=steady, on_failure_fail_dagrun=True)  # type: ignore[arg-type]
        compared = compare(predicted, approve.output)
        approve >> steady >> observed >> mended >> compared
        report(compared)
    return dag


_settings = {name: one.drill for name, one in load_clusters().clusters.items() if one.drill is not None}
if _settings:
    failover_drill = build(_settings)
