"""The operator's commands, and what may interrupt them."""

from __future__ import annotations

import os
import signal
import socket
import threading
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from coordinator_core.cli.app import run
from coordinator_core.cli.drill_observe import observe_command
from coordinator_core.cluster.client import Client
from coordinator_core.cluster.drill_commands import (
    Ended,
    InterruptedDrillError,
    interruptible,
    kill_processes,
    run_command,
    undisturbed,
)
from coordinator_core.cluster.drill_recover import recover
from coordinator_core.cluster.drill_run import DrillOptions, observe, unlike_predicted
from coordinator_core.cluster.errors import ClusterError
from coordinator_core.cluster.settings import ClientSettings, client_settings
from coordinator_core.drill.events import Outcome
from coordinator_core.drill.scenario import Kind, Scenario
from coordinator_core.errors import ExitCode, UsageError
from coordinator_core.log.types import OFFSETS_TOPIC
from coordinator_core.topology import PartitionInfo, TopicInfo
from tests.drill.test_model import PREDICTION
from tests.live.broker import wait_for
from tests.restore.one_process import OneProcess


@pytest.mark.parametrize(
    ("command", "ended", "how"),
    [
        ("echo well", Ended(0, "well\n"), "exit code 0: well"),
        ("echo no >&2; exit 3", Ended(3, "no\n"), "exit code 3: no"),
        ("true", Ended(0, ""), "exit code 0"),
        # What goes on in the background does not hold it up.
        ("sleep 600 & echo $!; exit 0", None, None),
    ],
)
def test_how_a_command_ends(command: str, ended: Ended | None, how: str | None) -> None:
    found = run_command(command, 60)
    if ended is None:
        assert found.well
        os.kill(int(found.output), signal.SIGKILL)
    else:
        assert (found, found.how, found.well) == (ended, how, ended.exit_code == 0)


