"""``failover_drill`` under a real scheduler, on a real broker: predicted only, approved, killed midway."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.kit import Commits
from tests.dags.airflow_home import AirflowApi
from tests.drill.kit import Operator, events
from tests.live.broker import Broker, Kafka

pytestmark = pytest.mark.full
DAG = "failover_drill"
TASKS = ("predict", "approve", "steady_state", "fault_and_observe", "recover", "compare", "report")
FORM = {"cluster": "drilled", "scenario": "rolling-restart", "rto_seconds": 120}


@pytest.fixture(scope="module")
def drills(api: AirflowApi, place: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A broker that its fault command restarts; the directory of the cluster's drills."""
    directory = tmp_path_factory.mktemp("drilled")
    broker = Broker(Kafka.fetch(), directory / "broker", {"offsets.topic.num.partitions": "3"})

    def restart() -> None:
        broker.stop()
        broker.start()

    operator = Operator(directory / "operator", {"restart": restart})
    commits = None
    try:
        broker.start()
        commits = Commits(broker.bootstrap)
        commits.create_topic()
        commits.commit(6)
        (place / "drill").mkdir()
        (place / "drill/fault.sh").write_text(operator.command("restart"))
        (place / "drill/recover.sh").write_text("true\n")
        host, _, port = broker.bootstrap.partition(":")
        connection = {"connection_id": "drilled", "conn_type": "kafka", "host": host, "port": int(port)}
        api.post("/connections", connection)
        api.wait_for_dag(DAG)
        yield place / "runs/drilled/_drills"
    finally:
        if commits is not None:
            commits.close()
        operator.stop()
        broker.kill()


def states(api: AirflowApi, run_id: str) -> dict[str, str]:
    return {name: task["state"] for name, task in api.tasks(DAG, run_id).items()}


def asked(api: AirflowApi) -> tuple[str, Path]:
    """Id and directory of a drill that waits for a person."""
    run_id = api.trigger(DAG, {**FORM, "execute": True})
    question = api.asked(DAG, run_id, "approve")
    assert question["subject"] == "Do rolling-restart to drilled?"
    assert "fault.sh" in question["body"]
    # An hour for the approval, then the objective of the cluster file.
    [deadline] = api.call("GET", f"/ui/dags/{DAG}/dagRuns/{run_id}/deadlines")["deadlines"]
    queued = api.get(f"/dags/{DAG}/dagRuns/{run_id}")["queued_at"]
    allowed = datetime.fromisoformat(deadline["deadline_time"]) - datetime.fromisoformat(queued)
    assert (deadline["alert_name"], deadline["missed"]) == ("RTO", False)
    assert allowed == timedelta(hours=1, seconds=60)
    return run_id, Path(api.xcom(DAG, run_id, "predict")["directory"])


def approved(api: AirflowApi) -> tuple[str, Path]:
    """Those of one that is under way."""
    run_id, directory = asked(api)
    api.answer(DAG, run_id, "approve", "Approve")
    return run_id, directory


def test_only_a_prediction(api: AirflowApi, drills: Path) -> None:
    run_id = api.trigger(DAG, FORM)
    assert api.finished(DAG, run_id) == "success", api.logs()
    assert states(api, run_id) == dict.fromkeys(TASKS, "skipped") | {"predict": "success"}
    predicted = api.xcom(DAG, run_id, "predict")
    prediction = json.loads(Path(predicted["prediction"]).read_text())
    assert prediction["objectives"] == {"rto_ms": 120_000, "rpo_ms": None}
    assert {group["group_id"] for group in prediction["groups"]} == {f"g-{number}" for number in range(6)}
    assert [path.name for path in drills.iterdir()] == [Path(predicted["directory"]).name]
    assert not (Path(predicted["directory"]) / "journal.jsonl").exists()


def test_a_drill_that_was_approved_and_not_begun_is_a_failed_run(api: AirflowApi, drills: Path) -> None:
    run_id, directory = asked(api)
    # Another prediction than the approved one: nothing is done.
    (directory / "prediction.json").unlink()
    api.answer(DAG, run_id, "approve", "Approve")
    assert api.finished(DAG, run_id) == "failed"
    assert states(api, run_id) == {
        **dict.fromkeys(("predict", "approve"), "success"),
        **dict.fromkeys(("steady_state", "compare"), "failed"),
        **dict.fromkeys(("fault_and_observe", "recover", "report"), "upstream_failed"),
    }
    assert "the drill has not begun" in api.task_log(DAG, run_id, "compare")


def test_an_approved_drill_is_done_and_compared(api: AirflowApi, drills: Path) -> None:
    run_id, directory = approved(api)
    ended = api.finished(DAG, run_id)
    found = states(api, run_id)
    compared = api.xcom(DAG, run_id, "compare")
    assert found | {"report": "success"} == dict.fromkeys(TASKS, "success"), api.logs()
    assert compared["recovered"] is True
    as_predicted = compared["verdict"] == "as_predicted"
    assert (found["report"] == "success", ended == "success") == (as_predicted, as_predicted)
    report = json.loads((directory / "drill.json").read_text())
    exact = ("leader_after", "coordinator_after", "regressed", "vanished", "rebalances")
    assert {row["what"] for row in report["rows"]} >= set(exact)
    assert [row for row in report["rows"] if row["what"] in exact and row["match"] == "miss"] == []
    assert Path(compared["page"]).read_text().startswith("<!DOCTYPE html>")


def test_a_killed_drill_is_recovered_by_the_teardown(api: AirflowApi, drills: Path) -> None:
    run_id, directory = approved(api)
    journal = directory / "journal.jsonl"

    def fault() -> list[dict[str, Any]]:
        return events(journal, "method") if journal.exists() else []

    api.wait_for("the fault", fault)
    os.kill(events(journal, "drill")[0]["pid"], signal.SIGKILL)
    assert api.finished(DAG, run_id) == "failed"
    assert states(api, run_id) == dict.fromkeys(TASKS, "success") | {
        "fault_and_observe": "failed",
        "report": "failed",
    }
    assert events(journal, "rollback")[0]["by"] == "regroup drill recover"
    assert api.xcom(DAG, run_id, "compare")["headline"] == "Killed half-way, recovered"
    assert "Killed half-way, recovered" in (directory / "drill.html").read_text()
