"""What was done to real clusters by hand, made of the records that their brokers wrote: what is to blame."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.cli.app import run
from coordinator_core.groups.hashing import partition_for
from coordinator_core.investigate.losses import TOPIC_DELETED
from coordinator_core.investigate.placement import MIXED
from coordinator_core.log.types import ControlType
from coordinator_core.topology import BrokerInfo, PartitionInfo, Topology
from tests.history.incidents import topics
from tests.history.logs import DAY, HOUR, MINUTE, T0, Client, Log, modern_member
from tests.history.test_investigate import KEY, explained, out

Capfd = pytest.CaptureFixture[str]
SECOND = 1000
OTHER = ("orders", 1)


def of(found: list[dict[str, Any]], code: str) -> dict[str, Any]:
    (one,) = (one for one in found if one["code"] == code)
    return one


def stays(log: Log, value: int, times: int, *keys: tuple[str, int]) -> Log:
    """A consumer with enable.auto.commit that waits for records."""
    for _ in range(times):
        log.wait(5 * SECOND).commit("g", dict.fromkeys(keys or (KEY,), value))
    return log


def test_what_a_group_lost_comes_before_groups_without_members(tmp_path: Path, capfd: Capfd) -> None:
    log = Log().generation("g", 1, Client("m", partitions=(KEY,)))
    log.commit("g", {KEY: 100}).wait(MINUTE).generation("g", 2).wait(8 * DAY).tombstones("g", KEY, with_group=True)
    for number in range(9):
        name = f"g-{number}"
        log.wait(HOUR).generation(name, 1, Client(name, partitions=(KEY,))).commit(name, {KEY: 1}).generation(name, 2)
    log.write(tmp_path)
    assert [one["code"] for one in explained(tmp_path, capfd)][:2] == ["offsets-expired", "group-is-empty"]
    assert "[info] offsets-expired" in out(capfd, str(tmp_path), "--kafka-version", "3.9.2", "--now-ms", str(log.at))


@pytest.mark.parametrize("captured", [False, True])
def test_members_that_outlive_their_topic_did_not_go_back(captured: bool, tmp_path: Path, capfd: Capfd) -> None:
    """Consumers stay while a topic is deleted and made again: they commit where they were, then begin anew."""
    log = Log().generation("g", 1, Client("m", ("clicks", "orders"), (KEY, ("clicks", 0))))
    log.commit("g", {KEY: 5000, ("clicks", 0): 7}).wait(SECOND).tombstones("g", KEY)
    log.wait(3 * SECOND).commit("g", {KEY: 5000, ("clicks", 0): 7})
    log.generation("g", 2, Client("m", ("clicks", "orders"), (KEY, ("clicks", 0))))
    log.wait(SECOND).commit("g", {KEY: 40, ("clicks", 0): 7})
    log.write(tmp_path)
    if captured:
        topics(tmp_path, (0, 40))
    found = explained(tmp_path, capfd)
    assert "moved-back" not in [one["code"] for one in found]
    told = of(found, TOPIC_DELETED)["verdict"]
    assert "(orders-0 at 5000, record 4), and began anew in the one that was made since (40, record 7)" in told


def test_members_of_another_topic_went_back(tmp_path: Path, capfd: Capfd) -> None:
    """The twin: the consumer reads on in the new topic, and goes back there."""
    log = Log().generation("g", 1, Client("m", ("clicks", "orders"), (KEY, ("clicks", 0))))
    log.commit("g", {KEY: 5000, ("clicks", 0): 7}).wait(SECOND).tombstones("g", KEY)
    log.wait(3 * SECOND).commit("g", {KEY: 400, ("clicks", 0): 7}).wait(MINUTE).commit("g", {KEY: 40})
    assert of(explained(log.write(tmp_path), capfd), "moved-back")["restore"][0]["offset"] == 400


def test_who_comes_back_to_nothing_began_by_its_policy(tmp_path: Path, capfd: Capfd) -> None:
    log = Log().generation("g", 1, Client("m", partitions=(KEY,))).commit("g", {KEY: 100}).generation("g", 2)
    log.wait(8 * DAY).tombstones("g", KEY, with_group=True)
    log.wait(MINUTE).generation("g", 1, Client("n", partitions=(KEY,))).wait(SECOND).commit("g", {KEY: 130})
    told = of(explained(log.write(tmp_path), capfd), "offsets-expired")
    assert "began by auto.offset.reset: orders-0 is committed at 130 from record 6 on" in told["verdict"]
    assert told["severity"] == "warning"
    assert told["now"][0].endswith(
        "--topic orders:0 --before-record 0:3 --bootstrap-server HOST:9092 --output plan.json"
    )


@pytest.mark.parametrize("start", [None, 0, 5000])
def test_a_first_commit_far_ahead_may_have_been_read_up_to(start: int | None, tmp_path: Path, capfd: Capfd) -> None:
    """A consumer that begins at the start reads thousands of records before enable.auto.commit commits first."""
    log = Log().generation("g", 1, Client("m", partitions=(KEY,))).commit("g", {KEY: 100}).generation("g", 2)
    log.wait(8 * DAY).tombstones("g", KEY, with_group=True)
    log.wait(MINUTE).generation("g", 1, Client("n", partitions=(KEY,))).wait(SECOND).commit("g", {KEY: 5130})
    log.write(tmp_path)
    if start is not None:
        topics(tmp_path, (start, 6000))
    told = of(explained(tmp_path, capfd), "offsets-expired")["verdict"]
    assert ("the retention of the topic had removed them" in told) == (start != 0)
    assert "or they were read, from the start on" in told


@pytest.mark.parametrize("is_streams", [True, False])
def test_the_tools_that_reset_a_group_are_named(is_streams: bool, tmp_path: Path, capfd: Capfd) -> None:
    """kafka-consumer-groups.sh resets streams groups, too."""
    log = Log()
    if is_streams:
        log.modern((17, {"groupId": "g"}, {"epoch": 2, "metadataHash": 0, "validatedTopologyEpoch": 0}))
    log.commit("g", {KEY: 500, OTHER: 500}).wait(MINUTE).commit("g", {KEY: 0, OTHER: 0}, leader_epoch=-1)
    (found,) = (
        one for one in explained(log.write(tmp_path), capfd, release="4.3.1") if one["code"] == "reset-by-admin"
    )
    named = any("kafka-streams-groups.sh or kafka-consumer-groups.sh --reset-offsets" in step for step in found["now"])
    assert named is is_streams


@pytest.mark.parametrize("values", [(0, 5140, 5140), (0, 5140, 5140, 0, 5140)])
def test_who_resets_by_hand_several_times_is_no_sync(values: tuple[int, ...], tmp_path: Path, capfd: Capfd) -> None:
    """Within some seconds: to the start, back, once more. It looks like values that go on by themselves."""
    log = Log().generation("g", 1, Client("m", partitions=(KEY, OTHER)))
    stays(log, 5140, 4, KEY, OTHER).generation("g", 2)
    for value in values:
        log.wait(4 * SECOND).commit("g", {KEY: value, OTHER: value}, leader_epoch=-1)
    found = [one for one in explained(log.write(tmp_path), capfd) if one["severity"] != "info"]
    assert {(one["code"], one["severity"], len(one["restore"])) for one in found} == {("reset-by-admin", "warning", 0)}
    assert all("the same values as before were committed again" in one["verdict"] for one in found)
    assert all("10,280 records to be read again." in one["verdict"] for one in found)


@pytest.mark.parametrize(("read", "severity", "records"), [(160, "warning", "170"), (5140, "critical", "10,280")])
def test_a_reset_that_was_put_back_says_how_much_was_read_again(
    read: int, severity: str, records: str, tmp_path: Path, capfd: Capfd
) -> None:
    """The wrong group is reset, runs for a while, is stopped and set to where it was: that step skips nothing."""
    log = Log().generation("g", 1, Client("m", partitions=(KEY, OTHER)))
    stays(log, 5140, 4, KEY, OTHER).generation("g", 2).wait(MINUTE)
    log.commit("g", {KEY: 0, OTHER: 0}, leader_epoch=-1)
    log.wait(MINUTE).generation("g", 3, Client("n", partitions=(KEY, OTHER)))
    log.wait(SECOND).commit("g", {KEY: read, OTHER: 10 if read < 5140 else read}).generation("g", 4).wait(MINUTE)
    if read < 5140:
        log.commit("g", {KEY: 5140, OTHER: 5140}, leader_epoch=-1)
    log.wait(MINUTE).generation("g", 5, Client("o", partitions=(KEY, OTHER)))
    stays(log, 5150, 4, KEY, OTHER)
    (found,) = (one for one in explained(log.write(tmp_path), capfd) if one["severity"] != "info")
    assert (found["code"], found["severity"], found["restore"]) == ("reset-by-admin", severity, [])
    assert f"{records} records are read again" in found["verdict"]
    assert ("somebody put 2 partitions back" in found["verdict"]) == (read < 5140)


@pytest.mark.parametrize(("waits", "codes"), [(8, []), (0, ["jumped-forward"])])
def test_a_burst_after_a_time_without_records_is_no_jump(
    waits: int, codes: list[str], tmp_path: Path, capfd: Capfd
) -> None:
    """A producer writes some thousand records at once; the consumer that waits for them reads them at once."""
    log = Log().generation("g", 1, Client("m", partitions=(KEY,)))
    for value in range(10, 110, 10):
        log.wait(5 * SECOND).commit("g", {KEY: value})
    stays(log, 100, waits)
    for value in range(5130, 5230, 10):
        log.wait(5 * SECOND).commit("g", {KEY: value})
    assert [one["code"] for one in explained(log.write(tmp_path), capfd)] == codes


@pytest.mark.parametrize(("end", "restored"), [(110, False), (5200, True)])
def test_what_a_partition_lost_is_not_put_back(end: int, restored: bool, tmp_path: Path, capfd: Capfd) -> None:
    """An unclean election cuts the topic, and its consumer begins where both leaders' logs part."""
    log = Log().generation("g", 1, Client("m", partitions=(KEY,)))
    log.commit("g", {KEY: 5100}).wait(MINUTE).commit("g", {KEY: 5200}).wait(MINUTE)
    log.commit("g", {KEY: 110}, leader_epoch=1)
    found = of(explained(topics(log.write(tmp_path), (0, end)), capfd), "moved-back")
    assert bool(found["restore"]) == restored == any("--from-file" in step for step in found["now"])
    assert ("orders-0 ends at 110 now, before 5200" in found["verdict"]) != restored
    assert (found["undo"] is not None) == restored


