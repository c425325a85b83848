"""Records without a time, and with times out of order: nothing is told that only times could tell."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.cli.app import run
from tests.history.incidents import Incident
from tests.history.logs import DAY, T0, Client, Log, restamp
from tests.history.page import ALL
from tests.history.test_incidents import LARGE

TOGETHER = "groups-rebalanced-together"
NEGATIVE = r"(?<![\w.])-\d+(\.\d+)? (s|min|h|d|ms)\b"
DECADES = r"\b\d{4,}(\.\d+)? d\b|\b(1969|1970)-|\bof 0 |--to-datetime an|" + NEGATIVE
"""Spans since 1970, times of that year, and sentences of nobody."""
NO_SPAN = DECADES + r"|\b0 s\b"


def unknown(_: int) -> int:
    return -1


def some(time: int) -> int:
    """Two of five are unknown, by the time itself."""
    return -1 if random.Random(time).random() < 0.4 else time


def formerly(time: int) -> int:
    """Unknown up to an hour after the start, as in a log that began with message format 0."""
    return -1 if time < T0 + DAY // 24 else time


def backwards(time: int) -> int:
    return 2 * T0 - time


def told(path: Path, incident: Incident, capfd: pytest.CaptureFixture[str]) -> Iterator[str]:
    """All texts of the explanations of a log."""
    arguments = ["investigate", str(path), "--kafka-version", incident.release, "--now-ms", str(incident.now_ms)]
    run([*arguments, *incident.arguments, "--format", "json"])
    document: dict[str, Any] = json.loads(capfd.readouterr().out)
    for one in document["explanations"]:
        yield from (one["verdict"], *one["not_this"], *one["now"], *one["capture"])
        yield from (event["text"] for event in (*one["events"], *one["evidence"]))


def wrongly_told(
    incidents: Iterable[Incident],
    time_of: Callable[[int], int],
    wrong: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> list[tuple[str, str]]:
    return [
        (incident.id, text)
        for incident in incidents
        for path in [restamp(incident.build(tmp_path / incident.id / "log", True), time_of)]
        for text in told(path, incident, capfd)
        if re.search(wrong, text)
    ]


SMALL = [one for one in ALL if one.id not in LARGE]


def test_nothing_is_told_of_times_that_no_record_has(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    of_each_code = {one.code: one for one in SMALL if one.id != "besthub-952gb"}.values()
    assert wrongly_told(of_each_code, unknown, NO_SPAN, tmp_path, capfd) == []


@pytest.mark.full
@pytest.mark.parametrize(
    ("time_of", "wrong"),
    [(unknown, NO_SPAN), (some, DECADES), (formerly, DECADES), (backwards, NEGATIVE)],
    ids=["unknown", "some", "formerly", "backwards"],
)
def test_no_incident_tells_spans_that_its_log_does_not_have(
    time_of: Callable[[int], int], wrong: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert wrongly_told(SMALL, time_of, wrong, tmp_path, capfd) == []


@pytest.mark.parametrize(("magic", "told"), [(0, []), (1, ["5 of 5 groups lost members and rebalanced within 0 s"])])
def test_rebalances_are_at_one_time_only_where_the_log_has_times(
    magic: int, told: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = Log(group_version=1, commit_version=1, magic=magic)
    members = [Client(f"m-{number}", partitions=(("orders", number),)) for number in range(2)]
    for generation, there in ((1, members), (2, members[:1])):
        for group in "abcde":
            log.generation(group, generation, *there)
    run(["investigate", str(log.write(tmp_path)), "--kafka-version", "3.9.2", "--format", "json"])
    found = json.loads(capfd.readouterr().out)["explanations"]
    assert [one["verdict"][: len(told[0])] for one in found if told and one["code"] == TOGETHER] == told
    assert bool(told) == any(one["code"] == TOGETHER for one in found)


@pytest.mark.parametrize(("time_of", "is_drawn"), [(unknown, False), (some, True)])
def test_pages_draw_what_has_a_time(
    time_of: Callable[[int], int], is_drawn: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    incident = next(one for one in ALL if one.id == "poison-record")
    path = restamp(incident.build(tmp_path / "log", True), time_of)
    run(["investigate", str(path), "--kafka-version", incident.release, "--format", "html"])
    page = capfd.readouterr().out
    assert "1970" not in page
    assert "1969" not in page
    assert not re.search("1970|1969", page)
    assert ("<svg" in page) is is_drawn
