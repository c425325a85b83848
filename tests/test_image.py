"""The three images of the Dockerfile, made by its own steps in a clean Debian: what they hold, runs, sealed."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.disk import on_disk
from tests.image import ROOT, Images, Stage
from tests.test_installation import CASE
from tests.test_project import EXTRAS, locked

LOG, OUTPUT = "/snapshot", "/srv/regroup"
SITE = "lib/python3.11/site-packages"


@pytest.fixture(scope="module")
def images() -> Iterator[Images]:
    with on_disk() as place:
        yield Images(place)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    path = tmp_path / "output"
    path.mkdir()
    path.chmod(0o777)
    return path


def said(stage: Stage, command: str, **more: object) -> str:
    """What a command, sealed, writes to standard output; nothing to standard error."""
    done = stage.run(command, sealed=True, **more)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return done.stdout


def packages(stage: Stage, environment: str) -> set[str]:
    names = said(stage, f"ls -d {environment}/{SITE}/*.dist-info").splitlines()
    return {re.sub(r"-[^-]*$", "", Path(name).stem).replace("_", "-").replace(".", "-").lower() for name in names}


def state_hash(stage: Stage, command: str, output: Path) -> str:
    """State hash of the run that a command of an image publishes, from the log of a corpus case."""
    (log,) = CASE.paths
    command += f" --output {OUTPUT} --cluster c --run-id r --now-ms 0 --kafka-version 4.3.1"
    done = stage.run(command, mounts={LOG: log, OUTPUT: output}, sealed=True)
    assert done.returncode == 0, done.stderr
    manifest = json.loads((output / "c/1970-01-01/r/manifest.json").read_text())
    return str(manifest["state_hash"])


def test_the_command_line_replays_a_log(images: Images, output: Path) -> None:
    cli = images.stages["cli"]
    assert cli.entry_point == ["regroup"]
    assert "Usage: regroup" in said(cli, "regroup --help")
    (log,) = CASE.paths
    command = f"regroup replay {LOG} --output {OUTPUT} --cluster c --now-ms 0 --kafka-version 4.3.1 --format json"
    printed = said(cli, command, mounts={LOG: log, OUTPUT: output})
    assert json.loads(printed)["complete"] is True
    kernels = "python -c 'from coordinator_core.kernels.mode import IS_COMPILED; print(IS_COMPILED)'"
    assert said(cli, kernels) == "True\n"


def test_spark_runs_an_app_as_the_entry_point_starts_a_driver(images: Images, output: Path) -> None:
    spark = images.stages["spark"]
    assert spark.entry_point == ["/opt/entrypoint.sh"]
    assert images.from_elsewhere == ["/opt/entrypoint.sh", "/opt/decom.sh"]
    done = spark.run("$SPARK_HOME/bin/spark-submit --version", sealed=True)
    assert "version 4.2.0" in done.stderr
    assert "spark-kubernetes_" in said(spark, "command -v tini && ls $SPARK_HOME/jars")
    submit = "/usr/bin/tini -s -- $SPARK_HOME/bin/spark-submit --conf spark.driver.bindAddress=127.0.0.1"
    submit += f" --deploy-mode client --master 'local[1]' /opt/regroup/spark_apps/replay.py --snapshot {LOG}"
    on_spark = state_hash(spark, submit, output)
    shutil.rmtree(output / "c")
    assert on_spark == state_hash(spark, f"regroup replay {LOG}", output)


def test_airflow_has_every_dag_and_submits(images: Images) -> None:
    airflow = images.stages["airflow"]
    script = (
        "from airflow.dag_processing.dagbag import DagBag;"
        "import json, os; bag = DagBag(os.environ['AIRFLOW__CORE__DAGS_FOLDER']);"
        "print(json.dumps([sorted(bag.dags), bag.import_errors]))"
    )
    printed = said(airflow, f'AIRFLOW_HOME=/tmp/airflow python -W ignore -c "{script}"').splitlines()[-1]
    dags, errors = json.loads(printed)
    assert errors == {}
    assert {"offsets_load", "offsets_reconcile_demo", "offsets_compact", "offsets_maintain"} <= set(dags)
    done = airflow.run("spark-submit --version", sealed=True)
    assert "version 4.2.0" in done.stderr
    assert said(airflow, "python -c 'import expectations, spark_apps.replay; print(spark_apps.__path__[0])'").endswith(
        f"{SITE}/spark_apps\n"
    )


@pytest.mark.parametrize(
    "image, environment", [("cli", "/opt/regroup"), ("spark", "/opt/regroup"), ("airflow", "/home/airflow/.local")]
)
def test_an_image_holds_what_its_lock_names_and_no_compiler(images: Images, image: str, environment: str) -> None:
    stage = images.stages[image]
    assert stage.user not in ("0", "root")
    lock = ".ci/locks/core.txt" if image == "cli" else f".ci/locks/{image}.txt"
    assert lock in EXTRAS
    found = packages(stage, environment)
    assert "regroup" in found
    assert found - {"regroup", "pip", "setuptools"} <= set(locked(lock))
    assert stage.run("command -v cc gcc", sealed=True).returncode != 0
    assert stage.run("test -e /build/pyproject.toml -o -e /build/coordinator_core", sealed=True).returncode == 1
    bill = f"{environment}/{SITE}/coordinator_core/sbom.cdx.json"
    assert said(stage, f"cat {bill}") == (ROOT / "coordinator_core/sbom.cdx.json").read_text()