@pytest.mark.parametrize(("moved", "words"), [((0,), "No move of the coordinators"), ((0, 1), "had moved at")])
def test_a_coordinator_of_some_of_the_groups_is_not_to_blame(
    moved: tuple[int, ...], words: str, tmp_path: Path, capfd: Capfd
) -> None:
    """Groups of two offsets partitions go back together; the leader of one of them, or of both, had moved."""
    for partition in (0, 1):
        log = Log()
        names = [f"g-{partition}-{number}" for number in range(3)]
        for name in names:
            log.generation(name, 1, Client(name, partitions=(KEY,))).commit(name, {KEY: 100}).commit(name, {KEY: 200})
        log.wait(MINUTE)
        log.epoch = int(partition in moved)
        for name in names:
            log.commit(name, {KEY: 110})
        log.write(tmp_path, partition)
    arguments = ["--offsets-topic-num-partitions", "2"]
    found = explained(tmp_path, capfd, *arguments)
    assert words in of(found, "groups-went-back-together")["verdict"]


@pytest.mark.parametrize("aborted", [True, False])
def test_aborted_transactions_of_a_group_are_counted(aborted: bool, tmp_path: Path, capfd: Capfd) -> None:
    """An operator ends a transaction that a dead producer left open: the group's only commits are gone with it."""
    log = Log().commit("g", {KEY: 70, OTHER: 70}, producer_id=7).wait(MINUTE)
    log.marker(ControlType.ABORT if aborted else ControlType.COMMIT, 7).write(tmp_path)
    told = out(capfd, str(tmp_path), "--kafka-version", "3.9.2", "--group", "g").splitlines()[0]
    ever = "0 partitions" if aborted else "2 partitions"
    assert f"of {ever} ever committed{'; 2 commits of aborted transactions had no effect' if aborted else ''}." in told


