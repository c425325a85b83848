"""The model against recordings of real brokers: the same answers at the same time, the same records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.coordinator.trace import differences, play, read_trace
from tests.coordinator.traces import TRACES, name, trace
from tests.examples import one_in

WALKS = [path for path in TRACES if name(path).startswith("random/")]


@pytest.mark.parametrize("path", [*(path for path in TRACES if path not in WALKS), *one_in(4, WALKS)], ids=name)
def test_the_model_does_what_the_broker_did(path: Path) -> None:
    recording = read_trace(path)
    assert [str(difference) for difference in differences(recording, play(recording))] == []


def test_all_kinds_of_all_releases_are_here() -> None:
    kinds = {tuple(name(path).split("/")[:2]) for path in TRACES}
    assert kinds == {
        (kind, release) for kind in ("scripted", "random", "reload") for release in ("3.9.2", "4.3.1", "4.4.0")
    }
    assert len(TRACES) > 390


def test_the_output_is_a_trace_again(tmp_path: Path) -> None:
    """The model's lines can take the place of the recorded ones, and are then equal to them."""
    recording = read_trace(trace("scripted/4.3.1/cg-two-members"))
    lines = [
        recording.head,
        *(line.fields for line in recording.lines if line.kind in ("send", "wait")),
        *play(recording).lines(),
        {"variables": recording.variables},
    ]
    path = tmp_path / "again.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    again = read_trace(path)
    assert list(differences(again, play(again), 0)) == []


def changed(tmp_path: Path, change: Any) -> list[str]:
    """Differences once ``change`` was made to the lines of a recording."""
    source = trace("scripted/3.9.2/commit-then-join")
    lines = [json.loads(line) for line in source.read_text().splitlines()]
    change(lines)
    path = tmp_path / "changed.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    recording = read_trace(path)
    return [str(difference) for difference in differences(recording, play(recording))]


def test_another_answer_is_a_difference(tmp_path: Path) -> None:
    def change(lines: list[Any]) -> None:
        lines[2]["body"]["topics"][0]["partitions"][0]["errorCode"] = 25

    (found,) = changed(tmp_path, change)
    assert "line 3: reply 1 body.topics[0].partitions[0].errorCode: expected 25, got 0" in found


def test_another_record_is_a_difference(tmp_path: Path) -> None:
    def change(lines: list[Any]) -> None:
        records = next(line for line in lines if "records" in line)["records"]
        records[0]["value"]["data"]["offset"] += 1
        del records[-1]

    first, second = changed(tmp_path, change)
    assert "records[0].value.data.offset: expected" in first
    assert "expected nothing, got" in second


def test_an_answer_too_late_and_one_that_never_comes_are_differences(tmp_path: Path) -> None:
    def later(lines: list[Any]) -> None:
        lines[2]["t"] += 1_000

    (found,) = changed(tmp_path, later)
    assert "line 3: reply 1 t: expected" in found

    def never(lines: list[Any]) -> None:
        del lines[2]

    (found,) = changed(tmp_path, never)
    assert "line 2: reply 1: expected no answer, got" in found
