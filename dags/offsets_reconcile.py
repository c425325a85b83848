"""DAG ``offsets_reconcile``: what the rules and the expectations say of a published run, and a gate.

``offsets_reconcile_<cluster>`` follows the asset that ``offsets_load`` emits for the cluster;
``offsets_reconcile`` has a form and looks at any run on request.
"""

from __future__ import annotations

from airflow.sdk import DAG, Asset, Param, task

from dags.common.clusters import ClusterFile, load_clusters

DOC = """
### Reconcile a run: do groups, committed offsets and topics agree?

| task | does |
|---|---|
| `rules` | evaluates the rules, publishes the findings beside the run, writes the report |
| `expectations` | evaluates the Great Expectations suites on the run's tables, writes Data Docs |
| `gate` | fails, with the three worst findings, from the cluster's `fail_on` on, and when tables contradict |

The run itself is never changed. The report lies in `_reports/<run id>/` beside the run. A failed gate is not
retried: look at the report, mute what is known (`rules` in the cluster file), and clear the task.
"""


def params(names: list[str]) -> dict[str, Param]:
    """The form."""
    return {
        "cluster": Param(
            names[0], type="string", enum=names, title="Cluster", description="An entry of the cluster file."
        ),
        "run": Param(
            None,
            type=["null", "string"],
            title="Run",
            description="Path or URI of a published run. Default: what was just published, or the latest.",
        ),
    }


def build(file: ClusterFile, name: str | None = None) -> DAG:
    """The DAG that follows one cluster's runs, or (no ``name``) the one on request."""
    cluster = file.clusters[name] if name else None
    with DAG(
        dag_id=f"offsets_reconcile_{name}" if name else "offsets_reconcile",
        description="Evaluate rules and expectations on a published run, report, and let it through or not",
        doc_md=DOC,
        schedule=[Asset(name=f"{cluster.name}-offsets", uri=cluster.asset_uri)] if cluster else None,
        catchup=False,
        max_active_runs=1,
        tags=["regroup", "offsets", *([name] if name else [])],
        params=params([name] if name else list(file.clusters)),
        default_args=file.task_defaults,
    ) as dag:

        @task(doc_md="Evaluates the rules, publishes the findings and writes the report.")
        def rules(*, params, triggering_asset_events):
            from dags.common import reconcile

            events = [event for found in triggering_asset_events.values() for event in found]
            return reconcile.check(params["cluster"], reconcile.runs_to_check(params, events))

        @task(doc_md="Evaluates the Great Expectations suites and writes Data Docs.")
        def expectations(checked):
            from dags.common import reconcile

            return reconcile.expect(checked)

        @task(doc_md="Fails when the run must not be used as it is.")
        def gate(checked, expected):
            from dags.common import reconcile

            return reconcile.gate(checked, expected)

        checked = rules()
        gate(checked, expectations(checked))
    return dag


_file = load_clusters()
for _dag in [build(_file), *(build(_file, name) for name in _file.clusters)]:
    globals()[_dag.dag_id] = _dag