@pytest.mark.parametrize("cut", [True, False])
def test_a_group_whose_record_went_with_the_log_start_may_have_members(cut: bool, tmp_path: Path, capfd: Capfd) -> None:
    """cleanup.policy=delete takes the record of a group whose members go on to commit."""
    log = Log().generation("g", 1, Client("m", partitions=(KEY, OTHER)))
    stays(log, 100, 9, KEY, OTHER)
    log = Log(at=log.at, next_offset=log.next_offset, base=log.next_offset) if cut else Log(at=log.at)
    for value in range(110, 200, 10):
        log.wait(5 * SECOND).commit("g", {KEY: value, OTHER: value})
    log.write(tmp_path)
    found = {one["code"]: one for one in explained(tmp_path, capfd)}
    assert set(found) == ({"log-start-moved"} if cut else {"commits-without-members"})
    if cut:
        first = found["log-start-moved"]["now"][1]
        assert "in memory" in first
        assert "--to-current --export --dry-run" in first


@pytest.mark.parametrize(("stays_ms", "codes"), [(300_100, ["restarts-without-progress"]), (30_000, [])])
def test_members_that_never_commit_in_time_are_told(
    stays_ms: int, codes: list[str], tmp_path: Path, capfd: Capfd
) -> None:
    """A first batch that takes longer than max.poll.interval.ms. The twin ends by itself."""
    log = Log()
    for number in range(6):
        log.wait(MINUTE).generation("g", 2 * number + 1, Client(f"m-{number}", partitions=(KEY,)))
        log.wait(stays_ms).generation("g", 2 * number + 2)
    found = [one for one in explained(log.write(tmp_path), capfd) if one["severity"] != "info"]
    assert [one["code"] for one in found] == codes
    for one in found:
        assert "began 6 times" in one["verdict"]
        assert "5 min after they joined, which is their max.poll.interval.ms" in one["verdict"]


