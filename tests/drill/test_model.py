"""Scenarios and predictions: short forms, JSON and back, and what is refused."""

from __future__ import annotations

import json

import pytest

from coordinator_core.drill.model import (
    Band,
    Calibration,
    Cut,
    GroupPrediction,
    HangingTransaction,
    Objectives,
    OffsetChange,
    PartitionPrediction,
    Phase,
    PhaseName,
    Prediction,
    Step,
    Totals,
    Verdict,
)
from coordinator_core.drill.scenario import Kind, Scenario
from coordinator_core.errors import UsageError
from coordinator_core.groups.model import GroupType
from coordinator_core.jsontext import to_json

PREDICTION = Prediction(
    version=1,
    scenario=Scenario(Kind.UNCLEAN_ELECTION, (1, 2)),
    cluster="shop",
    predicted_at_ms=1_800_000_000_000,
    cut=(Cut(3, 0, 22),),
    profile="4.3.1",
    calibration=Calibration("server-log", 4, 2.0, 9.5, 0.5, 2.0),
    objectives=Objectives(15_000, 0),
    steps=(Step(0, "brokers 1 and 2 are lost", (1, 2)),),
    partitions=(
        PartitionPrediction(3, 3, 1, 3, 0, 1, True, 21, 2149, Band(1, 9), Band(7_000, 9_999), 1, 70),
        PartitionPrediction(3, 4, 2, None, 0, 1, False, available_ms=Band(0, None)),
    ),
    groups=(
        GroupPrediction(
            0,
            "g é",
            GroupType.CONSUMER,
            2,
            3,
            1,
            3,
            (Phase(PhaseName.LOADING, Band(7_000, 9_000), {"OffsetCommit": "COORDINATOR_LOAD_IN_PROGRESS"}),),
            Band(7_000, 11_000),
            None,
            "because",
            (OffsetChange("t", 0, 9, 4),),
            (OffsetChange("t", 1, 9, None),),
            (OffsetChange("t", 2, None, 3),),
            (HangingTransaction(3, 7, 0),),
            5,
        ),
    ),
    totals=Totals(10, 1, 1, 1, 1, 0, 0, 1, 1, 1, 5, Band(7_000, 11_000), None),
    verdict=Verdict.MISSED,
    reasons=("offsets go back",),
)


def test_a_prediction_survives_json() -> None:
    assert Prediction.from_json(json.loads(json.dumps(PREDICTION.to_json()))) == PREDICTION


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("steps", 0, "number"), "0", "prediction: steps[0].number: expected int, got '0'"),
        (("steps", 0, "number"), True, "prediction: steps[0].number: expected int, got True"),
        (("groups", 0, "type"), "odd", "prediction: groups[0].type: 'odd' is none of classic"),
        (("groups", 0, "phases"), {}, "prediction: groups[0].phases: expected list"),
        (("totals",), None, "prediction: totals: expected an object"),
        (("scenario", "kind"), "lose-rack", "scenario lose-rack takes a rack and no brokers"),
        (("groups", 0, "colour"), 1, "prediction: groups[0].colour: unknown field"),
        (("version",), 2, "prediction: version 2 is not 1"),
    ],
)
def test_a_prediction_of_another_form_is_refused_by_its_place(
    path: tuple[str | int, ...], value: object, said: str
) -> None:
    document = json.loads(json.dumps(PREDICTION.to_json()))
    place = document
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    with pytest.raises(UsageError) as raised:
        Prediction.from_json(document)
    assert said in str(raised.value)


def test_a_missing_field_is_named() -> None:
    document = PREDICTION.to_json()
    del document["groups"][0]["reason"]
    with pytest.raises(UsageError, match=r"groups\[0\]\.reason: missing"):
        Prediction.from_json(document)


@pytest.mark.parametrize(
    ("text", "scenario"),
    [
        ("lose-brokers=3", Scenario(Kind.LOSE_BROKERS, (3,))),
        ("unclean-election=2,1", Scenario(Kind.UNCLEAN_ELECTION, (2, 1))),
        ("lose-rack=a", Scenario(Kind.LOSE_RACK, rack="a")),
        ("lose-rack=a=b", Scenario(Kind.LOSE_RACK, rack="a=b")),
        ("rolling-restart", Scenario(Kind.ROLLING_RESTART)),
        ("rolling-restart=3,1", Scenario(Kind.ROLLING_RESTART, (3, 1))),
        ('{"kind": "lose-brokers", "brokers": [3]}', Scenario(Kind.LOSE_BROKERS, (3,))),
        (
            ' {"kind": "rolling-restart", "preferred_leaders": true}',
            Scenario(Kind.ROLLING_RESTART, preferred_leaders=True),
        ),
    ],
)
def test_scenarios_are_read(text: str, scenario: Scenario) -> None:
    assert Scenario.parse(text) == scenario
    assert Scenario.parse(json.dumps(to_json(scenario))) == scenario
    if not scenario.preferred_leaders:
        assert Scenario.parse(str(scenario)) == scenario


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'' is none of lose-brokers"),
        ("burn-it-down", "'burn-it-down' is none of lose-brokers"),
        ("lose-brokers", "takes the ids of brokers"),
        ("lose-brokers=one", "'one' is not a list of broker ids"),
        ("lose-brokers=1_0", "'1_0' is not a list of broker ids"),
        ("lose-brokers=4294967296", "'4294967296' is not a list of broker ids"),
        ("lose-brokers=1,1", "names a broker twice"),
        ("lose-rack", "takes a rack"),
        ("{", "not JSON"),
        ("{}", "kind: missing"),
        ('{"kind": "lose-brokers", "brokers": ["1"]}', "brokers[0]: expected int, got '1'"),
        ('{"kind": "lose-brokers", "brokers": [1], "rack": "a"}', "takes no rack"),
        (
            '{"kind": "lose-brokers", "brokers": [1], "preferred_leaders": true}',
            "ends without an election of preferred leaders",
        ),
    ],
)
def test_scenarios_are_refused_with_a_reason(text: str, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        Scenario.parse(text)
    assert said in str(raised.value)


def test_bands() -> None:
    assert 5 in Band(5, 5)
    assert 4 not in Band(5, None)
    assert 10**9 in Band(5, None)
    assert Band(1, 2) + Band(3, 4) == Band(4, 6)
    assert Band(1, None) + Band(3, 4) == Band(4, None)
