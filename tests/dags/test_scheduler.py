"""The DAGs under a real scheduler, DAG processor and API server, driven over the REST API."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import quote

import pytest

from coordinator_core.runs.read import open_run
from tests.cases import case
from tests.dags.airflow_home import AirflowApi
from tests.dags.conftest import WINDOWS
from tests.dags.published import check_run, published


def test_the_dag_processor_reports_no_import_error(api: AirflowApi) -> None:
    assert api.get("/importErrors")["import_errors"] == []


def test_k431_mixed_on_request(api: AirflowApi, place: Path, tmp_path: Path) -> None:
    before = set(published(place / "runs", "mixed"))
    run_id = api.trigger("offsets_load", {"cluster": "mixed"})
    assert api.finished("offsets_load", run_id) == "success", api.logs()
    tasks = api.tasks("offsets_load", run_id)
    assert {name: (task["state"], task["try_number"]) for name, task in tasks.items()} == {
        "pin": ("success", 1),
        "replay": ("success", 1),
        "summary": ("success", 1),
    }

    [path] = set(published(place / "runs", "mixed")) - before
    run = check_run(path, case("k431-mixed"), tmp_path)
    found = api.xcom("offsets_load", run_id, "summary")
    assert (found["run"], found["state_hash"]) == (str(path), run.state_hash)
    assert f"state hash  {run.state_hash}" in api.task_log("offsets_load", run_id, "summary")

    assert "--master local[2]" in api.task_log("offsets_load", run_id, "replay")

    # A run on request has no data interval: its window and its now are those of the request.
    dag_run = api.get(f"/dags/offsets_load/dagRuns/{run_id}")
    assert (dag_run["data_interval_start"], dag_run["logical_date"]) == (None, None)
    assert path.parent.name == dag_run["run_after"][:19].replace(":", "-") + "Z"

    # The asset event starts whoever waits for this cluster, and tells it which run.
    [event] = api.get(f"/assets/events?source_run_id={quote(run_id)}")["asset_events"]
    assert event["uri"] == "regroup://mixed/offsets"
    assert event["extra"] == found
    [consumer] = api.wait_for(
        "the DAG that waits for the asset", lambda: api.get("/dags/sees_new_runs/dagRuns")["dag_runs"]
    )
    assert api.finished("sees_new_runs", consumer["dag_run_id"]) == "success", api.logs()
    assert api.xcom("sees_new_runs", consumer["dag_run_id"], "look") == [found]

    # So does the reconciliation, which lets this run through: it is the latest from then on.
    [reconciliation] = api.wait_for(
        "the reconciliation", lambda: api.get("/dags/offsets_reconcile_mixed/dagRuns")["dag_runs"]
    )
    assert api.finished("offsets_reconcile_mixed", reconciliation["dag_run_id"]) == "success", api.logs()
    checked = api.xcom("offsets_reconcile_mixed", reconciliation["dag_run_id"], "gate", map_index=0)
    links = api.links("offsets_reconcile_mixed", reconciliation["dag_run_id"], "report", map_index=0)
    where = Path(checked["report"]).relative_to(place / "runs")
    assert links == {"Report": f"https://reports.example/regroup/{where}"}
    [page] = api.links("offsets_load", run_id, "replay").values()
    assert re.fullmatch(r"https://spark\.example/history/local-\d+/jobs/", page)
    wait_for_told(api, place, "success of offsets_load: mixed")
    assert (checked["run"], checked["failed"]) == (str(path), False)
    assert json.loads((place / "runs/mixed/latest.json").read_text())["run_id"] == path.name
    assert Path(checked["report"]).is_file()
    assert (Path(checked["findings"]) / "findings.parquet").is_file()
    assert (Path(checked["report"]).parent / "data_docs/index.html").is_file()
    lineage = (Path(checked["report"]).parent / "lineage.jsonl").read_text().splitlines()
    assert [json.loads(line)["job"]["name"] for line in lineage[1::2]] == ["mixed.replay", "mixed.reconcile"]
    metrics = place / "textfile/regroup_mixed.prom"
    assert api.xcom("offsets_reconcile_mixed", reconciliation["dag_run_id"], "metrics") == [str(metrics)]
    assert metrics.read_bytes() == Path(checked["report"]).with_suffix(".prom").read_bytes()


@pytest.mark.full
def test_damage_is_not_retried(api: AirflowApi, place: Path) -> None:
    run_id = api.trigger("offsets_load", {"cluster": "bitflip", "window": "asked-for"})
    misfiled = api.trigger("offsets_load", {"cluster": "misfiled"})
    assert api.finished("offsets_load", run_id) == "failed"
    tasks = api.tasks("offsets_load", run_id)
    assert {name: (task["state"], task["try_number"]) for name, task in tasks.items()} == {
        "pin": ("success", 1),
        "replay": ("failed", 1),
        "summary": ("upstream_failed", 0),
    }
    assert tasks["replay"]["max_tries"] == 1
    # The batch with the flipped bit begins at byte 3205 (case.json).
    where = r"__consumer_offsets-16/00000000000000000000\.log: byte 3205"
    failure = rf"replay: the input is damaged, so no retry: [^\n]*{where}"
    assert re.search(failure, api.task_log("offsets_load", run_id, "replay"))
    assert published(place / "runs", "bitflip") == []
    assert not (place / "runs/bitflip/asked-for").exists()
    assert [path.name for path in (place / "runs/bitflip/_pins").iterdir()] == ["asked-for"]

    wait_for_told(api, place, "failure of offsets_load: bitflip")

    # What stands beside the log is damaged: nothing is pinned.
    assert api.finished("offsets_load", misfiled) == "failed"
    tasks = api.tasks("offsets_load", misfiled)
    assert (tasks["pin"]["try_number"], tasks["pin"]["max_tries"]) == (1, 1)
    assert tasks["replay"]["state"] == "upstream_failed"
    failure = r"damaged input, so no retry: [^\n]*log-start-offset-checkpoint: byte 0"
    assert re.search(failure, api.task_log("offsets_load", misfiled, "pin"))
    assert published(place / "runs", "misfiled") == []


def wait_for_told(api: AirflowApi, place: Path, line: str) -> None:
    """Waits for what a notifier of the cluster file says, which the DAG processor calls."""
    api.wait_for(line, lambda: (place / "told").exists() and line in (place / "told").read_text().splitlines())


@pytest.mark.full
def test_trouble_of_the_machinery_is_retried(api: AirflowApi, place: Path) -> None:
    run_id = api.trigger("offsets_load", {"cluster": "crippled"})
    assert api.finished("offsets_load", run_id) == "failed"
    tasks = api.tasks("offsets_load", run_id)
    assert (tasks["pin"]["try_number"], tasks["replay"]["try_number"]) == (1, 2)
    assert published(place / "runs", "crippled") == []


@pytest.mark.parametrize("conf", [{"cluster": "unheard-of"}, {"now_ms": "yesterday"}, {"window": "../up"}])
def test_the_form_refuses(api: AirflowApi, conf: dict[str, str]) -> None:
    with pytest.raises(OSError, match=r"HTTP Error 4(00|22)"):
        api.trigger("offsets_load", conf)


@pytest.mark.full
def test_k0102_after_is_backfilled_into_its_window_and_a_cleared_run_replaces_nothing(
    api: AirflowApi, place: Path, tmp_path: Path
) -> None:
    dag_id = "offsets_load_nightly"
    api.wait_for_dag(dag_id)
    # Of the two days that have a snapshot, the second.
    [window] = [window for window, name in WINDOWS.items() if name == "k0102/after"]
    backfill = {"dag_id": dag_id, "from_date": "2026-03-02T00:00:00Z", "to_date": "2026-03-02T00:00:00Z"}
    api.post("/backfills", {**backfill, "max_active_runs": 1, "reprocess_behavior": "none"})
    [dag_run] = api.wait_for(
        "the run of the backfill", lambda: api.get(f"/dags/{dag_id}/dagRuns?run_type=backfill")["dag_runs"]
    )
    run_id = dag_run["dag_run_id"]
    assert api.finished(dag_id, run_id) == "success", api.logs()
    [path] = published(place / "runs", "nightly")
    assert path.parent.name == window
    run = check_run(path, case("k0102/after"), tmp_path)
    assert run.manifest["window"] == window
    assert run.now_ms == 1772409600000

    content = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    clear = {"dry_run": False, "dag_run_id": run_id, "only_failed": False}
    api.post(f"/dags/{dag_id}/clearTaskInstances", clear)
    api.wait_for("the cleared run", lambda: len(published(place / "runs", "nightly")) == 2)
    assert api.finished(dag_id, run_id) == "success", api.logs()
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == content
    [again] = set(published(place / "runs", "nightly")) - {path}
    assert again.parent == path.parent
    repeated = open_run(str(again))
    assert (repeated.state_hash, repeated.now_ms) == (run.state_hash, run.now_ms)