def test_a_sound_verdict_names_the_members(tmp_path: Path, capfd: Capfd) -> None:
    """Two applications with one group id and one topic: nothing is wrong, but for who is there."""
    mail, audit = (
        Client(f"{name}-1", partitions=(key,), client_id=name) for name, key in (("mail", KEY), ("audit", OTHER))
    )
    log = Log().generation("g", 1, mail, audit).commit("g", {KEY: 7, OTHER: 7}).write(tmp_path)
    told = out(capfd, str(log), "--kafka-version", "3.9.2", "--group", "g").splitlines()[0]
    assert told.endswith("2 partitions ever committed; 2 members: mail on /10.0.0.1, audit on /10.0.0.1.")


@pytest.mark.parametrize("start", [45_000, 2_000])
def test_skipped_records_that_are_gone_are_not_set_back_to(start: int, tmp_path: Path, capfd: Capfd) -> None:
    """Retention overtakes a slow group; where it has removed all that was skipped, a step back reads other records."""
    log = Log().generation("g", 1, Client("m", partitions=(KEY,)))
    for value in (*range(1000, 1500, 10), *range(20_000, 20_500, 10)):
        log.wait(5 * SECOND).commit("g", {KEY: value})
    found = of(explained(topics(log.write(tmp_path), (start, 50_000)), capfd), "jumped-forward")
    can = start < 20_000
    assert bool(found["restore"]) == can == any("--from-file" in step for step in found["now"])
    assert f"The log of that partition begins at {start} now" in found["verdict"]
    assert any("Raise retention.ms" in step for step in found["now"])


