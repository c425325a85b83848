"""Installed from a wheel: kernels are compiled when it is built, not by a run, or run as Python."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import pytest

from .building import ROOT, build_wheel, copy_sources, install, shared_wheel
from .cases import CASES
from .disk import on_disk

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
    return shared_wheel(tmp_path_factory)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(wheel, tmp_path_factory.mktemp("installed"))


@pytest.fixture
def directory() -> Iterator[Path]:
    """For an environment, with all that it needs."""
    with on_disk() as place:
        yield place


@pytest.fixture(scope="module")
def uncompiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    wheel = build_wheel(tmp_path_factory.mktemp("uncompiled-wheel"), CC="/bin/false")
    return install(wheel, tmp_path_factory.mktemp("uncompiled"))


def replay(installed: Path, cache: Path, output: Path) -> tuple[str, str]:
    """State hash of the replay of a log by that installation, and what it wrote to standard error."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "REGROUP"))}
    environment = {**kept, "PYTHONPATH": str(installed), "XDG_CACHE_HOME": str(cache)}
    options = ["--output", str(output), "--cluster", "c", "--now-ms", "0", "--kafka-version", "4.3.1"]
    arguments = ["replay", *map(str, CASE.paths), *options]
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


PYTHONS = ("python3.11", "python3.12", "python3.13")


def at_hand() -> list[str]:
    """Interpreters of supported releases that this machine has, on the PATH or of pyenv; that of the tests first."""
    releases = {str(sys.version_info[:2]): sys.executable}
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for name in PYTHONS:
        for found in (name, *map(str, pyenv.glob(f"versions/*/bin/{name}"))):
            command = [found, "-P", "-c", "import sys, venv; print(sys.version_info[:2])"]
            if shutil.which(found):
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode == 0:
                    releases.setdefault(done.stdout.strip(), found)
    return list(releases.values())


def made(place: Path, python: str, wheel: Path, *requirements: str) -> Path:
    """An environment of that interpreter with these requirements, and the wheel."""
    uv = str(Path(sys.executable).with_name("uv"))
    subprocess.run([uv, "venv", "--quiet", "--python", python, str(place)], check=True)
    install = [uv, "pip", "install", "--quiet", "--python", str(place)]
    subprocess.run([*install, *requirements], cwd=ROOT, check=True)
    subprocess.run([*install, "--offline", "--no-deps", str(wheel)], check=True)
    return place


def listed(environment: Path) -> str:
    """Groups of a log, by the command of an environment that finds no other program."""
    command = [environment / "bin/regroup", "list", "--kafka-version", "4.3.1", *CASE.paths]
    kept = {"PATH": str(environment / "bin"), "HOME": str(environment)}
    done = subprocess.run(command, env=kept, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_pip_installs_the_command_line_and_little_else(wheel: Path, directory: Path) -> None:
    """The commands of docs/install.md."""
    subprocess.run([sys.executable, "-m", "venv", directory / "e"], check=True)
    pip = [str(directory / "e/bin/pip"), "--quiet", "install"]
    subprocess.run([*pip, "--require-hashes", "-r", ROOT / ".ci/locks/core.txt"], check=True)
    subprocess.run([*pip, "--no-deps", wheel], check=True)
    assert "x-committed" in listed(directory / "e")
    found = {path.name.partition("-")[0] for path in (directory / "e").rglob("*.dist-info")}
    assert {"regroup", "pyarrow", "numpy"} <= found
    assert len(found) <= 35
    assert not {"pyspark", "pandas", "apache_airflow", "great_expectations", "pytest"} & found


def test_oldest_and_newest_versions_on_each_python_at_hand(wheel: Path, directory: Path) -> None:
    expected = subprocess.run(
        [Path(sys.executable).with_name("regroup"), "list", "--kafka-version", "4.3.1", *CASE.paths],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for python in at_hand():
        place = directory / Path(python).name
        # Of another interpreter uncompiled: what is looked at is what it needs, and compiling takes a minute.
        own = wheel if python == sys.executable else build_wheel(place, python, CC="/bin/false")
        for versions in ("newest", "oldest"):
            # uv takes the lowest versions of what the wheel needs; the lock holds the newest.
            constraints = ".ci/oldest.txt" if versions == "oldest" else ".ci/locks/core.txt"
            environment = made(place / versions, python, own, "--constraints", constraints, str(own))
            assert (python, versions, listed(environment)) == (python, versions, expected)


def test_the_oldest_airflow_has_every_dag(wheel: Path, directory: Path) -> None:
    environment = made(directory / "e", sys.executable, wheel, "-r", ".ci/oldest.txt")
    assert listed(environment)
    script = (
        "from airflow.dag_processing.dagbag import DagBag; bag = DagBag('dags');"
        "print(bag.import_errors, len(bag.dags) > 4, __import__('airflow').__version__)"
    )
    kept = {"PATH": os.environ["PATH"], "AIRFLOW_HOME": str(directory), "AIRFLOW__CORE__LOAD_EXAMPLES": "false"}
    kept["AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT"] = "600"
    done = subprocess.run(
        [environment / "bin/python", "-W", "ignore", "-c", script],
        cwd=ROOT,
        env=kept,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (oldest,) = re.findall(r"^apache-airflow==(\S+)", (ROOT / ".ci/oldest.txt").read_text(), re.MULTILINE)
    assert done.stdout.splitlines()[-1] == f"{{}} True {oldest}"


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
