"""``regroup restore plan`` from logs: at their end, at a time, before a record, before an incident; against logs."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.cli.app import run
from coordinator_core.errors import ExitCode
from coordinator_core.log.types import OFFSETS_TOPIC
from coordinator_core.restore.selection import Move, Scenario
from tests.cases import CORPUS
from tests.history.incidents import INCIDENTS, Incident
from tests.history.logs import DAY, HOUR, MINUTE, T0, Client, Log

Json = dict[str, Any]

LARGE = {"besthub-952gb", "KAFKA-7286"}
"""Incidents with logs of megabytes, in which nothing is to put back."""

BEFORE_TWICE = ["--before-record", "0:5", "--before-record", "0:3"]

each_incident = pytest.mark.parametrize(
    "incident",
    [pytest.param(one, id=one.id, marks=pytest.mark.full if one.id in LARGE else ()) for one in INCIDENTS],
)


def planned(capfd: pytest.CaptureFixture[str], *arguments: str | Path, code: int = 0, release: str = "3.9.2") -> Json:
    given = ["restore", "plan", *map(str, arguments), "--kafka-version", release, "--format", "json"]
    assert run(given) == code, capfd.readouterr().err
    document: Json = json.loads(capfd.readouterr().out)
    return document


def after(document: Json) -> dict[str, int | None]:
    return {
        f"{row['group_id']} {row['topic']}-{row['partition']}": None if row["after"] is None else row["after"]["offset"]
        for group in document["groups"]
        for row in group["rows"]
    }


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five commits a minute apart, and a deletion: records 0 to 5."""
    made = Log()
    for value in range(5):
        made.commit("g", {("orders", 0): 100 + value}, leader_epoch=value, metadata=f"m{value}").wait(MINUTE)
    made.tombstones("g", ("orders", 0), with_group=True)
    made.commit("other", {("orders", 1): 7})
    return made.write(tmp_path_factory.mktemp("restore") / "log")


