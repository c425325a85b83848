"""``regroup rescue``: what stops a load, whom it concerns, and ways out that are proved."""

from __future__ import annotations

import json
import shlex
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.cli import rescue as cli_rescue
from coordinator_core.cli.app import run
from coordinator_core.errors import ExitCode
from coordinator_core.groups.hashing import partition_for
from coordinator_core.log.discovery import discover
from coordinator_core.releases import profile_for_release
from coordinator_core.restore.rescue import RepairError
from coordinator_core.runs.local import replay_snapshot
from coordinator_core.topology import BrokerInfo, PartitionInfo, Topology
from tests.cases import CORPUS, case
from tests.groups.test_java_loader import GROUP_KEY, assignment, member_key, with_member
from tests.lifecycle.failing_logs import write_log
from tests.lifecycle.test_loads import snapshot_of
from tests.replay.histories import GROUP, History, OffsetKey

Json = dict[str, Any]
PARTITIONS = 3
HOME = partition_for(GROUP, PARTITIONS)


def downgraded() -> History:
    """A member record of KIP-848 behind the classic group that its group became again (KAFKA-21117)."""
    return History().commit(5).group("m").modern(3, GROUP_KEY, {"epoch": 1}).commit(6)


def early_patch() -> History:
    """A partition goes to another member while one owns it (KAFKA-19862)."""
    return with_member(History().commit(5), "m", 0, 1, epoch=5).modern(8, member_key("n"), assignment(6, 0))


def rescued(capfd: pytest.CaptureFixture[str], *arguments: str | Path, code: int) -> Json:
    given = ["rescue", *map(str, arguments), "--format", "json", "--now-ms", "1800000000000"]
    assert run([*given, "--offsets-topic-num-partitions", str(PARTITIONS)]) == code
    document: Json = json.loads(capfd.readouterr().out)
    return document


