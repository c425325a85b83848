"""``offsets_compact`` under a real scheduler: not asked, rejected, approved, and killed on the way."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest

from coordinator_core.log.discovery import discover
from coordinator_core.releases import profile_for_release
from coordinator_core.runs.local import replay_snapshot
from tests.cases import case
from tests.dags.airflow_home import AirflowApi

DAG = "offsets_compact"
NOW_MS = 1_795_260_000_000
LATER_MS = NOW_MS + 30 * 86_400_000
TASKS = ("pin", "forecast", "plan", "approve", "compact", "proof", "publish")


@pytest.fixture
def compacted(place: Path) -> Path:
    return place / "runs/bloated/_compacted"


def logs(compacted: Path) -> list[Path]:
    """The published logs."""
    return sorted(path.parent for path in compacted.glob("[!_]*/*/compaction.json"))


def content(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def offsets(directory: Path) -> int:
    profile = profile_for_release("4.3.1")
    states = replay_snapshot(discover([str(directory)]), profile, damage=[])
    return sum(len(state.offsets) for state in states)


def states_of_tasks(api: AirflowApi, run_id: str) -> dict[str, str]:
    return {name: task["state"] for name, task in api.tasks(DAG, run_id).items()}


@pytest.mark.full
def test_where_nothing_expires_nobody_is_asked(api: AirflowApi, compacted: Path) -> None:
    run_id = api.trigger(DAG, {"cluster": "bloated", "now_ms": NOW_MS})
    assert api.finished(DAG, run_id) == "success", api.logs()
    assert states_of_tasks(api, run_id) == dict.fromkeys(TASKS, "success") | {"approve": "skipped"}
    [log] = logs(compacted)
    report = json.loads((log / "compaction.json").read_text())
    assert (report["expired_offsets"], report["now_ms"], report["engine"]) == (0, NOW_MS, "spark")
    assert report["output"] == str(log)
    assert report["output_bytes"] < report["input_bytes"]
    assert offsets(log) == offsets(case("k431-compacted/A-uncleaned").paths[0])

    latest = json.loads((compacted / "latest.json").read_text())
    assert (compacted / latest["path"], latest["plan_sha256"]) == (log, report["plan_sha256"])
    assert not list(compacted.glob("_staging/*"))
    [event] = api.get(f"/assets/events?source_run_id={quote(run_id)}")["asset_events"]
    assert (event["uri"], event["extra"]["log"]) == ("regroup://bloated/compacted", str(log))


@pytest.mark.full
def test_a_rejected_plan_publishes_nothing(api: AirflowApi, compacted: Path) -> None:
    before = content(compacted)
    run_id = api.trigger(DAG, {"cluster": "bloated", "now_ms": LATER_MS})
    asked = api.asked(DAG, run_id, "approve")
    planned = api.xcom(DAG, run_id, "plan")
    assert asked["subject"] == f"Let {planned['expires']} records expire?"
    for told in (f"{planned['expires']} records expire", planned["digest"], planned["plan"]):
        assert told in asked["body"]
    listed = pq.read_table(Path(planned["plan"]).parent / "tombstones", filters=[("due", "=", True)])
    assert listed.num_rows == planned["expires"]
    [(worst, count)] = Counter(listed["group_id"].to_pylist()).most_common(1)
    assert f"`{worst}`: {count}" in asked["body"]
    api.answer(DAG, run_id, "approve", "Reject")
    assert api.finished(DAG, run_id) == "success", api.logs()
    skipped = dict.fromkeys(("compact", "proof", "publish"), "skipped")
    assert states_of_tasks(api, run_id) == dict.fromkeys(TASKS, "success") | skipped
    after = content(compacted)
    assert {name for name in after if "/_plans/" not in name} == {name for name in before if "/_plans/" not in name}
    assert before.items() <= after.items()


@pytest.mark.full
def test_an_approved_plan_survives_that_its_compaction_is_killed(api: AirflowApi, compacted: Path) -> None:
    before = set(logs(compacted))
    earlier = {name: data for log in before for name, data in content(log).items()}
    latest = (compacted / "latest.json").read_bytes()
    run_id = api.trigger(DAG, {"cluster": "bloated", "now_ms": LATER_MS})
    api.asked(DAG, run_id, "approve")
    planned = api.xcom(DAG, run_id, "plan")
    staging = Path(planned["staging"])
    assert not staging.exists()
    api.answer(DAG, run_id, "approve", "Approve")
    # At once: it does not write for long.
    api.wait_for("the app to write", lambda: staging.exists() and list(staging.iterdir()), pause_seconds=0.01)
    assert kill_app(planned["staging"]) > 0
    assert (set(logs(compacted)), (compacted / "latest.json").read_bytes()) == (before, latest)

    assert api.finished(DAG, run_id) == "success", api.logs()
    tasks = api.tasks(DAG, run_id)
    assert (tasks["compact"]["try_number"], tasks["publish"]["try_number"]) == (2, 1)
    [log] = set(logs(compacted)) - before
    assert {name: data for one in before for name, data in content(one).items()} == earlier
    report = json.loads((log / "compaction.json").read_text())
    assert report["plan_sha256"] == planned["digest"]
    assert report["expired_offsets"] + report["expired_groups"] == planned["expires"]
    assert offsets(log) == offsets(case("k431-compacted/A-uncleaned").paths[0]) - report["expired_offsets"]
    assert json.loads((compacted / "latest.json").read_text())["path"] == f"{log.parent.name}/{log.name}"
    # What the killed attempt had left is gone.
    assert not staging.exists()


def kill_app(argument: str) -> int:
    """Kills ``spark-submit`` and the driver that were started with ``argument``; how many processes."""
    killed = 0
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if any(word.endswith(b"/compact.py") for word in words) and argument.encode() in words:
                os.kill(int(entry.name), signal.SIGKILL)
                killed += 1
    return killed
