"""What a cluster's Spark settings become on the command line of ``spark-submit``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from .airflow_home import AirflowHome

SCRIPT = """
import json
from types import SimpleNamespace
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from dags.common.spark import SparkAppOperator

SparkSubmitOperator.execute = lambda self, context: None
operator = SparkAppOperator(task_id="replay", app="replay")
operator.execute({"params": {"cluster": "eu"}, "run_id": "r", "ti": SimpleNamespace(try_number=1)})
print(json.dumps(operator._get_hook()._build_spark_submit_command(operator.application)))
"""


def command(home: AirflowHome, clusters: Path, spark: str) -> list[str]:
    clusters.write_text(f"clusters: {{eu: {{source: s, output: o, spark: {spark}}}}}")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={
            **home.environment,
            "REGROUP_CLUSTERS": str(clusters),
            "AIRFLOW_CONN_REGROUP_SPARK": json.dumps({"conn_type": "spark", "host": "spark://master:7077"}),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_executors_get_their_environment(home: AirflowHome, tmp_path: Path) -> None:
    settings = "{environment: dist/regroup-environment.tar.gz, archives: 'names.zip#names', py_files: more.zip}"
    words = command(home, tmp_path / "clusters.yaml", settings)
    archives = [f"{tmp_path}/dist/regroup-environment.tar.gz#environment", f"{tmp_path}/names.zip#names"]
    assert words[words.index("--archives") + 1] == ",".join(archives)
    assert words[words.index("--py-files") + 1] == f"{tmp_path}/more.zip"
    assert "spark.pyspark.python=./environment/bin/python" in words
    assert f"spark.pyspark.driver.python={sys.executable}" in words


def test_without_an_environment_executors_have_one(home: AirflowHome, tmp_path: Path) -> None:
    words = command(home, tmp_path / "clusters.yaml", "{conf: {spark.pyspark.python: /opt/regroup/bin/python}}")
    assert "--archives" not in words
    assert [word for word in words if word.startswith("spark.pyspark")] == [
        "spark.pyspark.python=/opt/regroup/bin/python"
    ]
