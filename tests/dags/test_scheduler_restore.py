"""``offsets_restore`` under a real scheduler, on a real broker: rejected, stale, changed, approved, and undone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.admin import ACL, ACLOperation, ACLPermissionType, KafkaAdminClient, ResourcePattern, ResourceType

from coordinator_core.restore.model import read_plan, write_plan
from tests.cluster.kit import SecuredBroker
from tests.dags.airflow_home import AirflowApi, AirflowHome
from tests.live.broker import Kafka, create_topics, wait_for
from tests.live.scenario import Clients
from tests.restore.kit import PARTITIONS, PASSWORD, RECORDS, SETTINGS, TOPIC, Place, offsets_of, regroup

DAG = "offsets_restore"
TASKS = ("plan", "approve", "check", "apply", "verify", "rollback")
ALLOWED = (
    ("READ", "TOPIC", "*"),
    *(("READ", "GROUP", name) for name in ("lost-0", "lost-1", "kept", "may")),
    *((operation, "GROUP", "*") for operation in ("DESCRIBE", "DELETE")),
)


@pytest.fixture(scope="module")
def cluster(api: AirflowApi, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A broker with an authorizer, and the Airflow connection of one who may write to some groups."""
    directory = tmp_path_factory.mktemp("restored")
    broker = SecuredBroker(Kafka.fetch(), directory / "broker", {"SASL": "SASL_PLAINTEXT"}, SETTINGS)
    broker.start()
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        create_topics(admin, {TOPIC: PARTITIONS})
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
        for number in range(PARTITIONS * RECORDS):
            producer.send(TOPIC, b"record", partition=number % PARTITIONS)
        producer.close()
        allow = ACLPermissionType.ALLOW
        acls = [
            ACL("User:restorer", "*", ACLOperation[operation], allow, ResourcePattern(ResourceType[kind], name))
            for operation, kind, name in ALLOWED
        ]
        assert not admin.create_acls(acls)["failed"]
        wait_for("the authorizer", lambda: all(admin.describe_acls(one)[0] for one in acls))
        host, _, port = broker.server("SASL").partition(":")
        connection = {"connection_id": "restored", "conn_type": "kafka", "host": host, "port": int(port)}
        extra = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
        login = {"login": "restorer", "password": PASSWORD, "extra": json.dumps(extra)}
        api.post("/connections", connection | login)
        api.wait_for_dag(DAG)
        made = Place(broker, admin, Clients(broker))
        made.commit("kept", offsets_of(1))
        yield made
    finally:
        admin.close()
        broker.kill()


def asked(api: AirflowApi, **form: Any) -> tuple[str, dict[str, Any]]:
    """A run that waits for a person; its id, and its plan."""
    run_id = api.trigger(DAG, {"cluster": "restored", **form})
    question = api.asked(DAG, run_id, "approve")
    planned: dict[str, Any] = api.xcom(DAG, run_id, "plan")
    assert question["subject"] == planned["subject"]
    assert all(told in question["body"] for told in (planned["digest"], planned["plan"], "plan.html"))
    return run_id, planned


def ended(api: AirflowApi, run_id: str, state: str, **others: str) -> None:
    """State of the run at its end, and the tasks that did not succeed."""
    assert api.finished(DAG, run_id) == state, api.logs()
    found = {name: task["state"] for name, task in api.tasks(DAG, run_id).items()}
    assert found == dict.fromkeys(TASKS, "success") | others, api.logs()


@pytest.mark.full
def test_a_rejected_plan_writes_nothing(api: AirflowApi, cluster: Place) -> None:
    before = cluster.held("kept")
    run_id, planned = asked(api, groups="kept", move="shift-by=-3")
    assert planned["subject"] == f"Restore {PARTITIONS} offsets of 1 group of restored?"

    # An open question holds no other cluster. Another one of this cluster is not asked.
    other = api.trigger(DAG, {"cluster": "restored-too", "groups": "kept", "move": "to-current"})
    again = api.trigger(DAG, {"cluster": "restored", "groups": "kept", "move": "to-earliest"})
    ended(api, other, "success", **dict.fromkeys(TASKS[1:], "skipped"))
    ended(api, again, "failed", plan="failed", **dict.fromkeys(TASKS[1:], "upstream_failed"))
    assert api.tasks(DAG, again)["plan"]["try_number"] == 1
    told = f"run '{run_id}' of offsets_restore for cluster restored has not ended: answer it first"
    assert told in api.task_log(DAG, again, "plan")
    api.answer(DAG, run_id, "approve", "Reject")
    ended(api, run_id, "success", **dict.fromkeys(TASKS[2:], "skipped"))
    assert cluster.held("kept") == before
    assert not (Path(planned["directory"]) / "applied").exists()


@pytest.mark.full
def test_a_plan_that_is_stale_when_it_is_approved_writes_nothing(api: AirflowApi, cluster: Place) -> None:
    run_id, planned = asked(api, groups="kept", move="to-earliest")
    cluster.commit("kept", {3: (50, "since", -1)})
    since = cluster.held("kept")
    api.answer(DAG, run_id, "approve", "Approve")
    ended(api, run_id, "failed", check="failed", **dict.fromkeys(TASKS[3:], "upstream_failed"))
    assert api.tasks(DAG, run_id)["check"]["try_number"] == 1, "another attempt would find the same"
    line = "the plan is stale: group 'kept', orders-3: offset 50 (leader epoch -1) is committed now; plan again"
    assert line in api.task_log(DAG, run_id, "check")
    assert cluster.held("kept") == since
    assert not (Path(planned["directory"]) / "applied").exists()


