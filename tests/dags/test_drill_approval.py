"""A drill does what a person approved: the prediction and both commands are bound by a digest."""

from __future__ import annotations

import pytest
from airflow.sdk.exceptions import AirflowFailException

from coordinator_core.drill.scenario import Kind, Scenario
from dags.common.cluster_model import DrillSettings
from dags.common.drill import _digest, _filled

SETTINGS = DrillSettings(
    connection="c",
    fault_command="stop --brokers {brokers} --rack {rack}",
    recover_command="start {brokers}",
)


def scenario(rack: str) -> Scenario:
    return Scenario(Kind.LOSE_RACK, rack=rack)


def test_a_digest_is_of_the_prediction_and_of_both_commands() -> None:
    prediction = b"{}"
    approved = _digest(prediction, SETTINGS, scenario("r1"), (1, 2))
    assert approved == _digest(prediction, SETTINGS.model_copy(update={"limit_seconds": 1}), scenario("r1"), (1, 2))
    others = [
        _digest(prediction, SETTINGS.model_copy(update={"fault_command": "stop --all"}), scenario("r1"), (1, 2)),
        _digest(prediction, SETTINGS.model_copy(update={"recover_command": "true"}), scenario("r1"), (1, 2)),
        _digest(prediction, SETTINGS, scenario("r2"), (1, 2)),
        _digest(prediction, SETTINGS, scenario("r1"), (1, 3)),
    ]
    others.append(_digest(b'{"verdict": "met"}', SETTINGS, scenario("r1"), (1, 2)))
    assert len({approved, *others}) == 6


def test_a_command_gets_brokers_and_a_rack_that_is_a_word() -> None:
    assert (
        _filled(SETTINGS.fault_command, scenario("eu-west_1a.b:c/d"), (2, 1))
        == "stop --brokers 2,1 --rack eu-west_1a.b:c/d"
    )


@pytest.mark.parametrize("rack", ["a b", "$(id)", "a;b", "'", '"', "`id`", "a\nb", "*", "é", "r\n"])
def test_a_rack_that_a_shell_reads_otherwise_is_refused(rack: str) -> None:
    with pytest.raises(AirflowFailException, match="rack"):
        _filled(SETTINGS.fault_command, scenario(rack), (1,))
    assert _filled(SETTINGS.recover_command, scenario(rack), (1,)) == "start 1"


def test_a_command_gets_ids_of_brokers() -> None:
    lost = Scenario(Kind.LOSE_BROKERS, brokers=(1, 2))
    assert _filled(SETTINGS.fault_command, lost, lost.brokers) == "stop --brokers 1,2 --rack "
