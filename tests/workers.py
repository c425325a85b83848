"""Workers of an Airflow that share a bucket and nothing else: each a directory, and processes that know no other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.live.scenario import ROOT
from tests.log.object_store import ObjectStore

REGROUP = (sys.executable, "-m", "coordinator_core")
DAG_RUN = "dag_run"
"""Stands for the DAG run among the arguments of a task."""

TASK = """
import importlib, json, sys
from datetime import UTC, datetime
from types import SimpleNamespace
at = datetime(2026, 11, 25, tzinfo=UTC)
run = SimpleNamespace(run_id="by hand", run_after=at, data_interval_start=None, data_interval_end=None)
module, name, *given = sys.argv[1:]
function = getattr(importlib.import_module(f"dags.common.{module}"), name)
done = function(*(run if text == "dag_run" else json.loads(text) for text in given))
print("\\n" + json.dumps(done))
"""
"""A task of a DAG, as the DAG calls it; what it returns is the last line."""


@dataclass(frozen=True)
class Worker:
    """A machine: home, working directory and temporary files of its own."""

    directory: Path
    bucket: ObjectStore
    more: Mapping[str, str] = field(default_factory=dict)

    def begin(self, *arguments: str, program: Sequence[str] = REGROUP) -> subprocess.Popen[str]:
        for name in ("home", "tmp", "work"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        return subprocess.Popen(
            [*program, *arguments],
            cwd=self.directory / "work",
            env={
                **self.bucket.environment,
                **self.more,
                "AIRFLOW_HOME": str(self.directory / "home"),
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(ROOT),
                "HOME": str(self.directory / "home"),
                "TMPDIR": str(self.directory / "tmp"),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, program: Sequence[str] = REGROUP, code: int = 0) -> tuple[str, str]:
        """Standard output and error of a process that ends with this exit code."""
        process = self.begin(*arguments, program=program)
        out, err = process.communicate()
        assert process.returncode == code, out + err
        return out, err

    def regroup(self, *arguments: str, code: int = 0) -> tuple[str, str]:
        return self.run(*arguments, code=code)

    def task(self, module: str, name: str, *given: Any, code: int = 0) -> Any:
        """What a function of ``dags.common`` returns, or, with another exit code, what the process says."""
        words = [DAG_RUN if one is DAG_RUN else json.dumps(one) for one in given]
        out, err = self.run(module, name, *words, program=(sys.executable, "-c", TASK), code=code)
        return err if code else json.loads(out.splitlines()[-1])

    def left(self) -> list[str]:
        """Files that it keeps to itself."""
        return [str(path) for path in self.directory.rglob("*") if path.is_file()]


def workers_of(directory: Path, bucket: ObjectStore, **more: str) -> list[Worker]:
    return [Worker(directory / f"worker-{number}", bucket, more) for number in range(3)]
