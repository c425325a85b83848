"""A Spark standalone cluster on loopback: a master and two workers, started from the pyspark package."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pyspark

SPARK_HOME = Path(pyspark.__file__).parent
LOOPBACK = "127.0.0.1"
WORKERS = 2
WORKER_MEMORY = "512m"
QUICK_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
START_SECONDS = 300


@dataclass(frozen=True)
class Cluster:
    """``url`` is for ``--master``; executors have their working directories below ``work``."""

    url: str
    work: Path

    def executors(self) -> dict[str, int]:
        """Process ids of the running executors, by their working directory below ``work``."""
        found = {}
        for process in Path("/proc").glob("[0-9]*"):
            try:
                directory = (process / "cwd").readlink()
                command = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if directory.is_relative_to(self.work) and b"CoarseGrainedExecutorBackend" in command:
                found[str(directory.relative_to(self.work))] = int(process.name)
        return found

    def environment(
        self, archive: Path | None = None, more: Mapping[str, str] = MappingProxyType({})
    ) -> dict[str, str]:
        """For a driver, with ``more`` settings of Spark.

        Executors get no path to the checkout: they run the Python of the ``archive``, or without one this process's, in
        which the project is installed.
        """
        settings = {
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.ui.enabled": "false",
            # No task begins before both executors are there: else one may do all of them. The ratio is that of this
            # number of cores, without which a standalone cluster waits for none.
            "spark.cores.max": str(WORKERS),
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
            "spark.executor.memory": WORKER_MEMORY,
            "spark.executor.extraJavaOptions": QUICK_JVM,
            "spark.driver.extraJavaOptions": QUICK_JVM,
            **more,
        }
        options = [f"--conf '{key}={value}'" for key, value in settings.items()]
        if archive is not None:
            options.append(f"--archives {archive}#environment")
        return {
            **clean_environment(),
            "PYSPARK_PYTHON": sys.executable if archive is None else "./environment/bin/python",
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": " ".join([*options, "pyspark-shell"]),
        }


def clean_environment() -> dict[str, str]:
    """This process's environment without what steers Spark or where Python looks."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("PYSPARK", "SPARK", "PYTHONPATH", "AWS_"))
    }
    return {**kept, "SPARK_LOCAL_IP": LOOPBACK}


@contextmanager
def cluster(directory: Path, environment: Mapping[str, str]) -> Iterator[Cluster]:
    """A cluster for the time of the context; logs and working directories are below ``directory``.

    ``environment`` is added to that of the workers, which executors inherit.
    """
    work = directory / "work"
    with ExitStack() as stack:
        master_log = directory / "master.log"
        stack.enter_context(_daemon("master.Master", LOOPBACK, master_log, directory, {}))
        url = _wait_for(r"Starting Spark master at (spark://\S+)\s", master_log)
        logs = [directory / f"worker-{number}.log" for number in range(WORKERS)]
        for number, log in enumerate(logs):
            options = ["--cores", "1", "--memory", WORKER_MEMORY, "--work-dir", str(work), url]
            # A host each: of one task Spark runs no two attempts at a time on one.
            host = f"127.0.0.{number + 2}"
            stack.enter_context(_daemon("worker.Worker", host, log, directory, environment, *options))
        for log in logs:
            _wait_for("Successfully registered with master", log)
        yield Cluster(url, work)


@contextmanager
def _daemon(
    name: str, host: str, log: Path, cwd: Path, more: Mapping[str, str], *arguments: str
) -> Iterator[subprocess.Popen[bytes]]:
    command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
    command += ["--host", host, "--port", "0", "--webui-port", "0", *arguments]
    environment = {
        **clean_environment(),
        **more,
        "SPARK_LOCAL_IP": host,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_DAEMON_MEMORY": "128m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM,
        "SPARK_LAUNCHER_OPTS": QUICK_JVM,
    }
    with (
        log.open("wb") as output,
        subprocess.Popen(command, cwd=cwd, env=environment, stdout=output, stderr=output) as process,
    ):
        try:
            yield process
        finally:
            process.terminate()


def _wait_for(pattern: str, log: Path) -> str:
    """Match of the first group of ``pattern``, or of all of it, in a log that is being written."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        text = log.read_text(errors="replace")
        if found := re.search(pattern, text):
            return found[found.re.groups]
        if time.monotonic() > deadline:
            raise AssertionError(f"no {pattern!r} in {log}:\n{text[-4000:]}")
        time.sleep(0.1)
