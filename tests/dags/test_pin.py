"""Sources that a form names and nobody can pin: refused, and not tried again."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, ParamValidationError

from dags.common import load
from dags.common.clusters import CLUSTERS_ENV
from dags.common.form import snapshot_params
from tests.log.builders import write_partition

RUN = SimpleNamespace(data_interval_start=None, data_interval_end=None, run_after=datetime(2026, 5, 1, tzinfo=UTC))


def form(**given: Any) -> dict[str, Any]:
    return {name: param.resolve() for name, param in snapshot_params(["c"]).items()} | given


@pytest.mark.parametrize(
    "source, said",
    [
        ("a\0b", r"'a\\x00b' is no path: it has a NUL"),
        ("s3://bucket/a\0b", "is no path: it has a NUL"),
        ("runs/c/w", "impossible request, so no retry: the snapshot .*/runs/c/w lies among the runs of cluster 'c'"),
        ("runs", "impossible request, so no retry: .* lies inside the snapshot"),
    ],
)
def test_such_a_source_is_refused(source: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "clusters.yaml").write_text("clusters: {c: {source: log, output: runs}}")
    monkeypatch.setenv(CLUSTERS_ENV, str(tmp_path / "clusters.yaml"))
    with pytest.raises(AirflowFailException, match=said):
        load.pin(form(source=source), RUN, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["clusters.yaml"]


def test_segments_that_are_not_read_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "clusters.yaml").write_text("clusters: {c: {source: log, output: runs, kafka_version: '4.3.1'}}")
    monkeypatch.setenv(CLUSTERS_ENV, str(tmp_path / "clusters.yaml"))
    write_partition(tmp_path / "log", {0: b""})
    packed = tmp_path / "log/__consumer_offsets-0/00000000000000000007.log.gz"
    packed.write_bytes(b"")
    load.pin(form(), SimpleNamespace(**vars(RUN), run_id="r"), 1)
    assert f"compressed segments are not read (1, such as {packed}): unpack them" in caplog.messages


def test_a_form_takes_no_nul() -> None:
    source = snapshot_params(["c"])["source"]
    assert source.resolve("/a\n/b c") == "/a\n/b c"
    with pytest.raises(ParamValidationError):
        source.resolve("a\0b")
