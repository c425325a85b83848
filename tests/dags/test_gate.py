"""The gate: what closes it, and what a run becomes that goes through; the metrics beside it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from pyiceberg.catalog import load_catalog
from pyiceberg.utils.config import Config

from coordinator_core.cli.app import run
from coordinator_core.errors import RegroupError
from coordinator_core.runs.iceberg import CatalogError
from dags.common import reconcile
from dags.common.clusters import CLUSTERS_ENV
from tests.log.builders import NOW_MS
from tests.rules.logs import HEALTHY, one

EXPECTED = {"run": "r", "contradictions": [], "not_evaluated": [], "data_docs": "docs/index.html"}


@pytest.fixture
def checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A run of a cluster whose latest run is the gate's to name."""
    clusters = tmp_path / "clusters.yaml"
    clusters.write_text(
        f"clusters:\n  c: {{source: log, output: {tmp_path / 'runs'}}}\n"
        f"  plain: {{source: log, output: {tmp_path / 'runs'}, gate_latest: false}}\n"
        f"  watched: {{source: log, output: {tmp_path / 'runs'}, metrics: {{textfile: textfile}}}}\n"
        f"  listed: {{source: log, output: {tmp_path / 'runs'}, iceberg: {{catalog: lake}}}}\n"
        f"  gone: {{source: log, output: {tmp_path / 'nothing'}}}\n"
        f"  pushed: {{source: log, output: {tmp_path / 'runs'}, metrics: {{pushgateway: 'http://127.0.0.1:1'}}}}\n"
    )
    monkeypatch.setenv(CLUSTERS_ENV, str(clusters))
    run = one(*HEALTHY).publish(tmp_path).path
    return {
        "run": run,
        "verdict": "critical",
        "counts": {"critical": 9, "warning": 20, "info": 0},
        "worst": ["critical R30 of g"],
        "report": "p",
        "findings": "f",
        "failed": False,
    }


def latest(checked: dict[str, Any]) -> Path:
    return Path(checked["run"]).parent.parent / "latest.json"


def test_what_goes_through_is_the_latest_run(checked: dict[str, Any]) -> None:
    assert reconcile.gate("plain", checked, EXPECTED) == checked
    assert not latest(checked).exists()
    assert reconcile.gate("c", checked, EXPECTED) == checked
    assert json.loads(latest(checked).read_text())["path"] == "w/r"


@pytest.mark.parametrize(
    "failed, expected, said",
    [
        (True, {}, ": 9 critical, 20 warning, 0 info: critical R30 of g"),
        (False, {"contradictions": ["offsets.key"]}, r"contradict each other \(offsets.key\)"),
        (False, {"not_evaluated": ["findings.R10"]}, r"were not evaluated \(findings.R10\)"),
    ],
)
def test_what_closes_the_gate_does_not_become_the_latest_run(
    failed: bool, expected: dict[str, Any], said: str, checked: dict[str, Any]
) -> None:
    with pytest.raises(AirflowFailException, match=said):
        reconcile.gate("c", checked | {"failed": failed}, EXPECTED | expected)
    assert not latest(checked).exists()


@pytest.mark.real
def test_the_gate_moves_the_audited_branch(
    checked: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"file://{tmp_path}/warehouse")
    # pyiceberg reads the environment when it is imported, and then no more.
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())

    def runs_of(branch: str) -> list[str]:
        table = load_catalog("lake").load_table("regroup.groups")
        return table.scan().use_ref(branch).to_arrow()["run_id"].to_pylist() if branch in table.refs() else []

    assert reconcile.register("listed", [checked]) == [checked["run"]]
    with pytest.raises(AirflowFailException, match="the gate is closed"):
        reconcile.gate("listed", checked | {"failed": True}, EXPECTED)
    assert set(runs_of("main")) == {"r"}
    assert runs_of("audited") == []
    assert reconcile.gate("listed", checked, EXPECTED) == checked
    assert set(runs_of("audited")) == {"r"}
    with pytest.raises(AirflowSkipException, match="names no catalogue"):
        reconcile.register("plain", [checked])


