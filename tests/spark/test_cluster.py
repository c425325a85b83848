"""A real standalone cluster: an archive brings Python and the core, S3 the log, and an executor may die."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from coordinator_core import storage
from coordinator_core.errors import DamagedInputError
from coordinator_core.fold.pin import read_pin, write_pin
from coordinator_core.log.discovery import discover
from coordinator_core.runs.local import replay_to_run
from coordinator_core.runs.place import RunPlace
from coordinator_core.runs.read import open_run, resolve_latest
from tests.runs.state_tables import computed_state_hash

from ..bench.generator import Workload, generate
from ..building import ROOT, build_environment, shared_wheel
from ..disk import on_disk
from ..log.object_store import ObjectStore, object_store
from .cluster import SPARK_HOME, WORKER_MEMORY, Cluster, clean_environment, cluster

PATIENCE_SECONDS = 600
LOG = Workload(
    "cluster",
    12_000_000,
    groups=300,
    offset_keys=8_000,
    transactional=0.1,
    tombstones=0.02,
    segment_bytes=1 << 18,
)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("log")
    generate(LOG, directory)
    return directory


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with on_disk() as place:
        yield build_environment(place, shared_wheel(tmp_path_factory))


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store() as store:
        yield store


@pytest.fixture(scope="module")
def running(store: ObjectStore) -> Iterator[Cluster]:
    with on_disk() as place, cluster(place, store.environment) as running:
        yield running


def local_hash(log: Path, output: Path) -> str:
    place = RunPlace(str(output), "c", "w", "local")
    manifest = replay_to_run(discover([str(log)]), place, profile=None, now_ms=0)
    return str(manifest["state_hash"])


def test_the_archive_holds_locked_packages_and_no_tools(archive: Path) -> None:
    with tarfile.open(archive) as packed:
        paths = packed.getnames()
        python = packed.getmember("./bin/python")
    assert python.issym()
    found = {
        canonicalize_name(match[1]): match[2]
        for path in paths
        if (match := re.fullmatch(r".*/site-packages/([^/]+)-([^/-]+)\.dist-info", path))
    }
    lines = (ROOT / ".ci/locks/core.txt").read_text().splitlines()
    locked = {line.split()[0] for line in lines if re.match(r"[a-z]", line)}
    assert {f"{name}=={version}" for name, version in found.items() if name != "regroup"} <= locked
    assert {"regroup", "numpy", "pyarrow", "cython"} <= set(found)
    assert not {"pyspark", "pytest", "numba", "apache-airflow", "setuptools"} & set(found)


def test_executors_run_the_archived_environment_and_may_be_killed(
    running: Cluster, archive: Path, log: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "tests.spark.cluster_driver", running.url, str(log), str(tmp_path)]
    with (
        (tmp_path / "driver.log").open("wb") as said,
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=running.environment(archive),
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        ) as driver,
    ):
        assert driver.stdout is not None
        try:
            places = json.loads(driver.stdout.readline())
            for directory, *used in places:
                assert Path(directory).is_relative_to(running.work)
                for path in used:
                    assert Path(directory, path).is_relative_to(Path(directory, "environment"))
            assert len({directory for directory, *_ in places}) == 2

            first = running.executors()
            assert len(first) == 2
            wait_for_folds(tmp_path / "c/w/r", driver)
            name, pid = sorted(first.items())[0]
            os.kill(pid, signal.SIGKILL)
            found = json.loads(driver.stdout.readline())
            # The cluster has noticed, and started another one.
            assert name not in running.executors()
            assert {path.name for path in running.work.glob("app-*/*")} > {Path(name).name for name in first}
            assert driver.wait(PATIENCE_SECONDS) == 0
        finally:
            driver.kill()
    assert found == local_hash(log, tmp_path)
    run = open_run(str(tmp_path / "c/w/r"))
    listed = {file for table in run.manifest["tables"].values() for file in table["files"]}
    assert {str(path.relative_to(run.path)) for path in Path(run.path).rglob("*.parquet")} == listed
    assert not list(Path(run.path).glob("_*"))


def wait_for_folds(run: Path, driver: subprocess.Popen[str]) -> None:
    """Until tasks of a replay have staged something."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not list(run.glob("_staging/fold-*")):
        assert driver.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_from_one_bucket_into_another_place_of_it(
    running: Cluster, archive: Path, log: Path, store: ObjectStore, tmp_path: Path
) -> None:
    """The command line on a cluster whose executors have the credentials in their environment."""
    source = store.copy(log, "log")
    command = [str(Path(sys.executable).with_name("regroup")), "replay", source, "--engine", "spark"]
    command += ["--master", running.url, "--output", store.uri("runs"), "--cluster", "c", "--now-ms", "0"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**running.environment(archive), **store.environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    run = resolve_latest(store.uri("runs"), "c")
    assert run.manifest["engine"] == "spark"
    assert run.state_hash == computed_state_hash(run) == local_hash(log, tmp_path)
    assert store.environment["AWS_SECRET_ACCESS_KEY"] not in json.dumps(run.manifest)
    assert {entry.name for entry in storage.list_directory(run.path)} == {
        "manifest.json",
        *run.manifest["tables"],
    }


def test_an_app_under_spark_submit(running: Cluster, archive: Path, log: Path, tmp_path: Path) -> None:
    """With the properties that a DAG sets."""
    driver = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    python = {
        "spark.pyspark.python": "./environment/bin/python",
        "spark.pyspark.driver.python": sys.executable,
        "spark.executor.memory": WORKER_MEMORY,
    }
    properties = [f"--conf={key}={value}" for key, value in {**driver, **python}.items()]
    submit = [str(Path(sys.executable).with_name("spark-submit")), "--master", running.url, *properties]
    submit += ["--archives", f"{archive}#environment", str(ROOT / "spark_apps/replay.py")]
    source = ["--snapshot", str(log), "--output", str(tmp_path), "--cluster", "c", "--now-ms", "0"]
    done = subprocess.run(
        [*submit, *source],
        cwd=tmp_path,
        env={**clean_environment(), "PYTHONPATH": str(ROOT), "SPARK_HOME": str(SPARK_HOME)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    run = resolve_latest(str(tmp_path), "c")
    assert (run.manifest["engine"], run.state_hash) == ("spark", local_hash(log, tmp_path))


def test_the_local_engine_reads_and_writes_a_bucket(store: ObjectStore, log: Path, tmp_path: Path) -> None:
    source = discover([store.copy(log, "pinned")])
    write_pin(source, store.uri("pin.json"))
    place = RunPlace(store.uri("local"), "c", "w", "r")
    manifest = replay_to_run(read_pin(store.uri("pin.json")), place, profile=None, now_ms=0)
    assert computed_state_hash(open_run(place.path)) == manifest["state_hash"] == local_hash(log, tmp_path)
    storage.write_atomic(source.segments[3].path, b"shorter now")
    pin, place = read_pin(store.uri("pin.json")), RunPlace(store.uri("local"), "c", "w", "again")
    with pytest.raises(DamagedInputError, match="changed_since_pin"):
        replay_to_run(pin, place, profile=None, now_ms=0)
    assert not storage.exists(storage.join(place.path, "manifest.json"))
