"""How the tests share two workers: what is slow to start is started once, and starts first."""

from __future__ import annotations

from pathlib import PurePath

import pytest

# Directories whose tests share something costly (a broker, a Spark session, an Airflow home). Under
# `--dist loadgroup` each stays on one worker. They come first: last, the other worker would idle.
TOGETHER = ("live", "dags", "spark")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    root = config.rootpath / "tests"

    def directory(item: pytest.Item) -> str:
        parts = PurePath(item.path).relative_to(root).parts if item.path.is_relative_to(root) else ()
        return parts[0] if len(parts) > 1 else ""

    for item in items:
        if directory(item) in TOGETHER and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(directory(item)))
    items.sort(key=lambda item: TOGETHER.index(d) if (d := directory(item)) in TOGETHER else len(TOGETHER))
