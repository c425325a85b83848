"""Asking a person before something is done that cannot be taken back: one question a cluster at a time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from dags.common.clusters import load_clusters
from dags.common.load import final_errors

SHOWN = "shown"
"""Key of the XCom that has the digest of the proposal on the page."""


class Approval(ApprovalOperator):
    """Asks whether the proposal of an earlier task may be carried out.

    Rejected, or not answered in time, the tasks behind it are skipped. It skips itself, and the tasks behind it (unless
    they have another trigger rule), where nobody needs to be asked. Returns the answer, and the ``digest`` of the
    proposal that the person saw, for :func:`check_approved`.

    :param found: value that the earlier task returned (templated): ``subject`` and ``body`` of the question,
        ``digest`` of the proposal, ``approval_hours``, and ``not_asked``: why nobody is asked, empty where somebody is
    """

    template_fields: Sequence[str] = (*ApprovalOperator.template_fields, "found")

    def __init__(self, *, found: Any, **kwargs: Any) -> None:
        # A person has hours of their own, not the timeout of tasks.
        kwargs["execution_timeout"] = None
        super().__init__(subject="", defaults=self.REJECT, **kwargs)
        self.found = found

    def execute(self, context: Context) -> Any:
        if self.found["not_asked"]:
            raise AirflowSkipException(self.found["not_asked"])
        self.subject, self.body = self.found["subject"], self.found["body"]
        self.response_timeout = timedelta(hours=self.found["approval_hours"])
        # Once somebody has answered, ``found`` may be another proposal: the task before can be cleared meanwhile.
        context["ti"].xcom_push(key=SHOWN, value=self.found["digest"])
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        answer = super().execute_complete(context, event)
        return {**answer, "digest": context["ti"].xcom_pull(task_ids=self.task_id, key=SHOWN)}


def runs_at_once(clusters: Sequence[str]) -> int:
    """``max_active_runs`` of a DAG on request that asks: a question of each cluster, and a run that is refused."""
    return len(clusters) + 1


def take_turn(params: Mapping[str, Any], dag_run: Any, ti: Any) -> None:
    """Fails while another run of this DAG for the same cluster has not ended: it waits for its answer, or is at work.

    Called by the first task, and where brokers are written to or stopped again by the last one before that: another run
    may have begun before this one was cleared. The file names the run that came last. Whether it has ended Airflow
    knows, so no run has to take its name back.
    """
    with final_errors():
        from coordinator_core import conditional
        from coordinator_core.jsontext import parse_json

        def name_this_run(found: bytes | None) -> bytes | None:
            try:
                other = parse_json(found or b"")["run_id"]
            except (ValueError, KeyError, TypeError):
                other = None
            if other == dag_run.run_id:
                return None
            if isinstance(other, str) and ti.get_dr_count(
                dag_id=dag_run.dag_id, run_ids=[other], states=["queued", "running"]
            ):
                raise AirflowFailException(
                    f"run {other!a} of {dag_run.dag_id} for cluster {cluster.name} has not ended: answer it first, "
                    "wait until it is done, or mark it as failed"
                )
            return json.dumps({"run_id": dag_run.run_id}).encode()

        cluster = load_clusters().clusters[params["cluster"]]
        conditional.update(cluster.state_path("_open", f"{dag_run.dag_id}.json"), name_this_run)


def check_approved(found: Mapping[str, Any], approved: Mapping[str, Any] | None) -> None:
    """Fails unless a person has approved this very proposal, or nobody has to be asked about it.

    ``approved`` is the result of the :class:`Approval`.
    """
    if found["not_asked"]:
        return
    if approved is None or approved["chosen_options"] != [Approval.APPROVE] or approved["digest"] != found["digest"]:
        raise AirflowFailException(
            f"the proposal {found['digest']} is not the one that was approved: clear the task that asks, too"
        )
