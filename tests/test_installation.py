"""Installed from a wheel: kernels are compiled when it is built, not by a run, or run as Python."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import pytest

from .building import ROOT, build_wheel, copy_sources, install
from .cases import CASES

CASE = next(case for case in CASES if case.name == "k431-txn")
COMPILED = f"coordinator_core/kernels/compiled{EXTENSION_SUFFIXES[0]}"
KERNELS = ROOT / "coordinator_core/kernels"

# Runs the command line, and notes each process that is started.
RUN = """
import json, sys
started = []
def note(event, arguments):
    if event in ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system"):
        started.append(str(arguments[0]))
sys.addaudithook(note)
from coordinator_core.cli.app import run
code = run(sys.argv[1:])
import coordinator_core
from coordinator_core.kernels.mode import IS_COMPILED
at = coordinator_core.__file__
print(json.dumps({"code": code, "at": at, "compiled": IS_COMPILED, "started": started}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(wheel, tmp_path_factory.mktemp("installed"))


@pytest.fixture(scope="module")
def uncompiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    wheel = build_wheel(tmp_path_factory.mktemp("uncompiled-wheel"), CC="/bin/false")
    return install(wheel, tmp_path_factory.mktemp("uncompiled"))


def replay(installed: Path, cache: Path, output: Path) -> tuple[str, str]:
    """State hash of the replay of a log by that installation, and what it wrote to standard error."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "REGROUP"))}
    environment = {**kept, "PYTHONPATH": str(installed), "XDG_CACHE_HOME": str(cache)}
    arguments = ["replay", *map(str, CASE.paths), "--output", str(output), "--cluster", "c", "--now-ms", "0"]
    done = subprocess.run(
        [sys.executable, "-P", "-c", RUN, *arguments],
        cwd=output.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *said, last = done.stdout.splitlines()
    about = json.loads(last)
    assert about == {
        "code": 0,
        "at": str(installed / "coordinator_core/__init__.py"),
        "compiled": (installed / COMPILED).exists(),
        "started": [],
    }
    (state_hash,) = re.findall(r"^state hash: (\w{64})$", "\n".join(said), re.MULTILINE)
    return state_hash, done.stderr


def files(directory: Path) -> dict[str, Any]:
    """Size and time of modification of each file below a directory."""
    found = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): (path.stat().st_size, path.stat().st_mtime_ns) for path in found}


def test_a_wheel_holds_the_compiled_kernels_and_their_sources(wheel: Path) -> None:
    assert "-py3-none-any" not in wheel.name
    names = set(zipfile.ZipFile(wheel).namelist())
    held = {name for name in names if name.startswith("coordinator_core/kernels/")}
    sources = {path.name for pattern in ("*.py", "*.pyx") for path in KERNELS.glob(pattern)} | {"native.h"}
    assert held == {COMPILED, *(f"coordinator_core/kernels/{name}" for name in sources)}
    assert {name.partition("/")[0] for name in names if ".dist-info" not in name} == {
        "coordinator_core",
        "spark_apps",
    }


def test_a_wheel_holds_its_bill_of_materials(wheel: Path, installed: Path) -> None:
    name = "coordinator_core/sbom.cdx.json"
    assert zipfile.ZipFile(wheel).read(name) == (ROOT / name).read_bytes()
    assert (installed / name).read_bytes() == (ROOT / name).read_bytes()


def test_a_source_distribution_holds_what_its_build_needs(tmp_path: Path) -> None:
    sources = copy_sources(tmp_path / "sources")
    script = f"from setuptools import build_meta; print(build_meta.build_sdist({str(tmp_path)!r}))"
    subprocess.run([sys.executable, "-c", script], cwd=sources, capture_output=True, check=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    kernels = {f"coordinator_core/kernels/{name}" for name in ("fold.py", "compiled.pyx", "native.h")}
    assert {"setup.py", "pyproject.toml", "coordinator_core/log/layout.py", *kernels} <= names
    assert not {name for name in names if name.startswith("build/") or name.endswith("compiled.c")}


def test_the_first_run_compiles_nothing_and_writes_nothing_beside_its_folds(installed: Path, tmp_path: Path) -> None:
    before = files(installed)
    _, errors = replay(installed, tmp_path / "cache", tmp_path / "runs")
    assert errors == ""
    assert files(installed) == before
    cached = files(tmp_path / "cache")
    assert [name for name in cached if not name.startswith("regroup/folds/")] == []


def test_without_a_compiler_the_same_kernels_run_as_python(installed: Path, uncompiled: Path, tmp_path: Path) -> None:
    assert list(uncompiled.rglob("*.so")) == []
    compiled, _ = replay(installed, tmp_path / "cache", tmp_path / "compiled")
    found, errors = replay(uncompiled, tmp_path / "other-cache", tmp_path / "uncompiled")
    assert found == compiled
    assert errors.count("kernels are not compiled") == 1
    assert len(errors.splitlines()) <= 2


def test_an_error_in_a_kernel_is_not_taken_for_a_missing_compiler(tmp_path: Path) -> None:
    sources = copy_sources(tmp_path / "sources")
    native = sources / "coordinator_core/kernels/native.h"
    native.write_text(native.read_text() + "\n#error broken\n")
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    done = subprocess.run(command, cwd=sources, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "error broken" in done.stdout + done.stderr
