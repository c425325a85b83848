"""How the tests share two workers: what is slow to start is started once, and starts first."""

from __future__ import annotations

import os
from pathlib import PurePosixPath
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

# Directories whose tests share something costly, such as a broker, a Spark session or an Airflow home.
TOGETHER = ("live", "dags", "spark")
# They come first, with the other slow ones: last, one worker would do them while the other is idle.
FIRST = (*TOGETHER, "cluster", "drill", "test_image.py", "test_installation.py")

# What a test finds must not depend on what an earlier run has kept.
os.environ["REGROUP_FOLD_CACHE"] = ""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--model-seed", type=int, default=20261121, help="Seed of tests/live/test_model.py's random walks."
    )


def below_tests(nodeid: str) -> str:
    """First part of a test's path below ``tests/``."""
    path = PurePosixPath(nodeid.partition("::")[0])
    return path.parts[1] if len(path.parts) > 1 else path.name


class Scheduler(LoadScopeScheduling):
    """Keeps the tests of a file on one worker, and those of a directory of ``TOGETHER``.

    Not ``--dist loadgroup``: its groups are lost with pytest 9.2, which ignores the node id that xdist sets.
    """

    def _split_scope(self, nodeid: str) -> str:
        part = below_tests(nodeid)
        return part if part in TOGETHER else nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduler:
    return Scheduler(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {part: position for position, part in enumerate(FIRST)}
    items.sort(key=lambda item: order.get(below_tests(item.nodeid), len(FIRST)))