@pytest.mark.real
def test_a_catalogue_that_fails_leaves_the_latest_run(
    checked: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"file://{tmp_path}/warehouse")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/nowhere/catalog.db")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    # It is retried.
    with pytest.raises(CatalogError, match="OperationalError"):
        reconcile.gate("listed", checked, EXPECTED)
    assert not latest(checked).exists()
    (tmp_path / "nowhere").mkdir()
    reconcile.gate("listed", checked, EXPECTED)
    assert latest(checked).exists()


def test_the_history_of_a_run_is_written_when_the_form_asks_for_it(checked: dict[str, Any], tmp_path: Path) -> None:
    """The retention of a capture is found by the app, and may have been another one before: it is not given."""
    topics = tmp_path / "topics.json"
    broker = {"broker_id": 1, "config": {"offsets.retention.minutes": "5"}}
    topics.write_text(json.dumps({"topics": [], "brokers": [broker]}))
    requested: list[dict[str, Any]] = [{"run": checked["run"], "topics": str(topics)}]
    form = {"history": False, "history_groups": None}
    assert reconcile.histories(requested, form) == []
    assert reconcile.histories(requested, form | {"history": True}) == [["--run", checked["run"]]]
    asked = {"history": True, "history_groups": " --x \n\nb"}
    assert reconcile.histories(requested, asked) == [["--run", checked["run"], "--group=--x", "--group=b"]]
    with pytest.raises(AirflowFailException, match="only means something together with history"):
        reconcile.check_history(form | {"history_groups": "b"})


