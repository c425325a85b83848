"""Tiers of the tests, and how two workers share them: what is slow to start is started once, and starts first."""

from __future__ import annotations

import gc
import logging
import os
import signal
import time
from collections.abc import Generator
from functools import cache
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

TIERS = {
    "fast": "no JVM, no browser (make check)",
    "real": "one broker of each kind, one Airflow, one Spark, one browser (with the fast ones: make test)",
    "full": "images, installations, scale, every release, drills, walks, clusters (make test-full)",
}


class Part(NamedTuple):
    """Directory or file below ``tests/``, and the tier of those of its tests that have no marker of another.

    One worker does all tests of a part that are ``together``: they share a broker, a Spark session, an Airflow home, or
    what takes seconds to import.
    """

    path: str
    tier: str
    together: bool = False


# Workers take parts in this order, so the slow ones come first: last, one worker would do them while the other is idle.
# The longest path that fits a test is its part.
PARTS = (
    Part("spark/test_cluster.py", "full"),
    Part("test_image.py", "full", together=True),
    Part("drill/test_live_drill.py", "full"),
    Part("test_installation.py", "full"),
    Part("dags/test_workers.py", "full"),
    Part("dags", "real", together=True),
    Part("dags/test_shared_state.py", "full"),
    Part("live", "real", together=True),
    Part("spark", "real", together=True),
    Part("live/test_codecs.py", "full"),
    Part("live/test_compacted_log.py", "full"),
    Part("live/test_offset_delete.py", "full"),
    Part("live/test_sweeps.py", "full"),
    Part("live/test_schemas.py", "real"),
    Part("live/test_generated_log.py", "full"),
    Part("live/test_whatif.py", "full"),
    Part("live/test_model.py", "full"),
    Part("live/test_share_groups.py", "full"),
    Part("drill/test_live_behind.py", "full"),
    Part("drill/test_shared_journal.py", "full"),
    Part("drill/test_two_workers.py", "full"),
    Part("cluster/test_releases.py", "full"),
    Part("cluster/test_preallocated.py", "full"),
    Part("cluster/test_three_brokers.py", "full"),
    Part("cluster/test_upload.py", "full"),
    Part("cluster", "real", together=True),
    Part("restore/test_live_restore.py", "real", together=True),
    Part("restore/test_live_rescue.py", "real", together=True),
    Part("restore/test_live_releases.py", "full"),
    Part("restore/test_live_pitfalls.py", "full"),
    Part("restore/test_live_three.py", "full"),
    Part("restore/test_live_kills.py", "full"),
    Part("restore/test_live_ways_out.py", "full"),
    Part("reports/test_browser.py", "real"),
    Part("monitoring", "real"),
    Part("scale", "full"),
    Part("runs/test_iceberg.py", "real"),
    Part("bench/test_generator.py", "full"),
    Part("bench/test_rules.py", "full"),
    Part("cli/test_writers.py", "fast"),
    Part("history/test_portions.py", "fast"),
    Part("history/test_incidents.py", "fast"),
    Part("fold", "fast"),
    Part("lifecycle/test_loads_judged.py", "full", together=True),
    Part("lifecycle", "fast"),
    Part("coordinator", "fast"),
    Part("expectations/test_data_docs.py", "full"),
    Part("expectations", "fast", together=True),
    Part("cli", "fast"),
    Part("bench", "fast"),
    Part("rules", "fast"),
    Part("runs", "fast"),
    Part("log", "fast"),
    Part("reports", "fast"),
    Part("ingest", "fast"),
    Part("records", "fast"),
    Part("replay", "fast"),
    Part("fuzz", "fast"),
    Part("drill", "fast"),
    Part("restore", "fast"),
    Part("dags/test_attempts_and_summary.py", "fast"),
    Part("dags/test_cluster_file.py", "fast"),
    Part("dags/test_connections.py", "fast"),
    Part("dags/test_drill_state.py", "fast"),
    Part("dags/test_form.py", "fast"),
    Part("dags/test_gate.py", "fast"),
    Part("dags/test_maintain.py", "fast"),
    Part("dags/test_restore_state.py", "fast"),
    Part("dags/test_untrusted.py", "fast"),
    Part("cluster/test_crosscheck.py", "fast"),
    Part("cluster/test_files.py", "fast"),
    Part("cluster/test_msk.py", "fast"),
    Part("cluster/test_settings.py", "fast"),
    Part("spark/test_packing.py", "fast"),
    Part("spark/test_tasks.py", "fast"),
    Part("spark/test_history_tasks.py", "fast"),
    Part("groups", "fast"),
    Part("history", "fast"),
    Part("kernels", "fast"),
    Part("releases", "fast"),
    Part("test_architecture.py", "fast"),
    Part("test_audit.py", "fast"),
    Part("test_contributing.py", "fast"),
    Part("test_docs.py", "fast"),
    Part("test_kubernetes.py", "fast"),
    Part("test_project.py", "fast"),
    Part("test_runbooks.py", "fast"),
    Part("test_sbom.py", "fast"),
    Part("test_tiers.py", "fast"),
    Part("test_topology.py", "fast"),
    Part("test_workers.py", "fast"),
)
NOT_BEGUN = pytest.StashKey[dict[str, int]]()
"""Files or parts that no worker began, with the number of their tests."""
_POSITION = {part.path: position for position, part in enumerate(PARTS)}