@pytest.mark.parametrize(("reads_on", "restored"), [(True, []), (False, [500])])
def test_a_transaction_that_was_overtaken_is_not_put_back_over_later_commits(
    reads_on: bool, restored: list[int], tmp_path: Path, capfd: Capfd
) -> None:
    """A reset while a transaction is open: its commit has no effect, and the group comes that far by itself."""
    log = Log().commit("g", {KEY: 500}, producer_id=7).wait(SECOND).commit("g", {KEY: 100}, leader_epoch=-1)
    log.wait(SECOND).marker(ControlType.COMMIT, 7)
    log.wait(SECOND).generation("g", 1, Client("m", partitions=(KEY,)))
    log.wait(SECOND).commit("g", {KEY: 510 if reads_on else 110}).write(tmp_path)
    found = of(explained(tmp_path, capfd), "commit-overtaken")
    assert [row["offset"] for row in found["restore"]] == restored
    assert ("The group has come that far since." in found["verdict"]) == reads_on
    assert any("--from-file" in step for step in found["now"]) != reads_on


def test_a_producer_that_starts_again_ends_what_it_left_open(tmp_path: Path, capfd: Capfd) -> None:
    log = Log().commit("g", {KEY: 70}, producer_id=7).wait(SECOND)
    log.generation("g", 1, Client("m", partitions=(KEY,))).write(tmp_path)
    told = out(capfd, str(tmp_path), "--kafka-version", "3.9.2", "--group", "g", "--now-ms", str(log.at))
    assert "[info] open-transaction" in told
    assert "initTransactions() of the same transactional.id aborts" in told


def test_a_crash_loop_says_that_other_partitions_stand_too(tmp_path: Path, capfd: Capfd) -> None:
    """Nobody can tell from the log at which of several partitions the next record is that ends the application."""
    log = Log().generation("g", 1, Client("m-0", partitions=(KEY, OTHER))).commit("g", {KEY: 50, OTHER: 50})
    for number in range(2, 9):
        log.wait(MINUTE).generation("g", number, Client(f"m-{number}", partitions=(KEY, OTHER)))
    found = of(explained(topics(log.write(tmp_path), (0, 90), (0, 90)), capfd), "restarts-without-progress")
    assert "stays at 50 (record 2), and 1 other partition where it is. " in found["verdict"]
    assert any("or the one behind where another partition stands" in step for step in found["now"])


@pytest.mark.parametrize("is_deploy", [False, True])
def test_a_client_that_is_put_out_a_few_times_is_a_note(is_deploy: bool, tmp_path: Path, capfd: Capfd) -> None:
    """max.poll.interval.ms passes three times in an hour; the twin's members are restarted one after the other."""
    one, other = Client("a-0", client_id="a", partitions=(KEY,)), Client("b-0", client_id="b", partitions=(OTHER,))
    log = Log().generation("g", 1, one, other).commit("g", {KEY: 5, OTHER: 5})
    for number in range(1, 4):
        log.wait(8 * MINUTE).generation("g", 4 * number, other).wait(4 * MINUTE)
        one = Client(f"a-{number}", client_id="a", partitions=(KEY,))
        log.generation("g", 4 * number + 1, one, other).commit("g", {KEY: number * 10, OTHER: number * 10})
        if is_deploy:
            log.wait(MINUTE).generation("g", 4 * number + 2, one).wait(MINUTE)
            other = Client(f"b-{number}", client_id="b", partitions=(OTHER,))
            log.generation("g", 4 * number + 3, one, other)
    found = {found["code"]: found for found in explained(log.write(tmp_path), capfd)}
    assert ("flapping-member" in found) != is_deploy
    if not is_deploy:
        told = found["flapping-member"]
        assert told["severity"] == "info"
        assert told["verdict"].startswith("a on /10.0.0.1 joined g 3 times")


