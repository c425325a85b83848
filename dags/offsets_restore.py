"""DAG ``offsets_restore``: committed offsets put back: planned, approved by a person, applied, proved, else undone.

It has every cluster of the cluster file that has a section ``restore``; without one there is no DAG.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Param, task

from dags.common import restore
from dags.common.approval import Approval, check_approved, runs_at_once, take_turn
from dags.common.clusters import ClusterFile, load_clusters
from dags.common.form import check_fields, choice, cluster_param, flag, optional

DOC = """
### Put committed offsets back

| task | does |
|---|---|
| `plan` | says which offsets would be written, and what follows for each group; writes nothing to the cluster |
| `approve` | asks a person; skipped, with all that follows, when the plan changes nothing |
| `check` | reads everything again that the plan rests on; fails when the plan is stale or not the approved one |
| `apply` | writes it, group by group, with a journal; goes on where an attempt before was killed |
| `verify` | proves from the log that exactly the plan was written |
| `rollback` | teardown: undoes what `apply` has written when it failed, or when the proof did |

Nothing is written before somebody has approved the plan, and nothing that is not in it.
"""


def params(names: list[str]) -> dict[str, Param]:
    """The form: names as ``regroup restore plan`` takes them, one a line."""

    def lines(title: str, description: str) -> Param:
        return optional("string", title, description, format="multiline")

    return {
        "cluster": cluster_param(names),
        "source": lines(
            "Source",
            "Snapshots or a run that have the offsets, one a line; kafka://connection for a live log. Default: with "
            "a point in time those of the cluster file, else the offsets of the cluster.",
        ),
        "from_file": optional("string", "File", "Kafka's CSV instead: group,topic,partition,offset."),
        "at_time": optional("string", "At time", "As the source was then: 2026-05-12T02:00, or epoch milliseconds."),
        "before_records": lines("Before records", "As it was before these records: P:OFFSET, one a line."),
        "before_incident": flag("Before the incident", "As it was before the worst finding of regroup investigate."),
        "groups": lines("Groups", "Only these, one a line."),
        "all_groups": flag("All groups", "All groups of the source, or of the cluster."),
        "topics": lines("Topics", "Only these partitions: T or T:P,P, one a line."),
        "group_names": lines("Other groups", "Under other group ids: OLD=NEW, one a line."),
        "topic_names": lines("Other topics", "For other topics: OLD=NEW, one a line."),
        "move": optional(
            "string",
            "Move",
            "to-earliest, to-latest, to-current, to-offset=N, shift-by=N, to-datetime=TIME, by-duration=PnDTnHnMnS.",
            pattern=r"^(to-(earliest|latest|current)|(to-offset|shift-by|to-datetime|by-duration)=[^ \x00]+)$",
        ),
        "out_of_range": choice(
            "Out of range",
            "An offset that the topic's log does not have: blocked, or trimmed to its start or end.",
            ["fail", "trim"],
        ),
        "metadata": choice(
            "Metadata", "Metadata longer than the brokers take: blocked, or written without.", ["keep", "drop"]
        ),
        "other_topics": flag("Made again", "The offsets are meant for topics of the same names, made again."),
        "delete_others": flag("Delete others", "Delete offsets that the source lacks."),
        "new_groups": choice(
            "New groups",
            "Type of an absent group: one that stores offsets until members join, or a share group.",
            ["classic", "share"],
        ),
        "wait_empty_seconds": Param(
            0,
            type="integer",
            minimum=0,
            maximum=9_000_000_000,
            title="Wait",
            description="Seconds for groups to lose their members and for transactions to end, once it is approved.",
        ),
    }


def build(file: ClusterFile, names: list[str]) -> DAG:
    """The DAG, for these clusters on request."""
    with DAG(
        dag_id="offsets_restore",
        description="Put committed offsets back, with approval and proof",
        doc_md=DOC,
        schedule=None,
        max_active_runs=runs_at_once(names),
        params=params(names),
        **file.dag_arguments(limited=False),
    ) as dag:

        @task(doc_md="Says which offsets would be written; writes nothing to the cluster.")
        def plan(**context: Any) -> Any:
            check_fields(context)
            take_turn(context["params"], context["dag_run"], context["ti"])
            return restore.plan(context["params"], context["dag_run"], context["ti"].try_number)

        @task(doc_md="Fails when the plan is stale, or not the approved one.")
        def check(planned: Any, approved: Any, *, params: Any, dag_run: Any, ti: Any) -> Any:
            check_approved(planned, approved)
            take_turn(params, dag_run, ti)
            return restore.check(planned, params)

        @task(doc_md="Writes the approved plan, group by group.")
        def apply(planned: Any, approved: Any, *, params: Any) -> Any:
            check_approved(planned, approved)
            return restore.apply(planned, params)

        @task(doc_md="Proves from the log that exactly the plan was written.")
        def verify(planned: Any, *, params: Any) -> Any:
            return restore.verify(planned, params)

        @task(doc_md="Undoes writes that are not proved.")
        def rollback(planned: Any, verified: Any, *, params: Any) -> Any:
            return restore.rollback(planned, verified, params)

        planned = plan()
        approve = Approval(
            task_id="approve",
            found=planned,
            doc_md="Asks a person. Rejected or not answered: nothing is written.",
        )
        # The last thing before anything is written is the setup: a teardown runs only after a setup that succeeded.
        checked = check(planned, approve.output).as_setup()
        applied = apply(planned, approve.output)
        verified = verify(planned)
        # Not on_failure_fail_dagrun: the state of the run is then that of the teardown, which does well where the
        # proof has failed. Without it the run ends as the proof does.
        undone = rollback(planned, verified).as_teardown(setups=checked)  # type: ignore[arg-type]
        approve >> checked >> applied >> verified >> undone
    return dag


_file = load_clusters()
if _names := [name for name, one in _file.clusters.items() if one.restore is not None]:
    offsets_restore = build(_file, _names)
