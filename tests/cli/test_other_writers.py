"""Logs of Redpanda, which keeps Kafka's records: read where Kafka's rules do not matter, refused where they do.

No Redpanda broker runs here. The logs are made: the records are those that Kafka 3 writes (Redpanda writes committed
offsets in version 3 and groups in version 3), the partitions those of Redpanda's hash and its default number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coordinator_core import storage
from coordinator_core.groups.hashing import partition_for
from coordinator_core.groups.redpanda import DEFAULT_GROUP_TOPIC_PARTITIONS
from coordinator_core.log.discovery import discover
from coordinator_core.replay.writer import redpanda_num_partitions
from coordinator_core.runs.read import open_run
from tests.cases import case
from tests.cli.test_commands import output_of
from tests.cli.test_damaged_input import outcome
from tests.groups.jump_hash import redpanda_partition_for
from tests.log.builders import write_partition
from tests.rules.logs import commit, empty_group, log_of, topic

GROUPS = [f"group-{number}" for number in range(40)]
REFUSED: dict[str, list[str]] = {
    "audit export": ["--output", "{out}"],
    "expire": [],
    "whatif": ["--offsets-partitions", "8"],
    "loads": [],
    "investigate": [],
    "history": ["--output", "{out}"],
    "compact": ["--output", "{out}"],
    "rescue": ["--kafka-version", "3.9.2", "--coordinator", "classic"],
    "reconcile": [],
    "report": [],
}
Capture = pytest.CaptureFixture[str]


def write_log(directory: Path, place: Callable[[str], int], groups: list[str] = GROUPS) -> str:
    for partition in sorted({place(group) for group in groups}):
        here = [group for group in groups if place(group) == partition]
        records = [record for group in here for record in (empty_group(group), commit(group, version=3))]
        write_partition(directory, {0: log_of(*records)}, partition=partition)
    return str(directory)


def by_redpanda(group: str) -> int:
    return redpanda_partition_for(group, DEFAULT_GROUP_TOPIC_PARTITIONS)


@pytest.fixture
def redpanda(tmp_path: Path) -> str:
    return write_log(tmp_path / "log", by_redpanda)


@pytest.mark.parametrize("command", REFUSED)
def test_what_answers_by_kafkas_rules_refuses_it_in_one_sentence(
    command: str, redpanda: str, tmp_path: Path, capfd: Capture
) -> None:
    out = str(tmp_path / "out")
    options = [word.format(out=out) for word in REFUSED[command]]
    code, printed, said = outcome([*command.split(), redpanda, *options], capfd)
    assert (code, printed) == (2, "")
    (sentence,) = [line for line in said.splitlines() if "Redpanda wrote this log" in line]
    assert "in 16 offsets partitions" in sentence
    assert not Path(out).exists()


def test_state_and_records_are_read(redpanda: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    document: dict[str, Any] = json.loads(output_of(["describe", redpanda, "--format", "json"], capfdbinary))
    found = {group["group_id"]: (group["offsets_partition"], group["offsets"]) for group in document["groups"]}
    assert {name: partition for name, (partition, _) in found.items()} == {name: by_redpanda(name) for name in GROUPS}
    assert all(offsets[0]["committed_offset"] == 50 for _, offsets in found.values())
    for command in ("dump", "verify", "stats", "list"):
        assert output_of([command, redpanda], capfdbinary)
    assert "commit of 50 t-0" in output_of(["explain", redpanda, "--group", GROUPS[0]], capfdbinary)


def test_where_kafka_would_put_a_group_is_not_told_of_it(redpanda: str, capfd: Capture) -> None:
    offsets = topic("__consumer_offsets", partitions=400)
    (Path(redpanda) / "topics.json").write_text(json.dumps({"topics": [offsets], "brokers": []}))
    for count in ([], ["--offsets-topic-num-partitions", "400"]):
        code, _, said = outcome(["describe", redpanda, "--group", "orders", *count], capfd)
        assert (code, "does not exist in this log" in said, "offsets partitions" in said) == (2, True, False)


def test_a_run_knows_who_wrote_its_log(redpanda: str, tmp_path: Path, capfd: Capture) -> None:
    code, printed, _ = outcome(
        ["replay", redpanda, "--output", str(tmp_path / "runs"), "--cluster", "c", "--format", "json"], capfd
    )
    assert code == 0
    run = json.loads(printed)["run"]
    manifest = open_run(run).manifest
    assert (manifest["written_by"], manifest["offsets_topic_num_partitions"]) == ("redpanda", 16)
    for command in ("expire", "reconcile", "report"):
        code, printed, said = outcome([command, run], capfd)
        assert (code, printed, said.count("Redpanda wrote this log")) == (2, "", 1)
    assert outcome(["describe", run], capfd)[0] == 0


def test_the_manual_names_what_refuses_it() -> None:
    manual = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    (named,) = re.findall(r"^- (.+) refuse it and its runs", manual, re.MULTILINE)
    assert set(re.findall("`([^`]+)`", named)) == {*REFUSED, "drill predict", "restore plan --before-incident"}


def test_an_incident_of_it_is_not_looked_for(redpanda: str, capfd: Capture) -> None:
    plan = ["restore", "plan", redpanda, "--group", GROUPS[0], "--against", redpanda]
    assert outcome(plan, capfd)[0] == 0
    code, printed, said = outcome([*plan, "--before-incident"], capfd)
    assert (code, printed) == (2, "")
    assert "Redpanda wrote this log" in said


def test_a_drill_of_it_is_refused(redpanda: str, tmp_path: Path, capfd: Capture) -> None:
    topology = str(case("k431-cluster").directory / "expected/before/topics.json")
    run = outcome(["replay", redpanda, "--output", str(tmp_path), "--cluster", "c", "--format", "json"], capfd)[1]
    for path in (redpanda, json.loads(run)["run"]):
        arguments = ["drill", "predict", path, "--topology", topology, "--scenario", "lose-brokers=3"]
        code, printed, said = outcome(arguments, capfd)
        assert (code, printed, said.count("Redpanda wrote this log")) == (2, "", 1)


@pytest.mark.parametrize("misplaced", [*(pytest.param(few, marks=pytest.mark.full) for few in (0, 1)), 5])
def test_a_log_of_kafka_is_not_refused(misplaced: int, tmp_path: Path, capfd: Capture) -> None:
    """Also one with groups in wrong partitions, which no number of partitions explains."""

    def place(group: str) -> int:
        number = GROUPS.index(group)
        return partition_for(group, 16) if number >= misplaced else (partition_for(group, 16) + 1) % 16

    path = write_log(tmp_path / "log", place)
    assert outcome(["expire", path, "--now-ms", "0"], capfd)[0] == 0
    code, printed, _ = outcome(["reconcile", path, "--format", "json"], capfd)
    codes = {finding["rule"] for finding in json.loads(printed)["findings"]}
    assert (code in (0, 1), "R04" in codes) == (True, bool(misplaced))


def test_a_few_groups_prove_nothing(tmp_path: Path, capfd: Capture) -> None:
    """Four groups may be where Redpanda puts them by chance: once in 65536 logs with groups in wrong partitions."""
    assert outcome(["expire", write_log(tmp_path / "few", by_redpanda, GROUPS[:4]), "--now-ms", "0"], capfd)[0] == 0
    assert outcome(["expire", write_log(tmp_path / "more", by_redpanda, GROUPS[:5]), "--now-ms", "0"], capfd)[0] == 2


@pytest.mark.parametrize("head", [1, 300, 100_000])
def test_the_answer_is_the_same_however_few_bytes_are_tried_first(
    head: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator_core.replay.writer._SAMPLED_BYTES", head)
    sampled = [
        discover([write_log(tmp_path / name, by_redpanda, GROUPS[:many])]) for name, many in (("a", 4), ("b", 5))
    ]
    assert [redpanda_num_partitions(snapshot) for snapshot in sampled] == [None, 16]
    kafka = discover([write_log(tmp_path / "kafka", lambda group: partition_for(group, 16))])
    assert redpanda_num_partitions(kafka) is None


def test_no_more_than_the_first_bytes_are_read_of_a_large_log_of_kafka(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In partition 0 are groups of either, so that all of it is sampled.
    here = [group for number in range(1000) if partition_for(group := f"group-{number}", 16) == 5]
    snapshot = discover([write_log(tmp_path, lambda _: 5, here)])
    monkeypatch.setattr("coordinator_core.replay.writer._SAMPLED_BYTES", 2000)
    sizes: list[int | None] = []
    read = storage.read
    monkeypatch.setattr(storage, "read", lambda path, size=None: (sizes.append(size), read(path, size))[1])
    assert redpanda_num_partitions(snapshot) is None
    assert sizes
    assert set(sizes) == {2000}
