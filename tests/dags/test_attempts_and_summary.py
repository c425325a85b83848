"""Names, times and rules of a run, and its summary."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from coordinator_core.errors import UsageError
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import OnDamage
from coordinator_core.runs.local import replay_to_run
from coordinator_core.runs.place import RunPlace
from dags.common.attempts import attempt_id, now_ms, window_key
from dags.common.clusters import Cluster
from dags.common.load import replay_rules, summary_lines
from tests.cases import case
from tests.log.builders import write_partition

RUN_AFTER = datetime(2026, 3, 4, 5, 6, 7, 891000, tzinfo=UTC)
START, END = datetime(2026, 3, 3, tzinfo=UTC), datetime(2026, 3, 4, tzinfo=UTC)
PLAIN = Cluster(name="c", source=("s",), output="o")


def test_the_window_is_the_one_asked_for_else_of_the_interval_else_of_the_run() -> None:
    assert window_key("2026=week-9", START, RUN_AFTER) == "2026=week-9"
    with pytest.raises(UsageError, match="a file of that name"):
        window_key("latest.json", START, RUN_AFTER)
    assert window_key(None, START, RUN_AFTER) == "2026-03-03T00-00-00Z"
    assert window_key(None, None, RUN_AFTER) == "2026-03-04T05-06-07Z"
    abroad = START.astimezone(timezone(timedelta(hours=-5)))
    assert window_key(None, abroad, RUN_AFTER) == "2026-03-03T00-00-00Z"


@pytest.mark.parametrize("window", ["..", "a/b", "_pins", " a", "a\n", "x" * 129])
def test_a_window_is_a_plain_name(window: str) -> None:
    with pytest.raises(UsageError, match="window"):
        window_key(window, None, RUN_AFTER)


def test_now_is_the_one_asked_for_else_the_end_of_the_interval_else_the_time_of_the_run() -> None:
    assert now_ms(0, END, RUN_AFTER) == 0
    assert now_ms(None, END, RUN_AFTER) == 1772582400000
    assert now_ms(None, None, RUN_AFTER) == 1772600767891


def test_every_attempt_has_an_id_of_its_own_and_they_sort_by_time() -> None:
    later = RUN_AFTER + timedelta(microseconds=1)
    ids = [
        attempt_id("scheduled__1", 1, RUN_AFTER),
        attempt_id("scheduled__1", 2, RUN_AFTER),
        attempt_id("scheduled__2", 1, RUN_AFTER),
        attempt_id("scheduled__1", 1, later),
    ]
    assert len(set(ids)) == 4
    assert max(ids) == ids[-1]


NOT_ASKED = {"profile": None, "kafka_version": None, "coordinator": None}
OLD = {"kafka_version": "3.9.2", "coordinator": "classic"}


@pytest.mark.parametrize(
    "configured, asked, expected",
    [
        ({}, {}, ["--profile", "auto"]),
        ({"profile": "S3"}, {}, ["--profile", "S3"]),
        (OLD, {}, ["--kafka-version", "3.9.2", "--coordinator", "classic"]),
        (OLD, {"coordinator": "new"}, ["--kafka-version", "3.9.2", "--coordinator", "new"]),
        (OLD, {"kafka_version": "4.3.1"}, ["--kafka-version", "4.3.1"]),
        (OLD, {"profile": "auto"}, ["--profile", "auto"]),
        ({"profile": "S3"}, {"kafka_version": "4.3.1"}, ["--kafka-version", "4.3.1"]),
    ],
)
def test_the_form_wins_over_the_cluster_file(
    configured: dict[str, str], asked: dict[str, str], expected: list[str]
) -> None:
    assert replay_rules(PLAIN.model_copy(update=configured), {**NOT_ASKED, **asked}) == expected


def test_a_coordinator_without_a_release_is_refused() -> None:
    with pytest.raises(AirflowFailException, match="kafka_version"):
        replay_rules(PLAIN, {**NOT_ASKED, "coordinator": "new"})


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"profile": "S3", "kafka_version": "4.3.1"}, "give either profile, or kafka_version"),
        ({"profile": "S3", "coordinator": "new"}, "give either profile, or kafka_version"),
        ({"profile": "S9"}, "impossible request, so no retry: unknown profile 'S9'"),
        ({"kafka_version": "9.9"}, "impossible request, so no retry: no rules for Kafka 9.9"),
        ({"kafka_version": "2.8.0", "coordinator": "new"}, "has only the classic coordinator"),
    ],
)
def test_rules_that_are_none_are_refused(asked: dict[str, str], said: str) -> None:
    with pytest.raises(AirflowFailException, match=said):
        replay_rules(PLAIN, {**NOT_ASKED, **asked})


def manifest(name: str, place: Path) -> Any:
    return replay_to_run(
        discover([str(path) for path in case(name).paths]),
        RunPlace(str(place), "torn", "w", "r"),
        profile=None,
        now_ms=1,
        on_damage=OnDamage.RECOVER,
    )


def test_the_summary_of_k431_torn_bitflip_says_that_it_is_partial(tmp_path: Path) -> None:
    found = manifest("k431-torn/bitflip", tmp_path)
    assert found["damage"][0]["byte_position"] == 3205
    lines = summary_lines(found, "/runs/r", {"pin": 1.25, "replay": 2})
    facts = dict(line.split(None, 1) for line in lines)
    assert facts["run"] == "/runs/r"
    assert facts["cluster"] == "torn, window w"
    assert facts["profile"].endswith("told from the records")
    assert facts["complete"] == f"NO: {len(found['damage'])} damaged places in the log, see manifest"
    assert facts["findings"] == "not looked for yet"
    assert facts["seconds"] == "pin 1.2, replay 2.0"


def test_the_summary_of_an_empty_log_says_that_no_record_tells_its_rules(tmp_path: Path) -> None:
    write_partition(tmp_path / "log", {0: b""})
    found = replay_to_run(
        discover([str(tmp_path / "log")]), RunPlace(str(tmp_path), "c", "w", "r"), profile=None, now_ms=1
    )
    assert "profile     J3 (4.3.1, new coordinator), assumed: no record tells it" in summary_lines(found, "/runs/r", {})


def test_the_summary_counts_findings(tmp_path: Path) -> None:
    found = manifest("k431-torn/truncated", tmp_path) | {"findings": {"critical": 1, "warning": 2, "info": 0}}
    assert "findings    1 critical, 2 warning, 0 info" in summary_lines(found, "/runs/r", {})
