"""Functions of the tasks of ``failover_drill``. The core is imported when a task runs, never before.

A drill has a directory of its own below the cluster's state, ``_drills/<attempt>``: the capture, the
prediction, the journal, the report.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from coordinator_core.durations import numbered
from dags.common.approval import Approval
from dags.common.attempts import attempt_id
from dags.common.capture import connection_properties
from dags.common.cluster_model import DrillSettings
from dags.common.clusters import Cluster, load_clusters
from dags.common.command import regroup
from dags.common.links import linked
from dags.common.load import final_errors, offsets_partitions, replay_rules

if TYPE_CHECKING:
    from coordinator_core.cluster.settings import ClientSettings
    from coordinator_core.drill.model import Prediction
    from coordinator_core.drill.scenario import Scenario

log = logging.getLogger(__name__)

Predicted = Mapping[str, Any]


def _cluster(params: Mapping[str, Any]) -> tuple[Cluster, DrillSettings]:
    cluster = load_clusters().clusters[params["cluster"]]
    if cluster.drill is None:
        raise AirflowFailException(f"cluster {cluster.name} has no section drill in the cluster file")
    return cluster, cluster.drill


def _client_settings(settings: DrillSettings) -> ClientSettings:
    from coordinator_core.cluster.settings import client_settings

    return client_settings(*connection_properties(settings.connection))


def predict(params: Mapping[str, Any], dag_run: Any, try_number: int) -> dict[str, Any]:
    """Captures the offsets topic and predicts; returns the files, and the question to the person."""
    cluster, settings = _cluster(params)
    with final_errors():
        from coordinator_core import storage
        from coordinator_core.cluster.capture import CaptureOptions, capture
        from coordinator_core.cluster.client import Client
        from coordinator_core.drill.scenario import Scenario
        from coordinator_core.jsontext import to_json

        scenario = Scenario.parse(params["scenario"])
        attempt = attempt_id(dag_run.run_id, try_number)
        directory = cluster.state_path("_drills", attempt)
        captured = storage.join(directory, "capture")
        with Client(_client_settings(settings)) as client:
            capture(client, captured, CaptureOptions())
    prediction = storage.join(directory, "prediction.json")
    arguments = [
        *("drill", "predict", captured, "--topology", storage.join(captured, "topology.json")),
        *("--scenario", json.dumps(to_json(scenario))),
        *("--output", prediction),
        *("--cluster", cluster.name),
        *offsets_partitions(cluster),
        *("--rto-ms", str(1000 * (params["rto_seconds"] or settings.rto_seconds))),
        *replay_rules(cluster),
    ]
    if params["rpo_seconds"] is not None:
        arguments += ["--rpo-ms", str(1000 * params["rpo_seconds"])]
    for path in settings.server_logs.values():
        arguments += ["--server-log", path]
    regroup(*arguments)
    content = _read(prediction)
    said = json.loads(content)
    brokers = _prediction(content).brokers()
    totals = said["totals"]
    lost = totals["offsets_regressed"] + totals["offsets_vanished"]
    reasons = "".join(f"- {reason}\n" for reason in said["reasons"])
    return {
        "directory": directory,
        "prediction": prediction,
        "brokers": list(brokers),
        "digest": _digest(content, settings, scenario, brokers),
        "verdict": said["verdict"],
        "not_asked": "" if params["execute"] else "only the prediction was asked for",
        "approval_hours": settings.approval_hours,
        "subject": f"Do {scenario} to {cluster.name}?",
        "body": f"Objectives: **{said['verdict']}**\n\n{reasons}\n"
        f"- {totals['partitions_moved']} of {numbered(totals['partitions'], 'offsets partition')} move\n"
        f"- {totals['groups_moved']} of {numbered(totals['groups'], 'group')} move, "
        f"{totals['groups_rebalancing']} rebalance\n"
        f"- committed offsets that go back or vanish: {lost}\n\n"
        f"Fault: `{_filled(settings.fault_command, scenario, brokers)}`\n\n"
        f"Recovery: `{_filled(settings.recover_command, scenario, brokers)}`\n\n"
        f"Prediction: {linked(cluster, prediction)}\n",
    }


def _filled(command: str, scenario: Scenario, brokers: Iterable[int]) -> str:
    """The command with the brokers of the scenario and its rack; a rack that is more than a plain word is refused."""
    rack = scenario.rack or ""
    if "{rack}" in command and not re.fullmatch(r"[\w.:/-]*", rack, re.ASCII):
        raise AirflowFailException(f"rack {rack!a} cannot be put into a command")
    return command.replace("{brokers}", ",".join(map(str, brokers))).replace("{rack}", rack)


def _read(path: str) -> bytes:
    from coordinator_core import storage

    return bytes(storage.read(path))


def _digest(prediction: bytes, settings: DrillSettings, scenario: Scenario, brokers: Sequence[int]) -> str:
    """SHA-256 of the approved documents: the prediction, and the commands as they will be run."""
    commands = [_filled(command, scenario, brokers) for command in (settings.fault_command, settings.recover_command)]
    return hashlib.sha256(json.dumps(commands).encode() + b"\0" + prediction).hexdigest()


def _prediction(content: bytes) -> Prediction:
    from coordinator_core.drill.model import Prediction

    return Prediction.from_json(json.loads(content))


def steady_state(predicted: Predicted, params: Mapping[str, Any]) -> None:
    """Fails when the cluster is not in the state that the prediction begins with."""
    _, settings = _cluster(params)
    with final_errors():
        from coordinator_core.cluster.client import Client
        from coordinator_core.cluster.drill_run import unlike_predicted
        from coordinator_core.log.types import OFFSETS_TOPIC

        prediction = _prediction(_read(predicted["prediction"]))
        with Client(_client_settings(settings)) as client:
            prediction.check_cluster(client.cluster_id, f"connection {settings.connection}")
            problems = unlike_predicted(client.topic(OFFSETS_TOPIC), prediction)
    if problems:
        raise AirflowFailException("not steady, so nothing was done: " + "; ".join(problems))


def fault_and_observe(predicted: Predicted, params: Mapping[str, Any]) -> dict[str, Any]:
    """The drill itself. It recovers the cluster, too, unless it is killed."""
    _, settings = _cluster(params)
    with final_errors():
        from coordinator_core.cluster.drill_run import DrillOptions, observe
        from coordinator_core.drill.events import Outcome

        content = _read(predicted["prediction"])
        prediction = _prediction(content)
        scenario, brokers = prediction.scenario, prediction.brokers()
        if _digest(content, settings, scenario, brokers) != predicted["digest"]:
            raise AirflowFailException("the prediction or a command is not the approved one, so nothing was done")
        options = DrillOptions(
            fault_command=_filled(settings.fault_command, scenario, brokers),
            recover_command=_filled(settings.recover_command, scenario, brokers),
            observe_seconds=settings.observe_seconds,
            limit_seconds=settings.limit_seconds,
            server_logs={broker: Path(path) for broker, path in settings.server_logs.items()},
        )
        outcome, reason, recovered = observe(_client_settings(settings), prediction, predicted["directory"], options)
    log.info("%s%s", outcome.value, f": {reason}" if reason else "")
    if outcome is not Outcome.OBSERVED or not recovered:
        state = "" if recovered else "; the cluster is not recovered"
        raise AirflowFailException(f"the drill was {outcome.value}: {reason}{state}")
    return {"outcome": outcome.value, "reason": reason}


def recover(predicted: Predicted, params: Mapping[str, Any]) -> None:
    """Mends the cluster when the drill itself could not; does nothing when it did.

    It runs when the drill was approved and may have begun. So a journal that is not here is an error, not good
    news: it may lie on the disk of another worker, with a broken cluster. In object storage every worker finds it.
    """
    from coordinator_core import storage
    from coordinator_core.drill.journal import JOURNAL

    _, settings = _cluster(params)
    journal = storage.join(predicted["directory"], JOURNAL)
    if not storage.exists(journal):
        raise AirflowException(
            f"no journal on worker {socket.gethostname()}, so nobody knows whether the cluster is as it was: "
            f"{journal}. Look at the worker of fault_and_observe, and run regroup drill recover there"
        )
    from coordinator_core.cluster.drill_recover import recover as recover_from
    from coordinator_core.drill.scenario import Scenario

    scenario = Scenario.parse(params["scenario"])
    outcome, recovered = recover_from(
        journal,
        lambda _: _client_settings(settings),
        # Not the journal's: others may write to its place. What an older Regroup predicted says no brokers here.
        command=_filled(settings.recover_command, scenario, predicted.get("brokers", scenario.brokers)),
        limit_seconds=settings.limit_seconds,
    )
    log.info("the drill was %s; the cluster is %s", outcome.value, "as it was" if recovered else "NOT as it was")
    if not recovered:
        raise AirflowException(f"the cluster is not as it was: {journal}")


def compare(predicted: Predicted | None, approved: Mapping[str, Any] | None) -> dict[str, Any]:
    """Writes the report beside the journal; skips where nobody wanted the drill.

    It runs whatever became of the tasks before. The run ends as the tasks behind it do, so an approved drill without a
    journal is an error.
    """
    if predicted is None:
        raise AirflowFailException("there is no prediction: look at the task predict")
    if predicted["not_asked"]:
        raise AirflowSkipException(predicted["not_asked"])
    if approved is not None and approved["chosen_options"] == [Approval.REJECT]:
        raise AirflowSkipException("the drill was not approved")
    from coordinator_core import storage
    from coordinator_core.drill.journal import JOURNAL, journal_bytes
    from coordinator_core.reports.drill_report import JSON, PAGE

    directory = predicted["directory"]
    journal = storage.join(directory, JOURNAL)
    if not storage.exists(journal) or not journal_bytes(journal):
        raise AirflowFailException(f"the drill has not begun: look at the tasks before; there is no journal {journal}")
    # 4: the drill did not come to its end, which the report says.
    regroup("drill", "compare", predicted["prediction"], journal, "--output", directory, done=(0, 1, 4))
    document = json.loads(_read(storage.join(directory, JSON)))
    return {
        "page": storage.join(directory, PAGE),
        **{key: document[key] for key in ("verdict", "headline", "recovered", "counts", "objectives")},
    }


def report(compared: Mapping[str, Any]) -> dict[str, Any]:
    """Logs how it ended; fails unless all came as predicted."""
    for name in ("headline", "counts", "objectives", "page"):
        log.info("%-12s%s", name, compared[name])
    if compared["verdict"] != "as_predicted":
        raise AirflowFailException(f"{compared['headline']}: {compared['page']}")
    return dict(compared)


def deadline_missed(cluster_rto_seconds: Mapping[str, int], **context: Any) -> None:
    """Says that a drill takes longer than its approval and the recovery time objective allow."""
    run = (context.get("context") or {}).get("dag_run") or {}
    asked = run.get("conf") or {}
    rto = asked.get("rto_seconds") or cluster_rto_seconds.get(asked.get("cluster", ""))
    log.error("drill %s is past its recovery time objective of %s s", run.get("dag_run_id"), rto)