def test_a_topic_without_committed_offsets_is_refused(log: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for topic in ("ordres", "orders:1"):
        words = ["--group", "g", "--topic", topic, "--against", str(log), "--kafka-version", "3.9.2"]
        assert run(["restore", "plan", str(log), "--before-record", "0:5", *words]) == ExitCode.USAGE
        assert "the source has no committed offset of these groups of --topic" in capfd.readouterr().err
    words += ["--delete-others"]
    assert run(["restore", "plan", str(log), "--before-record", "0:5", *words]) == ExitCode.CLEAN
    words[words.index("orders:1")] = "ordres"
    assert run(["restore", "plan", str(log), "--before-record", "0:5", *words]) == ExitCode.USAGE
    assert f"neither the source nor {log} has topic ordres" in capfd.readouterr().err


def test_others_are_deleted_also_where_the_source_has_nothing_of_the_topic(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = Log().commit("g", {("a", 0): 5}).commit("h", {("a", 0): 5, ("c", 0): 1}).write(tmp_path / "log")
    made = Log().commit("g", {("b", 0): 1, ("c", 0): 2}).commit("new", {("c", 0): 2}).commit("other", {("c", 0): 2})
    target = made.write(tmp_path / "target")
    common = [log, "--topic", "c", "--delete-others", "--against", target]
    assert after(planned(capfd, *common, "--group", "g")) == {"g b-0": 1, "g c-0": None}
    assert after(planned(capfd, *common, "--all-groups")) == {"g b-0": 1, "g c-0": None, "h c-0": 1}
    mapped = planned(capfd, *common, "--group", "h", "--map-group", "h=new")
    assert after(mapped) == {"new c-0": 1}


@pytest.mark.parametrize(
    "point, value",
    [
        (["--before-record", "0:5"], 104),
        (["--before-record", "0:3"], 102),
        (["--at-time", str(T0 + 2 * MINUTE)], 102),
        (["--at-time", str(T0 + 3 * MINUTE - 1)], 102),
        (["--before-incident"], 104),
    ],
)
def test_points_of_the_log(log: Path, point: list[str], value: int, capfd: pytest.CaptureFixture[str]) -> None:
    document = planned(capfd, log, "--group", "g", *point, "--against", log, "--now-ms", str(T0 + 10 * MINUTE))
    (group,) = document["groups"]
    (row,) = group["rows"]
    assert (row["action"], row["before"]) == ("create", None)
    assert row["after"] == {
        "offset": value,
        "leader_epoch": -1,
        "metadata": f"m{value - 100}",
        "topic_id": None,
        "offsets_partition": 0,
        "record_offset": value - 100,
    }
    assert document["warnings"] == ["nothing is known of the topics: ranges are not checked"]


@each_incident
def test_what_investigate_says_to_put_back_is_what_is_planned(
    incident: Incident, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = incident.build(tmp_path / "log", True)
    common = ["--kafka-version", incident.release, "--now-ms", str(incident.now_ms)]
    run(["investigate", str(path), *common, "--format", "json"])
    told = json.loads(capfd.readouterr().out)["explanations"]
    wanted: dict[str, dict[str, int]] = {}
    # Offsets beyond the log were committed so: what was before is no remedy.
    for one in [one for one in told if one["code"] != "committed-beyond-log-end"]:
        if one["severity"] != "info" and one["group_id"] is not None and one["restore"] and one["evidence"]:
            keys = {f"{one['group_id']} {row['topic']}-{row['partition']}": row["offset"] for row in one["restore"]}
            wanted.setdefault(one["group_id"], keys)
    arguments = ["restore", "plan", str(path), "--all-groups", "--before-incident", "--against", str(path), *common]
    code = run([*arguments, "--format", "json"])
    printed = capfd.readouterr()
    if not wanted:
        assert code == ExitCode.USAGE
        assert "nothing in this log that took offsets" in printed.err or "may have been meant" in printed.err
        return
    planned = after(json.loads(printed.out))
    for keys in wanted.values():
        assert {key: planned[key] for key in keys} == keys


@each_incident
def test_the_command_that_investigate_prints_plans_what_it_says(
    incident: Incident, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = incident.build(tmp_path / "log", True)
    common = ["--kafka-version", incident.release, "--now-ms", str(incident.now_ms)]
    run(["investigate", str(path), *common])
    text = capfd.readouterr().out
    run(["investigate", str(path), *common, "--format", "json"])
    told = json.loads(capfd.readouterr().out)["explanations"]
    assert all(one["undo"] for one in told if one["severity"] != "info" and one["restore"])
    for one in [one for one in told if one["undo"]]:
        assert one["severity"] == "info" or f": {one['undo']}\n" in text
        name, *words = shlex.split(one["undo"])
        assert (name, words[-4:]) == ("regroup", ["--bootstrap-server", "HOST:9092", "--output", "plan.json"])
        where = ["--against", str(path), "--output", str(tmp_path / "plan.json"), *common[2:]]
        assert run([*words[:-4], *where, "--format", "json"]) == ExitCode.CLEAN
        planned = after(json.loads(capfd.readouterr().out))
        wanted = {f"{one['group_id']} {row['topic']}-{row['partition']}": row["offset"] for row in one["restore"]}
        assert {key: planned[key] for key in wanted} == wanted


def test_an_undo_has_the_brokers_and_the_rules_of_the_log(log: Path, capfd: pytest.CaptureFixture[str]) -> None:
    listeners = [[{"security_protocol": "SASL_SSL", "host": f"b{number}", "port": 9093}] for number in (1, 2)]
    brokers = [{"broker_id": number, "listeners": at} for number, at in enumerate(listeners, 1)]
    topics = {"__consumer_offsets": {"partitionInfo": [{"partition": 0, "leader": 1}]}}
    (log / "topology.json").write_text(json.dumps({"brokers": brokers, "topics": topics}))
    arguments = ["--group", "g", "--now-ms", str(T0 + 10 * MINUTE), "--format", "json"]
    assert (
        run(["investigate", str(log), "--kafka-version", "3.9.2", "--coordinator", "new", "--salvage", *arguments])
        == ExitCode.CLEAN
    )
    (one,) = [one for one in json.loads(capfd.readouterr().out)["explanations"] if one["undo"]]
    assert one["undo"] == (
        f"regroup restore plan {log} --kafka-version 3.9.2 --coordinator new --salvage --group g --topic orders:0 "
        "--before-record 0:5 --bootstrap-server b1:9093,b2:9093 --command-config FILE --output plan.json"
    )


def test_what_a_group_never_held_is_put_back_by_its_offset_and_is_no_point_of_the_log(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The recording: a transaction writes 100, a plain commit 50 afterwards, then the transaction commits."""
    log, group = str(CORPUS / "k431-txn/log"), ["--group", "x-plain-after"]
    run(["investigate", log, *group, "--format", "json"])
    (undo,) = [one["undo"] for one in json.loads(capfd.readouterr().out)["explanations"] if one["undo"]]
    words = shlex.split(undo)[1:-4]
    assert words == ["restore", "plan", *group, "--topic", "t-a:0", "--to-offset", "100"]
    assert run([*words, "--against", log, "--format", "csv"]) == ExitCode.CLEAN
    assert capfd.readouterr().out == "x-plain-after,t-a,0,100\n"
    assert run(["restore", "plan", log, *group, "--before-incident", "--against", log]) == ExitCode.USAGE


def test_what_went_at_two_times_comes_back_as_of_either(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """An offset is committed again after it expired, and expires again: 50 and the 3 never stood at one time."""
    log = Log().commit("a", {("orders", 0): 5, ("pay", 0): 3}).wait(8 * DAY)
    log.tombstones("a", ("orders", 0), ("pay", 0), with_group=True).wait(DAY).commit("a", {("orders", 0): 50})
    path = log.wait(8 * DAY).tombstones("a", ("orders", 0), with_group=True).write(tmp_path)
    now = str(T0 + 18 * DAY)
    document = planned(capfd, path, "--group", "a", "--before-incident", "--against", path, "--now-ms", now)
    assert after(document) == {"a orders-0": 50, "a pay-0": 3}


@pytest.mark.parametrize("again", [5, 6])
def test_what_an_earlier_act_took_besides_comes_back_too(
    again: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """One of two offsets that went is committed again, also with the same value, and goes again."""
    log = Log().commit("g", {("a", 0): 5, ("b", 0): 7}).wait(HOUR).tombstones("g", ("a", 0), ("b", 0)).wait(HOUR)
    path = log.commit("g", {("a", 0): again}).wait(HOUR).tombstones("g", ("a", 0)).write(tmp_path)
    common = ["--group", "g", "--now-ms", str(T0 + 4 * HOUR)]
    document = planned(capfd, path, "--before-incident", "--against", path, *common)
    assert after(document) == {"g a-0": again, "g b-0": 7}
    run(["investigate", str(path), "--kafka-version", "3.9.2", *common, "--format", "json"])
    told = json.loads(capfd.readouterr().out)["explanations"]
    undone = [shlex.split(one["undo"])[6:12] for one in told if one["restore"]]
    went = [("a", "0:5"), ("b", "0:3")]
    assert undone == [["--group", "g", "--topic", f"{name}:0", "--before-record", at] for name, at in went]


def test_resets_from_one_value_at_two_times_are_undone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = Log().commit("g", {("a", 0): 100, ("b", 0): 200}).wait(HOUR).commit("g", {("a", 0): 0, ("b", 0): 0})
    path = log.wait(HOUR).commit("g", {("a", 0): 100}).wait(HOUR).commit("g", {("a", 0): 0}).write(tmp_path)
    document = planned(capfd, path, "--group", "g", "--before-incident", "--against", path)
    assert after(document) == {"g a-0": 100, "g b-0": 200}


def test_offsets_that_were_not_held_at_one_time_come_back_each_from_its_own(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Two partitions are set back in one hour; between that the second one goes on."""
    log = Log().commit("g", {("a", 0): 100, ("b", 0): 200}).wait(MINUTE).commit("g", {("a", 0): 0}).wait(MINUTE)
    path = log.commit("g", {("b", 0): 300}).wait(MINUTE).commit("g", {("b", 0): 0}).write(tmp_path)
    document = planned(capfd, path, "--group", "g", "--before-incident", "--against", path)
    assert after(document) == {"g a-0": 100, "g b-0": 300}


def test_what_a_milder_act_took_since_comes_back_with_its_own_value(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A group that was deleted begins at 0 again, passes in one partition what it had, and expires there."""
    first, second = ("orders", 0), ("orders", 1)
    client = Client("m", partitions=(first, second))
    log = Log().generation("g", 1, client).commit("g", {first: 10_900, second: 10_900}).wait(HOUR).generation("g", 2)
    log.wait(HOUR).tombstones("g", first, second, with_group=True).wait(HOUR).generation("g", 1, client)
    for value in range(0, 30_000, 100):
        log.wait(MINUTE).commit("g", {first: value})
    log.commit("g", {second: 500}).wait(HOUR).generation("g", 2).wait(7 * DAY + 5 * MINUTE)
    path = log.tombstones("g", first).write(tmp_path)
    common = ["--group", "g", "--now-ms", str(log.at)]
    document = planned(capfd, path, "--before-incident", "--against", path, *common)
    assert after(document) == {"g orders-0": 29_900, "g orders-1": 10_900}
    run(["investigate", str(path), "--kafka-version", "3.9.2", *common, "--format", "csv"])
    assert capfd.readouterr().out == "orders,1,10900\n"


def test_what_was_lost_again_before_it_was_reached_comes_back_as_it_was_first(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    key = ("orders", 0)
    log = Log().commit("g", {key: 1400}).wait(HOUR).tombstones("g", key, with_group=True).wait(HOUR)
    path = log.commit("g", {key: 10}).wait(HOUR).tombstones("g", key, with_group=True).write(tmp_path)
    document = planned(capfd, path, "--group", "g", "--before-incident", "--against", path)
    assert after(document) == {"g orders-0": 1400}


def test_a_log_without_an_incident_has_none_to_put_back(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = Log().commit("g", {("orders", 0): 1400}).write(tmp_path)
    given = ["restore", "plan", str(path), "--all-groups", "--before-incident", "--against", str(path)]
    assert run([*given, "--kafka-version", "3.9.2"]) == ExitCode.USAGE
    assert "finds nothing in this log that took offsets" in capfd.readouterr().err


def test_groups_that_a_request_removed_while_their_topic_stays_come_back(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Their consumers begin again at the end. Without topics.json it may have been the topic that went."""
    key = ("orders", 0)
    client, log = Client("m", partitions=(key,)), Log()
    for group in "ghi":
        log.generation(group, 1, client)
    for value in range(5000, 7000, 100):
        for group in "ghi":
            log.commit(group, {key: value})
        log.wait(MINUTE)
    for group in "ghi":
        log.generation(group, 2)
    log.wait(10_000)
    for group in "ghi":
        log.wait(1).tombstones(group, key, with_group=True)
    log.wait(10 * MINUTE)
    for group in "ghi":
        log.generation(group, 1, client).commit(group, {key: 50_000})
    path = log.write(tmp_path / "log")
    common = [path, "--all-groups", "--before-incident", "--against", path, "--now-ms", str(log.at)]
    assert run(["restore", "plan", *map(str, common), "--kafka-version", "3.9.2"]) == ExitCode.USAGE
    said = "what took offsets of 'g' and 2 more of these groups may have been meant: name them with --group"
    assert said in capfd.readouterr().err
    bounds = {"partition": 0, "start_offset": 0, "end_offset": 60_000}
    topic = {"name": "orders", "topic_id": None, "partitions": [bounds]}
    (path / "topics.json").write_text(json.dumps({"topics": [topic]}))
    wanted = {f"{group} orders-0": 6900 for group in "ghi"}
    assert after(planned(capfd, *common)) == wanted
    # The file lies beside the log of a run, too.
    replay = [*("replay", str(path), "--output", str(tmp_path / "runs"), "--cluster", "c"), "--format", "json"]
    assert run([*replay, "--kafka-version", "3.9.2", "--now-ms", str(log.at)]) == 0
    made = json.loads(capfd.readouterr().out)["run"]
    assert run(["restore", "plan", made, *map(str, common[1:]), "--format", "json"]) == 0
    assert after(json.loads(capfd.readouterr().out)) == wanted


def test_what_a_group_was_set_over_has_not_been_read_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Reset to 0 by mistake, then to the end: what lies between is not processed."""
    partitions = tuple(("orders", number) for number in range(4))
    log = Log().generation("g", 1, Client("m", partitions=partitions))

    def reads(values: range) -> None:
        for value in values:
            log.wait(MINUTE).commit("g", dict.fromkeys(partitions, value))

    reads(range(5000, 10_001, 100))
    log.wait(MINUTE).generation("g", 2).wait(MINUTE).commit("g", dict.fromkeys(partitions, 0), leader_epoch=-1)
    log.wait(MINUTE).generation("g", 3, Client("m", partitions=partitions))
    reads(range(100, 301, 100))
    log.wait(MINUTE).generation("g", 4).wait(HOUR).commit("g", dict.fromkeys(partitions, 50_000), leader_epoch=-1)
    log.wait(MINUTE).generation("g", 5, Client("m", partitions=partitions))
    reads(range(50_100, 50_300, 100))
    path = log.write(tmp_path)
    common = ["--group", "g", "--now-ms", str(log.at)]
    document = planned(capfd, path, "--before-incident", "--against", path, *common)
    assert after(document) == {f"g orders-{number}": 10_000 for number in range(4)}


def test_a_group_id_with_an_equals_sign_is_mapped(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As ``regroup rescue`` prints it."""
    log = Log().commit("k=v", {("orders", 0): 5}).commit("k", {("orders", 0): 6}).write(tmp_path / "log")
    common = [log, "--against", log, "--group"]
    assert after(planned(capfd, *common, "k=v", "--map-group", "k=v=k=v-1")) == {"k=v-1 orders-0": 5}
    assert after(planned(capfd, *common, "k", "--map-group", "k=v=k=v-1")) == {"v=k=v-1 orders-0": 6}


def test_other_names_and_kafka_s_csv(log: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    topics = {
        "topics": [
            {
                "name": "sales",
                "topic_id": None,
                "partitions": [{"partition": 0, "start_offset": 103, "end_offset": 200}],
            }
        ]
    }
    (tmp_path / "topics.json").write_text(json.dumps(topics))
    arguments = [log, "--group", "g", "--before-record", "0:3", "--map-group", "g=h", "--map-topic", "orders=sales"]
    arguments += ["--against", log, "--topics", tmp_path / "topics.json"]
    document = planned(capfd, *arguments, code=ExitCode.FINDINGS)
    assert document["groups"][0]["rows"][0]["reason"].startswith("offset 102 is below the log start 103")
    document = planned(capfd, *arguments, "--out-of-range", "trim")
    assert after(document) == {"h sales-0": 103}
    assert run(["restore", "plan", *map(str, arguments), "--out-of-range", "trim", "--format", "csv"]) == 0
    assert capfd.readouterr().out == "h,sales,0,103\n"
    assert run(["restore", "plan", *map(str, arguments)]) == ExitCode.FINDINGS
    assert "blocked  h sales-0: nothing to 102 (offset 102 is below the log start 103" in capfd.readouterr().out


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["LOG", "--all-groups"], "--bootstrap-server"),
        (["LOG", "--against", "LOG"], "--group or --all-groups is missing"),
        (["--all-groups", "--against", "LOG"], "nothing says which offsets are wanted"),
        (["LOG", "--group", "nobody", "--against", "LOG"], "no committed offset of group 'nobody'"),
        (["LOG", "--group", "g", "--before-record", "0:99", "--against", "LOG"], "nothing is at 99"),
        (["LOG", "--group", "g", "--before-record", "9:1", "--against", "LOG"], "no offsets partition 9"),
        (["LOG", "--group", "g", "--before-record", "x", "--against", "LOG"], "expected PARTITION:OFFSET"),
        (["LOG", "--group", "g", "--at-time", "noon", "--against", "LOG"], "--at-time noon"),
        (["LOG", "--group", "other", "--to-datetime", "0", "--against", "LOG"], "it needs --bootstrap-server"),
        (["LOG", "--group", "g", "--to-datetime", "1969-12-31T23:59:59.999", "--against", "LOG"], "a time before 1970"),
        (["LOG", "--group", "g", "--to-datetime", "20260512", "--against", "LOG"], "expected epoch milliseconds"),
        (["LOG", "--group", "g", "--at-time", "1778551200", "--against", "LOG"], "(not seconds)"),
        (["LOG", "--group", "g", "--to-datetime", str(10**20), "--against", "LOG"], "expected a time like"),
        (["LOG", "--group", "other", "--to-latest", "--against", "LOG"], "are not known"),
        (["LOG", "--group", "other", "--to-latest", "--to-offset", "1", "--against", "LOG"], "exclude each other"),
        (["LOG", "--group", "other", "--map-group", "a", "--against", "LOG"], "expected OLD=NEW"),
        (["LOG", "--group", "g", "--map-group", "g=a", "--map-group", "g=b", "--against", "LOG"], "'g' is 'a' already"),
        (["LOG", "--all-groups", "--map-topic", "orders=a", "--map-topic", "orders=b", "--against", "LOG"], "is 'a'"),
        (["LOG", "--group", "g", *BEFORE_TWICE, "--against", "LOG"], "--before-record 0:3: 0 is 5 already"),
        (["--from-file", "no-such.csv", "--against", "LOG"], "no-such.csv: cannot be read"),
        (["--group", "other", "--to-offset", "1", "--map-group", "other=new", "--against", "LOG"], "rename what a"),
        (["--group", "other", "--to-offset", "1", "--map-topic", "orders=new", "--against", "LOG"], "rename what a"),
        (["LOG", "--group", "other", "--against", "LOG", "--capture", "DIR"], "go with --bootstrap-server"),
        (["LOG", "--group", "other", "--against", "LOG", "--command-config", "FILE"], "go with --bootstrap-server"),
        (["LOG", "--group", "other", "--bootstrap-server", "localhost:1", "--topics", "FILE"], "goes with --against"),
        (["LOG", "--group", "g", "--bootstrap-server", "localhost:1", "--capture", "LOG"], "is read by this command"),
        (["PART", "--group", "g", "--bootstrap-server", "localhost:1", "--capture", "LOG"], "is read by this command"),
    ],
)
def test_what_is_refused(log: Path, arguments: list[str], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    places = {"LOG": str(log), "PART": str(log / f"{OFFSETS_TOPIC}-0")}
    given = [places.get(word, word) for word in arguments]
    assert run(["restore", "plan", *given]) == ExitCode.USAGE
    printed = capfd.readouterr()
    assert printed.out == ""
    assert said in printed.err.splitlines()[-1]


def test_an_output_replaces_an_earlier_plan_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log, output = Log().commit("g", {("orders", 0): 100}).write(tmp_path / "log", 3), tmp_path / "plan.json"
    words = [str(log), "--group", "g", "--against", str(log), "--output", str(output)]
    planned(capfd, *words)
    # What is printed is the file, also for who sends it there.
    assert run(["restore", "plan", *words, "--kafka-version", "3.9.2", "--format", "json"]) == ExitCode.CLEAN
    printed = capfd.readouterr().out
    assert printed == output.read_text()
    output.write_text(printed)
    planned(capfd, *words)
    output.write_text("what else is there")
    assert run(["restore", "plan", *words, "--kafka-version", "3.9.2"]) == ExitCode.USAGE
    assert f"{output} is there already, and is no plan" in capfd.readouterr().err
    assert output.read_text() == "what else is there"


def test_only_the_approved_plan_is_applied(log: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "plan.json")
    planned(capfd, log, "--group", "g", "--before-record", "0:3", "--against", log, "--output", path)
    apply = ["restore", "apply", path, "--bootstrap-server", "127.0.0.1:1", "--plan-digest", "0" * 64]
    assert run(apply) == ExitCode.USAGE
    assert "it is not the plan that was approved" in capfd.readouterr().err


def test_several_choices_of_a_topic_are_united(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Of the source by its names, of what the target holds by the new ones."""
    made = Log().commit("g", {("a", 0): 1, ("a", 1): 2, ("b", 0): 3, ("b", 1): 4, ("c", 0): 5})
    log = made.write(tmp_path / "log")
    target = Log().commit("g", {("b", number): 9 for number in range(3)} | {("c", 0): 9}).write(tmp_path / "target")
    chosen = ["--group", "g", "--topic", "b:1", "--against", target]
    document = planned(capfd, log, *chosen, "--topic", "b:0")
    assert after(document) == {"g b-0": 3, "g b-1": 4, "g b-2": 9, "g c-0": 9}
    document = planned(capfd, *chosen, "--topic", "b:2", "--to-offset", "5")
    assert after(document) == {"g b-0": 9, "g b-1": 5, "g b-2": 5, "g c-0": 9}
    mapped = ["--topic", "a:0", "--map-topic", "a=b", "--delete-others"]
    assert after(planned(capfd, log, *chosen, *mapped)) == {"g b-0": 1, "g b-1": 4, "g b-2": 9, "g c-0": 9}


def test_a_byte_order_mark_is_no_part_of_a_name(log: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    offsets, names = tmp_path / "offsets.csv", tmp_path / "names.csv"
    offsets.write_text("g,orders,0,5\r\ng,orders,1,6\r\n", "utf-8-sig")
    names.write_text("other,another\r\n", "utf-8-sig")
    assert after(planned(capfd, "--from-file", offsets, "--against", log)) == {"g orders-0": 5, "g orders-1": 6}
    assert after(planned(capfd, log, "--map-groups", names, "--against", log)) == {"another orders-1": 7}
    offsets.write_bytes(b"\xef\xbb\xbfg\xff,orders,0,5")
    assert run(["restore", "plan", "--from-file", str(offsets), "--against", str(log)]) == ExitCode.USAGE
    assert "position 4" in capfd.readouterr().err


def written_topics(path: Path, *names: str) -> None:
    """A ``topics.json`` with topics of these names, one partition each."""
    partitions = [{"partition": 0, "start_offset": 0, "end_offset": 1000, "leader_epoch": 9}]
    topics = [{"name": name, "topic_id": name[0].upper() * 22, "partitions": partitions} for name in names]
    path.write_text(json.dumps({"topics": topics}))


@pytest.mark.parametrize("point", [["--before-record", "0:2"], ["--at-time", str(T0)], ["--before-incident"]])
def test_before_the_end_nobody_knows_which_topic_had_a_name(
    point: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Unless the record has the topic id. The topic was made again, and the capture has the new id."""
    made = Log().commit("g", {("orders", 0): 900, ("sales", 0): 1}, leader_epoch=4).wait(MINUTE)
    log = made.tombstones("g", ("orders", 0), ("sales", 0), with_group=True).write(tmp_path / "log")
    written_topics(log / "topics.json", "orders", "sales")
    common = [log, "--group", "g", *point, "--against", log, "--now-ms", str(T0 + 2 * MINUTE)]
    document = planned(capfd, *common)
    (group,) = document["groups"]
    assert [row["after"]["leader_epoch"] for row in group["rows"]] == [-1, -1]
    said = "committed without a topic id: whether the topic was made again since cannot be told"
    assert document["warnings"] == [f"offsets of topic orders (and of 1 topic more) were {said}"]
    assert planned(capfd, *common, "--other-topics")["warnings"] == []
    mapped = planned(capfd, *common, "--topic", "orders", "--map-topic", "orders=sales")
    assert (after(mapped), mapped["warnings"]) == ({"g sales-0": 900}, [])


def test_a_clock_that_stepped_back_is_told(log: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    made = Log().commit("g", {("orders", 0): 100}).wait(60 * MINUTE).commit("h", {("orders", 0): 1}).wait(-59 * MINUTE)
    made.commit("g", {("orders", 0): 500}).wait(29 * MINUTE).commit("g", {("orders", 0): 600}).roll()
    stepped = made.wait(11 * MINUTE).commit("g", {("orders", 0): 700}).write(tmp_path / "log", 3)
    Log().commit("other", {("orders", 0): 7}).write(stepped, 4)
    point = ["--at-time", str(T0 + 40 * MINUTE), "--against", log]
    said = (
        "offsets partition 3: the clock of its leaders stepped back: it is taken before record 1, the first newer one, "
        "and 2 records behind that are of that time or before (--before-record takes another point)"
    )
    for groups, steps in ((["--group", "g"], [said]), (["--all-groups"], [said]), (["--group", "other"], [])):
        document = planned(capfd, stepped, *groups, *point)
        assert document["warnings"] == ["nothing is known of the topics: ranges are not checked", *steps]
    # A group may have committed behind the point alone: a37 is of partition 3, h of 4, q of one that the log has not.
    for group, steps in (("a37", f"; {said}"), ("q", f"; {said}"), ("h", "")):
        words = ["restore", "plan", str(stepped), "--group", group, *map(str, point), "--kafka-version", "3.9.2"]
        assert run(words) == ExitCode.USAGE
        assert capfd.readouterr().err.endswith(f"no committed offset of group '{group}'{steps}\n")
    # What lies behind the point may be damaged: it is not taken.
    segment = stepped / "__consumer_offsets-3" / f"{4:020d}.log"
    segment.write_bytes(segment.read_bytes()[:-1])
    assert planned(capfd, stepped, "--group", "g", *point)["warnings"][1:] == [said]


def test_records_without_a_time_before_the_point_are_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    made = Log(magic=0, commit_version=1, group_version=1).commit("g", {("orders", 0): 100})
    made.commit("g", {("orders", 0): 500})
    made.magic = 1
    log = made.wait(HOUR).commit("g", {("orders", 0): 700}).write(tmp_path / "log")
    said = "offsets partition 0: the last 2 records up to record 1 have no time (message format 0), and may be newer"
    for at_ms, value, told in ((T0, 500, True), (T0 + HOUR, 700, False)):
        document = planned(capfd, log, "--group", "g", "--at-time", str(at_ms), "--against", log)
        (group,) = document["groups"]
        assert [row["after"]["offset"] for row in group["rows"]] == [value]
        assert any(one.startswith(said) for one in document["warnings"]) is told


def test_offsets_of_another_cluster_are_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    paths = [Log().commit("g", {("orders", 0): 100}).write(tmp_path / name) for name in ("a", "b", "c")]
    for path, cluster_id in zip(paths, ("A" * 22, "B" * 22, "A" * 22), strict=True):
        written_topics(path / "topics.json", "orders")
        (path / "meta.properties").write_text(f"version=1\ncluster.id={cluster_id}\n")
    said = f"the source is of cluster {'A' * 22}, the target {'B' * 22}: offsets are taken as they are"

    def warned(target: Path, *more: str) -> list[bool]:
        warnings = planned(capfd, paths[0], "--group", "g", "--against", target, *more)["warnings"]
        return [text.startswith(said) for text in warnings]

    assert warned(paths[1]) == warned(paths[1], "--shift-by", "5") == [True]
    assert warned(paths[1], "--to-offset", "5") == warned(paths[2]) == []


@pytest.fixture
def placed_twice(tmp_path: Path) -> Path:
    """Group g in offsets partitions 3, where it belongs of 50, and 17, which has one offset more."""
    log = Log().commit("g", {("orders", 0): 900, ("orders", 1): 901}).write(tmp_path / "log", 3)
    return Log().commit("g", {("orders", 0): 1, ("orders", 2): 2}).write(log, 17)


def test_a_group_in_two_offsets_partitions_is_what_its_coordinator_reads(
    placed_twice: Path, log: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    document = planned(capfd, placed_twice, "--group", "g", "--against", placed_twice)
    assert after(document) == {"g orders-0": 900, "g orders-1": 901}
    said = (
        "offsets partitions 3 and 17 have it: what 3 has is taken, which is that of its coordinator where there are 50"
    )
    assert document["groups"][0]["warnings"] == [said]
    # 103, its hash, is 17 modulo 43.
    document = planned(capfd, placed_twice, "--group", "g", "--against", log, "--offsets-topic-num-partitions", "43")
    assert (after(document), document["groups"][0]["offsets_partition"]) == ({"g orders-0": 1, "g orders-2": 2}, 17)
    for paths in ([placed_twice, "--against", log], ["--shift-by", "1", "--against", placed_twice]):
        given = ["restore", "plan", *map(str, paths), "--group", "g", "--offsets-topic-num-partitions", "60"]
        assert run(given) == ExitCode.USAGE
        assert "offsets partitions 3 and 17 have group 'g', and 43, that of its coordinator" in capfd.readouterr().err


def test_of_a_file_of_names_its_groups_alone_count(
    placed_twice: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Group g, which does not lie at its coordinator, is not among them."""
    names = tmp_path / "names.csv"
    Log().commit("h", {("orders", 0): 5}).write(placed_twice, 44)
    names.write_text("h,new\nnobody,another\n")
    common = [placed_twice, "--map-groups", names, "--against", placed_twice.parent / "target"]
    Log().commit("z", {("orders", 0): 1}).write(tmp_path / "target")
    assert after(planned(capfd, *common, "--offsets-topic-num-partitions", "60")) == {"new orders-0": 5}
    names.write_text("h,new\nh,newer\n")
    assert run(["restore", "plan", *map(str, common), "--kafka-version", "3.9.2"]) == ExitCode.USAGE
    assert f"{names}: line 2: 'h' is 'new' already" in capfd.readouterr().err
    names.write_text("nobody,another\n")
    assert run(["restore", "plan", *map(str, common), "--kafka-version", "3.9.2"]) == ExitCode.USAGE
    assert f"the source has no committed offset of a group of {names}" in capfd.readouterr().err


def test_an_incident_of_a_group_in_two_offsets_partitions_is_what_its_coordinator_read(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Group g is in 3, where it belongs of 50, and was in 17 before."""
    was = Log().commit("g", {("orders", 0): 3, ("orders", 1): 4}).wait(HOUR)
    path = was.tombstones("g", ("orders", 0), ("orders", 1), with_group=True).write(tmp_path, 17)
    log = Log(at=was.at).commit("g", {("orders", 0): 500}).wait(HOUR)
    log.tombstones("g", ("orders", 0), with_group=True).write(path, 3)
    common = ["--group", "g", "--before-incident", "--against", path, "--now-ms", str(log.at)]
    document = planned(capfd, path, *common)
    assert after(document) == {"g orders-0": 500}
    assert document["groups"][0]["warnings"][0].startswith("offsets partitions 3 and 17 have it: what 3 has is taken")
    given = ["restore", "plan", str(path), *map(str, common), "--offsets-topic-num-partitions", "60"]
    assert run(given) == ExitCode.USAGE
    assert "offsets partitions 3 and 17 have group 'g', and 43, that of its coordinator" in capfd.readouterr().err
    shutil.rmtree(path / "__consumer_offsets-3")
    Log().commit("g", {("orders", 0): 500}).write(path, 3)
    assert run(["restore", "plan", str(path), *map(str, common)]) == ExitCode.USAGE
    error = capfd.readouterr().err
    assert "took offsets from these groups; offsets partitions 3 and 17 have it: what 3 has is taken" in error


def test_the_number_of_offsets_partitions_is_that_of_the_target(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As its files tell: verify looks at the partition that the plan names."""
    log = Log().commit("g", {("orders", 0): 900}).write(tmp_path / "log", 1)
    infos = [{"partition": number, "leader": 1} for number in range(3)]
    for name, topics in (
        ("topology.json", {"__consumer_offsets": {"partitionInfo": infos}}),
        (
            "topics.json",
            [{"name": name, "topic_id": None, "partitions": infos} for name in ("__consumer_offsets", "orders")],
        ),
    ):
        (log / name).write_text(json.dumps({"topics": topics}))
        document = planned(capfd, log, "--group", "g", "--against", log)
        (log / name).unlink()
        assert document["groups"][0]["offsets_partition"] == 1
    given = ["--cluster", "c", "--output", str(tmp_path / "runs"), "--kafka-version", "3.9.2"]
    assert run(["replay", str(log), *given, "--offsets-topic-num-partitions", "3"]) == ExitCode.CLEAN
    capfd.readouterr()
    (manifest,) = (tmp_path / "runs").glob("**/manifest.json")
    given = ["--to-offset", "1", "--group", "g", "--against", str(manifest.parent), "--format", "json"]
    assert run(["restore", "plan", *given]) == ExitCode.CLEAN
    assert json.loads(capfd.readouterr().out)["groups"][0]["offsets_partition"] == 1


@pytest.mark.parametrize(
    ("scenario", "text"),
    [
        (Scenario(Move.TO_DATETIME, 1_795_784_400_000), "--to-datetime 2026-11-27 13:00:00Z (epoch ms 1795784400000)"),
        (Scenario(Move.SHIFT_BY, -5), "--shift-by -5"),
        (Scenario(Move.TO_EARLIEST), "--to-earliest"),
    ],
)
def test_a_plan_names_the_moment_that_was_understood(scenario: Scenario, text: str) -> None:
    assert str(scenario) == text


def test_a_target_before_2_1_has_no_clock_of_the_group(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    old = {"group_version": 1, "commit_version": 1}
    log = Log(**old).generation("g", 3).commit("g", {("orders", 0): 100}).write(tmp_path / "log", 3)
    empty = Log(**old).generation("g", 3).write(tmp_path / "empty", 3)

    def said(release: str) -> bool:
        document = planned(capfd, log, "--group", "g", "--against", empty, release=release)
        return any("after it became empty" in warning for warning in document["groups"][0]["warnings"])

    assert (said("2.0.1"), said("2.4.1")) == (False, True)
