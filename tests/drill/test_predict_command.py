"""``regroup drill predict``: text, JSON, exit codes, what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from coordinator_core.cli.app import run
from coordinator_core.drill.model import Prediction
from coordinator_core.errors import ExitCode
from tests.cases import CORPUS

CASE = CORPUS / "k431-cluster"
SHOP = CORPUS.parents[1] / "demo" / "shop"
BEFORE, END = (str(CASE / "expected" / moment / "topics.json") for moment in ("before", "end"))
KILLED = ["--broker", f"3={CASE / 'broker-3' / 'log'}"]
OTHERS = [part for one in (1, 2) for part in ("--broker", f"{one}={CASE / f'broker-{one}' / 'log'}")]
COMMON = ["drill", "predict", "--kafka-version", "4.3.1", "--now-ms", "7", "--no-fold-cache"]
RESTART = ["--topology", BEFORE, "--scenario", "rolling-restart"]
LOSE_3 = [*COMMON, "--topology", BEFORE, "--scenario", "lose-brokers=3"]


def test_text(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run([*LOSE_3, *KILLED, "--active-controller", "1", "--rto-ms", "30000", "--rpo-ms", "0"]) == 0
    lines = capfdbinary.readouterr().out.decode().splitlines()
    assert lines[0] == "scenario:     lose-brokers=3"
    assert "partitions:   3 of 10 move, 0 are left without leader" in lines
    assert "groups:       7 of 23 move, 0 are left without coordinator, 0 rebalance" in lines
    assert "lost:         nothing" in lines
    assert "verdict:      met (RTO 30000 ms, RPO 0 ms)" in lines
    assert "step 0: broker 3 is lost" in lines
    (row,) = [line for line in lines if line.startswith("c-simple-12 ")]
    assert row.split()[:6] == ["c-simple-12", "classic", "0", "4", "3", "2"]
    assert not [line for line in lines if line.startswith("c-simple-13 ")]
    (loading,) = [line for line in lines if line.startswith("loading") and "Heartbeat" in line]
    assert "Heartbeat NONE, " in loading
    assert "OffsetCommit COORDINATOR_LOAD_IN_PROGRESS" in loading


def test_text_of_a_loss(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    options = [*COMMON, "--topology", END, "--scenario", "unclean-election=1,2", *KILLED, *OTHERS]
    assert run(options) == 1
    lines = capfdbinary.readouterr().out.decode().splitlines()
    assert ["c-simple-01", "t-a", "0", "1001", "10", "goes", "back"] in [line.split() for line in lines]
    assert ["c-new-after", "t-b", "0", "1", "-", "vanishes"] in [line.split() for line in lines]
    assert "offsets:      6 go back, 1 vanish, 3096 records are read again" in lines


def test_json_of_a_run_and_of_logs(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    log = str(CASE / "broker-3" / "log")
    published = ["--output", str(tmp_path / "runs"), "--cluster", "shop", "--kafka-version", "4.3.1"]
    assert run(["replay", log, *published, "--no-fold-cache"]) == 0
    (latest,) = tmp_path.glob("runs/shop/*/*/manifest.json")
    scenario = tmp_path / "scenario.json"
    scenario.write_text('{"kind": "lose-brokers", "brokers": [3]}')
    samples = tmp_path / "samples.jsonl"
    samples.write_text('{"records": 100000, "load_ms": 300, "queued_ms": 100}\n{"records": 10, "load_ms": 4}\n')
    options = ["--topology", BEFORE, "--scenario", str(scenario), "--load-samples", str(samples)]
    capfdbinary.readouterr()
    output = tmp_path / "prediction.json"
    command = ["drill", "predict", str(latest.parent), *options, "--now-ms", "7", "--format", "json"]
    output.write_text("what else is there")
    assert run([*command, "--output", str(output)]) == 2
    assert f"{output} is there already, and is no prediction" in capfdbinary.readouterr().err.decode()
    assert output.read_text() == "what else is there"
    output.write_bytes(b"")
    assert run([*command, "--output", str(output)]) == 0
    assert run([*command, "--output", str(output)]) == 0
    capfdbinary.readouterr()
    assert run(command) == 0
    of_run = Prediction.from_json(json.loads(capfdbinary.readouterr().out))
    assert Prediction.from_json(json.loads(output.read_text())) == of_run
    assert (of_run.cluster, of_run.cluster_id, of_run.predicted_at_ms) == ("shop", "Q1Y4WnRtVGVTdDAwMDAwMQ", 7)
    assert (of_run.calibration.method, of_run.calibration.us_per_record) == ("samples", 1.96)
    assert run([*COMMON, log, *options, "--format", "json", "--cluster", "shop"]) == 0
    of_log = Prediction.from_json(json.loads(capfdbinary.readouterr().out))
    assert of_log == of_run


def test_all_log_directories_of_a_broker_count(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    log = CASE / "broker-3" / "log"
    for number, directory in enumerate(sorted(log.glob("__consumer_offsets-*"))):
        shutil.copytree(directory, tmp_path / str(number % 2) / directory.name)
    for disk in "01":
        shutil.copy(log / "meta.properties", tmp_path / disk)
    options = [*LOSE_3, "--format", "json"]
    disks = [part for disk in "01" for part in ("--broker", f"3={tmp_path / disk}")]
    found = []
    for brokers in (KILLED, disks):
        assert run([*options, *brokers]) == 0
        found.append(json.loads(capfdbinary.readouterr().out))
    assert found[0] == found[1]


@pytest.mark.parametrize("source", ["snapshot", "broker"])
def test_partitions_that_are_not_in_the_copy_are_unknown(
    source: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A copy of some partitions says nothing of the groups in the others."""
    for number in (0, 1):
        name = f"__consumer_offsets-{number}"
        shutil.copytree(CASE / "broker-3" / "log" / name, tmp_path / name)
    named = [str(tmp_path)] if source == "snapshot" else ["--broker", f"3={tmp_path}"]
    assert run([*LOSE_3, *named, "--rto-ms", "60000"]) == 1
    assert "that move are not given, so their groups are not known: 4, 7\n" in capfd.readouterr().out


