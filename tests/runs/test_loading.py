"""Modules that a replay loads, and in which thread: those that load side by side may wait for each other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ..cases import case

_WATCHED = """
import json, sys, threading
from importlib.abc import MetaPathFinder
from coordinator_core.process.interpreter import start_light
from coordinator_core.process.leaving import leave

class Watch(MetaPathFinder):
    threads = {}

    def find_spec(self, name, path, target=None):
        self.threads[name] = threading.current_thread() is threading.main_thread()

start_light()
sys.meta_path.insert(0, Watch())
from coordinator_core.cli.app import run
code = run(sys.argv[2:])
with open(sys.argv[1], "w") as file:
    json.dump({name: in_main for name, in_main in Watch.threads.items() if name in sys.modules}, file)
leave(code)
"""
_CODECS = {f"coordinator_core.log.compression.{name}" for name in ("gzip", "snappy", "lz4", "zstd")}


def loaded(directory: Path, name: str, *options: str) -> dict[str, bool]:
    """The modules that a replay of the case ``name`` loads, each with whether the main thread did it."""
    found = directory / "loaded.json"
    command = ["replay", *case(name).command_line(), "--output", str(directory / "runs"), "--cluster", "c"]
    done = subprocess.run(
        [sys.executable, "-c", _WATCHED, str(found), *command, *options], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    modules: dict[str, bool] = json.loads(found.read_text())
    return modules


def in_threads(modules: dict[str, bool]) -> set[str]:
    """Our modules that other threads than the main one load."""
    return {name for name, in_main in modules.items() if name.startswith("coordinator_core.") and not in_main}


@pytest.fixture(scope="module")
def uncached(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bool]:
    return loaded(tmp_path_factory.mktemp("uncached"), "k431-mixed", "--no-fold-cache")


def test_threads_load_nothing_but_codecs(uncached: dict[str, bool]) -> None:
    assert in_threads(uncached) <= _CODECS


@pytest.mark.full
def test_threads_load_nothing_but_codecs_with_a_cache(tmp_path: Path) -> None:
    for _ in range(2):
        assert in_threads(loaded(tmp_path, "k431-mixed", "--fold-cache", str(tmp_path / "folds"))) <= _CODECS


def test_a_plain_log_of_a_known_release_needs_neither_codecs_nor_a_look_at_it(
    uncached: dict[str, bool],
) -> None:
    assert "coordinator_core.fold.segments" in uncached
    assert not (_CODECS | {"coordinator_core.fold.inference", "zstandard"}) & uncached.keys()


def test_what_publishes_is_loaded_while_segments_are_folded(uncached: dict[str, bool]) -> None:
    """A check of the output that loads it before takes that time from every replay."""
    names = list(uncached)
    assert names.index("coordinator_core.fold.segments") < names.index("coordinator_core.runs.publish")
