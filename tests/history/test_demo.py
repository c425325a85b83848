"""The incident of ``make demo``: what real brokers wrote is explained as it was done (``demo/README.md``)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.cli.app import run
from coordinator_core.errors import ExitCode

SHOP = Path(__file__).resolve().parents[2] / "demo/shop"


@pytest.fixture(scope="module")
def investigated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    place = tmp_path_factory.mktemp("investigation")
    assert run(["investigate", str(SHOP), "--kafka-version", "4.3.1", "--output", str(place)]) == ExitCode.FINDINGS
    document: dict[str, Any] = json.loads((place / "investigation.json").read_text())
    document["csv"] = (place / "offsets.csv").read_text().splitlines()
    return document


def test_the_worst_is_what_happened_to_payments(investigated: dict[str, Any]) -> None:
    worst, night = investigated["explanations"]
    assert (worst["code"], worst["severity"], worst["group_id"]) == ("offsets-expired", "warning", "payments")
    assert investigated["verdict"] == worst["verdict"]
    assert "the retention is 1 min" in worst["verdict"], "as the capture says of the brokers"
    assert any("payments-v2-5" in event["text"] for event in worst["events"]), "whose last member crashed"
    assert any("again at 0" in event["text"] for event in worst["events"])
    assert (night["code"], night["severity"], night["group_id"]) == ("offsets-expired", "info", "nightly-report")


def test_what_to_put_back_is_what_the_tombstones_took(investigated: dict[str, Any]) -> None:
    evidence = [event["text"] for event in investigated["explanations"][0]["evidence"]]
    lines = [line.rsplit(",", 2) for line in investigated["csv"]]
    assert len(lines) == len(evidence) == 4
    for topic, partition, offset in lines:
        assert any(f"{topic}-{partition}, which held {offset} " in text for text in evidence)


def test_the_coordinator_of_payments_moved_before(investigated: dict[str, Any]) -> None:
    worst = investigated["explanations"][0]
    (moved,) = (one for one in investigated["coordinators"] if one["offsets_partition"] == worst["offsets_partition"])
    assert (moved["leader_epoch_before"], moved["leader_epoch"]) == (0, 1)
    assert moved["timestamp_ms"] < worst["at_ms"]
