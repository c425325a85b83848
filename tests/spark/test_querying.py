"""The programs of ``docs/querying.md``, on a published run."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.utils.config import Config
from pyspark.sql import SparkSession

from coordinator_core.cli.app import run as regroup
from coordinator_core.errors import ExitCode
from coordinator_core.runs.local import replay_to_run
from coordinator_core.runs.place import RunPlace
from coordinator_core.runs.read import Run, open_run
from spark_apps.session import Session

from ..cases import case
from ..runs.logs import snapshot

PAGE = Path(__file__).resolve().parents[2] / "docs" / "querying.md"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    place = RunPlace(str(tmp_path_factory.mktemp("runs")), "c", "w", "r")
    replay_to_run(snapshot(case("k431-mixed")), place, profile=None, now_ms=0)
    return open_run(place.path)


def executed(section: str, run: Run, **names: Any) -> dict[str, Any]:
    """Variables that the program under a heading of the page leaves, for ``run`` in place of the one that it names."""
    text = PAGE.read_text(encoding="utf-8").partition(f"## {section}\n")[2]
    program = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert program is not None
    code, found = re.subn(r'^run = ".*"$', f"run = {run.path!r}", program[1], flags=re.MULTILINE)
    assert found == (section != "Iceberg")
    exec(code, names)
    return names


@pytest.mark.full
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


def test_duckdb(run: Run) -> None:
    states = executed("DuckDB", run)["states"]
    groups = run.table("groups").to_pylist()
    counts = Counter((group["type"], group["state"]) for group in groups)
    assert {row[:2]: row[2] for row in states} == counts
    assert sum(row[3] for row in states) == run.table("members").num_rows


@pytest.mark.full
def test_polars(run: Run) -> None:
    newest = executed("Polars", run)["newest"]
    offsets = run.table("offsets").to_pylist()
    assert dict(newest.select("topic", "offsets").rows()) == Counter(row["topic"] for row in offsets)
    assert newest["commit_timestamp_ms"].max() == max(row["commit_timestamp_ms"] for row in offsets)


@pytest.mark.full
def test_iceberg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"file://{tmp_path}/warehouse")
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    # pyiceberg reads the environment when it is imported, and then no more.
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    runs = []
    for cluster, window, branch in (
        ("payments-eu", "w1", "audited"),
        ("payments-eu", "w2", "main"),
        ("c", "w1", "main"),
    ):
        place = RunPlace(str(tmp_path / "runs"), cluster, window, "r")
        replay_to_run(snapshot(case("k431-mixed")), place, profile=None, now_ms=0)
        runs.append(open_run(place.path))
        assert regroup(["register", place.path, "--catalog", "lake", "--branch", branch]) == ExitCode.CLEAN
    found = executed("Iceberg", runs[0])
    wanted = runs[0].table("offsets").select(["group_id", "topic", "partition", "committed_offset"]).to_pylist()
    rows = found["history"].drop("window_key", "run_id").to_dicts()
    assert sorted(map(repr, rows)) == sorted(map(repr, wanted))
    assert set(found["history"]["window_key"]) == {"w1"}
    assert found["proof"] == runs[0].state_hash

    files = {path for run in runs for path in Path(run.path).rglob("*")}
    [expire] = re.findall(r"`(table\.maintenance[^`]+)`", PAGE.read_text(encoding="utf-8"))
    table = found["table"]
    exec(expire, {"table": table, "time": datetime.now(UTC)})
    table.refresh()
    assert {one.snapshot_id for one in table.snapshots()} == {ref.snapshot_id for ref in table.refs().values()}
    assert all(path.exists() for path in files)