def test_metrics_of_the_newest_run_are_at_one_place(checked: dict[str, Any], tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    assert run(["report", checked["run"], "--output", str(reports)]) == 0
    found = checked | {"report": str(reports / "report.html")}
    [place] = reconcile.metrics("watched", [found])
    assert Path(place) == tmp_path / "textfile/regroup_c.prom"
    assert Path(place).read_bytes() == (reports / "report.prom").read_bytes()
    with pytest.raises(AirflowSkipException, match="names no place"):
        reconcile.metrics("plain", [found])
    # Monitoring that does not answer is trouble of the machinery, which is retried.
    with pytest.raises(RegroupError, match="Connection refused"):
        reconcile.metrics("pushed", [found])
    # A backfill comes after the run of today.
    later = ["--cluster", "c", "--now-ms", str(NOW_MS + 9_000), "--offsets-topic-num-partitions", "1"]
    assert run(["replay", str(tmp_path / "log"), "--output", str(tmp_path / "runs"), *later]) == 0
    with pytest.raises(AirflowSkipException, match="there is a newer run"):
        reconcile.metrics("watched", [found])
    with pytest.raises(AirflowSkipException, match="there is no report"):
        reconcile.metrics("watched", [])


def test_a_run_of_another_cluster_is_not_judged(checked: dict[str, Any]) -> None:
    [request] = reconcile.requests("c", [checked["run"]])
    assert request["run"] == checked["run"]
    with pytest.raises(AirflowFailException, match=r"so no retry: \S+/w/r is a run of cluster 'c', not of 'plain'"):
        reconcile.requests("plain", [checked["run"]])


def test_a_run_of_an_event_that_is_gone_holds_no_other(
    checked: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    form = {"run": None, "cluster": "c"}
    gone = f"{checked['run']}-pruned"
    runs = [gone, checked["run"], checked["run"]]
    assert reconcile.runs_to_check(form, runs) == [checked["run"]]
    assert f"left out, since it is not there any more: {gone}" in caplog.text
    with pytest.raises(AirflowFailException, match="-pruned is not a published run"):
        reconcile.requests("c", reconcile.runs_to_check(form, runs[:1]))
    with pytest.raises(AirflowFailException, match="-pruned is not a published run"):
        reconcile.requests("c", reconcile.runs_to_check(form | {"run": gone}, []))


@pytest.mark.parametrize("strange", [None, 7, ["r"]])
def test_an_event_that_names_no_run_holds_no_other(
    strange: Any, checked: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    form = {"run": None, "cluster": "c"}
    runs = [strange, checked["run"]]
    assert reconcile.runs_to_check(form, runs) == [checked["run"]]
    assert f"left out: an asset event has no path as its run: {strange}" in caplog.text
    with pytest.raises(AirflowFailException, match="an asset event has no path as its run"):
        reconcile.runs_to_check(form, runs[:1])


class _Events(list[Any]):
    """Asset events, as an inlet gives them."""

    def after(self, at: str) -> _Events:
        return _Events(event for event in self if event.timestamp >= datetime.fromisoformat(at))

    def before(self, at: str) -> _Events:
        return _Events(event for event in self if event.timestamp <= datetime.fromisoformat(at))


def told(place: Path, seconds: Sequence[int], consumed: int, started: int, state: dict[str, Any]) -> list[str]:
    """Windows that ``find`` looks at, of events at these seconds, of which so many started the DAG run."""
    at = partial(datetime.fromtimestamp, tz=UTC)
    events = [SimpleNamespace(timestamp=at(second), extra={"run": str(place / f"w{second}/r")}) for second in seconds]
    asset = Asset("offsets")
    context = {
        "task_state_store": SimpleNamespace(get=state.get, set=state.__setitem__),
        "triggering_asset_events": {asset: events[:consumed][::-1]},
        "inlet_events": {asset: _Events(events)},
        "dag_run": SimpleNamespace(start_date=at(started)),
    }
    return [Path(run).parent.name for run in reconcile.told_runs(context, asset)]


def test_events_that_start_no_dag_run_are_looked_at_by_the_one_before(tmp_path: Path) -> None:
    """A DAG run that had to wait consumes the events until the first one of its waiting; later ones start no other."""
    assert told(tmp_path, [1], 1, 2, {}) == ["w1"]
    state: dict[str, Any] = {}
    assert told(tmp_path, [3, 5, 7, 20], 1, 10, state) == ["w3", "w5", "w7"]
    for second in (3, 5):
        report = tmp_path / f"w{second}/_reports/r"
        report.mkdir(parents=True)
        for name in ("rules.json", "report.json"):
            (report / name).touch()
    # Cleared, it looks at the same runs.
    assert told(tmp_path, [3, 5, 7, 20], 1, 30, state) == ["w3", "w5", "w7"]
    # Those that have a report by then are consumed by the next one, too.
    assert told(tmp_path, [5, 7, 20], 3, 21, {}) == ["w7", "w20"]
    assert told(tmp_path, [3, 5], 2, 21, {}) == ["w3", "w5"]
    assert told(tmp_path, [], 0, 21, {}) == []


def test_a_run_of_the_form_is_found_from_the_root_of_the_file(checked: dict[str, Any], tmp_path: Path) -> None:
    form = {"run": str(Path(checked["run"]).relative_to(tmp_path)), "cluster": "c"}
    assert reconcile.runs_to_check(form, []) == [checked["run"]]


def test_expectations_that_cannot_be_evaluated_are_not_tried_again(checked: dict[str, Any], tmp_path: Path) -> None:
    result = tmp_path / "rules.json"
    result.write_text(json.dumps({"findings": str(tmp_path / "no\x1b[31m")}))
    request = {"run": checked["run"], "result": str(result), "directory": str(tmp_path)}
    with pytest.raises(AirflowFailException, match=r"expectations: exit code 2: .+\\x1b.+ \(no retry\)"):
        reconcile.expect(request)


def test_without_a_run_in_the_form_the_newest_is_looked_at(checked: dict[str, Any], tmp_path: Path) -> None:
    form = {"run": None, "cluster": "c"}
    assert reconcile.runs_to_check(form, []) == [checked["run"]]
    later = ["--cluster", "c", "--window", "a", "--offsets-topic-num-partitions", "1", "--now-ms"]
    assert run(["replay", str(tmp_path / "log"), "--output", str(tmp_path / "runs"), *later, str(NOW_MS + 9_000)]) == 0
    [newer] = reconcile.runs_to_check(form, [])
    assert Path(newer).parent.name == "a"
    with pytest.raises(AirflowFailException, match=r"impossible request, so no retry: .*gone"):
        reconcile.runs_to_check(form | {"cluster": "gone"}, [])
