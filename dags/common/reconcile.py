"""What the tasks of ``offsets_reconcile`` do. The core is imported when a task runs, never before."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from dags.common.clusters import Cluster, load_clusters
from dags.common.load import final_errors

log = logging.getLogger(__name__)

REPORTS = "_reports"
"""Beside the runs of a window; the underscore keeps readers of runs, and of Parquet, out."""

ROOT = Path(__file__).resolve().parent.parent.parent

Checked = dict[str, Any]


def runs_to_check(params: Mapping[str, Any], events: Iterable[Any]) -> list[str]:
    """The run of the form, else those of the asset events that started this DAG run, else the latest."""
    if params["run"]:
        return [params["run"]]
    named = [event.extra["run"] for event in events if "run" in (event.extra or {})]
    if named:
        return list(dict.fromkeys(named))
    with final_errors():
        from coordinator_core.runs.read import resolve_latest

        cluster = load_clusters().clusters[params["cluster"]]
        return [resolve_latest(cluster.output, cluster.name).path]


def check(cluster_name: str, runs: Sequence[str]) -> list[Checked]:
    """Evaluates the rules on each run, publishes the findings, writes the report; what was found."""
    cluster = load_clusters().clusters[cluster_name]
    with final_errors():
        return [_check(cluster, run) for run in runs]


def _check(cluster: Cluster, path: str) -> Checked:
    from coordinator_core import storage
    from coordinator_core.reports.report_files import write_report
    from coordinator_core.reports.run_report import run_report
    from coordinator_core.reports.run_summary import run_summary, worst
    from coordinator_core.rules.catalogue import RULES
    from coordinator_core.rules.evaluate import evaluate
    from coordinator_core.rules.facts import Facts
    from coordinator_core.rules.model import Severity
    from coordinator_core.rules.previous import previous_run
    from coordinator_core.rules.publish import publish_findings
    from coordinator_core.rules.settings import Settings, read_settings
    from coordinator_core.rules.topics import read_topics
    from coordinator_core.runs.read import open_run

    run = open_run(path)
    window = run.manifest["window"]
    before = previous_run(run)
    topics = None if cluster.topics is None else read_topics(cluster.topics.replace("{window}", window))
    facts = Facts(run, topics, None if before is None else Facts(before))
    settings = Settings() if cluster.rules is None else read_settings(Path(cluster.rules), RULES)
    found = evaluate(facts, settings)
    report, lag = run_report(facts, found)
    parent, run_id = storage.split(run.path.rstrip("/"))
    directory = storage.join(parent, REPORTS, run_id)
    page = write_report(directory, report, facts, lag)
    for line in run_summary(report, page=page).splitlines():
        log.info("%s", line)
    level = found.worst
    return {
        "run": path,
        "verdict": report["verdict"],
        "counts": found.counts,
        "muted": found.muted,
        "not_evaluated": sorted(found.not_evaluated),
        "worst": [_line(finding) for finding in worst(report)],
        "failed": level is not None and level >= Severity.of(cluster.fail_on),
        "findings": publish_findings(facts, found),
        "report": page,
        "previous": None if before is None else before.path,
    }


def _line(finding: Mapping[str, Any]) -> str:
    from coordinator_core.reports.findings import one_line

    place = f"offsets partition {finding['offsets_partition']}, record offset {finding['record_offset']}"
    group = "" if finding["group_id"] is None else f" of {one_line(finding['group_id'])}"
    return f"{finding['severity']} {finding['rule']}{group}: {one_line(finding['message'])} ({place})"


def expect(checked: Sequence[Checked]) -> list[dict[str, Any]]:
    """Evaluates the expectations on the tables of each run, in a process of its own: GX is heavy."""
    return [_expect(one["run"], one["report"]) for one in checked]


def _expect(run: str, report: str) -> dict[str, Any]:
    with final_errors():
        from coordinator_core import storage

        docs = None
        if storage.is_local(report):
            docs = str(storage.local_path(report).parent / "data_docs")
    command = [sys.executable, "-m", "expectations", run, "--format", "json"]
    if docs is not None:
        command += ["--data-docs", docs]
    # A checkout that is not installed is found, too.
    places = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": places}
    )
    if done.returncode not in (0, 1):
        raise AirflowException(f"expectations ended with {done.returncode}: {done.stderr[-2000:]}")
    result = json.loads(done.stdout)
    log.info("%d of %d expectations evaluated", result["evaluated"], result["declared"])
    for failure in result["failures"]:
        log.warning("%s %s: not so: %s", failure["severity"], failure["code"], failure["summary"])
    for refusal in result["refusals"]:
        log.warning("not evaluated %s: %s", refusal["code"], refusal["reason"])
    critical = any(failure["severity"] == "critical" for failure in result["failures"])
    return {
        "run": run,
        "declared": result["declared"],
        "evaluated": result["evaluated"],
        "failed": result["failed"],
        "passed": not critical and not result["refusals"],
        "data_docs": docs,
    }


def gate(checked: Sequence[Checked], expected: Sequence[Mapping[str, Any]]) -> list[Checked]:
    """Lets good runs through; fails, naming the worst findings, when a run is not. Nothing is retried."""
    for one, tables in zip(checked, expected, strict=True):
        log.info("run        %s", one["run"])
        log.info("verdict    %s", one["verdict"])
        log.info("report     %s", one["report"])
        log.info("findings   %s", one["findings"])
        log.info("data docs  %s", tables["data_docs"])
    problems = [
        f"{one['run']}: {one['verdict']}: " + "; ".join(one["worst"]) for one in checked if one["failed"]
    ]
    problems += [
        f"{tables['run']}: its tables contradict each other, see {tables['data_docs']}"
        for tables in expected
        if not tables["passed"]
    ]
    if problems:
        raise AirflowFailException("the gate is closed: " + " | ".join(problems))
    return list(checked)
