"""Functions of the tasks of ``offsets_reconcile``. The core is imported when a task runs, never before."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from dags.common.clusters import Cluster, load_clusters
from dags.common.command import ended, environment
from dags.common.load import final_errors, lines_of

log = logging.getLogger(__name__)

TOLD = "regroup_told"
"""Key of the state of the task ``find``: what asset events have told it at its first try."""

RESULT, EXPECTED, DATA_DOCS, LINEAGE = "rules.json", "expectations.json", "data_docs", "lineage.jsonl"

_RULE = re.compile(r"findings\.R\d+")
"""Expectations that stand for a rule."""

Request = dict[str, Any]
Checked = dict[str, Any]


def told_runs(context: Any, asset: Asset) -> list[Any]:
    """What asset events name as their runs: those that started this DAG run, and those that start none.

    While a DAG has its most active runs, Airflow notes the time of the first event that comes. The run that it starts
    then consumes no later event, and nothing starts another one before the next load. So the events until that start
    are taken along here, and left out where they are consumed, by the report of their run. Another try, or a run that
    was cleared, has the same ones.
    """
    store = context["task_state_store"]
    if (kept := store.get(TOLD)) is not None:
        return list(kept)
    events = sorted(chain(*context["triggering_asset_events"].values()), key=lambda event: event.timestamp)
    if not events:
        return []
    last = events[-1].timestamp
    later = context["inlet_events"][asset].after(last.isoformat()).before(context["dag_run"].start_date.isoformat())
    told = [event.extra["run"] for event in events if "run" in (event.extra or {})]
    behind = [event.extra["run"] for event in later if event.timestamp > last and "run" in (event.extra or {})]
    with final_errors():
        found = [run for run in (*told, *behind) if not _is_reported(run)] or told
    store.set(TOLD, found)
    return found


def _is_reported(run: Any) -> bool:
    """Whether a DAG run has come to the report of this run."""
    from coordinator_core import storage
    from coordinator_core.reports.report_files import FILES
    from coordinator_core.runs.place import REPORTS_DIRECTORY, beside

    if not isinstance(run, str):
        return False
    return all(storage.exists(beside(run, REPORTS_DIRECTORY, name)) for name in (RESULT, FILES["json"]))


def runs_to_check(params: Mapping[str, Any], told: Iterable[Any]) -> list[str]:
    """The run of the form, else those that asset events have ``told``, else the newest.

    A run of an event may have been pruned since, and an event that somebody else has made may name none. These are left
    out, unless there is no other one.
    """
    file = load_clusters()
    if params["run"]:
        return [file.located(params["run"])]
    told = list(told)
    named = dict.fromkeys(run for run in told if isinstance(run, str))
    for run in told:
        if not isinstance(run, str):
            message = f"an asset event has no path as its run: {run!a}"
            if not named:
                raise AirflowFailException(message)
            log.warning("left out: %s", message)
    with final_errors():
        from coordinator_core.errors import UsageError
        from coordinator_core.rules.previous import newest_run
        from coordinator_core.runs.place import is_run

        there = [run for run in named if is_run(run)]
        if there:
            for run in named.keys() - there:
                log.warning("left out, since it is not there any more: %s", run)
        if named:
            return there or list(named)
        cluster = file.clusters[params["cluster"]]
        newest = newest_run(cluster.output, cluster.name)
        if newest is None:
            raise UsageError(f"{cluster.output} has no published run of cluster {cluster.name!r}")
        return [newest.path]


def requests(cluster_name: str, runs: Sequence[str]) -> list[Request]:
    """For each run: the arguments of the app, the file of its result, and the files of the run."""
    cluster = load_clusters().clusters[cluster_name]
    with final_errors():
        return [_request(cluster, run) for run in runs]


def _request(cluster: Cluster, path: str) -> Request:
    from coordinator_core import storage
    from coordinator_core.errors import UsageError
    from coordinator_core.rules.beside import beside_run, walked_over
    from coordinator_core.rules.inputs import app_arguments
    from coordinator_core.rules.previous import previous_run
    from coordinator_core.runs.place import REPORTS_DIRECTORY, beside
    from coordinator_core.runs.read import open_run
    from coordinator_core.untrusted import visible

    run = open_run(path)
    # Its report, gate and asset would be those of this cluster, its ``latest.json`` that of the other.
    if (owner := run.manifest["cluster"]) != cluster.name:
        raise UsageError(f"{path} is a run of cluster {owner!r}, not of {cluster.name!r}")
    path, before, beside_log = run.path, previous_run(run), beside_run(run)
    found = walked_over(run, beside_log, in_tasks=True)
    for text in (*beside_log.notes, *found.notes):
        log.info("%s", visible(text))
    directory = beside(path, REPORTS_DIRECTORY)
    topics = found.topics if cluster.topics is None else cluster.topics.replace("{window}", run.manifest["window"])
    result = storage.join(directory, RESULT)
    given = {
        "topics_file": topics,
        "against": None if before is None else before.path,
        "log": found.log,
        "transaction_log": found.transaction_log,
        "settings_file": cluster.rules,
    }
    return {
        "run": path,
        "committed_offsets": run.manifest["tables"]["offsets"]["rows"],
        "topics": topics,
        "previous": given["against"],
        "directory": directory,
        "result": result,
        "args": ["--run", path, *app_arguments(given), "--result", result],
    }


def check_history(params: Mapping[str, Any]) -> None:
    """Fails when the form names groups for a history that it does not ask for."""
    if lines_of(params, "history_groups") and not params["history"]:
        raise AirflowFailException("history_groups only means something together with history")


def histories(requested: Sequence[Request], params: Mapping[str, Any]) -> list[list[str]]:
    """Arguments of the app ``history`` for each run; for none where the form does not ask for it."""
    if not params["history"]:
        return []
    # A group id may begin with a hyphen.
    groups = [f"--group={group}" for group in lines_of(params, "history_groups")]
    return [["--run", one["run"], *groups] for one in requested]


def _findings(request: Request) -> str:
    """Directory in which the app has published the findings."""
    from coordinator_core import storage

    return str(json.loads(bytes(storage.read(request["result"])))["findings"])


def report(cluster_name: str, request: Request, expected: Mapping[str, Any]) -> Checked:
    """Writes the report of a run; returns the findings."""
    cluster = load_clusters().clusters[cluster_name]
    with final_errors():
        return _report(cluster, request, expected)


def _report(cluster: Cluster, request: Request, expected: Mapping[str, Any]) -> Checked:
    from coordinator_core import storage
    from coordinator_core.reports.lineage import write_lineage
    from coordinator_core.reports.report_files import write_report
    from coordinator_core.reports.run_report import run_report
    from coordinator_core.reports.run_summary import finding_line, run_summary, worst
    from coordinator_core.rules.facts import Facts
    from coordinator_core.rules.figures_publish import read_figures
    from coordinator_core.rules.model import Severity
    from coordinator_core.rules.publish import read_reconciliation, require_same_runs
    from coordinator_core.rules.topics import read_topics
    from coordinator_core.runs.read import open_run

    topics, before = request["topics"], request["previous"]
    facts = Facts(
        open_run(request["run"]),
        None if topics is None else read_topics(topics),
        None if before is None else Facts(open_run(before)),
    )
    findings = _findings(request)
    summary, found = read_reconciliation(findings)
    # Another DAG run may have evaluated the rules since. Topics that were captured again change nothing: figures and
    # summary are those of the ones before.
    require_same_runs(facts, summary)
    document, lag = run_report(
        facts, found, expectations=dict(expected), figures=read_figures(findings), summary=summary
    )
    page = write_report(request["directory"], document, facts, lag)
    if cluster.lineage:
        write_lineage(storage.join(request["directory"], LINEAGE), facts.run, document)
    for line in run_summary(document, page=page).splitlines():
        log.info("%s", line)
    level = found.worst
    return {
        "run": request["run"],
        "verdict": document["verdict"],
        "counts": found.counts,
        "muted": found.muted,
        "not_evaluated": sorted(found.not_evaluated),
        "worst": [finding_line(finding) for finding in worst(document)],
        "failed": level is not None and level >= Severity.of(cluster.fail_on),
        "findings": findings,
        "report": page,
        "previous": before,
    }


def expect(request: Request) -> dict[str, Any]:
    """Evaluates the expectations on a run's tables and findings, in a process of its own: GX is heavy."""
    with final_errors():
        command = [sys.executable, "-m", "expectations", request["run"], *_places(request), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    if done.returncode not in (0, 1):
        raise ended("expectations", done.returncode, done.stderr[-2000:])
    return _expected(request, json.loads(done.stdout))


def quality_arguments(request: Request) -> list[str]:
    """Arguments of the app ``quality``, which evaluates the expectations in Spark."""
    with final_errors():
        return ["--run", request["run"], *_places(request), "--result", _beside(request, EXPECTED)]


def expected_in_spark(request: Request) -> dict[str, Any]:
    """The answer of the app ``quality``, as :func:`expect` returns it."""
    with final_errors():
        from coordinator_core import storage

        return _expected(request, json.loads(bytes(storage.read(_beside(request, EXPECTED)))))


def _places(request: Request) -> list[str]:
    """Options for the findings and the Data Docs."""
    return ["--findings", _findings(request), "--data-docs", _beside(request, DATA_DOCS)]


def _beside(request: Request, name: str) -> str:
    """Place of a file or directory beside the report."""
    from coordinator_core import storage

    return storage.join(request["directory"], name)


def _expected(request: Request, result: Mapping[str, Any]) -> dict[str, Any]:
    """Counts of an answer, and the codes that close the gate."""
    from coordinator_core.untrusted import visible

    log.info("%d of %d expectations evaluated", result["evaluated"], result["declared"])
    for failure in result["failures"]:
        log.warning("%s %s: not so: %s", failure["severity"], failure["code"], visible(failure["summary"]))
    for refusal in result["refusals"]:
        log.warning("not evaluated %s: %s", visible(refusal["code"]), visible(refusal["reason"]))
    # Findings of rules are the matter of the report, and of the cluster's ``fail_on``.
    contradictions = [
        failure["code"]
        for failure in result["failures"]
        if failure["severity"] == "critical" and not _RULE.fullmatch(failure["code"])
    ]
    return {
        "run": request["run"],
        "declared": result["declared"],
        "evaluated": result["evaluated"],
        "failed": result["failed"],
        "absent": len(result["absent"]),
        "contradictions": contradictions,
        "not_evaluated": [refusal["code"] for refusal in result["refusals"]],
        "data_docs": _beside(request, DATA_DOCS),
    }


def metrics(cluster_name: str, checked: Sequence[Checked]) -> list[str]:
    """Puts the metrics of the newest of these runs where the cluster's monitoring looks; those places.

    Of a run that is older than the cluster's newest nothing is put: a backfill must not look like today.
    """
    settings = load_clusters().clusters[cluster_name].metrics
    if settings is None:
        raise AirflowSkipException("the cluster file names no place for metrics")
    if not checked:
        raise AirflowSkipException("there is no report")
    with final_errors():
        from coordinator_core import storage
        from coordinator_core.reports.metrics_out import push_metrics, write_textfile
        from coordinator_core.reports.report_files import FILES
        from coordinator_core.rules.previous import newest_run
        from coordinator_core.runs.place import RunPlace
        from coordinator_core.runs.read import open_run

        run, report = max(((open_run(one["run"]), one["report"]) for one in checked), key=lambda found: found[0].now_ms)
        place = RunPlace.of(run.path)
        cluster = place.cluster
        newest = newest_run(place.output, cluster)
        if newest is not None and newest.now_ms > run.now_ms:
            raise AirflowSkipException("there is a newer run, whose metrics stay")
        text = bytes(storage.read(storage.join(storage.split(report)[0], FILES["prometheus"]))).decode()
        places = []
        if settings.textfile is not None:
            places.append(write_textfile(settings.textfile, cluster, text))
        if settings.pushgateway is not None:
            push_metrics(settings.pushgateway, cluster, text)
            places.append(settings.pushgateway)
    log.info("metrics    %s", ", ".join(places))
    return places


def register(cluster_name: str, requested: Sequence[Request]) -> list[str]:
    """Lets the branch ``main`` of the cluster's catalogue have these runs, with any findings; their paths."""
    if load_clusters().clusters[cluster_name].iceberg is None:
        raise AirflowSkipException("the cluster file names no catalogue")
    runs = [one["run"] for one in requested]
    _registered(cluster_name, runs, "main")
    return runs


def _registered(cluster_name: str, runs: Sequence[str], branch: str) -> None:
    settings = load_clusters().clusters[cluster_name].iceberg
    if settings is None or not runs:
        return
    with final_errors():
        from coordinator_core.runs.catalogs import open_tables
        from coordinator_core.runs.read import open_run

        with open_tables(settings.catalog, settings.namespace, {}) as tables:
            for run in runs:
                done = tables.register(open_run(run), branch)
                log.info("catalogue  %s.%s, branch %s", done.catalog, done.namespace, branch)


def gate(cluster_name: str, checked: Checked, expected: Mapping[str, Any]) -> Checked:
    """Lets a good run through; fails, naming the worst findings, when it is not, which is not retried.

    A run that goes through comes into the branch ``audited`` of the catalogue, where the cluster file names one. Then,
    with ``gate_latest`` of the cluster, it becomes the latest run.
    """
    run = checked["run"]
    log.info("run        %s", run)
    log.info("verdict    %s", checked["verdict"])
    log.info("report     %s", checked["report"])
    log.info("findings   %s", checked["findings"])
    log.info("data docs  %s", expected["data_docs"])
    counts = ", ".join(f"{count} {severity}" for severity, count in checked["counts"].items())
    problems = [f"{counts}: " + "; ".join(checked["worst"])] if checked["failed"] else []
    for what, codes in (
        ("its tables contradict each other", expected["contradictions"]),
        ("expectations were not evaluated", expected["not_evaluated"]),
    ):
        if codes:
            problems.append(f"{what} ({', '.join(codes[:3])}), see {expected['data_docs']}")
    if problems:
        raise AirflowFailException(f"the gate is closed: {run}: " + " | ".join(problems))
    # Before ``latest.json``, which is one file: a catalogue that fails leaves it, and the task can be cleared.
    _registered(cluster_name, [run], "audited")
    if load_clusters().clusters[cluster_name].gate_latest:
        log.info("latest     %s", "this run" if _promoted(run) else "one with a later now")
    return checked


def _promoted(path: str) -> bool:
    with final_errors():
        from coordinator_core.runs.place import RunPlace
        from coordinator_core.runs.publish import promote
        from coordinator_core.runs.read import open_run

        return promote(RunPlace.of(path), open_run(path).manifest)
