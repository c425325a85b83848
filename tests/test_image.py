"""The Dockerfile's own steps, carried out in an empty directory: what the image would hold, runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
WORKDIR = "/opt/regroup"


def instructions() -> list[tuple[str, str]]:
    """Instruction and arguments of each line of the Dockerfile, continued lines joined."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines]


def copy(arguments: str, image: Path) -> None:
    *sources, target = [word for word in arguments.split() if not word.startswith("--")]
    for source in sources:
        destination = image / target / Path(source).name if target.endswith("/") else image / target
        destination.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, destination, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / source, destination)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The image's working directory. Steps on files outside of it (users, package lists) are left out."""
    directory = tmp_path_factory.mktemp("image")
    ran = []
    for instruction, arguments in instructions():
        if instruction == "COPY":
            copy(arguments, directory)
        elif instruction == "RUN" and arguments.startswith(".ci/setup.sh"):
            step = arguments.partition("&&")[0].split()
            done = subprocess.run(step, cwd=directory, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            ran.append(step[1])
    assert ran == ["java", "python", "packages", "project"]
    yield directory
    shutil.rmtree(directory)


def run(image: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """A command in the image's environment: its ENV lines, and nothing of this environment's packages."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
    }
    for instruction, arguments in instructions():
        if instruction == "ENV":
            for name, value in re.findall(r"(\w+)=(\S+)", arguments):
                environment[name] = value.replace(WORKDIR, str(image)).replace("$PATH", environment["PATH"])
    environment["AIRFLOW_HOME"] = str(image / "airflow")
    return subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=False)


def test_the_command_line_runs(image: Path) -> None:
    entry = next(arguments for instruction, arguments in instructions() if instruction == "ENTRYPOINT")
    assert entry == '["regroup"]'
    done = run(image, "regroup", "find-coordinator", "payments")
    assert done.returncode == 0, done.stderr
    where = run(image, "python", "-c", "import coordinator_core; print(coordinator_core.__file__)")
    assert where.stdout.strip() == str(image / "coordinator_core" / "__init__.py")


def test_the_command_line_reads_a_log(image: Path) -> None:
    log = ROOT / "tests/corpus/k431-txn/log"
    done = run(image, "regroup", "list", "--kafka-version", "4.3.1", str(log))
    assert done.returncode == 0, done.stderr
    assert "x-committed" in done.stdout


def test_the_apps_and_dags_load(image: Path) -> None:
    apps = sorted(path.stem for path in (ROOT / "spark_apps").glob("*.py") if path.stem != "__init__")
    dags = sorted(path.stem for path in (ROOT / "dags").glob("*.py") if path.stem != "__init__")
    assert apps
    assert dags
    names = [*(f"spark_apps.{name}" for name in apps), *(f"dags.{name}" for name in dags)]
    done = run(image, "python", "-c", "\n".join(f"import {name}" for name in names))
    assert done.returncode == 0, done.stderr
    version = run(image, "spark-submit", "--version")
    assert version.returncode == 0, version.stderr
    assert "version 4.2.0" in version.stderr
