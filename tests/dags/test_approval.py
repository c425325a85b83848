"""What a person has approved is carried out, and nothing that was proposed since."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.exceptions import AirflowFailException

from dags.common.approval import Approval, check_approved, take_turn
from dags.common.clusters import CLUSTERS_ENV
from dags.offsets_compact import Compaction


def proposal(digest: str, not_asked: str = "") -> dict[str, Any]:
    return {"digest": digest, "not_asked": not_asked, "approval_hours": 1, "subject": "Do it?", "body": digest}


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A task instance that keeps what its task tells, also while it waits."""
    kept: dict[str, Any] = {}
    monkeypatch.setattr(ApprovalOperator, "execute", lambda *_: None)
    return {
        "ti": SimpleNamespace(
            xcom_push=lambda key, value: kept.update({key: value}), xcom_pull=lambda task_ids, key: kept[key]
        )
    }


def answered(context: Any, option: str, shown: dict[str, Any], now: dict[str, Any]) -> Any:
    """The result of a task that has shown a proposal, and is resumed when there is another one."""
    Approval(task_id="approve", found=shown).execute(context)
    event = {"chosen_options": [option], "params_input": {}, "responded_at": datetime.now(UTC)}
    return Approval(task_id="approve", found=now).execute_complete(context, event | {"responded_by_user": None})


def test_what_was_shown_is_what_was_approved(context: Any) -> None:
    approved = answered(context, "Approve", proposal("first"), proposal("second"))
    check_approved(proposal("first"), approved)
    with pytest.raises(AirflowFailException, match="proposal second is not the one that was approved: clear the task"):
        check_approved(proposal("second"), approved)


def test_what_was_rejected_is_not_approved(context: Any) -> None:
    rejected = answered(context, "Reject", proposal("first"), proposal("first"))
    with pytest.raises(AirflowFailException, match="not the one that was approved"):
        check_approved(proposal("first"), rejected)


def test_where_nobody_was_asked_only_that_is_done() -> None:
    check_approved(proposal("first", "nothing expires"), None)
    with pytest.raises(AirflowFailException, match="not the one that was approved"):
        check_approved(proposal("second"), None)


def test_a_compaction_is_the_approved_one() -> None:
    task = Compaction(task_id="compact", app="compact", planned=proposal("first"), approved=None)
    with pytest.raises(AirflowFailException, match="proposal first is not the one that was approved"):
        task.execute({})


def test_a_cluster_has_one_open_run_of_a_dag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = f"{{source: log, output: {tmp_path}/runs}}"
    (tmp_path / "clusters.yaml").write_text(f"clusters: {{a: {entry}, b: {entry}}}")
    monkeypatch.setenv(CLUSTERS_ENV, str(tmp_path / "clusters.yaml"))
    open_runs = {"first", "second"}

    def count(dag_id: str, run_ids: list[str], states: list[str]) -> int:
        assert (dag_id, states) == ("restore", ["queued", "running"])
        return len(open_runs.intersection(run_ids))

    def begin(run_id: str, cluster: str = "a") -> None:
        dag_run = SimpleNamespace(dag_id="restore", run_id=run_id)
        take_turn({"cluster": cluster}, dag_run, SimpleNamespace(get_dr_count=count))

    begin("first")
    begin("first")
    begin("second", "b")
    for _ in range(2):
        with pytest.raises(AirflowFailException, match="run 'first' of restore for cluster a has not ended"):
            begin("second")
    open_runs.remove("first")
    begin("second")
    # Cleared since.
    with pytest.raises(AirflowFailException, match="run 'second' of restore"):
        begin("first")
    (tmp_path / "runs/a/_open/restore.json").write_text("")
    begin("first")