@pytest.mark.parametrize(("begun", "words"), [(10, "Stop its consumers"), (900, "If it began at the end")])
def test_a_group_in_two_partitions_says_where_it_began_anew(
    begun: int, words: str, tmp_path: Path, capfd: Capfd
) -> None:
    """__consumer_offsets got more partitions, and the group's coordinator is that of another one."""
    Log().commit("g", {KEY: 400, OTHER: 7}).write(tmp_path, 3)
    Log(at=T0 + HOUR).commit("g", {KEY: begun, OTHER: 7}).write(tmp_path, 17)
    found = of(explained(tmp_path, capfd), "group-in-two-partitions")
    assert f"orders-0 is committed at {begun} from record 0 on, and stood at 400 in 3." in found["verdict"]
    assert words in found["now"][0]
    assert found["now"][0].endswith("--group g --before-record 3:2 --bootstrap-server HOST:9092 --output plan.json")


def test_a_group_that_its_coordinator_does_not_read_is_told(tmp_path: Path, capfd: Capfd) -> None:
    """__consumer_offsets got more partitions, and its sink connector has not run since."""
    number = partition_for("connect-g", 7)
    Log().commit("connect-g", {KEY: 400}).write(tmp_path, number + 1)
    Log().commit("connect-h", {KEY: 400}).write(tmp_path, partition_for("connect-h", 7))
    infos = [PartitionInfo(each, 1, 0, (1,), (1,)) for each in range(7)]
    topology = Topology.of_offsets({1: BrokerInfo(1, {"PLAINTEXT": ("broker", 9092)})}, infos)
    (tmp_path / "topology.json").write_text(json.dumps(topology.document()))
    found = explained(tmp_path, capfd)
    assert [one["group_id"] for one in found if one["code"] == "connector-offsets-stay"] == ["connect-h"]
    told = of(found, "group-out-of-reach")
    assert told["severity"] == "critical"
    assert f"connect-g is in offsets partition {number + 1}, and belongs to {number}" in told["verdict"]
    assert "Brokers count them when they start; from then on they know neither the group" in told["verdict"]
    assert any("--offsets-partitions 7" in step for step in told["now"])


@pytest.mark.parametrize(("release", "mixes"), [("3.9.2", True), ("4.3.1", False)])
def test_a_log_that_compact_refuses_is_not_to_be_compacted(
    release: str, mixes: bool, tmp_path: Path, capfd: Capfd
) -> None:
    """One group came back after partitions were added, another one did not. A broker of 3.9.2 that leads both
    partitions says 400 of the former or 500; one of 4.3.1 says 500."""
    path = tmp_path / "log"
    for group in ("g", "h"):
        number = partition_for(group, 7)
        Log().commit(group, {KEY: 400}).write(path, (number + 1) % 7)
        if group == "g":
            Log(at=T0 + HOUR).commit(group, {KEY: 500}).write(path, number)
    infos = [PartitionInfo(each, 1, 0, (1,), (1,)) for each in range(7)]
    topology = Topology.of_offsets({1: BrokerInfo(1, {"PLAINTEXT": ("broker", 9092)})}, infos)
    (path / "topology.json").write_text(json.dumps(topology.document()))
    found = explained(path, capfd, release=release)
    two, out_of_reach = of(found, "group-in-two-partitions"), of(found, "group-out-of-reach")
    steps = [*two["now"], *out_of_reach["now"]]
    assert (any(MIXED in step for step in two["now"]), MIXED in out_of_reach["verdict"]) == (mixes, mixes)
    assert [step.split("compact ")[1][:28] for step in steps if "compact" in step] == ["--offsets-partitions refuses"]
    options = ["--kafka-version", "3.9.2", "--offsets-partitions", "7", "--renumber", "--output", str(tmp_path / "out")]
    assert run(["compact", str(path), *options]) == 2
    assert "group 'g' is in offsets partition" in capfd.readouterr().err
    run(["whatif", str(path), "--kafka-version", release, "--offsets-partitions", "8"])
    assert ("finds it all the same" in capfd.readouterr().err) == mixes


