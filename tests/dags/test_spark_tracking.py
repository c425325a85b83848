"""An app whose driver runs in a cluster goes on without its worker, and the next attempt follows it again.

YARN's ResourceManager is played by a server that answers its REST API; the provider's operator asks it.
"""

from __future__ import annotations

import http.server
import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.broker import wait_for

from .airflow_home import AirflowHome
from .forked import Script

SCRIPT = """
import json, os, pathlib, sys
from types import SimpleNamespace
from dags.common.spark import SparkAppOperator

class Store:
    path = pathlib.Path(os.environ["STORE"])
    def read(self):
        return json.loads(self.path.read_text()) if self.path.exists() else {}
    def get(self, key, default=None):
        return self.read().get(key, default)
    def set(self, key, value):
        self.path.write_text(json.dumps(self.read() | {key: value}))
    def clear(self):
        self.path.write_text("{}")

ti = SimpleNamespace(try_number=int(sys.argv[1]), map_index=-1, stats_tags={})
context = {"params": {"cluster": "eu"}, "run_id": "r", "ti": ti, "task_state_store": Store()}
operator = SparkAppOperator(task_id="replay", app="replay", application_args=sys.argv[2:])
print("RESULT", json.dumps(operator.execute(context)))
"""
SUBMIT = f"""#!{sys.executable}
import json, os, sys
with open(os.environ["SUBMITTED"], "a") as file:
    print(json.dumps(sys.argv), file=file)
print("INFO Client: Submitted application application_1790000000000_0042")
"""


class ResourceManager(http.server.BaseHTTPRequestHandler):
    """``GET /ws/v1/cluster/apps/{id}`` of Hadoop 3; ``state`` is what it says."""

    state: tuple[str, str] = ("RUNNING", "UNDEFINED")
    asked = 0

    def do_GET(self) -> None:
        assert self.path == "/ws/v1/cluster/apps/application_1790000000000_0042"
        type(self).asked += 1
        app = dict(zip(("state", "finalStatus"), type(self).state, strict=True))
        body = json.dumps({"app": {"id": "application_1790000000000_0042", "diagnostics": "", **app}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return None


class Attempts:
    """Attempts of one task: each is a process, and all have the task's state."""

    def __init__(self, home: AirflowHome, directory: Path, manager: str) -> None:
        self._directory = directory
        self._submitted = directory / "submitted.jsonl"
        submit = directory / "bin/spark-submit"
        submit.parent.mkdir()
        submit.write_text(SUBMIT)
        submit.chmod(0o755)
        clusters = directory / "clusters.yaml"
        clusters.write_text("clusters: {eu: {source: s, output: o}}")
        extra = {"deploy-mode": "cluster", "yarn_resourcemanager_webapp_address": manager}
        self._environment = {
            **home.environment,
            "PATH": f"{submit.parent}{os.pathsep}{os.environ['PATH']}",
            "REGROUP_CLUSTERS": str(clusters),
            "SUBMITTED": str(self._submitted),
            "STORE": str(directory / "store.json"),
            "AIRFLOW_CONN_REGROUP_SPARK": json.dumps({"conn_type": "spark", "host": "yarn", "extra": extra}),
        }

    def begin(self, number: int, *arguments: str) -> Script:
        return Script(SCRIPT, self._environment, self._directory, str(number), *arguments)

    def submissions(self) -> list[list[str]]:
        return [json.loads(line) for line in self._submitted.read_text().splitlines()]

    def app_ends(self, exit_code: int, error: str, state: tuple[str, str]) -> str:
        """Ends the app that was submitted last; its run id."""
        words = self.submissions()[-1]
        outcome = Path(words[words.index("--outcome") + 1])
        outcome.parent.mkdir(parents=True, exist_ok=True)
        outcome.write_text(json.dumps({"exit_code": exit_code, "error": error}))
        ResourceManager.state = state
        return words[words.index("--run-id") + 1]


@pytest.fixture
def attempts(home_of_scripts: AirflowHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Attempts]:
    monkeypatch.setattr(ResourceManager, "state", ("RUNNING", "UNDEFINED"))
    monkeypatch.setattr(ResourceManager, "asked", 0)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), ResourceManager) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Attempts(home_of_scripts, tmp_path, f"http://127.0.0.1:{server.server_port}")
        server.shutdown()


def lose_worker(attempts: Attempts) -> None:
    """The first attempt is killed while it follows the app."""
    first = attempts.begin(1)
    wait_for("the attempt to follow its app", lambda: ResourceManager.asked > 0)
    first.kill()


def result(said: str) -> Any:
    return json.loads(next(line for line in said.splitlines() if line.startswith("RESULT")).removeprefix("RESULT"))


def test_the_next_attempt_takes_what_the_app_has_done(attempts: Attempts) -> None:
    lose_worker(attempts)
    run_id = attempts.app_ends(0, "", ("FINISHED", "SUCCEEDED"))
    assert result(attempts.begin(2).end().stdout)["run_id"] == run_id
    [words] = attempts.submissions()
    assert "spark.yarn.submit.waitAppCompletion=false" in words


def test_an_app_that_was_asked_something_else_is_not_followed(attempts: Attempts) -> None:
    lose_worker(attempts)
    second = attempts.begin(2, "--pin", "corrected")
    wait_for("another app", lambda: len(attempts.submissions()) == 2)
    run_id = attempts.app_ends(0, "", ("FINISHED", "SUCCEEDED"))
    assert result(second.end().stdout)["run_id"] == run_id
    first, last = ([*words, ""] for words in attempts.submissions())
    assert ("corrected" in first, "corrected" in last) == (False, True)
    assert first[first.index("--run-id") + 1] != run_id


def test_damaged_input_is_not_tried_again_whoever_sees_it(attempts: Attempts) -> None:
    lose_worker(attempts)
    attempts.app_ends(3, "regroup-replay: error: why", ("RUNNING", "UNDEFINED"))
    second = attempts.begin(2)
    asked = ResourceManager.asked
    wait_for("the attempt to follow the app again", lambda: ResourceManager.asked > asked)
    ResourceManager.state = ("FINISHED", "FAILED")
    said = second.end().stderr
    assert "AirflowFailException: replay: the input is damaged, so no retry: regroup-replay: error: why" in said
    assert len(attempts.submissions()) == 1
