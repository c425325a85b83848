"""DAG ``offsets_reconcile``: rules and expectations on a published run, and a gate.

``offsets_reconcile_<cluster>`` follows the asset that ``offsets_load`` emits for the cluster;
``offsets_reconcile`` has a form and looks at any run on request.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, AssetAlias, Param, task, task_group

from dags.common import reconcile
from dags.common.clusters import ClusterFile, load_clusters
from dags.common.expect import ExpectationsOperator
from dags.common.form import check_fields, cluster_param, flag, optional
from dags.common.report import ReportOperator
from dags.common.spark import SparkAppOperator

DOC = """
### Reconcile a run: do groups, committed offsets and topics agree?

| task | does |
|---|---|
| `find` | says which run to look at, and which came before: that of the form, the new one, the newest |
| `rules` | evaluates the rules in Spark and publishes the findings beside the run |
| `expectations` | evaluates the Great Expectations suites on tables and findings, writes Data Docs |
| `histories`, `history` | with `history` in the form: writes the table `history` of the run's log in Spark |
| `report` | writes the report |
| `metrics` | puts the metrics of the newest run where the cluster file says |
| `register` | lets the branch `main` of the Iceberg catalogue have the run; the gate moves `audited` |
| `gate` | fails from the cluster's `fail_on` on, and when tables contradict; else emits `regroup://<cluster>/audited` |

From `rules` to `gate` each run has tasks of its own. The run itself is never changed. The report lies in
`_reports/<run id>/` beside the run. A failed gate is not retried: look at the report, mute what is known (`rules` in
the cluster file), and clear the DAG run: the gate alone reads the findings of before.
"""

AUDITED = AssetAlias("regroup-audited", group="regroup")


def params(names: list[str]) -> dict[str, Param]:
    """The form."""
    return {
        "cluster": cluster_param(names),
        "run": optional(
            "string", "Run", "Path or URI of a published run. Default: the run just published, or the newest."
        ),
        "history": flag(
            "History",
            "Write the table history of the run's log beside the run: each value of each committed offset.",
        ),
        "history_groups": optional(
            "string", "Groups of the history", "Group ids, one a line. Default: all groups.", format="multiline"
        ),
    }


def build(file: ClusterFile, name: str | None = None) -> DAG:
    """The DAG that follows one cluster's runs, or (no ``name``) the one on request."""
    assets = [file.clusters[name].asset("offsets")] if name else []
    with DAG(
        dag_id=f"offsets_reconcile_{name}" if name else "offsets_reconcile",
        description="Evaluate rules and expectations on a published run, report, and let it through or not",
        doc_md=DOC,
        schedule=assets or None,
        max_active_runs=1,
        params=params([name] if name else list(file.clusters)),
        **file.dag_arguments(name),
    ) as dag:

        @task(doc_md="Finds the runs to look at, and the inputs beside them.", inlets=assets)
        def find(**context: Any) -> Any:
            check_fields(context)
            reconcile.check_history(context["params"])
            told = reconcile.told_runs(context, assets[0]) if assets else []
            return reconcile.requests(context["params"]["cluster"], reconcile.runs_to_check(context["params"], told))

        @task(doc_md="Says of which runs the table history is written: of none unless the form asks for it.")
        def histories(requested: Any, *, params: Any) -> Any:
            return reconcile.histories(requested, params)

        # A run whose rules or report fail has none, and holds back those of no other run.
        @task(
            doc_md="Puts the metrics of the newest run where the cluster's monitoring looks.",
            trigger_rule="all_done",
        )
        def metrics(checked: Any, *, params: Any) -> Any:
            # Of a group with one run Airflow gives its answer, not a list of it.
            answers = [checked] if checked is None or isinstance(checked, dict) else checked
            return reconcile.metrics(params["cluster"], [one for one in answers if one is not None])

        @task(doc_md="Adds the run's tables to those of the cluster's Iceberg catalogue.")
        def register(requested: Any, *, params: Any) -> Any:
            return reconcile.register(params["cluster"], requested)

        # One at a time: each may become the latest run.
        @task(
            doc_md="Fails when the run must not be used as it is; else emits the asset event.",
            outlets=[AUDITED],
            max_active_tis_per_dagrun=1,
        )
        def gate(checked: Any, expected: Any, *, outlet_events: Any, params: Any) -> Any:
            passed = reconcile.gate(params["cluster"], checked, expected)
            cluster = load_clusters().clusters[params["cluster"]]
            outlet_events[AUDITED].add(cluster.asset("audited"), extra=passed)
            return passed

        @task_group(prefix_group_id=False)
        def each_run(request: Any, args: Any) -> Any:
            """From the rules to the gate: a run that does not go through holds no other one."""
            rules = SparkAppOperator(
                task_id="rules",
                app="reconcile",
                application_args=args,
                has_run_id=False,
                doc_md="Evaluates the rules in Spark and publishes the findings.",
            )
            expectations = ExpectationsOperator(
                task_id="expectations",
                request=request,
                doc_md="Evaluates the Great Expectations suites and writes Data Docs.",
            )
            rules >> expectations
            expected = expectations.output
            checked = ReportOperator(
                task_id="report",
                request=request,
                expected=expected,
                doc_md="Writes the report; its summary is in the log.",
            ).output
            gate(checked, expected)
            return checked

        requested = find()
        register(requested)
        checked = each_run.expand_kwargs(requested.map(lambda one: {"request": one, "args": one["args"]}))
        SparkAppOperator.partial(
            task_id="history",
            app="history",
            doc_md="Writes the table history in Spark and publishes it; one task for each run.",
        ).expand(application_args=histories(requested))
        # Beside the gate: monitoring matters most for runs that do not go through.
        metrics(checked)
    return dag


_file = load_clusters()
for _dag in [build(_file), *(build(_file, name) for name in _file.clusters)]:
    globals()[_dag.dag_id] = _dag