# What a test finds must not depend on how fast the machine is,
settings.register_profile("all", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("few", parent=settings.get_profile("all"), max_examples=12, derandomize=True)
settings.load_profile("few")
# nor on what an earlier run has kept.
os.environ["REGROUP_FOLD_CACHE"] = ""


def part_of(nodeid: str) -> Part | None:
    """The part of a test, ``None`` when :data:`PARTS` has none."""
    return _part_of_file(nodeid.partition("::")[0])


@cache
def _part_of_file(file: str) -> Part | None:
    path = PurePosixPath(file).relative_to("tests")
    for place in (path, *path.parents):
        if (position := _POSITION.get(str(place))) is not None:
            return PARTS[position]
    return None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--model-seed", type=int, default=20261121, help="Seed of tests/live/test_model.py's random walks."
    )
    parser.addoption(
        "--kafka-schemas", help="Release whose record schemas tests/live/test_schemas.py compares; RELEASE: the newest."
    )
    parser.addoption(
        "--begin-until",
        type=float,
        metavar="EPOCH_SECONDS",
        default=float("inf"),
        help="Time after which workers begin no part. The run does not fail for that; it names what was not begun.",
    )


def pytest_configure(config: pytest.Config) -> None:
    for tier, what in TIERS.items():
        config.addinivalue_line("markers", f"{tier}: {what}")
    # A process that a shell begins in the background, as .ci/run does, ignores interrupts, and so does what it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Py4J says at the interpreter's end, to streams that pytest has closed, that connections close.
    logging.getLogger("py4j").setLevel(logging.WARNING)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Gives each test its tier. A file with a test that has none, or several, is an error."""
    report = yield
    wrong = []
    for item in report.result:
        if isinstance(item, pytest.Item):
            part = part_of(item.nodeid)
            tiers = {mark.name for mark in item.iter_markers() if mark.name in TIERS}
            if part is None:
                wrong.append(f"{item.nodeid} is in no part of tests/conftest.py")
            elif len(tiers) > 1:
                wrong.append(f"{item.nodeid} has several tiers: {', '.join(sorted(tiers))}")
            elif not tiers:
                item.add_marker(part.tier)
    if wrong:
        report.outcome, report.longrepr, report.result = "failed", "\n".join(wrong), []
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def position(item: pytest.Item) -> int:
        part = part_of(item.nodeid)
        return len(PARTS) if part is None else _POSITION[part.path]

    items.sort(key=position)


def pytest_collection_finish() -> None:
    """Thousands of tests stay until the end: Python's collector need not look at them again and again.

    Nor need it look after each 700 new objects: that takes a tenth of the time of tests that decode many records.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """No fast test finds a Java."""
    if item.get_closest_marker("fast") is None:
        return (yield)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", "/no Java in the fast tier")
        return (yield)


class Scheduler(LoadScopeScheduling):
    """Keeps the tests of a file on one worker, and those of a part that are together; in the order of :data:`PARTS`.

    Not ``--dist loadgroup``: its groups are lost with pytest 9.2, which ignores the node id that xdist sets.
    """

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """Assigns the next part, where there is time for it."""
        if self.workqueue and time.time() > self.config.getoption("--begin-until"):
            self.config.stash[NOT_BEGUN] = {part: len(tests) for part, tests in self.workqueue.items()}
            self.workqueue.clear()
        super().mark_test_complete(node, item_index, duration)

    def _split_scope(self, nodeid: str) -> str:
        part = part_of(nodeid)
        return part.path if part is not None and part.together else nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduler:
    config.option.loadscopereorder = False
    return Scheduler(config, log)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """A row a tier: its tests, minutes from the start of the first to the end of the last, minutes of all workers. Then
    what was not begun."""
    everything = [each for group in terminalreporter.stats.values() for each in group]
    reports = [each for each in everything if isinstance(each, pytest.TestReport)]
    for tier in TIERS:
        found = [each for each in reports if tier in each.keywords]
        if found:
            tests = len({each.nodeid for each in found})
            passed = max(each.stop for each in found) - min(each.start for each in found)
            work = sum(each.duration for each in found)
            terminalreporter.write_line(f"| {tier} | {tests} | {passed / 60:.1f} | {work / 60:.1f} |")
    not_begun = config.stash.get(NOT_BEGUN, {})
    if not_begun:
        parts = ", ".join(f"{part} ({tests})" for part, tests in not_begun.items())
        terminalreporter.write_line(f"{sum(not_begun.values())} tests were not begun, for want of time: {parts}")