def test_a_command_that_takes_too_long_is_killed_with_its_children(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    found = run_command(f"sleep 600 & echo $! > {pid}; wait", 2)
    assert (found.exit_code, found.how) == (None, "took too long")
    # The signal is sent before the command returns; the kernel carries it out at its own time.
    wait_for("the child's end", lambda: ended(int(pid.read_text())))


def ended(pid: int) -> bool:
    """Whether a process is gone, or dead and not yet buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_an_interruption_ends_the_command(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    with interruptible(), pytest.raises(InterruptedDrillError, match="interrupted by SIGTERM"):
        run_command(f"echo $$ > {pid}; sleep 0.5; kill -TERM {os.getpid()}; sleep 600", 600)
    assert ended(int(pid.read_text()))


def test_an_interruption_right_behind_its_start_ends_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = tmp_path / "pid"

    def start(_: threading.Thread) -> None:
        wait_for("the command", lambda: pid.exists() and pid.read_text().endswith("\n"))
        raise InterruptedDrillError("interrupted by SIGTERM")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(InterruptedDrillError):
        run_command(f"echo $$ > {pid}; sleep 600", 600)
    assert ended(int(pid.read_text()))


def test_a_recovery_is_not_interrupted() -> None:
    with interruptible(), undisturbed():
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        assert run_command("true", 60).well


def test_a_process_that_is_not_there() -> None:
    found = kill_processes((2**22 + 1,))
    assert (found.well, found.how) == (False, f"exit code 1: process {2**22 + 1}: No such process")


def test_a_drill_killed_before_its_first_line_needs_no_recovery(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    journal.touch()

    def never(_: str) -> ClientSettings:
        raise AssertionError("nothing is asked of a cluster")

    assert recover(journal, never) == (Outcome.KILLED, True)


@pytest.mark.parametrize("value", ["0", "-1"])
def test_no_process_id_stands_for_several(value: str) -> None:
    """The option alone is asked: kill(2) takes 0 for the own process group and -1 for every process."""
    [option] = [one for one in observe_command.params if one.name == "pids"]
    with pytest.raises(click.BadParameter, match="is not in the range"):
        option.type.convert(value, option, None)


def test_a_broker_has_one_server_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "server.log"
    log.touch()
    words = ["--bootstrap-server", "127.0.0.1:1", "--prediction", str(log), "--output", str(tmp_path / "out")]
    words += ["--fault-command", "true", "--recover-command", "true"]
    assert run(["drill", "observe", *words, "--server-log", f"1={log}", "--server-log", f"1={log}"]) == ExitCode.USAGE
    assert f"broker 1 has {log} already" in capfd.readouterr().err


def test_the_prediction_of_another_cluster_breaks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing else is asked of it.
    client = nullcontext(SimpleNamespace(cluster_id="this"))
    monkeypatch.setattr("coordinator_core.cluster.drill_run.Client", lambda _: client)
    fault, settings = tmp_path / "fault", ClientSettings(("b:9092",))
    options = DrillOptions(recover_command=f"touch {fault}", fault_command=f"touch {fault}")
    with pytest.raises(UsageError, match="b:9092 is of cluster this, the prediction of another"):
        observe(settings, replace(PREDICTION, cluster_id="another"), tmp_path, options)
    assert not fault.exists()
    assert (tmp_path / "journal.jsonl").read_bytes() == b""


def test_a_prediction_that_begins_without_a_leader_is_not_done(tmp_path: Path) -> None:
    """Nobody is asked, and nothing is waited for."""
    rows = [replace(PREDICTION.partitions[0], offsets_partition=number, leader_before=None) for number in (4, 3)]
    options = DrillOptions(recover_command="true", fault_command="true")
    for partitions, which in ((rows[:1], "4"), (rows, "3 and 1 more")):
        prediction = replace(PREDICTION, partitions=tuple(partitions))
        with pytest.raises(UsageError, match=f"without a leader of __consumer_offsets-{which}, and no drill does"):
            observe(ClientSettings(("b:9092",)), prediction, tmp_path / "drill", options)
    assert not (tmp_path / "drill").exists()


def test_a_prediction_of_other_partitions_breaks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The offsets topic got more of them, or was made again: other groups are in each."""
    client = OneProcess({}, {})
    monkeypatch.setattr("coordinator_core.cluster.drill_run.Client", lambda _: nullcontext(client))
    rows = [replace(PREDICTION.partitions[0], offsets_partition=number, leader_before=1) for number in (0, 1)]
    prediction = replace(PREDICTION, cluster_id=None, partitions=tuple(rows))
    options = DrillOptions(recover_command="true", fault_command="true")
    with pytest.raises(UsageError, match="the cluster has 1 offsets partition, the prediction 2: predict again"):
        observe(ClientSettings(("b:9092",)), prediction, tmp_path, options)
    assert (tmp_path / "journal.jsonl").read_bytes() == b""


@pytest.mark.parametrize(
    ("leader", "isr", "said"),
    [
        (1, (1,), []),
        (2, (1,), ["__consumer_offsets-0 is led by 2, the prediction has 1"]),
        (-1, (1,), ["__consumer_offsets-0 has no leader, the prediction has 1"]),
        (1, (), ["__consumer_offsets-0: only [] of replicas [1] are in sync"]),
    ],
)
def test_what_is_not_as_predicted(leader: int, isr: tuple[int, ...], said: list[str]) -> None:
    row = replace(PREDICTION.partitions[0], offsets_partition=0, leader_before=1)
    scenario = Scenario(Kind.LOSE_BROKERS, (1,))
    info = TopicInfo(OFFSETS_TOPIC, None, (PartitionInfo(0, leader, 0, (1,), isr),))
    assert unlike_predicted(info, replace(PREDICTION, scenario=scenario, partitions=(row,))) == said


def test_probes_of_a_broker_that_stands_still_end_in_time(tmp_path: Path) -> None:
    """The kernel takes their connections, and nobody answers on them."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = "{}:{}".format(*listener.getsockname())
        made: list[ClientSettings] = []

        def client(settings: ClientSettings) -> Any:
            made.append(settings)
            # The one of the drill itself is not looked at.
            return nullcontext(SimpleNamespace(cluster_id=None)) if len(made) == 1 else Client(settings)

        options = DrillOptions(recover_command="true", fault_command="true", probe_timeout_seconds=0.9)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("coordinator_core.cluster.drill_run.Client", client)
            with pytest.raises(ClusterError, match=r"Request timed out after [0-9]{1,3} ms"):
                observe(client_settings(server, {}), PREDICTION, tmp_path, options)
