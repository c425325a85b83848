"""The table of tiers: complete, enforced when tests are collected, and no Java for fast tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.cases import CASES, FAST_CASES
from tests.conftest import PARTS, TIERS

HERE = Path(__file__).parent
MARKED = "import pytest\n@pytest.mark.full\ndef test_{name}(): pass\n"
JAVA = "import os\ndef test_{name}(): assert not os.path.exists(os.environ['JAVA_HOME'])\n"

NO_OTHER_PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""Most of the start of a pytest without tests is that of plugins."""


def pytest_on(directory: Path, files: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Pytest on tests of another project that has our table."""
    (directory / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers --import-mode=importlib\n")
    for name, text in files.items():
        path = directory / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(name=path.parent.name))
    shutil.copy(HERE / "conftest.py", directory / "tests")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "xdist", *arguments],
        cwd=directory,
        env={key: value for key, value in os.environ.items() if not key.startswith("PYTEST")} | NO_OTHER_PLUGINS,
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_part_exists_once() -> None:
    assert [part.path for part in PARTS if not (HERE / part.path).exists()] == []
    assert len({part.path for part in PARTS}) == len(PARTS)
    assert {part.tier for part in PARTS} == set(TIERS)


def test_every_fast_case_exists() -> None:
    assert set(FAST_CASES) < {case.name for case in CASES}


def test_a_test_without_a_tier_or_with_two_is_an_error(tmp_path: Path) -> None:
    both = MARKED.replace("@", "@pytest.mark.real\n@", 1)
    done = pytest_on(tmp_path, {"log/test_a.py": both, "other/test_b.py": MARKED, "live/test_c.py": MARKED})
    assert done.returncode == 2
    assert "tests/log/test_a.py::test_log has several tiers: full, real" in done.stdout
    assert "tests/other/test_b.py::test_other is in no part of tests/conftest.py" in done.stdout
    assert "live" not in done.stdout


def test_a_tier_is_run_alone_counted_and_must_have_tests(tmp_path: Path) -> None:
    files = {"log/test_a.py": JAVA, "live/test_b.py": MARKED, "spark/test_c.py": "def test_{name}(): pass\n"}
    for tier in TIERS:
        done = pytest_on(tmp_path, files, "-m", tier)
        assert (done.returncode, f"| {tier} | 1 |" in done.stdout) == (0, True), done.stdout
        assert "1 passed, 2 deselected" in done.stdout
    assert pytest_on(tmp_path, files, "-m", "fast and full").returncode == 5


def test_no_part_is_begun_after_the_time_for_that(tmp_path: Path) -> None:
    tests = "".join(f"def test_{at}(): pass\n" for at in range(4))
    files = {f"{part}/test_a.py": tests for part in ("log", "live", "spark", "rules", "cli")}
    done = pytest_on(tmp_path, files, "-n", "1", "--begin-until", "0")
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout
    assert "16 tests were not begun, for want of time: spark (4), tests/cli/test_a.py (4), tests/rules" in done.stdout
    everything = pytest_on(tmp_path, files, "-n", "1")
    assert "20 passed" in everything.stdout
    assert "not begun" not in everything.stdout