@pytest.mark.full
def test_an_approved_plan_is_applied_and_proved_and_undone_once_it_no_longer_holds(
    api: AirflowApi, home: AirflowHome, place: Path, cluster: Place, tmp_path: Path
) -> None:
    groups = ["lost-0", "lost-1"]
    for number, group in enumerate(groups):
        cluster.commit(group, {key: value for key, value in offsets_of(number).items() if key != 3})
    good = cluster.held(*groups)
    regroup("capture", *cluster.server, "--output", tmp_path / "good")
    cluster.admin.delete_groups(["lost-0"])
    cluster.commit("lost-1", {0: (1, "reset", -1)})
    bad = cluster.held(*groups)
    run_id, planned = asked(api, source=str(tmp_path / "good"), groups="\n".join(groups))
    assert "Look at it before you approve" in Path(planned["directory"], "plan.html").read_text()
    assert cluster.held(*groups) == bad
    api.answer(DAG, run_id, "approve", "Approve")
    ended(api, run_id, "success")
    assert cluster.held(*groups) == good
    assert "verified:   yes" in api.task_log(DAG, run_id, "verify")
    assert "there is nothing to undo" in api.task_log(DAG, run_id, "rollback")

    # Another client commits, and somebody looks again.
    cluster.commit("lost-1", {3: (7, "another client", -1)})
    clear = {"task_ids": ["verify"], "include_downstream": True, "only_failed": False}
    api.post(f"/dags/{DAG}/clearTaskInstances", {"dry_run": False, "dag_run_id": run_id, **clear})
    ended(api, run_id, "failed", verify="failed")
    log = api.task_log(DAG, run_id, "verify", 2)
    assert "is foreign: group 'lost-1', orders-3: a commit of 7" in log
    assert cluster.held(*groups) == {"lost-1": bad["lost-1"] | {(TOPIC, 3): (7, -1, "another client")}}
    assert (Path(planned["directory"]) / "rolled-back/journal.jsonl").exists()

    files = [*(place / "runs/restored").rglob("*"), *(home.directory / "logs").rglob("*")]
    assert len(files) > 20
    assert [file for file in files if file.is_file() and PASSWORD.encode() in file.read_bytes()] == []


@pytest.mark.full
def test_another_plan_than_the_approved_one_is_not_applied(api: AirflowApi, cluster: Place) -> None:
    before = cluster.held("kept")
    run_id, planned = asked(api, groups="kept", move="to-earliest")
    plan, _ = read_plan(planned["plan"])
    write_plan(planned["plan"], replace(plan, source="somewhere else"))
    api.answer(DAG, run_id, "approve", "Approve")
    ended(api, run_id, "failed", check="failed", **dict.fromkeys(TASKS[3:], "upstream_failed"))
    assert "it is not the plan that was approved" in api.task_log(DAG, run_id, "check")
    assert cluster.held("kept") == before


@pytest.mark.full
def test_a_plan_that_was_made_again_has_to_be_approved_again(api: AirflowApi, cluster: Place) -> None:
    before = cluster.held("kept")
    run_id, planned = asked(api, groups="kept", move="to-earliest")
    clear = {"task_ids": ["plan"], "include_downstream": False, "only_failed": False}
    api.post(f"/dags/{DAG}/clearTaskInstances", {"dry_run": False, "dag_run_id": run_id, **clear})

    def again() -> bool:
        found = api.tasks(DAG, run_id)["plan"]
        return (found["state"], found["try_number"]) == ("success", 2)

    api.wait_for("another plan", again)
    again_planned = api.xcom(DAG, run_id, "plan")
    assert again_planned["digest"] != planned["digest"]
    api.answer(DAG, run_id, "approve", "Approve")
    ended(api, run_id, "failed", check="failed", **dict.fromkeys(TASKS[3:], "upstream_failed"))
    assert f"the proposal {again_planned['digest']} is not the one that was approved" in api.task_log(
        DAG, run_id, "check"
    )
    assert cluster.held("kept") == before


@pytest.mark.full
def test_an_apply_that_fails_for_one_group_is_undone(api: AirflowApi, cluster: Place, tmp_path: Path) -> None:
    (tmp_path / "wanted.csv").write_text(f"may,{TOPIC},0,0\nmay-not,{TOPIC},0,0\n")
    run_id, planned = asked(api, from_file=str(tmp_path / "wanted.csv"))
    api.answer(DAG, run_id, "approve", "Approve")
    ended(api, run_id, "failed", apply="failed", verify="upstream_failed")
    assert "failed: group 'may-not', orders-0: GROUP_AUTHORIZATION_FAILED" in api.task_log(DAG, run_id, "apply")
    journal = (Path(planned["directory"]) / "applied/journal.jsonl").read_text()
    assert '"group_id": "may", "written": 1' in journal
    assert cluster.held("may", "may-not") == {}


@pytest.mark.full
def test_where_nothing_changes_nobody_is_asked(api: AirflowApi, cluster: Place) -> None:
    run_id = api.trigger(DAG, {"cluster": "restored", "groups": "kept", "move": "to-current"})
    ended(api, run_id, "success", **dict.fromkeys(TASKS[1:], "skipped"))


@pytest.mark.full
def test_nobody_is_asked_about_a_blocked_plan(api: AirflowApi, cluster: Place) -> None:
    run_id = api.trigger(DAG, {"cluster": "restored", "groups": "kept", "move": "to-offset=1000"})
    ended(api, run_id, "failed", plan="failed", **dict.fromkeys(TASKS[1:], "upstream_failed"))
    assert "nobody is asked: 4 offsets are blocked" in api.task_log(DAG, run_id, "plan")
