"""Modules that a process of the command line loads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator_core.log.discovery import discover
from coordinator_core.releases import profile_for
from coordinator_core.runs.state_hash import all_digests, state_hash
from tests.replay.reference import replay_partition
from tests.runs.state_tables import state_tables

from ..cases import CASES

SCRIPT = """
import json, sys
from coordinator_core.cli.app import run
from coordinator_core.process.interpreter import start_light
start_light()
code = run(sys.argv[1:])
print(json.dumps({"code": code, "modules": sorted(name for name in sys.modules if "." not in name)}))
"""

CASE = next(case for case in CASES if case.name == "k431-txn")


def loaded_by(*arguments: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", SCRIPT, *arguments], capture_output=True, text=True, check=True)
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["code"] == 0
    return set(told["modules"])


def test_a_replay_needs_neither_pandas_nor_a_compiler(tmp_path: Path) -> None:
    arguments = ["replay", *map(str, CASE.paths), "--output", str(tmp_path), "--cluster", "c"]
    loaded = loaded_by(*arguments)
    assert "pyarrow" in loaded
    assert not loaded & {"pandas", "numba", "llvmlite", "Cython", "cython", "pyspark"}


@pytest.mark.parametrize("plain", ["", pytest.param("exit,pandas", marks=pytest.mark.full), "all"])
def test_what_makes_a_process_fast_can_be_left_out(plain: str, tmp_path: Path) -> None:
    """The same state, by the interpreter as it comes: found by what it has loaded and by how it ends."""
    script = (
        "import atexit, os, sys\n"
        "from coordinator_core.cli.app import main\n"
        "atexit.register(lambda: os.write(2, b'ended, ' + str('pandas' in sys.modules).encode()))\n"
        "main(sys.argv[1:])"
    )
    arguments = ["replay", *map(str, CASE.paths), "--output", str(tmp_path), "--cluster", "c", "--no-fold-cache"]
    arguments += ["--profile", "J3"]
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments, "--format", "json"],
        env={**os.environ, "REGROUP_PLAIN": plain},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ("ended, True" if plain else "")
    states = [
        replay_partition(log, profile_for("J3"), damage=[])
        for log in discover([str(path) for path in CASE.paths]).partitions
    ]
    assert json.loads(done.stdout)["state_hash"] == state_hash(all_digests(state_tables(states, now_ms=0)))


@pytest.mark.parametrize(("plain", "is_shared"), [("", True), ("allocator", False)])
def test_arrow_takes_its_memory_from_the_c_library(plain: str, is_shared: bool) -> None:
    script = (
        "from coordinator_core.process.interpreter import start_light\n"
        "start_light()\n"
        "import pyarrow as pa\n"
        "print(pa.default_memory_pool().backend_name == 'system')"
    )
    environment = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment | {"REGROUP_PLAIN": plain},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(is_shared)


def test_help_needs_no_data(tmp_path: Path) -> None:
    """Packages that take long to import; the command line itself comes first, then its help."""
    heavy = {"numpy", "pyarrow", "jinja2", "matplotlib", "kafka", "cython"}
    about = json.dumps(sorted(heavy | {"coordinator_core.kernels", "coordinator_core.fold"}))
    for run in ("import coordinator_core.cli", "from coordinator_core.cli.app import run; run(['--help'])"):
        script = f"import json, sys; {run}; print(json.dumps([n for n in {about} if n in sys.modules]))"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert json.loads(done.stdout.splitlines()[-1]) == []


@pytest.mark.parametrize("command", ["dump", "list", "rules"])
def test_a_reader_that_wants_no_more_is_no_error(command: str) -> None:
    arguments = [] if command == "rules" else [*map(str, CASE.paths), "--kafka-version", "4.3.1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "coordinator_core", command, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert (process.wait(), process.stderr.read()) == (0, b"")


LEAVING = """
import sys, threading, time
from coordinator_core.process.leaving import leave
def late():
    time.sleep(0.2)
    print("late", file=sys.stderr)
threading.Thread(target=late).start()
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
sys.stdout.write("result")
leave(7)
"""


def test_a_process_that_leaves_has_written_everything_and_ended_its_threads() -> None:
    done = subprocess.run([sys.executable, "-c", LEAVING], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (7, "result", "late\n")
