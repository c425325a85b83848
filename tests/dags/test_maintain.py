"""Old runs are listed, and deleted as they were approved."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import AirflowFailException
from pyiceberg.catalog import load_catalog
from pyiceberg.utils.config import Config

from coordinator_core.runs.iceberg import Tables
from coordinator_core.runs.registered import is_registered
from dags.common import maintain
from dags.common.clusters import CLUSTERS_ENV
from tests.rules.logs import HEALTHY, one

NOW = datetime(2026, 11, 20, tzinfo=UTC)
RUN = SimpleNamespace(run_after=NOW, run_id="manual")
PARAMS = {"cluster": "c", "keep": 1, "keep_days": None}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cluster with runs in three windows, days old."""
    clusters = tmp_path / "clusters.yaml"
    clusters.write_text(f"clusters: {{c: {{source: log, output: {tmp_path / 'runs'}}}}}")
    monkeypatch.setenv(CLUSTERS_ENV, str(clusters))
    published = Path(one(*HEALTHY).publish(tmp_path / "made").path)
    cluster = tmp_path / "runs/c"
    for day in range(3):
        run = cluster / f"w{day}" / "r"
        run.parent.mkdir(parents=True)
        run.mkdir()
        manifest = run / "manifest.json"
        manifest.write_bytes((published / "manifest.json").read_bytes())
        at = NOW.timestamp() - (9 - day) * 86_400
        os.utime(manifest, (at, at))
    return cluster


def left(place: Path) -> list[str]:
    return sorted(path.parent.parent.name for path in place.glob("w*/r/manifest.json"))


def test_what_was_listed_is_deleted_once_it_is_approved(place: Path) -> None:
    found = maintain.find(PARAMS, RUN, 1)
    assert (found["count"], found["subject"]) == (2, "Delete 2 runs of c?")
    assert [entry["path"] for entry in json.loads(Path(found["list"]).read_text())] == [
        str(place / "w0/r"),
        str(place / "w1/r"),
    ]
    assert str(place / "w0/r") in found["body"]
    assert left(place) == ["w0", "w1", "w2"]
    assert maintain.remove(found, PARAMS) == {"deleted": 2, "kept": 0}
    assert left(place) == ["w2"]
    assert maintain.find(PARAMS, RUN, 2)["count"] == 0


def test_what_is_referred_to_by_then_stays(place: Path) -> None:
    found = maintain.find(PARAMS, RUN, 1)
    (place / "latest.json").write_text('{"path": "w0/r"}')
    assert maintain.remove(found, PARAMS) == {"deleted": 1, "kept": 1}
    assert left(place) == ["w0", "w2"]


def test_what_an_attempt_before_has_deleted_counts_as_deleted(place: Path) -> None:
    found = maintain.find(PARAMS, RUN, 1)
    shutil.rmtree(place / "w0/r")
    assert maintain.find(PARAMS, RUN, 2)["subject"] == "Delete 1 run of c?"
    assert maintain.remove(found, PARAMS) == {"deleted": 2, "kept": 0}
    assert left(place) == ["w2"]


def test_another_list_than_the_approved_one_is_refused(place: Path) -> None:
    found = maintain.find(PARAMS, RUN, 1)
    Path(found["list"]).write_text("[]")
    with pytest.raises(AirflowFailException, match="not the list that was approved"):
        maintain.remove(found, PARAMS)
    assert left(place) == ["w0", "w1", "w2"]


def test_a_form_that_keeps_nothing_is_refused(place: Path) -> None:
    with pytest.raises(AirflowFailException, match="say what stays"):
        maintain.find(PARAMS | {"keep": None}, RUN, 1)


@pytest.mark.real
def test_a_registered_run_leaves_the_catalogue_before_it_goes(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = f"clusters: {{c: {{source: log, output: {tmp_path / 'runs'}, iceberg: {{catalog: lake}}}}}}"
    (tmp_path / "clusters.yaml").write_text(listed)
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"file://{tmp_path}/warehouse")
    # pyiceberg reads the environment when it is imported, and then no more.
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    run = one(*HEALTHY).publish(tmp_path)
    os.utime(Path(run.path, "manifest.json"), (0, 0))
    with Tables("lake", "regroup", {}) as tables:
        tables.register(run)
    table = load_catalog("lake").load_table("regroup.groups")
    assert table.scan().to_arrow().num_rows > 0
    found = maintain.find(PARAMS, RUN, 1)
    assert maintain.remove(found, PARAMS) == {"deleted": 3, "kept": 0}
    assert table.refresh().scan().to_arrow().num_rows == 0
    assert not is_registered(run.path)
    assert not Path(run.path).exists()
    assert left(place) == ["w2"]
