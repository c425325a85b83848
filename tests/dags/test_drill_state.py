"""The teardown of a drill on a worker that does not have the drill's files."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from coordinator_core.drill.journal import JOURNAL
from dags.common import drill
from dags.common.clusters import CLUSTERS_ENV
from tests.drill.test_model import PREDICTION

PARAMS = {"cluster": "c", "scenario": "rolling-restart"}


@pytest.fixture
def predicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    clusters = tmp_path / "clusters.yaml"
    section = "{connection: k, fault_command: stop, recover_command: start}"
    clusters.write_text(f"clusters: {{c: {{source: log, output: runs, drill: {section}}}}}")
    monkeypatch.setenv(CLUSTERS_ENV, str(clusters))
    directory = tmp_path / "drill"
    return {"directory": str(directory), "not_asked": "", "prediction": str(directory / "prediction.json")}


@pytest.mark.parametrize("has_directory", [False, True])
def test_where_there_is_no_journal_nobody_says_that_all_is_well(has_directory: bool, predicted: dict[str, str]) -> None:
    directory = Path(predicted["directory"])
    if has_directory:
        directory.mkdir()
    with pytest.raises(AirflowException, match="nobody knows whether the cluster is as it was") as raised:
        drill.recover(predicted, PARAMS)
    assert str(directory / JOURNAL) in str(raised.value)
    # Another attempt may come to the right worker.
    assert not isinstance(raised.value, AirflowFailException)
    with pytest.raises(AirflowFailException, match="the drill has not begun"):
        drill.compare(predicted, {"chosen_options": ["Approve"]})


def test_a_drill_that_was_wanted_and_has_not_begun_is_a_failed_run(predicted: dict[str, str]) -> None:
    """The run ends as the comparison and the tasks behind it do: skipped, it would be a success."""
    for approved in ({"chosen_options": ["Approve"]}, None):
        with pytest.raises(AirflowFailException, match="the drill has not begun: look at the tasks before"):
            drill.compare(predicted, approved)
    with pytest.raises(AirflowFailException, match="there is no prediction"):
        drill.compare(None, None)
    with pytest.raises(AirflowSkipException, match="only the prediction"):
        drill.compare(predicted | {"not_asked": "only the prediction was asked for"}, None)
    with pytest.raises(AirflowSkipException, match="not approved"):
        drill.compare(predicted, {"chosen_options": ["Reject"]})


def test_a_drill_that_was_killed_before_its_first_line_did_nothing(predicted: dict[str, str]) -> None:
    directory = Path(predicted["directory"])
    directory.mkdir()
    (directory / JOURNAL).touch()
    drill.recover(predicted, PARAMS)


def test_the_prediction_of_another_cluster_is_not_done(
    predicted: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(predicted["directory"]).mkdir()
    said = replace(PREDICTION, cluster_id="another")
    Path(predicted["prediction"]).write_text(json.dumps(said.to_json()))
    client = nullcontext(SimpleNamespace(cluster_id="this"))
    monkeypatch.setattr("coordinator_core.cluster.client.Client", lambda _: client)
    monkeypatch.setattr(drill, "_client_settings", lambda _: None)
    with pytest.raises(AirflowFailException, match="connection k is of cluster this, the prediction of another"):
        drill.steady_state(predicted, PARAMS)