def test_partitions_without_a_record_are_known(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Brokers and captures keep their directories, and runs their cuts; tables have no row of them."""
    scenario = ["--scenario", "lose-brokers=1", "--rto-ms", "60000", "--rpo-ms", "0"]
    published = ["--output", str(tmp_path), "--cluster", "c", "--kafka-version", "4.3.1", "--no-fold-cache"]
    assert run(["replay", str(SHOP), *published]) == 0
    (manifest,) = tmp_path.glob("c/*/*/manifest.json")
    of_run = ["drill", "predict", str(manifest.parent), "--topology", str(SHOP / "topology.json"), *scenario]
    for command in ([*COMMON, str(SHOP), *scenario], of_run):
        assert run(command) == 0
        assert "verdict:      met" in capfd.readouterr().out


@pytest.mark.parametrize("source", ["snapshot", "broker"])
def test_the_log_of_another_cluster_is_refused(source: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = CASE / "broker-3" / "log"
    topology = tmp_path / "topology.json"
    topology.write_text(json.dumps(json.loads(Path(BEFORE).read_text()) | {"cluster_id": "another"}))
    named = [str(log)] if source == "snapshot" else ["--broker", f"3={log}"]
    assert run([*COMMON, "--topology", str(topology), "--scenario", "lose-brokers=3", *named]) == 2
    assert f"{log} is of cluster Q1Y4WnRtVGVTdDAwMDAwMQ, the topology of another" in capfd.readouterr().err


def test_server_logs_calibrate(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    path = tmp_path / "server.log"
    path.write_text(
        "[2026-11-21 10:00:00,000] INFO Finished loading offsets and group metadata from "
        "__consumer_offsets-1 in 23 milliseconds for epoch 1, of which 20 "
        "milliseconds was spent in the scheduler. (kafka)\n"
        "[2026-11-21 10:00:00,000] INFO something else\n"
        "INFO Finished loading of metadata from __consumer_offsets-7 with epoch 1 in 23ms where 12ms was "
        "spent in the scheduler. Loaded 17 records which total to 1796 bytes.\n"
    )
    assert run([*LOSE_3, *KILLED, "--server-log", str(path), "--format", "json"]) == 0
    found = Prediction.from_json(json.loads(capfdbinary.readouterr().out)).calibration
    assert (found.method, found.samples, found.base_ms) == ("server-log", 2, 7.0)


def test_broker_settings_move_the_band(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    path = tmp_path / "server.properties"
    path.write_text("process.roles=broker\nbroker.session.timeout.ms=3000\nbroker.heartbeat.interval.ms=500\n")
    options = [*LOSE_3, *KILLED, "--broker-config", str(path), "--active-controller", "9", "--format", "json"]
    assert run(options) == 0
    found = Prediction.from_json(json.loads(capfdbinary.readouterr().out))
    moving = next(one for one in found.groups if one.phases)
    assert (moving.phases[1].begins_ms.low, moving.phases[1].begins_ms.high) == (2500, 4375)
    path.write_text("broker.session.timeout.ms=soon\n")
    assert run(options) == 2
    assert b"broker.session.timeout.ms: not a whole number: 'soon'" in capfdbinary.readouterr().err


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("broker.session.timeout.ms=-5", "broker.session.timeout.ms: expected int from 1 to 2147483647, got -5"),
        ("broker.heartbeat.interval.ms=0", "expected int from 1 to 2147483647, got 0"),
        ("zookeeper.session.timeout.ms=2147483648", "expected int from 1 to 2147483647, got 2147483648"),
        ("controller.quorum.fetch.timeout.ms=1_000", "not a whole number: '1_000'"),
        ("group.max.size=1_000", "not a whole number: '1_000'"),
        (f"group.max.size={'9' * 5000}", "not a whole number"),
    ],
)
def test_settings_that_kafka_or_a_clock_does_not_take(
    setting: str, said: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = tmp_path / "server.properties"
    path.write_text(setting)
    assert run([*LOSE_3, *KILLED, "--broker-config", str(path)]) == 2
    error = capfdbinary.readouterr().err.decode()
    assert error.startswith(f"regroup: error: {path}: ")
    assert said in error


@pytest.mark.parametrize("load_ms", ["9000000000000000000", "1e308", "-1"])
def test_loads_that_cannot_be(load_ms: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_text(f'{{"records": 100000, "load_ms": {load_ms}}}')
    assert run([*LOSE_3, *KILLED, "--load-samples", str(path)]) == 2
    assert b"samples.jsonl: line 1: load_ms: expected float from 0 to 2147483647" in capfdbinary.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--topology", BEFORE, "--scenario", "lose-brokers=3"], "name a SNAPSHOT or RUN"),
        (["--topology", BEFORE, "--scenario", "lose-brokers=9", *KILLED], "no broker 9 (it has 1, 2, 3)"),
        (["--topology", BEFORE, "--scenario", "lose-rack=a", *KILLED], "no rack a (it has none)"),
        (["--topology", BEFORE, "--scenario", "nonsense", *KILLED], "'nonsense' is none of"),
        ([*RESTART, "--broker", "3"], "expected ID=DIR"),
        ([*RESTART, "--broker", "x=y"], "expected ID=DIR"),
        (
            [*RESTART, *KILLED, "--server-log", "README.md"],
            "README.md: no load of an offsets partition is logged",
        ),
        (
            [*RESTART, *KILLED, "--load-samples", "README.md"],
            "README.md: line 1: ",
        ),
        (
            [*RESTART, *KILLED, "--engine", "spark"],
            "in this process",
        ),
        (["--topology", "README.md", "--scenario", "rolling-restart", *KILLED], "README.md: not JSON"),
        (
            [
                "--topology",
                BEFORE,
                "--scenario",
                "rolling-restart",
                "--broker",
                f"9={CASE / 'broker-3' / 'log'}",
            ],
            "the topology has no broker 9",
        ),
        (
            [*RESTART, str(CORPUS / "k431-mixed" / "log")],
            "only 10",
        ),
    ],
)
def test_what_cannot_be_predicted_is_refused(
    options: list[str], said: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert run([*COMMON, *options]) == 2
    assert said in capfdbinary.readouterr().err.decode()


def test_the_active_controller_is_one_of_the_topology(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Another one would not be lost, whichever brokers are."""
    topology = tmp_path / "topology.json"
    topology.write_text(json.dumps(json.loads(Path(BEFORE).read_text()) | {"voters": [1, 2, 3]}))
    words = [*COMMON, "--topology", str(topology), "--scenario", "lose-brokers=1", *KILLED, "--active-controller"]
    assert run([*words, "4"]) == ExitCode.USAGE
    assert "--active-controller 4: the topology has the controllers 1, 2, 3" in capfd.readouterr().err
    assert run([*words, "3"]) in (ExitCode.CLEAN, ExitCode.FINDINGS)
