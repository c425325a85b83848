"""``offsets_load`` in one process, by ``airflow dags test``: the demo, and a snapshot that nobody can pin."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.cases import Case
from tests.dags.airflow_home import PATIENCE_SECONDS, ROOT, AirflowHome
from tests.dags.published import check_run, published

SHOP = ROOT / "demo/shop"


@pytest.mark.full
def test_the_demo_publishes_what_the_local_engine_makes_of_its_log_and_explains_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [ROOT / ".ci/demo.sh"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=2 * PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    said = dict(re.findall(r"^(run|state hash|groups|seconds) {2,}(.*)$", done.stdout, re.MULTILINE))

    path = Path(said["run"])
    captured_ms = json.loads((SHOP / "capture.json").read_text())["finished_at_ms"]
    run = check_run(path, Case("shop", SHOP.parent, (SHOP,), "4.3.1", None, 50, captured_ms), tmp_path)
    assert said["state hash"] == run.state_hash
    assert run.manifest["engine"] == "spark"
    assert run.manifest["cluster"] == "demo"
    assert run.now_ms == captured_ms
    assert path.parent.parent == ROOT / "demo-output/runs/demo"

    # No Spark connection is defined there.
    assert "--master local[*]" in (ROOT / "demo-output/airflow.log").read_text()

    # The run read exactly what was pinned, and this attempt pinned it.
    [pin] = (path.parent.parent / "_pins" / path.parent.name).iterdir()
    pinned = {
        segment["path"]: segment["bytes"]
        for partition in json.loads(pin.read_text())["partitions"]
        for segment in partition["segments"]
    }
    assert {entry["path"]: entry["bytes"] for entry in run.manifest["inputs"]} == pinned

    listed = re.findall(r"^  .{41} (?:classic|consumer|share|streams) +\w+$", done.stdout, re.MULTILINE)
    assert len(listed) == run.manifest["tables"]["groups"]["rows"]
    assert said["groups"].startswith(f"{len(listed)} with ")

    # Then the rules looked at it.
    [report] = re.findall(r"^- report: `(.*)`$", done.stdout, re.MULTILINE)
    [docs] = re.findall(r"^- Data Docs: (.*)$", done.stdout, re.MULTILINE)
    assert Path(report).parent == path.parent / "_reports" / path.name
    assert Path(report).is_file()
    assert Path(docs).is_file()
    assert re.search(r"^\*\*No findings\*\*: demo", done.stdout, re.MULTILINE)

    # In the end it is explained, in a sentence and on pages.
    assert re.search(
        r"^4 committed offsets of payments, a group without members, expired at \S+ \S+: the group became Empty 1 min "
        r"before, and the retention is 1 min\. 4 partitions were read again from an earlier offset afterwards\.$",
        done.stdout,
        re.MULTILINE,
    )
    pages = [
        Path(page) for page in re.findall(r"^- page of .*: +(/.*/investigation\.html)$", done.stdout, re.MULTILINE)
    ]
    assert len(pages) == 2
    assert all('<svg viewBox="' in page.read_text() for page in pages)
    assert re.fullmatch(r"pin \d+\.\d, replay \d+\.\d, summary \d+\.\d", said["seconds"])


@pytest.mark.full
def test_a_damaged_checkpoint_stops_the_pin_at_once(home: AirflowHome, place: Path) -> None:
    done = home.airflow("dags", "test", "offsets_load", "--conf", '{"cluster": "misfiled"}')
    assert done.returncode != 0
    failure = r"AirflowFailException: damaged input, so no retry: .*log-start-offset-checkpoint: byte 0"
    assert re.search(failure, done.stdout), done.stdout
    assert done.stdout.count("[DAG TEST] starting task_id=pin") == 1
    assert "[DAG TEST] starting task_id=replay" not in done.stdout
    assert published(place / "runs", "misfiled") == []
    # The DAG's callback was called, with a DAG that has been serialized.
    assert "Executing on_failure dag callback" in done.stdout
    assert "get_template_env" not in done.stdout
