"""``offsets_load`` through ``airflow dags test``: the whole run in one process, as an operator tries it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.cases import case
from tests.dags.airflow_home import AirflowHome
from tests.dags.published import check_run, published


def test_k431_mixed_is_published_with_the_state_of_the_local_engine(
    home: AirflowHome, place: Path, tmp_path: Path
) -> None:
    conf = {"cluster": "mixed", "window": "by-hand", "now_ms": 1795250785872}
    done = home.airflow("dags", "test", "offsets_load", "--conf", json.dumps(conf))
    assert done.returncode == 0, done.stdout

    [path] = published(place / "runs", "mixed")
    run = check_run(path, case("k431-mixed"), tmp_path)
    assert path.parent.name == "by-hand"
    assert run.now_ms == 1795250785872
    assert run.manifest["cluster"] == "mixed"
    assert run.manifest["engine"] == "spark"

    [pin] = (place / "runs/mixed/_pins/by-hand").iterdir()
    pinned = {
        segment["path"]: segment["fingerprint"]
        for partition in json.loads(pin.read_text())["partitions"]
        for segment in partition["segments"]
    }
    assert {entry["path"]: entry["fingerprint"] for entry in run.manifest["inputs"]} == pinned

    groups = run.manifest["tables"]["groups"]["rows"]
    assert f"run         {path}" in done.stdout
    assert re.search(rf"groups      {groups} with \d+ members", done.stdout)
    assert re.search(r"seconds     pin \d+\.\d, replay \d+\.\d, summary \d+\.\d", done.stdout)
    assert f"state hash  {run.state_hash}" in done.stdout


def test_k431_torn_bitflip_fails_at_once_with_the_position(home: AirflowHome, place: Path) -> None:
    done = home.airflow("dags", "test", "offsets_load", "--conf", '{"cluster": "bitflip"}')
    assert done.returncode != 0
    # The batch with the flipped bit begins at byte 3205 (case.json).
    where = "__consumer_offsets-16/00000000000000000000.log: byte 3205"
    failure = rf"AirflowFailException: replay: the input is damaged, so no retry: .*{where}"
    assert re.search(failure, done.stdout), done.stdout
    assert done.stdout.count("[DAG TEST] starting task_id=replay") == 1
    assert published(place / "runs", "bitflip") == []


def test_a_damaged_checkpoint_stops_the_pin_at_once(home: AirflowHome, place: Path) -> None:
    done = home.airflow("dags", "test", "offsets_load", "--conf", '{"cluster": "misfiled"}')
    assert done.returncode != 0
    failure = r"AirflowFailException: damaged input, so no retry: .*log-start-offset-checkpoint: byte 0"
    assert re.search(failure, done.stdout), done.stdout
    assert done.stdout.count("[DAG TEST] starting task_id=pin") == 1
    assert "[DAG TEST] starting task_id=replay" not in done.stdout
    assert published(place / "runs", "misfiled") == []