@pytest.mark.parametrize("stopped", [False, True])
def test_commits_that_an_unclean_election_lost_were_written(stopped: bool, tmp_path: Path, capfd: Capfd) -> None:
    """The old leader took commits for some minutes that nobody had copied; the twin's members were stopped before."""
    log = Log()
    for group in "gh":
        log.generation(group, 1, Client(group))
    for epoch in (0, 1):
        log.epoch = epoch
        for value in range(1000 * epoch, 1000 * epoch + 300, 10):
            for group in "gh":
                log.commit(group, {KEY: value})
            log.wait(5 * SECOND)
        for group in "gh" if stopped else ():
            log.generation(group, 2 + epoch)
        log.wait(3 * MINUTE)
    log.write(tmp_path)
    found = explained(tmp_path, capfd)
    if stopped:
        assert "offsets-partition-paused" not in [one["code"] for one in found]
        return
    told = of(found, "offsets-partition-paused")
    assert (told["severity"], told["evidence"][0]["record_offset"]) == ("info", 62)
    assert "Offsets partition 0 has no record for 3.1 min" in told["verdict"]
    assert "lost with a leader that nobody had copied (an unclean election)" in told["verdict"]
    assert "; no record for 3.1 min before it." in out(capfd, str(tmp_path), "--kafka-version", "3.9.2")


def share_state(*, anew: bool = False, deletes: bool = False) -> tuple[int, dict[str, Any], dict[str, Any]]:
    """The record that says in which topics a share group has progress."""
    topic = {"topicId": "PkR2PeUuSnyXEfI70GUlvw", "topicName": "orders"}
    known = {**topic, "partitions": [0, 1]}
    value = {
        "initializingTopics": [known] if anew else [],
        "initializedTopics": [] if deletes else [known],
        "deletingTopics": [topic] if deletes else [],
    }
    return 15, {"groupId": "g"}, value


@pytest.mark.parametrize(
    ("act", "code"), [("set", "share-offsets-set"), ("deleted", "share-offsets-deleted"), ("", "")]
)
def test_progress_of_a_share_group_that_a_request_set_is_told(
    act: str, code: str, tmp_path: Path, capfd: Capfd
) -> None:
    """kafka-share-groups.sh --reset-offsets, or --delete-offsets; the twin is deleted as a whole."""
    log = Log().modern((11, {"groupId": "g"}, {"epoch": 4, "metadataHash": 0}), share_state())
    log.wait(MINUTE).modern(share_state(anew=act == "set", deletes=act != "set"))
    if act == "set":
        log.modern(share_state())
    elif not act:
        log.modern((15, {"groupId": "g"}, None), (11, {"groupId": "g"}, None))
    log.write(tmp_path)
    told = [one for one in explained(tmp_path, capfd, release="4.3.1") if one["code"].startswith("share-offsets")]
    assert [(one["code"], one["severity"]) for one in told] == ([(code, "warning")] if code else [])
    for one in told:
        assert f"Progress of g, a share group, in orders was {act} at" in one["verdict"]
        assert [event["record_offset"] for event in one["evidence"]] == [2]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_process_that_keeps_its_member_id_was_not_restarted(restarts: bool, tmp_path: Path, capfd: Capfd) -> None:
    """A KIP-848 consumer has one member id as long as it lives; its max.poll.interval.ms passes again and again."""
    log = Log().modern(modern_member("g", "other"), (3, {"groupId": "g"}, {"epoch": 1}))
    for number in range(6):
        kind, key, value = modern_member("g", f"b-{number}" if restarts else "b")
        epochs = [(3, {"groupId": "g"}, {"epoch": 2 * number + step}) for step in (2, 3)]
        log.wait(MINUTE).modern((kind, key, value | {"clientId": "b"}), epochs[0])
        log.wait(MINUTE).modern((8, key, None), (7, key, None), (kind, key, None), epochs[1])
    log.write(tmp_path)
    told = of(explained(tmp_path, capfd, release="4.3.1"), "flapping-member")
    assert told["verdict"].startswith("b on /10.0.0.1 joined g 5 times")
    assert ("It kept its member id: the process lived" in told["verdict"]) != restarts
    assert any("group.instance.id" in one for one in told["now"]) == restarts