@pytest.mark.parametrize(
    "history, release, bug, loads_on",
    [
        (downgraded(), "4.3.1", "KAFKA-21117", ()),
        (early_patch(), "4.0.1", "KAFKA-19862", ("4.0.2", "4.1.2", "4.3")),
    ],
)
def test_what_stops_it_whom_it_concerns_and_where_it_loads(
    history: History,
    release: str,
    bug: str,
    loads_on: tuple[str, ...],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    snapshot_of(tmp_path / "log", history.batches, partition=HOME)
    document = rescued(capfd, tmp_path / "log", "--kafka-version", release, code=ExitCode.FINDINGS)
    (partition,) = document["partitions"]
    assert partition["offsets_partition"] == HOME
    assert partition["stop"]["bug"] == bug
    assert [one["record_offset"] for one in partition["refused"]] == [partition["stop"]["record_offset"]]
    assert [group["group_id"] for group in partition["groups"]] == [GROUP]
    assert partition["groups"][0]["offsets"][0]["committed_offset"] in (5, 6)
    newer = {one["release"] for one in partition["loaded_by"] if one["coordinator"] == "new"}
    assert set(loads_on) <= newer
    assert release not in newer
    assert partition_for(partition["names"][GROUP], PARTITIONS) != HOME
    assert partition["names"][GROUP].startswith(f"{GROUP}-")


def test_after_a_downgrade_the_offsets_are_those_that_the_newer_broker_had(capfd: pytest.CaptureFixture[str]) -> None:
    """2.0.1 knows no value that 2.4.1 writes: by its rules the log has neither groups nor offsets."""
    source = case("k241/before")
    document = rescued(capfd, source.paths[0], "--kafka-version", "2.0.1", code=ExitCode.FINDINGS)
    assert len(document["partitions"]) == source.offsets_partitions
    assert run(["describe", *source.command_line(), "--format", "json"]) == ExitCode.CLEAN
    described = json.loads(capfd.readouterr().out)["groups"]
    shown = [group for partition in document["partitions"] for group in partition["groups"]]
    assert committed(shown) == committed(described)
    assert len(committed(shown)) > 30


def committed(groups: list[Json]) -> dict[str, set[tuple[str, int, int]]]:
    """Topic, partition and committed offset, of groups that have any."""
    found = {
        group["group_id"]: {(one["topic"], one["partition"], one["committed_offset"]) for one in group["offsets"]}
        for group in groups
    }
    return {group_id: offsets for group_id, offsets in found.items() if offsets}


@pytest.mark.parametrize("history, release", [(downgraded(), "4.3.1"), (early_patch(), "4.0.1")])
def test_a_repaired_partition_loads_with_the_same_offsets(
    history: History, release: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = snapshot_of(tmp_path / "log", history.batches[:1], history.batches[1:], partition=HOME)
    output = tmp_path / "repaired"
    document = rescued(capfd, tmp_path / "log", "--kafka-version", release, "--repair", output, code=ExitCode.FINDINGS)
    assert document["partitions"][0]["dropped"] == document["partitions"][0]["refused"]
    profile = profile_for_release(release, "new")
    (old,) = replay_snapshot(before, profile, damage=[])
    (new,) = replay_snapshot(discover([str(output)]), profile, damage=[])
    assert old.load_failures
    assert not new.load_failures
    assert (new.offsets, new.groups) == (old.offsets, old.groups)
    assert sum(new.record_counts.values()) == sum(old.record_counts.values()) - 1
    assert rescued(capfd, output, "--kafka-version", release, code=ExitCode.CLEAN)["partitions"] == []
    assert run(["rescue", str(tmp_path / "log"), "--kafka-version", release, "--repair", str(output)]) == ExitCode.USAGE


def test_a_damaged_partition_is_repaired_as_it_was_read(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log, output = tmp_path / "log", tmp_path / "repaired"
    batches = downgraded().commit(7).batches
    torn = bytearray(batches[-1])
    torn[-1] ^= 1
    snapshot_of(log, [*batches[:-1], bytes(torn)], partition=HOME)
    rules = ("--kafka-version", "4.3.1")
    assert run(["rescue", str(log), *rules]) == ExitCode.DAMAGED_INPUT
    document = rescued(capfd, log, *rules, "--partial", "--repair", output, code=ExitCode.FINDINGS)
    assert document["partial"] is True
    (partition,) = document["partitions"]
    assert partition["dropped"] == partition["refused"] != []
    assert partition["groups"][0]["offsets"][0]["committed_offset"] == 6
    document = rescued(capfd, output, *rules, code=ExitCode.CLEAN)
    assert (document["partial"], document["partitions"]) == (False, [])


def test_a_repair_that_is_not_proved_hides_no_other_way_out(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def repair(*_: object, **__: object) -> None:
        raise RepairError("offsets partition 1: without the refused records committed offsets are others")

    monkeypatch.setattr(cli_rescue, "repair", repair)
    snapshot_of(tmp_path / "log", downgraded().batches, partition=HOME)
    output = tmp_path / "repaired"
    given = ["rescue", str(tmp_path / "log"), "--kafka-version", "4.3.1", "--repair", str(output)]
    assert run([*given, "--offsets-topic-num-partitions", str(PARTITIONS)]) == ExitCode.APPLY_FAILED
    out, err = capfd.readouterr()
    assert "committed offsets are others" in err
    assert "a release that loads it" in out
    assert f"--map-group {GROUP}={GROUP}-" in out
    assert "--repair" not in out
    assert not output.exists()


def test_a_new_name_is_that_of_no_group_in_any_partition(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Offsets need no group, and those of an open transaction show in no list."""
    snapshot_of(tmp_path / "log", downgraded().batches, partition=HOME)
    used = [name for number in range(1, 20) if partition_for(name := f"{GROUP}-{number}", PARTITIONS) != HOME]
    committed, open_one, free = used[:3]
    for name, history in {
        committed: History().commit(7, OffsetKey(committed, "t", 0)),
        open_one: History().commit(7, OffsetKey(open_one, "t", 0), producer_id=1),
    }.items():
        snapshot_of(tmp_path / name, history.batches, partition=partition_for(name, PARTITIONS))
    logs = [tmp_path / name for name in ("log", committed, open_one)]
    document = rescued(capfd, *logs, "--kafka-version", "4.3.1", code=ExitCode.FINDINGS)
    assert document["partitions"][0]["names"] == {GROUP: free}


def test_the_number_of_partitions_is_that_of_other_commands(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As groups lie, or as the topology beside the log directory of a partition tells; else there are no new names."""
    snapshot_of(tmp_path / "log", downgraded().batches, partition=HOME)
    alone = tmp_path / f"log/__consumer_offsets-{HOME}"
    given = ["rescue", "--kafka-version", "4.3.1", "--now-ms", "1800000000000"]

    def told(path: Path) -> tuple[int | None, dict[str, str]]:
        assert run([*given, str(path), "--format", "json"]) == ExitCode.FINDINGS
        document: Json = json.loads(capfd.readouterr().out)
        return document["offsets_partitions"], document["partitions"][0]["names"]

    infos = [{"partition": number, "leader": 1} for number in range(PARTITIONS)]
    topology = tmp_path / "log/topology.json"
    topology.write_text(json.dumps({"topics": {"__consumer_offsets": {"partitionInfo": infos}}}))
    for path in (tmp_path / "log", alone):
        number, names = told(path)
        assert number == PARTITIONS
        assert partition_for(names[GROUP], PARTITIONS) != HOME
    topology.unlink()
    history = History()
    for name in map(str, range(50)):
        if partition_for(name, PARTITIONS) == HOME + 1:
            history.commit(1, OffsetKey(name, "t", 0))
    snapshot_of(tmp_path / "log", history.batches, partition=HOME + 1)
    assert told(tmp_path / "log")[0] == PARTITIONS
    snapshot_of(tmp_path / "odd", downgraded().batches, partition=60)
    assert told(tmp_path / "odd") == (None, {})
    assert run([*given, str(tmp_path / "odd")]) == ExitCode.FINDINGS
    assert "other names, once the number of offsets partitions is given" in capfd.readouterr().out


@pytest.mark.parametrize("committed", [True, False])
def test_the_plan_that_is_proposed_has_something_to_restore(
    committed: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The first group by name has no committed offset."""
    history = downgraded().group("m", group_id="a")
    if not committed:
        history.tombstone()
    snapshot_of(tmp_path / "log", history.batches, partition=HOME)
    given = ["rescue", str(tmp_path / "log"), "--kafka-version", "4.3.1"]
    assert run([*given, "--offsets-topic-num-partitions", str(PARTITIONS)]) == ExitCode.FINDINGS
    out = capfd.readouterr().out
    if not committed:
        assert "(--names CSV has all); no offset is committed, and none is to be restored" in out
        assert "restore plan" not in out
        return
    (line,) = [line for line in out.splitlines() if "restore plan" in line]
    words = shlex.split(line.removesuffix(" --bootstrap-server HOST:9092 --output plan.json"))[1:]
    assert words[words.index("--group") + 1] == GROUP
    assert run([*words, "--against", str(CORPUS / "k431-txn/log")]) == ExitCode.CLEAN
    infos = [PartitionInfo(number, 1, 0, (1,), (1,)) for number in range(PARTITIONS)]
    topology = Topology.of_offsets({1: BrokerInfo(1, {"PLAINTEXT": ("broker-1", 9093)})}, infos)
    (tmp_path / "log/topology.json").write_text(json.dumps(topology.document()))
    assert run([*given, "--offsets-topic-num-partitions", str(PARTITIONS)]) == ExitCode.FINDINGS
    assert " --bootstrap-server broker-1:9093 --output plan.json" in capfd.readouterr().out


def test_no_set_of_the_most_partitions_is_made(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    snapshot_of(tmp_path / "log", downgraded().batches, partition=HOME)
    given = ["rescue", str(tmp_path / "log"), "--kafka-version", "4.3.1", "--format", "json"]
    tracemalloc.start()
    assert run([*given, "--offsets-topic-num-partitions", "2000000"]) == ExitCode.FINDINGS
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 64 << 20
    assert json.loads(capfd.readouterr().out)["partitions"][0]["names"] == {GROUP: f"{GROUP}-1"}


def test_new_names_are_planned(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    snapshot_of(tmp_path / "log", downgraded().batches, partition=HOME)
    names = tmp_path / "names.csv"
    document = rescued(capfd, tmp_path / "log", "--kafka-version", "4.3.1", "--names", names, code=ExitCode.FINDINGS)
    new = document["partitions"][0]["names"][GROUP]
    assert names.read_text() == f"{GROUP},{new}\n"
    # The planned target is a log in which every partition loads.
    healthy = str(CORPUS / "k431-txn/log")
    plan = ["restore", "plan", str(tmp_path / "log"), "--map-groups", str(names), "--against", healthy]
    assert run([*plan, "--kafka-version", "4.3.1", "--format", "csv"]) == ExitCode.CLEAN
    assert capfd.readouterr().out == f"{new},t,0,6\n"


def test_the_text_names_every_way_out(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    snapshot_of(tmp_path / "log", early_patch().batches, partition=HOME)
    topic = {
        "partitionInfo": [
            {"partition": n, "leader": n % 2 + 1, "replicas": [n % 2 + 1], "isr": [n % 2 + 1]} for n in range(3)
        ]
    }
    topology = {"brokers": [{"broker_id": 1}, {"broker_id": 2}], "topics": {"__consumer_offsets": topic}}
    (tmp_path / "topology.json").write_text(json.dumps(topology))
    arguments = ["rescue", str(tmp_path / "log"), "--kafka-version", "4.0.1", "--coordinator", "new"]
    assert run([*arguments, "--topology", str(tmp_path / "topology.json")]) == ExitCode.FINDINGS
    text = capfd.readouterr().out
    assert "does not load 1 offsets partition: 1 group behind" in text
    assert f"broker {HOME % 2 + 1}: 1 partition, 1 group" in text
    assert "(KAFKA-19862)" in text
    assert f"  {GROUP}: consumer, " in text
    assert "a release that loads it: " in text
    assert "4.0.2 new" in text
    assert "--repair DIR" in text
    assert f"--map-group {GROUP}={GROUP}-" in text


@pytest.mark.parametrize(
    "name, release, said",
    [
        ("gap", "2.3.1", "which loads, without its empty last segment"),
        pytest.param("large", "2.0.0", "which loads, with its large batches compressed", marks=pytest.mark.full),
    ],
)
def test_a_load_that_never_ends_holds_up_its_broker(
    name: str, release: str, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """No partition of that broker is a healthy one; the repaired log has the same records and loads."""
    log, repaired = tmp_path / "log", tmp_path / "repaired"
    write_log(name, log)
    rules = ("--kafka-version", release)
    assert rescued(capfd, log, *rules, code=ExitCode.FINDINGS)["partitions"][0]["names"] == {}
    topology = tmp_path / "topology.json"

    def names(*leaders: int) -> Json:
        infos = [{"partition": number, "leader": leader} for number, leader in enumerate(leaders)]
        topology.write_text(json.dumps({"topics": {"__consumer_offsets": {"partitionInfo": infos}}}))
        document = rescued(capfd, log, *rules, "--topology", topology, code=ExitCode.FINDINGS)
        found: Json = document["partitions"][0]["names"]
        return found

    assert names(1, 1, 1) == {}
    assert partition_for(names(1, 1, 2)["g-0"], PARTITIONS) == 2
    assert run(["rescue", str(log), *rules, "--repair", str(repaired)]) == ExitCode.FINDINGS
    assert said in capfd.readouterr().out
    profile = profile_for_release(release)
    (old,) = replay_snapshot(discover([str(log)]), profile, damage=[])
    (new,) = replay_snapshot(discover([str(repaired)]), profile, damage=[])
    assert (new.offsets, new.record_counts) == (old.offsets, old.record_counts)
    assert rescued(capfd, repaired, *rules, code=ExitCode.CLEAN)["partitions"] == []


def test_what_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    log = str(CORPUS / "k431-txn/log")
    assert run(["rescue", log]) == ExitCode.USAGE
    assert "--kafka-version" in capfd.readouterr().err
    assert run(["rescue", log, "--kafka-version", "4.3.1"]) == ExitCode.CLEAN
    assert "loads every partition" in capfd.readouterr().out
