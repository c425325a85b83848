"""Spark settings of a cluster, on the command line of ``spark-submit``."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from .airflow_home import AirflowHome
from .forked import Done, Script

SCRIPT = """
import os
from types import SimpleNamespace
from dags.common.spark import SparkAppOperator

operator = SparkAppOperator(task_id="replay", app="replay", application_args=["--output", "o"])
ti = SimpleNamespace(try_number=1, map_index=int(os.environ.get("MAP_INDEX", -1)))
operator.execute({"params": {"cluster": "eu"}, "run_id": "r", "ti": ti})
"""
SUBMIT = f"""#!{sys.executable}
import json, os, pathlib, sys
with open(os.environ["SUBMITTED"], "w") as file:
    json.dump([sys.argv, os.environ["PYTHONPATH"]], file)
print("26/01/01 00:00:00 WARN Spark: noise", file=sys.stderr)
exit_code = int(os.environ["SUBMIT_EXIT_CODE"])
outcome = pathlib.Path(sys.argv[sys.argv.index("--outcome") + 1])
if "DIES" not in os.environ:
    outcome.parent.mkdir(parents=True)
    outcome.write_text(json.dumps({{"exit_code": exit_code, "error": "regroup-replay: error: why"}}))
sys.exit(0 if "IN_CLUSTER" in os.environ else exit_code)
"""
CONNECTION = {"AIRFLOW_CONN_REGROUP_SPARK": json.dumps({"conn_type": "spark", "host": "spark://master:7077"})}


def execute(home: AirflowHome, directory: Path, spark: str, *, exit_code: int = 0, **environment: str) -> Done:
    """The operator with a ``spark-submit`` on its PATH that writes down how it was called."""
    clusters = directory / "clusters.yaml"
    clusters.write_text(f"clusters: {{eu: {{source: s, output: o, spark: {spark}}}}}")
    submit = directory / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text(SUBMIT)
    submit.chmod(0o755)
    everything = {
        **home.environment,
        "PATH": f"{submit.parent}{os.pathsep}{os.environ['PATH']}",
        "REGROUP_CLUSTERS": str(clusters),
        "SUBMITTED": str(directory / "submitted.json"),
        "SUBMIT_EXIT_CODE": str(exit_code),
        **environment,
    }
    return Script(SCRIPT, everything, directory).end()


def command(home: AirflowHome, directory: Path, spark: str, **environment: str) -> list[str]:
    """The command line of ``spark-submit``."""
    done = execute(home, directory, spark, **environment)
    assert done.returncode == 0, done.stderr
    words: list[str]
    words, python_path = json.loads((directory / "submitted.json").read_text())
    assert python_path.split(os.pathsep)[0] == str(Path(__file__).parents[2])
    assert words[words.index("--name") + 1] == "regroup-eu-replay"
    application = next(word for word in words if word.endswith("spark_apps/replay.py"))
    assert words[words.index(application) + 1 : -3] == ["--output", "o", "--run-id"]
    assert not Path(words[-1]).exists(), "an outcome that was read is taken away"
    return words


def test_the_master_is_that_of_the_connection(home_of_scripts: AirflowHome, tmp_path: Path) -> None:
    words = command(home_of_scripts, tmp_path, "{executor_cores: 3}", **CONNECTION)
    assert words[words.index("--master") + 1] == "spark://master:7077"
    assert words[words.index("--executor-cores") + 1] == "3"


def test_without_a_connection_the_master_is_local(home_of_scripts: AirflowHome, tmp_path: Path) -> None:
    words = command(home_of_scripts, tmp_path, "{}")
    assert words[words.index("--master") + 1] == "local[*]"


def test_a_connection_that_the_cluster_file_names_has_to_be_there(home_of_scripts: AirflowHome, tmp_path: Path) -> None:
    done = execute(home_of_scripts, tmp_path, "{connection: spark_eu}", **CONNECTION)
    assert "AirflowFailException: Airflow has no connection spark_eu" in done.stderr
    assert done.stderr.strip().endswith("spark.connection of cluster eu")
    assert not (tmp_path / "submitted.json").exists()


@pytest.mark.parametrize(("exit_code", "reason"), [(2, "request"), (3, "damaged"), (4, "proof")])
def test_a_final_exit_code_says_why_there_is_no_retry(
    home_of_scripts: AirflowHome, tmp_path: Path, exit_code: int, reason: str
) -> None:
    done = execute(home_of_scripts, tmp_path, "{}", exit_code=exit_code)
    last = done.stderr.strip().splitlines()[-1]
    told = done.stderr[done.stderr.index("AirflowFailException") :]
    assert reason in told
    assert last.endswith("so no retry: regroup-replay: error: why")
    assert "noise" not in told
    assert "Cannot execute" not in done.stderr


def test_tasks_of_one_expansion_leave_outcomes_of_their_own(home_of_scripts: AirflowHome, tmp_path: Path) -> None:
    names = []
    for index in ("-1", "0", "1"):
        (tmp_path / index).mkdir()
        words = command(home_of_scripts, tmp_path / index, "{}", MAP_INDEX=index)
        run_id = words[words.index("--run-id") + 1]
        names.append(Path(words[-1]).name.replace(run_id, "ID"))
    assert names == ["replay-ID.json", "replay-ID-0.json", "replay-ID-1.json"]


def test_an_app_that_comes_to_no_end_may_be_tried_again(home_of_scripts: AirflowHome, tmp_path: Path) -> None:
    done = execute(home_of_scripts, tmp_path, "{}", exit_code=3, DIES="")
    assert done.returncode == 1
    assert "AirflowFailException" not in done.stderr


@pytest.mark.parametrize("left", [{"exit_code": 5}, {"exit_code": 0, "DIES": ""}], ids=["failed", "no outcome"])
def test_success_of_the_submission_is_none_of_the_app(home_of_scripts: AirflowHome, tmp_path: Path, left: Any) -> None:
    """In deploy mode cluster ``spark-submit`` may end well before or whatever the app does."""
    done = execute(home_of_scripts, tmp_path, "{}", IN_CLUSTER="", **left)
    assert done.returncode == 1
    assert "spark-submit ended well, the app did not" in done.stderr


def test_the_deploy_mode_is_that_of_the_connection(home_of_scripts: AirflowHome, tmp_path: Path) -> None:
    extra = {"deploy-mode": "cluster"}
    there = {"AIRFLOW_CONN_REGROUP_SPARK": json.dumps({"conn_type": "spark", "host": "yarn", "extra": extra})}
    words = command(home_of_scripts, tmp_path, "{environment: e.tar.gz}", **there)
    assert words[words.index("--deploy-mode") + 1] == "cluster"
    assert not any(word.startswith("spark.pyspark.driver.python") for word in words), "the driver has the archive's"


def test_any_other_exit_code_may_be_tried_again(home_of_scripts: AirflowHome, tmp_path: Path) -> None:
    done = execute(home_of_scripts, tmp_path, "{}", exit_code=5)
    assert done.returncode == 1
    assert done.stderr.strip().endswith("replay: exit code 5: regroup-replay: error: why")
    assert "Cannot execute" not in done.stderr
    assert "AirflowFailException" not in done.stderr


def test_executors_get_their_environment(home_of_scripts: AirflowHome, tmp_path: Path) -> None:
    settings = "{environment: dist/regroup-environment.tar.gz, archives: 'names.zip#names', py_files: more.zip}"
    words = command(home_of_scripts, tmp_path, settings)
    archives = [f"{tmp_path}/dist/regroup-environment.tar.gz#environment", f"{tmp_path}/names.zip#names"]
    assert words[words.index("--archives") + 1] == ",".join(archives)
    assert words[words.index("--py-files") + 1] == f"{tmp_path}/more.zip"
    assert "spark.pyspark.python=./environment/bin/python" in words
    assert f"spark.pyspark.driver.python={sys.executable}" in words


def test_without_an_environment_executors_have_one(home_of_scripts: AirflowHome, tmp_path: Path) -> None:
    words = command(home_of_scripts, tmp_path, "{conf: {spark.pyspark.python: /opt/regroup/bin/python}}")
    assert "--archives" not in words
    assert [word for word in words if word.startswith("spark.pyspark")] == [
        "spark.pyspark.python=/opt/regroup/bin/python"
    ]
