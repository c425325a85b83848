"""The programs of ``docs/querying.md``, on a published run."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from coordinator_core.runs.local import replay_to_run
from coordinator_core.runs.place import RunPlace
from coordinator_core.runs.read import Run, open_run
from spark_apps.session import Session

from ..cases import case
from ..runs.logs import snapshot

PAGE = Path(__file__).resolve().parents[2] / "docs" / "querying.md"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    place = RunPlace(str(tmp_path), "c", "w", "r")
    replay_to_run(snapshot(case("k431-mixed")), place, profile=None, now_ms=0)
    return open_run(place.path)


def executed(section: str, run: Run, **names: Any) -> dict[str, Any]:
    """Variables that the program under a heading of the page leaves, for ``run`` in place of the one that it names."""
    text = PAGE.read_text(encoding="utf-8").partition(f"## {section}\n")[2]
    program = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert program is not None
    code, found = re.subn(r'^run = ".*"$', f"run = {run.path!r}", program[1], flags=re.MULTILINE)
    assert found == 1
    exec(code, names)
    return names


def test_spark_sql(session: Session, run: Run) -> None:
    rows = executed("Spark SQL", run, spark=SparkSession(session.context))["stale"].collect()
    groups = set(run.table("groups")["group_id"].to_pylist())
    counts = Counter(group for group in run.table("offsets")["group_id"].to_pylist() if group in groups)
    assert counts
    assert {row.group_id: row.offsets for row in rows} == counts
    assert [row.offsets for row in rows] == sorted(counts.values(), reverse=True)


def test_pyarrow_and_pandas(run: Run) -> None:
    frame = executed("PyArrow and pandas", run)["frame"]
    assert set(frame["topic"]) == set(run.table("offsets")["topic"].to_pylist())
