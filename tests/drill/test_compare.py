"""Predicted beside observed, from journals that tests write; and the report of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from coordinator_core.cli import drill_compare
from coordinator_core.cli.drill_compare import compare_command
from coordinator_core.drill.compare import Comparison, Match, Verdict, compare
from coordinator_core.drill.model import (
    Band,
    Calibration,
    GroupPrediction,
    Objectives,
    OffsetChange,
    PartitionPrediction,
    Prediction,
    ServedGroup,
    ServedMember,
    Step,
    Totals,
)
from coordinator_core.drill.model import Verdict as Promise
from coordinator_core.drill.observed import Observed, Service, observed
from coordinator_core.drill.scenario import Kind, Scenario
from coordinator_core.errors import ExitCode, UsageError
from coordinator_core.groups.model import GroupState, GroupType
from coordinator_core.jsontext import to_json
from coordinator_core.reports.timeline import Lane, timeline

T = 1_800_000_000_000
FAULT, ROLLBACK = T + 10_000, T + 30_000
Event = dict[str, Any]


def partition(number: int = 0, **values: Any) -> PartitionPrediction:
    made = PartitionPrediction(1, number, 1, 2, 0, 1, False, 10, 1000, Band(0, 50), Band(1000, 5000), lost_records=0)
    return replace(made, **values)


def group(group_id: str = "g", **values: Any) -> GroupPrediction:
    made = GroupPrediction(
        1, group_id, GroupType.CLASSIC, 0, 0, 1, 2, (), Band(1000, 5000), False, "nothing is asked of members"
    )
    return replace(made, **values)


def prediction(*parts: PartitionPrediction | GroupPrediction, rto_ms: int | None = None) -> Prediction:
    partitions = tuple(one for one in parts if isinstance(one, PartitionPrediction)) or (partition(),)
    groups = tuple(one for one in parts if isinstance(one, GroupPrediction)) or (group(),)
    totals = Totals(1, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, Band(1000, 5000), 0)
    calibration = Calibration("machine", 0, 1.0, 1.0, 1.0, 1.0)
    scenario = Scenario(Kind.LOSE_BROKERS, (1,))
    steps = (Step(1, "broker 1 is lost", (1,)),)
    return Prediction(
        1, scenario, "c", T, (), "J3", calibration, Objectives(rto_ms), steps, partitions, groups, totals,
        Promise.MET, (),
    )  # fmt: skip


def journal(*more: Event, until: str = "verdict") -> list[Event]:
    """A drill in which broker 1 was lost, 2 led after two seconds, and nothing else happened."""

    def probe(at: int, api: str, answer: str, broker: int | None, **values: Any) -> Event:
        return {
            "at_ms": at, "event": "probe", "offsets_partition": 0, "api": api, "broker": broker,
            "answer": answer, "latency_ms": 2.0, **values,
        }  # fmt: skip

    def state(phase: str, at: int, leader: int, offset: int) -> list[Event]:
        place = {"leader": leader, "leader_epoch": leader - 1, "replicas": [1, 2], "isr": [leader]}
        return [
            {"at_ms": at, "event": "partition", "phase": phase, "offsets_partition": 0, **place},
            {
                "at_ms": at, "event": "group", "phase": phase, "group_id": "g", "coordinator": leader,
                "offsets": [["orders", 0, offset]],
            },
        ]  # fmt: skip

    log = {"pinned_end_offset": 100, "shared_end_offset": 100, "end_offset": 110}
    events = [
        {
            "at_ms": T, "event": "drill", "journal_version": 1, "drill_id": "d", "cluster_id": "id",
            "bootstrap_server": "b:9092", "fault_command": "kill it", "pids": [],
            "recover_command": "start it",
        },
        {"at_ms": T, "event": "hypothesis", "text": "one partition moves"},
        {"at_ms": T + 5000, "event": "steady_state", "steady": True, "problems": []},
        *state("before", T + 6000, 1, 7),
        probe(T + 9500, "OffsetFetch", "NONE", 1),
        probe(T + 9600, "OffsetCommit", "NONE", 1),
        {"at_ms": FAULT, "event": "method", "stage": "begins"},
        {"at_ms": FAULT + 10, "event": "method", "stage": "ended", "exit_code": 0, "output": ""},
        probe(FAULT + 100, "OffsetFetch", "DISCONNECTED", 1),
        probe(FAULT + 1100, "FindCoordinator", "COORDINATOR_NOT_AVAILABLE", None),
        probe(FAULT + 1600, "FindCoordinator", "NONE", None),
        probe(FAULT + 1700, "OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS", 2),
        probe(FAULT + 2200, "OffsetFetch", "NONE", 2),
        probe(FAULT + 2300, "OffsetCommit", "NONE", 2, latency_ms=900.0),
        *more,
        {"at_ms": FAULT + 15_000, "event": "settled", "settled": True, "phase": "fault"},
        {"at_ms": FAULT + 15_100, "event": "log", "phase": "fault", "offsets_partition": 0, **log},
        {
            "at_ms": FAULT + 15_200, "event": "load", "phase": "fault", "broker": 2, "offsets_partition": 0,
            "leader_epoch": 1, "load_ms": 20, "queued_ms": 0, "records": 10, "bytes": 1000,
        },
        *state("fault", FAULT + 16_000, 2, 7),
        {"at_ms": ROLLBACK, "event": "rollback", "stage": "begins", "command": "start it", "by": "the drill"},
        {"at_ms": ROLLBACK + 9, "event": "rollback", "stage": "ended", "by": "the drill", "exit_code": 0,
         "output": ""},
        {"at_ms": ROLLBACK + 5000, "event": "restored", "restored": True, "reason": None},
        {
            "at_ms": ROLLBACK + 6000, "event": "verdict", "outcome": "observed", "reason": None,
            "recovered": True,
        },
    ]  # fmt: skip
    for position, event in enumerate(events):
        if event["event"] == until:
            return events[: position + 1]
    raise AssertionError(until)


def judged(said: Prediction, *more: Event) -> Comparison:
    return compare(said, observed(journal(*more)))


def misses(comparison: Comparison) -> list[tuple[str, Any, Any]]:
    return [(row.what, row.predicted, row.observed) for row in comparison.misses]


def test_all_as_predicted() -> None:
    found = judged(prediction())
    assert (found.verdict, misses(found)) == (Verdict.AS_PREDICTED, [])
    assert {(row.of, row.what) for row in found.rows} == {
        *(("partition", what) for what in ("leader_before", "leader_after", "load_ms", "lost_records")),
        *(("group", what) for what in ("coordinator_after", "rebalances", "regressed", "vanished", "outage_ms")),
    }


BACK = {"event": "backwards", "topic": "orders", "partition": 0, "before": 7, "coordinator": 2}
GENERATION = {"event": "generation", "phase": "fault", "offsets_partition": 0, "record_offset": 105}


@pytest.mark.parametrize(
    ("said", "more", "expected"),
    [
        (partition(leader_after=3), (), ("leader_after", 3, 2)),
        (partition(leader_after=None), (), ("leader_after", None, 2)),
        (partition(load_ms=Band(30, 90)), (), ("load_ms", [30, 90], [20])),
        (partition(lost_records=3), (), ("lost_records", 3, 0)),
        (group(coordinator_after=3), (), ("coordinator_after", 3, 2)),
        (group(rebalances=True), (), ("rebalances", True, False)),
        (group(outage_ms=Band(0, 0)), (), ("outage_ms", [0, 0], [1600, 2200])),
        (group(outage_ms=Band(2201, None)), (), ("outage_ms", [2201, None], [1600, 2200])),
        (
            group(),
            ({"at_ms": FAULT + 9, **GENERATION, "group_id": "g", "type": "classic", "generation": 4},),
            ("rebalances", False, True),
        ),
        (
            group(),
            ({"at_ms": FAULT + 9, **BACK, "group_id": "g", "after": 5},),
            ("regressed", [], [["orders", 0, 7, 5]]),
        ),
        (
            group(),
            ({"at_ms": FAULT + 9, **BACK, "group_id": "g", "after": None},),
            ("vanished", [], [["orders", 0, 7, None]]),
        ),
        (
            group(regressed=(OffsetChange("orders", 0, 7, 5),)),
            ({"at_ms": FAULT + 9, **BACK, "group_id": "g", "after": 6},),
            ("regressed", [["orders", 0, 7, 5]], [["orders", 0, 7, 6]]),
        ),
    ],
)
def test_one_claim_missed(
    said: PartitionPrediction | GroupPrediction, more: tuple[Event, ...], expected: tuple[str, Any, Any]
) -> None:
    found = judged(prediction(said), *more)
    assert (found.verdict, misses(found)) == (Verdict.MISSES, [expected])
    assert found.rows[0].match is Match.MISS


@pytest.mark.parametrize(
    ("said", "more"),
    [
        (group(regressed=(OffsetChange("orders", 0, 7, 5),)), ({**BACK, "group_id": "g", "after": 5},)),
        (group(rebalances=True), ({**GENERATION, "group_id": "g", "type": "consumer", "generation": 9},)),
        # The tombstone of a group is no rebalance, and canaries are no groups of anybody.
        (group(), ({**GENERATION, "group_id": "g", "type": "classic", "generation": None},)),
        (group(), ({**BACK, "group_id": "regroup-canary-d-0-0", "after": 5},)),
    ],
)
def test_as_predicted_too(said: GroupPrediction, more: tuple[Event, ...]) -> None:
    found = judged(prediction(said), *({"at_ms": FAULT + 9, **event} for event in more))
    assert misses(found) == []


SERVED = ServedGroup(GroupState.STABLE, 5, 5, None, (ServedMember("a", 5, {"topic-id": (0, 1)}),))
SHARED = group("s", type=GroupType.SHARE, served=SERVED, start_offsets_stay=True)
STARTS = [["orders", 0, 7], ["orders", 1, 3]]


def shared(before: list[Any] | None, after: list[Any] | None, served: ServedGroup | None = SERVED) -> list[Event]:
    """What the coordinators told of a share group."""
    values: Event = {"event": "group", "group_id": "s", "offsets": []}
    return [
        {"at_ms": T + 6000, "phase": "before", "coordinator": 1, "served": None, "start_offsets": before, **values},
        {
            "at_ms": FAULT + 9,
            "phase": "fault",
            "coordinator": 2,
            "served": to_json(served),
            "start_offsets": after,
            **values,
        },
    ]


@pytest.mark.parametrize(
    ("after", "served", "expected"),
    [
        (STARTS, SERVED, []),
        ([["orders", 0, 9], ["orders", 1, 3]], SERVED, []),
        (STARTS, replace(SERVED, state=GroupState.EMPTY), [("state", "Stable", "Empty")]),
        (STARTS, replace(SERVED, group_epoch=6), [("epochs", [5, 5, None], [6, 5, None])]),
        (
            STARTS,
            replace(SERVED, members=()),
            [("members", [to_json(one) for one in SERVED.members], [])],
        ),
        (
            [["orders", 0, 2]],
            SERVED,
            [("start_offsets", [], [["orders", 0, 7, 2], ["orders", 1, 3, None]])],
        ),
    ],
)
def test_claims_about_share_groups(after: list[Any], served: ServedGroup, expected: list[Any]) -> None:
    assert misses(judged(prediction(group(), SHARED), *shared(STARTS, after, served))) == expected


def test_share_groups_of_which_one_side_does_not_tell() -> None:
    def open_claims(said: GroupPrediction, *told: Any) -> list[str]:
        found = judged(prediction(group(), said), *shared(*told))
        assert misses(found) == []
        return [row.what for row in found.rows if row.match is Match.NOT_COMPARED and row.name == "s"]

    views = ["epochs", "members", "state"]
    assert open_claims(SHARED, STARTS, None, None) == [*views[:2], "start_offsets", views[2]]
    assert open_claims(replace(SHARED, start_offsets_stay=None, served=None), STARTS, []) == ["start_offsets"]
    # One that rebalances is soon another than the one that was loaded.
    other = replace(SERVED, group_epoch=9)
    assert open_claims(replace(SHARED, rebalances=None), STARTS, STARTS, other) == [*views[:2], "rebalances", views[2]]


def test_what_one_side_does_not_tell_is_not_compared() -> None:
    found = judged(prediction(group(rebalances=None), group("gone")))
    open_ = [(row.name, row.what) for row in found.rows if row.match is Match.NOT_COMPARED]
    assert open_ == [("g", "rebalances"), ("gone", "coordinator_after")]
    assert found.verdict is Verdict.AS_PREDICTED
    assert judged(prediction(group("other"))).groups_not_predicted == ("g",)


def test_after_several_steps_the_last_leader_counts() -> None:
    back = replace(partition(), step=2, leader_before=2, leader_after=1)
    assert misses(judged(prediction(partition(), back))) == [("leader_after", 1, 2)]
    there = replace(partition(), step=2, leader_before=3, leader_after=2)
    assert misses(judged(prediction(partition(leader_after=3), there))) == []


def seen(until: str = "verdict") -> Observed:
    return observed(journal(until=until))


def test_outage_and_stretches() -> None:
    [one] = seen().partitions
    assert one.outage_ms == Band(1600, 2200)
    assert [(each.service, each.begins_ms - FAULT, each.ends_ms - FAULT) for each in one.stretches] == [
        (Service.SERVED, -500, -500),
        (Service.NOT_AVAILABLE, -500, 1100),
        (Service.LOADING, 1100, 1700),
        (Service.SERVED, 1700, 2200),
    ]
    assert (one.slowest_commit_ms, one.canary_commits) == (900.0, 1)


def test_a_probe_under_way_when_the_fault_came_counts() -> None:
    """Its request went before the fault, and the next one is served again."""
    before, after = (
        [event for event in journal() if event["event"] != "probe" and (event["at_ms"] <= FAULT) is early]
        for early in (True, False)
    )
    probe = {"event": "probe", "offsets_partition": 0, "api": "OffsetFetch", "broker": 1, "detail": None}
    unanswered = probe | {"at_ms": FAULT - 10, "answer": "DISCONNECTED", "latency_ms": 5000.0}
    served = probe | {"at_ms": FAULT + 5500, "answer": "NONE", "latency_ms": 2.0}
    (seen,) = observed([*before, unanswered, *after, served]).partitions
    assert seen.outage_ms == Band(0, 5500)
    # One that had its answer before the fault says nothing of it.
    (seen,) = observed([*before, unanswered | {"latency_ms": 9.0}, *after, served]).partitions
    assert seen.outage_ms == Band(0, 0)


@pytest.mark.parametrize(
    ("until", "headline"),
    [
        ("drill", "Nothing was done: it was killed before"),
        ("hypothesis", "Nothing was done: it was killed before"),
        ("method", "Killed half-way, not recovered: run regroup drill recover"),
        ("settled", "Killed half-way, not recovered: run regroup drill recover"),
        ("restored", "Killed half-way, recovered"),
    ],
)
def test_a_journal_that_ends_early(
    tmp_path: Path, until: str, headline: str, report: Callable[..., tuple[int, dict[str, Any]]]
) -> None:
    code, document = report(prediction(), journal(until=until))
    assert (code, document["headline"]) == (ExitCode.APPLY_FAILED, headline)
    assert headline in (tmp_path / "out/drill.html").read_text()


@pytest.fixture
def report(tmp_path: Path) -> Callable[..., tuple[int, dict[str, Any]]]:
    """``regroup drill compare`` of a prediction and events: exit code and JSON."""

    def made(said: Prediction, events: list[Event]) -> tuple[int, dict[str, Any]]:
        files = tmp_path / "prediction.json", tmp_path / "journal.jsonl"
        files[0].write_text(json.dumps(said.to_json()))
        files[1].write_text("".join(json.dumps(event) + "\n" for event in events))
        arguments = [*map(str, files), "--output", str(tmp_path / "out"), "--format", "json"]
        done = CliRunner().invoke(compare_command, arguments, standalone_mode=False)
        if done.exception is not None:
            raise done.exception
        return done.return_value, json.loads(done.stdout)

    return made


@pytest.mark.parametrize(("cluster_id", "is_other"), [("other", True), ("id", False), (None, False)])
def test_the_journal_of_another_cluster_is_refused(
    report: Callable[..., tuple[int, dict[str, Any]]], cluster_id: str | None, is_other: bool
) -> None:
    said = replace(prediction(), cluster_id=cluster_id)
    with pytest.raises(UsageError, match="is of cluster id, the prediction of other") if is_other else nullcontext():
        report(said, journal())


def test_the_journal_of_another_scenario_is_refused_and_another_prediction_is_told(
    report: Callable[..., tuple[int, dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(drill_compare, "note", said.append)
    begin, *others = journal()
    begin |= {"scenario": "lose-brokers=1", "predicted_at_ms": T}
    assert report(prediction(), [begin, *others])[0] == ExitCode.CLEAN
    assert not any("warning" in line for line in said)
    report(prediction(), [begin | {"predicted_at_ms": T - 5000}, *others])
    moments = "a prediction of 2027-01-15 07:59:55Z, this is one of 2027-01-15 08:00:00Z"
    assert f"regroup: warning: the drill began with {moments}" in said
    with pytest.raises(UsageError, match="is of the drill lose-brokers=2, the prediction of lose-brokers=1"):
        report(prediction(), [begin | {"scenario": "lose-brokers=2"}, *others])


@pytest.mark.parametrize(("rto_ms", "met"), [(2200, True), (1599, False), (2000, None), (None, None)])
def test_the_objective(report: Callable[..., tuple[int, dict[str, Any]]], rto_ms: int | None, met: bool | None) -> None:
    code, document = report(prediction(rto_ms=rto_ms), journal())
    assert code == ExitCode.CLEAN
    assert document["objectives"]["rto_met"] is met
    assert document["objectives"]["observed_worst_outage_ms"] == {"low": 1600, "high": 2200}


def test_the_report_escapes_what_groups_are_called(
    tmp_path: Path, report: Callable[..., tuple[int, dict[str, Any]]]
) -> None:
    name = "<script>alert(1)</script>\n\udcff"
    code, document = report(prediction(group(), group(name, coordinator_after=9)), journal())
    assert code == ExitCode.CLEAN
    page = (tmp_path / "out/drill.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert document["rows"][0]["match"] == "not_compared"


def test_misses_are_said_first_and_by_name(tmp_path: Path, report: Callable[..., tuple[int, dict[str, Any]]]) -> None:
    code, document = report(prediction(partition(leader_after=3)), journal())
    assert code == ExitCode.FINDINGS
    assert document["headline"] == "1 of 9 claims missed"
    page = (tmp_path / "out/drill.html").read_text()
    assert page.index("1 of 9 claims missed") < page.index("Claims that did not come true")
    arguments = [str(tmp_path / "prediction.json"), str(tmp_path / "journal.jsonl")]
    text = CliRunner().invoke(compare_command, arguments, standalone_mode=False).stdout
    assert "miss:         partition 0: leader_after: predicted 3, observed 2" in text


def test_the_timeline_reads_and_scales() -> None:
    lane = Lane("partition 0", [("serving", -1.0, 0.0), ("not_available", 0.0, 3.0)], (0.0, 99.0), "away")
    drawn = timeline("Seen", [lane], [("fault", 0.0)])
    assert 'class="serving" x="112.0" ' in drawn
    assert "Seen (1: fault, 0.0 s)" in drawn
    assert 'aria-label="Seen. away"' in drawn
    # What was expected beyond what was seen ends with the drawing.
    assert 'class="bar" x="172.0" y="31" width="180.0"' in drawn
    assert timeline("Nothing", [], []).startswith("<figure>")
