"""Products of the project's build: wheels, and the environment for executors of a Spark cluster."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE")
PACKAGES = ("coordinator_core", "spark_apps")
MADE = shutil.ignore_patterns("__pycache__", "*.so", "compiled.c")


def copy_sources(target: Path) -> Path:
    """The sources of the core and of the Spark apps, as in a fresh clone."""
    target.mkdir(parents=True)
    for name in SOURCES:
        shutil.copy(ROOT / name, target)
    for name in PACKAGES:
        shutil.copytree(ROOT / name, target / name, ignore=MADE)
    return target


def build_wheel(target: Path, python: str = sys.executable, **environment: str) -> Path:
    """The project's wheel, built as ``make wheel`` does, from a copy of the sources; for another Python by uv."""
    sources = copy_sources(target / "sources")
    if python == sys.executable:
        command = [python, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
        command += ["--wheel-dir", str(target), str(sources)]
    else:
        command = [str(Path(sys.executable).with_name("uv")), "build", "--quiet", "--wheel", "--python", python]
        command += ["--build-constraints", str(ROOT / ".ci/bootstrap.txt"), "--out-dir", str(target), str(sources)]
    subprocess.run(command, env={**os.environ, **environment}, check=True)
    (wheel,) = target.glob("*.whl")
    return wheel


def shared_wheel(temporary: pytest.TempPathFactory) -> Path:
    """The wheel for this Python. The first worker that asks builds it, the others wait: compiling takes a minute."""
    base = temporary.getbasetemp()
    # Each worker of pytest-xdist has a directory of its own below that of the run.
    target = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared-wheel"
    target.mkdir(exist_ok=True)
    with (target / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = list(target.glob("*.whl"))
        return found[0] if found else build_wheel(target)


def build_environment(target: Path, wheel: Path) -> Path:
    """The archive that ``make environment`` makes of a wheel."""
    archive = target / "regroup-environment.tar.gz"
    subprocess.run([ROOT / ".ci/environment.sh", wheel, archive], check=True)
    return archive


def install(wheel: Path, target: Path) -> Path:
    """The wheel, installed into a directory of its own, with bytecode."""
    command = [
        str(Path(sys.executable).with_name("uv")),
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--offline",
    ]
    command += ["--python", sys.executable, "--compile-bytecode", "--target", str(target), str(wheel)]
    subprocess.run(command, check=True)
    return target
