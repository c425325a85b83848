"""DAG ``offsets_maintain``: old runs and pins of a cluster are deleted when a person has approved the list."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Param, task

from dags.common import maintain
from dags.common.approval import Approval, check_approved, runs_at_once, take_turn
from dags.common.clusters import ClusterFile, load_clusters
from dags.common.form import LARGEST, check_fields, cluster_param

DOC = """
### Delete old runs and pins

| task | does |
|---|---|
| `find` | lists what is older than what is to stay, in a file below the state of the cluster; deletes nothing |
| `approve` | asks a person; skipped, with what follows, when nothing is old |
| `remove` | deletes what was approved and is still old |

What `latest.json` names, what the findings about a newer run compare with, and everything of the last day stays.
"""


def params(names: list[str]) -> dict[str, Param]:
    """The form."""
    return {
        "cluster": cluster_param(names),
        "keep": Param(
            30,
            type=["null", "integer"],
            minimum=1,
            maximum=LARGEST,
            title="Keep",
            description="The newest so many of each kind stay.",
        ),
        "keep_days": Param(
            30, type=["null", "number"], minimum=1, maximum=36500, title="Keep days", description="Younger ones stay."
        ),
    }


def build(file: ClusterFile) -> DAG:
    """The DAG, for all clusters on request."""
    with DAG(
        dag_id="offsets_maintain",
        description="Delete old runs and pins, with approval",
        doc_md=DOC,
        schedule=None,
        max_active_runs=runs_at_once(list(file.clusters)),
        params=params(list(file.clusters)),
        **file.dag_arguments(approval_hours=maintain.APPROVAL_HOURS),
    ) as dag:

        @task(doc_md="Lists old runs and files; deletes nothing.")
        def find(**context: Any) -> Any:
            check_fields(context)
            take_turn(context["params"], context["dag_run"], context["ti"])
            return maintain.find(context["params"], context["dag_run"], context["ti"].try_number)

        @task(doc_md="Deletes approved runs and files that are still old.")
        def remove(found: Any, approved: Any, *, params: Any) -> Any:
            check_approved(found, approved)
            return maintain.remove(found, params)

        found = find()
        approve = Approval(
            task_id="approve",
            found=found,
            doc_md="Asks a person. Rejected or not answered: nothing is deleted.",
        )
        remove(found, approve.output)
    return dag


offsets_maintain = build(load_clusters())
