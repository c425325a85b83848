"""``offsets_reconcile`` in one process, by ``airflow dags test``: a good run, and a bad one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from coordinator_core.log.discovery import discover
from coordinator_core.releases import profile_for_release
from coordinator_core.runs.local import replay_to_run
from coordinator_core.runs.place import RunPlace
from coordinator_core.runs.read import open_run
from expectations.gate import evaluate
from tests.dags.airflow_home import AirflowHome
from tests.log.builders import NOW_MS, write_partition
from tests.rules.logs import classic, commit, log_of


def runs_of(cluster: str, place: Path) -> list[str]:
    """Three runs of a cluster, a day apart; in the last one an offset has moved back."""
    published = []
    for day, offset in enumerate((50, 60, 40)):
        log = place / f"log-{day}"
        write_partition(log, {0: log_of(classic(), *(commit(offset=n) for n in (50, 60, 40)[: day + 1]))})
        run = RunPlace(str(place / "runs"), cluster, f"2026-03-0{day + 1}", f"run-{offset}")
        replay_to_run(
            discover([str(log)]),
            run,
            profile=profile_for_release("4.3.1"),
            now_ms=NOW_MS + day * 86_400_000,
            offsets_topic_num_partitions=1,
        )
        published.append(run.path)
    return published


@pytest.mark.full
def test_a_good_run_goes_through_with_a_report(home: AirflowHome, tmp_path: Path) -> None:
    runs = runs_of("bloated", tmp_path)
    asked = {"history": True, "history_groups": "nobody\ng\n"}
    # The expectations of this cluster's runs are evaluated in Spark.
    conf = json.dumps({"cluster": "bloated", "run": runs[1], **asked})
    done = home.airflow("dags", "test", "offsets_reconcile", "--conf", conf)
    assert done.returncode == 0, done.stdout
    [history] = (Path(runs[1]).parent / "_history" / Path(runs[1]).name).iterdir()
    document = json.loads((history / "history.json").read_text())
    assert (document["run"], document["groups"]) == (runs[1], ["g", "nobody"])
    assert pq.read_table(history / "history")["committed_offset"].to_pylist() == [60]
    report = Path(runs[1]).parent / "_reports" / Path(runs[1]).name
    assert {"report.html", "report.json", "report.md", "report.prom"} <= {path.name for path in report.iterdir()}
    assert (report / "data_docs/index.html").is_file()
    findings = json.loads((report / "rules.json").read_text())["findings"]
    assert json.loads((report / "expectations.json").read_text()) == {
        **json.loads(json.dumps(evaluate(open_run(runs[1]), findings=findings).as_dict())),
        "data_docs": str(report / "data_docs"),
    }
    document = json.loads((report / "report.json").read_text())
    assert document["verdict"] == "clean"
    # It was compared with the run of the day before, which nobody named.
    assert document["previous"]["path"] == runs[0]
    assert re.search(r"verdict +clean", done.stdout)


@pytest.mark.full
def test_a_run_with_a_critical_finding_closes_the_gate(home: AirflowHome, tmp_path: Path) -> None:
    runs = runs_of("mixed", tmp_path)
    conf = json.dumps({"cluster": "mixed", "run": runs[2]})
    done = home.airflow("dags", "test", "offsets_reconcile", "--conf", conf)
    assert done.returncode != 0
    moved = r"critical R30 of g: committed offset of t-0 went from 60 back to 40"
    place = r"\(offsets partition 0, record offset 3\)"
    assert re.search(f"AirflowFailException: the gate is closed: .*{moved} {place}", done.stdout), done.stdout
    [directory] = (Path(runs[2]).parent / "_findings" / Path(runs[2]).name).iterdir()
    assert pq.read_table(directory / "findings.parquet")["rule"].to_pylist() == ["R30", "R72"]
    assert (Path(runs[2]).parent / "_reports" / Path(runs[2]).name / "report.html").is_file()
    # A process of the worker has evaluated them.
    assert not (Path(runs[2]).parent / "_reports" / Path(runs[2]).name / "expectations.json").exists()
    # Nobody has asked for it.
    assert not (Path(runs[2]).parent / "_history").exists()
