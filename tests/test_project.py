"""The project's frame: its layout, its set-up steps, its lock, and what must not be in the repository."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.sources import imports_of

ROOT = Path(__file__).resolve().parent.parent
DIRECTORIES = {"dags", "coordinator_core", "spark_apps", "expectations", "tests", "docs", "demo", ".ci"}
FILES = {
    ".dockerignore",
    ".gitignore",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Dockerfile",
    "LICENSE",
    "MANIFEST.in",
    "Makefile",
    "README.md",
    "pyproject.toml",
    "requirements.lock",
    "setup.py",
}
CODE = ("coordinator_core", "spark_apps", "dags", "expectations", "tests")


def tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def tracked_texts() -> list[tuple[str, str]]:
    """Name and text of every tracked file that git would call text."""
    blobs = [(name, (ROOT / name).read_bytes()) for name in tracked()]
    return [(name, blob.decode("utf-8", "replace")) for name, blob in blobs if b"\0" not in blob[:8000]]


def project() -> dict[str, Any]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)["project"]


LOCKED_TO_RUN = "".join(path.read_text() for path in (ROOT / ".ci/locks").glob("*.txt"))

_AIRFLOW = ("spark", "airflow", "celery", "postgres", "kubernetes", "msk", "quality", "iceberg")
EXTRAS = {
    ".ci/locks/core.txt": (),
    ".ci/locks/spark.txt": ("spark",),
    ".ci/locks/airflow.txt": _AIRFLOW,
    "requirements.lock": (*_AIRFLOW, "dev"),
}
"""Extras that a lock is for."""


def declared(*extras: str) -> set[str]:
    """Canonical names of the packages that pyproject.toml asks for."""
    about = project()
    lines = [*about["dependencies"], *(line for extra in extras for line in about["optional-dependencies"][extra])]
    return {canonicalize_name(Requirement(line).name) for line in lines}


def locked(name: str) -> dict[str, int]:
    """Hashes per package of a lock, those of the locks below it first."""
    hashes: dict[str, int] = {}
    package, own = "", set()
    for line in (ROOT / name).read_text().splitlines():
        if line.startswith("-r "):
            hashes |= locked(os.path.normpath(Path(name).parent / line.removeprefix("-r ")))
        elif line.startswith("    --hash="):
            hashes[package] += 1
        elif not line.startswith((" ", "#")):
            package = canonicalize_name(Requirement(line.removesuffix(" \\")).name)
            assert "==" in line
            # Twice only with markers, for two releases of Python; never in two locks.
            assert package not in hashes or package in own
            own.add(package)
            hashes.setdefault(package, 0)
    return hashes


def test_top_level() -> None:
    names = tracked()
    assert {name.partition("/")[0] for name in names if "/" in name} <= DIRECTORIES
    assert {name for name in names if "/" not in name} == FILES


def test_the_licence_is_apache_2() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert project()["license"] == "Apache-2.0"


def test_the_changelog_knows_this_version() -> None:
    assert f"## [{importlib.metadata.version('regroup')}]" in (ROOT / "CHANGELOG.md").read_text()


def test_every_import_is_declared() -> None:
    roots: dict[str, str] = {}
    for name in tracked():
        if name.endswith(".py") and name.partition("/")[0] in CODE:
            for node in imports_of(ROOT / name):
                if isinstance(node, ast.Import):
                    found = [alias.name for alias in node.names]
                elif not node.level and node.module:
                    found = [node.module]
                else:
                    continue
                roots.update({module.partition(".")[0]: f"{name}:{node.lineno}" for module in found})
    distributions = importlib.metadata.packages_distributions()
    undeclared = {
        root: (place, distributions.get(root))
        for root, place in roots.items()
        if root not in sys.stdlib_module_names
        and root not in CODE
        and not {canonicalize_name(d) for d in distributions.get(root, ())} & declared(*EXTRAS["requirements.lock"])
    }
    assert undeclared == {}


def test_a_lock_holds_every_package_declared_for_it_with_hashes_and_no_more() -> None:
    assert set(EXTRAS["requirements.lock"]) == set(project()["optional-dependencies"])
    below: set[str] = set()
    for name, extras in EXTRAS.items():
        lock = locked(name)
        assert below | declared(*extras) <= set(lock)
        assert [package for package, hashes in lock.items() if not hashes] == []
        if "dev" not in extras:
            assert not {"pytest", "hypothesis", "mypy", "ruff", "moto", "playwright", "numba"} & set(lock)
        below = set(lock)
    assert not {"pyspark", "pandas", "apache-airflow-core", "great-expectations"} & set(locked(".ci/locks/core.txt"))
    bootstrap = locked(".ci/bootstrap.txt")
    assert {"cython", "uv", "setuptools", "wheel"} <= set(bootstrap)
    assert [package for package, hashes in bootstrap.items() if not hashes] == []


def test_the_environment_is_the_locked_one() -> None:
    """Tests run on the packages that the lock names: one installed by hand must not carry them."""
    names = set(locked("requirements.lock")) | set(locked(".ci/bootstrap.txt")) | {"regroup", "pip"}
    installed = {canonicalize_name(d.metadata["Name"]) for d in importlib.metadata.distributions()}
    assert installed <= names


def test_setup_knows_its_steps() -> None:
    script = (ROOT / ".ci/setup.sh").read_text()
    default = re.search(r"^if \[ \$# -eq 0 \]; then set -- ([a-z ]+); fi$", script, re.MULTILINE)
    assert default is not None
    others = {"maven", "browser", "debian", "prometheus", "services"}
    assert set(re.findall(r"^step_([a-z]+)\(\)", script, re.MULTILINE)) == {*default[1].split(), *others}


def test_images_have_official_bases_of_the_locked_releases_and_plain_users() -> None:
    text = (ROOT / "Dockerfile").read_text()
    release = dict(re.findall(r"^(apache-airflow|pyspark)==(\S+)", LOCKED_TO_RUN, re.MULTILINE))
    bases = [line for line in re.findall(r"^FROM (\S+) AS", text, re.MULTILINE) if ":" in line]
    assert bases == ["python:3.11-slim-bookworm", f"apache/airflow:{release['apache-airflow']}-python3.11"]
    entry_point = re.findall(r"COPY --from=(\S+:\S+) (.*)", text)
    assert entry_point == [
        (f"apache/spark:{release['pyspark']}-scala2.13-java17-ubuntu", "/opt/entrypoint.sh /opt/decom.sh /opt/")
    ]
    images = text.split("\nFROM ")
    for name, user in (("cli", "10001"), ("spark", "185"), ("airflow", "airflow")):
        (image,) = (each for each in images if each.partition("\n")[0].endswith(f" AS {name}"))
        assert re.findall(r"^USER (\S+)", image, re.MULTILINE)[-1] == user
    copied = [name for names in re.findall(r"^COPY (?!--)(.*) \S+$", text, re.MULTILINE) for name in names.split()]
    assert [name for name in copied if not (ROOT / name).exists()] == []
    assert {"coordinator_core", "spark_apps", "expectations", "dags"} <= set(copied)


def run_setup(tools: Path, *steps: str, script: Path = ROOT / ".ci/setup.sh") -> subprocess.CompletedProcess[str]:
    """The set-up script on a machine that has only basic tools, and no package manager."""
    bash = shutil.which("bash")
    assert bash is not None
    for name in ("dirname", "sed", "head", "id"):
        found = shutil.which(name)
        assert found is not None
        (tools / name).symlink_to(found)
    environment = {"PATH": str(tools), "HOME": str(tools)}
    command = [bash, str(script), *steps]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "step, missing",
    [
        ("java", "Java 17"),
        ("maven", "Maven"),
        ("browser", "Chromium"),
        ("debian", "mmdebstrap"),
        ("prometheus", "Prometheus"),
    ],
)
def test_setup_says_in_one_line_what_is_missing(tmp_path: Path, step: str, missing: str) -> None:
    script = tmp_path / ".ci/setup.sh"
    script.parent.mkdir()
    shutil.copy(ROOT / ".ci/setup.sh", script)
    done = run_setup(tmp_path, step, script=script)
    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert f"setup: {missing}" in done.stderr


@pytest.mark.parametrize(
    "step, said",
    [
        ("compiler", ["a C compiler or Python.h is missing"]),
        ("libraries", ["liblz4.so.1 is missing", "libzstd.so.1 is missing"]),
    ],
)
def test_setup_goes_on_without_what_only_makes_it_faster(tmp_path: Path, step: str, said: list[str]) -> None:
    """The interpreter of this .venv/ knows neither library, and has no headers."""
    script, python = tmp_path / ".ci/setup.sh", tmp_path / ".venv/bin/python"
    for path in (script, python):
        path.parent.mkdir(parents=True)
    shutil.copy(ROOT / ".ci/setup.sh", script)
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    (tmp_path / "tools").mkdir()
    done = run_setup(tmp_path / "tools", step, script=script)
    assert (done.returncode, done.stdout) == (0, "")
    assert len(done.stderr.splitlines()) == len(said)
    for line, beginning in zip(done.stderr.splitlines(), said, strict=True):
        assert line.startswith(f"setup: {beginning}")


KERNEL_SOURCES = (
    "setup.py",
    "coordinator_core/log/layout.py",
    "coordinator_core/kernels/fold.py",
    "coordinator_core/kernels/compiled.pyx",
    "coordinator_core/kernels/native.h",
)


def test_setup_compiles_when_a_source_of_the_kernels_has_changed_and_not_else(tmp_path: Path) -> None:
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    for name in ("pyproject.toml", "coordinator_core/__init__.py", *KERNEL_SOURCES):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for name in ("spark_apps", "expectations", "dags", ".venv/bin"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / ".venv/bin/python").symlink_to(sys.executable)
    # In place of the installer: leaves a module, where there must be none, and the command.
    installer = tmp_path / ".venv/bin/uv"
    module = "coordinator_core/kernels/compiled.here.so"
    lines = ["#!/bin/sh", f"set -Ce; echo >{module}", "echo installed; echo >|.venv/bin/regroup"]
    installer.write_text("\n".join([*lines, "chmod +x .venv/bin/regroup", ""]))
    installer.chmod(0o755)

    def installs() -> bool:
        command = [tmp_path / ".ci/setup.sh", "project"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout == "installed\n"

    assert installs()
    assert not installs()
    for name in KERNEL_SOURCES:
        with (tmp_path / name).open("a") as file:
            file.write("\n")
        assert (name, installs(), installs()) == (name, True, False)
    (tmp_path / module).unlink()
    assert installs()


def test_setup_refuses_an_old_java(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.22\" 2024-01-16' >&2\n")
    java.chmod(0o755)
    (tmp_path / "sh").symlink_to("/bin/sh")
    done = run_setup(tmp_path, "java")
    assert done.returncode == 1
    assert "Java 17 or newer is missing" in done.stderr


def test_setup_refuses_an_unknown_step(tmp_path: Path) -> None:
    done = run_setup(tmp_path, "javva")
    assert done.returncode == 1
    assert "unknown step 'javva'" in done.stderr


BROKEN = "FAILED tests/test_a.py::test_a - assert 1 == 2"
PASSED, FAILED, NONE, NOTHING, UNPREPARED = (
    ("===== 3 passed in 0.10s =====", 0, "===== 3 passed in 0.10s ====="),
    (f"{BROKEN}\n=== 1 failed, 3 passed in 61.10s (0:01:01) ===", 2, "=== 1 failed, 3 passed in 61.10s (0:01:01) ==="),
    ("===== no tests ran in 0.01s =====", 0, "no test ran"),
    ("nothing at all", 0, "no test ran"),
    ("no mypy\nmake[1]: *** [style] Error 1\nmake: *** [test] Error 2", 3, "exit 3; make[1]: *** [style] Error 1"),
)
"""What a target of make says, its exit status, and what is said of it."""


def ci_with_make(directory: Path, targets: str) -> subprocess.CompletedProcess[str]:
    """Continuous integration with a ``make`` that does what ``targets``, cases of a shell, say."""
    make = directory / "make"
    make.write_text(f'#!/bin/sh\ncase "$*" in\n{targets}\nesac\nexit 9\n')
    make.chmod(0o755)
    return subprocess.run(
        [ROOT / ".ci/run"],
        env={**os.environ, "PATH": f"{directory}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_ci_begins_the_last_part_within_an_hour_and_says_what_it_left_out(tmp_path: Path) -> None:
    left_out = "7 tests were not begun, for want of time: tests/cli/test_a.py (7)"
    done = ci_with_make(
        tmp_path,
        f"test) echo \"until '$PYTEST_ARGS'\"; echo '{PASSED[0]}'; exit 0;;\n"
        f"test-full) echo \"until '$PYTEST_ARGS'\"; echo '{left_out}'; echo '{PASSED[0]}'; exit 0;;",
    )
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == f"make test-full: {PASSED[0]}; {left_out}"
    first, second = re.findall(r"until '(.*)'", done.stdout)
    assert first == os.environ.get("PYTEST_ARGS", "")
    (until,) = re.findall(r"--begin-until=(\d+) ", second)
    assert 0 < int(until) - time.time() <= 60 * 60


@pytest.mark.parametrize(
    "test, full, expected",
    [
        (PASSED, PASSED, 0),
        (FAILED, PASSED, 2),
        (PASSED, FAILED, 2),
        (NONE, PASSED, 1),
        pytest.param(PASSED, NONE, 1, marks=pytest.mark.full),
        pytest.param(PASSED, NOTHING, 1, marks=pytest.mark.full),
        (UNPREPARED, FAILED, 3),
    ],
)
def test_ci_fails_when_a_tier_fails_or_tests_nothing_and_says_what(
    tmp_path: Path, test: tuple[str, int, str], full: tuple[str, int, str], expected: int
) -> None:
    cases = zip(("test", "test-full"), (test, full), strict=True)
    done = ci_with_make(tmp_path, "\n".join(f"{target}) echo '{one[0]}'; exit {one[1]};;" for target, one in cases))
    assert done.returncode == expected
    closing = [BROKEN] * (FAILED in (test, full)) + [f"make test: {test[2]}", f"make test-full: {full[2]}"]
    # Before them comes what make has said.
    assert done.stdout.splitlines()[-len(closing) :] == closing
    assert done.stdout.count(BROKEN) == 2 * (FAILED in (test, full))


def test_make_has_the_promised_targets() -> None:
    targets = ["setup", "demo", "check", "test", "test-full", "durations", "lint", "bench", "wheel", "environment"]
    for target in targets:
        done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert ".ci/setup.sh" in done.stdout
    for target, needs in (("setup", False), ("demo", False), ("check", False), ("test", True), ("test-full", True)):
        done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False)
        assert (".ci/setup.sh maven" in done.stdout) == needs, target
    for tiers, target in (("fast", "check"), ('"fast or real"', "test"), ('"full or hypothesis"', "test-full")):
        done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False)
        assert f" -m {tiers}\n" in done.stdout


STUB = """#!/bin/sh
echo "${0##*/} $*" >>steps
case "${0##*/} $*" in "$FAILS"*) echo "no $FAILS" >&2; exit 3;; esac
"""
"""A program of the preparation, which notes that it was called."""


@pytest.mark.parametrize(
    "fails",
    [
        "nothing",
        "setup.sh java",
        "setup.sh packages",
        "setup.sh project",
        "setup.sh maven",
        "ruff check",
        "ruff format",
        "mypy",
        "python -c from tests.live.broker import",
    ],
)
def test_tests_begin_when_everything_is_prepared(fails: str, tmp_path: Path) -> None:
    """What fails is said, and nothing comes behind it."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("setup.sh", "in-memory.sh"):
        stub = tmp_path / ".ci" / name
        stub.parent.mkdir(exist_ok=True)
        stub.write_text(STUB)
        stub.chmod(0o755)
    for name in ("ruff", "mypy", "python"):
        stub = tmp_path / ".venv/bin" / name
        stub.parent.mkdir(parents=True, exist_ok=True)
        stub.write_text(STUB)
        stub.chmod(0o755)
    environment = {name: text for name, text in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    done = subprocess.run(
        ["make", "test"],
        cwd=tmp_path,
        env=environment | {"FAILS": fails},
        capture_output=True,
        text=True,
        check=False,
    )
    steps = (tmp_path / "steps").read_text().splitlines()
    began = [step for step in steps if "pytest" in step]
    if fails == "nothing":
        assert done.returncode == 0, done.stderr
        assert steps[0] == "setup.sh java python libraries compiler"
        assert steps[-1:] == began
        assert began[0].endswith("-m fast or real")
        once = (
            "setup.sh packages",
            "setup.sh project",
            "setup.sh maven browser prometheus",
            "ruff check",
            "ruff format",
            "mypy",
        )
        assert [sum(step.startswith(kind) for step in steps) for kind in once] == [1] * len(once)
    else:
        assert done.returncode != 0
        assert f"no {fails}" in done.stderr + done.stdout
        assert began == []


# Written so that this file does not match itself.
INDEX_ADDRESS = re.compile(r"index[-]url|registry = \"http|https?://[^ \"]*/(?:simple|maven2|packages)/")
MACHINE_PATH = re.compile(r"(?:^|[^A-Za-z0-9_./])/(?:work|root|farm)/", re.MULTILINE)
UNFINISHED = re.compile(r"raise Not[I]mplementedError|TO[D]O|FIX[M]E|XX[X]|pytest\.ski[p]\(|mark\.ski[p]|mark\.xfai[l]")


PARTS_OF_IT = {
    INDEX_ADDRESS: ("index" + "-url", "registry" + " = ", *(f"/{part}/" for part in ("simple", "maven2", "packages"))),
    MACHINE_PATH: tuple(f"/{part}/" for part in ("work", "root", "farm")),
}
"""Text of which each match has one: found faster than a match, and most files have none."""


@pytest.mark.parametrize("pattern", PARTS_OF_IT, ids=["index address", "machine path"])
def test_the_repository_names_no(pattern: re.Pattern[str]) -> None:
    texts = [(name, text) for name, text in tracked_texts() if any(part in text for part in PARTS_OF_IT[pattern])]
    found = [f"{name}: {match[0]!r}" for name, text in texts for match in pattern.finditer(text)]
    assert found == []


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (INDEX_ADDRESS, "--index" + "-url x"),
        (INDEX_ADDRESS, "registry" + ' = "http'),
        *((INDEX_ADDRESS, "https:" + f"//a.example/{part}/") for part in ("simple", "maven2", "packages")),
        *((MACHINE_PATH, f"cd /{part}/a") for part in ("work", "root", "farm")),
    ],
)
def test_what_it_must_not_name_is_found(pattern: re.Pattern[str], text: str) -> None:
    assert pattern.search(text)
    assert any(part in text for part in PARTS_OF_IT[pattern])


def test_no_code_is_unfinished_or_skipped() -> None:
    texts = [(name, text) for name, text in tracked_texts() if name.endswith(".py")]
    assert texts
    assert [f"{name}: {match[0]}" for name, text in texts for match in UNFINISHED.finditer(text)] == []


def test_no_tracked_file_is_large() -> None:
    assert [name for name in tracked() if (ROOT / name).stat().st_size > 4 << 20] == []


def test_links_between_the_documents_lead_somewhere() -> None:
    missing = []
    for name in tracked():
        if name.endswith(".md") and not name.startswith("tests/corpus/"):
            for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", (ROOT / name).read_text()):
                if "://" not in target and not ((ROOT / name).parent / target).exists():
                    missing.append(f"{name}: {target}")
    assert missing == []
