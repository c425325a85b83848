"""The teardown of a drill on a worker that does not have the drill's files."""

from __future__ import annotations

from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from coordinator_core.drill.journal import JOURNAL
from dags.common import drill
from dags.common.clusters import CLUSTERS_ENV

PARAMS = {"cluster": "c", "scenario": "rolling-restart"}


@pytest.fixture
def predicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    clusters = tmp_path / "clusters.yaml"
    section = "{connection: k, fault_command: stop, recover_command: start}"
    clusters.write_text(f"clusters: {{c: {{source: log, output: runs, drill: {section}}}}}")
    monkeypatch.setenv(CLUSTERS_ENV, str(clusters))
    directory = tmp_path / "drill"
    return {"directory": str(directory), "prediction": str(directory / "prediction.json")}


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
    with pytest.raises(AirflowSkipException, match="no journal to compare with"):
        drill.compare(predicted)


def test_a_drill_that_was_killed_before_its_first_line_did_nothing(predicted: dict[str, str]) -> None:
    directory = Path(predicted["directory"])
    directory.mkdir()
    (directory / JOURNAL).touch()
    drill.recover(predicted, PARAMS)
