"""The Dockerfile's own steps, carried out in an empty directory: what the image would hold, runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests import rights

ROOT = Path(__file__).resolve().parent.parent
WORKDIR = "/opt/regroup"


def instructions() -> list[tuple[str, str]]:
    """Instruction and arguments of each line of the Dockerfile, continued lines joined."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines]


def ignored(directory: str, names: list[str]) -> set[str]:
    """Names in a directory of the checkout that the build does not see (``.dockerignore``)."""
    patterns = [line.removeprefix("**/") for line in (ROOT / ".dockerignore").read_text().splitlines()]
    return {name for name in names if any(fnmatch(name, pattern) for pattern in patterns)}


def copy(arguments: str, image: Path) -> None:
    *sources, target = [word for word in arguments.split() if not word.startswith("--")]
    for source in sources:
        destination = image / target / Path(source).name if target.endswith("/") else image / target
        destination.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, destination, ignore=ignored)
        else:
            shutil.copy2(ROOT / source, destination)


def linked(source: Path, target: Path) -> None:
    """Put the files of one directory into another, as links: environments are large."""

    def link(file: str, new: str) -> None:
        Path(new).unlink(missing_ok=True)
        os.link(file, new)

    shutil.copytree(source, target, symlinks=True, copy_function=link, dirs_exist_ok=True)


@dataclass
class Stages:
    """The working directory of one stage after the other, always at the same place: environments name it."""

    directory: Path
    kept: Path
    """Working directories of the stages that are done, by name."""
    steps: dict[str, list[str]] = field(default_factory=dict)
    """Steps of the set-up script that a stage carried out, those of its base first."""
    name: str = ""

    def begin(self, base: str, name: str) -> None:
        if self.name:
            self.directory.rename(self.kept / self.name)
        self.directory.mkdir()
        self.name = name
        self.steps[name] = list(self.steps.get(base, []))
        if (self.kept / base).exists():
            linked(self.kept / base, self.directory)

    def carry_out(self, instruction: str, arguments: str) -> None:
        """Steps on files outside of the working directory (users, package lists) are left out."""
        if instruction == "FROM":
            base, _, name = arguments.partition(" AS ")
            self.begin(base, name or "image")
        elif instruction == "COPY" and (stage := re.search(r"--from=(\w+)", arguments)):
            assert arguments.split()[-2:] == [WORKDIR, WORKDIR]
            linked(self.kept / stage[1], self.directory)
        elif instruction == "COPY":
            copy(arguments, self.directory)
        elif instruction == "RUN" and arguments.startswith(".ci/setup.sh"):
            command = arguments.partition("&&")[0].split()
            done = subprocess.run(command, cwd=self.directory, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            self.steps[self.name] += command[1:]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The image's working directory."""
    place = tmp_path_factory.mktemp("image")
    stages = Stages(place / "regroup", place / "kept")
    stages.kept.mkdir()
    for instruction, arguments in instructions():
        stages.carry_out(instruction, arguments)
    assert stages.steps == {
        "base": ["java", "libraries"],
        "build": ["java", "libraries", "python", "compiler", "packages", "project"],
        "image": ["java", "libraries"],
    }
    shutil.rmtree(stages.kept)
    yield stages.directory
    shutil.rmtree(place)


def run(
    image: Path, *command: str, begin: Callable[[], None] | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    """A command in the image's environment: its ENV lines, and nothing of this environment's packages.

    ``CC`` names what compiles nothing. ``begin`` is called by the process first.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    for instruction, arguments in instructions():
        if instruction == "ENV":
            for name, value in re.findall(r"(\w+)=(\S+)", arguments):
                environment[name] = value.replace(WORKDIR, str(image)).replace("$PATH", environment["PATH"])
    environment |= {"AIRFLOW_HOME": str(image / "airflow"), "CC": "/bin/false", **more}
    return subprocess.run(
        command, cwd="/", env=environment, capture_output=True, text=True, check=False, preexec_fn=begin
    )


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
    assert (done.returncode, done.stderr) == (0, "")
    assert "x-committed" in done.stdout
    (compiled,) = (image / "coordinator_core/kernels").glob("*.so")
    loaded = run(image, "python", "-c", "from coordinator_core.kernels import compiled; print(compiled.__file__)")
    assert loaded.stdout.strip() == str(compiled)


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


def test_it_runs_without_rights_and_writes_nothing_into_itself(image: Path, tmp_path: Path) -> None:
    """As ``docker run --read-only --cap-drop ALL`` does: permissions hold, and only the output can be written."""
    home = tmp_path / "home"
    home.mkdir()
    # Not the files: those of packages are links into the cache of whoever installed them.
    closed = [home, image, *(path for path in image.rglob("*") if path.is_dir() and not path.is_symlink())]
    before = {path: path.stat().st_mtime_ns for path in image.rglob("*.py*")}
    for path in closed:
        path.chmod(0o555)
    words = ["replay", str(ROOT / "tests/corpus/k431-txn/log"), "--output", str(tmp_path / "runs"), "--cluster", "c"]
    done = run(image, "regroup", *words, "--kafka-version", "4.3.1", begin=rights.give_up, HOME=str(home))
    for path in closed:
        path.chmod(0o755)
    assert (done.returncode, done.stderr) == (0, "")
    assert {path: path.stat().st_mtime_ns for path in image.rglob("*.py*")} == before
    assert list(home.iterdir()) == []


def test_it_holds_its_bill_of_materials(image: Path) -> None:
    name = "coordinator_core/sbom.cdx.json"
    assert (image / name).read_bytes() == (ROOT / name).read_bytes()
