"""``regroup restore plan`` from logs: at their end, at a time, before a record, before an incident; against logs."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.cli.app import run
from coordinator_core.errors import ExitCode
from tests.cases import CORPUS
from tests.history.incidents import INCIDENTS, Incident
from tests.history.logs import MINUTE, T0, Log

Json = dict[str, Any]

LARGE = {"besthub-952gb", "KAFKA-7286"}
"""Incidents with logs of megabytes, in which nothing is to put back."""

each_incident = pytest.mark.parametrize(
    "incident",
    [pytest.param(one, id=one.id, marks=pytest.mark.full if one.id in LARGE else ()) for one in INCIDENTS],
)


def planned(capfd: pytest.CaptureFixture[str], *arguments: str | Path, code: int = 0) -> Json:
    given = ["restore", "plan", *map(str, arguments), "--kafka-version", "3.9.2", "--format", "json"]
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
        assert "nothing in this log that took offsets" in printed.err
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
        (["LOG", "--group", "other", "--to-latest", "--against", "LOG"], "are not known"),
        (["LOG", "--group", "other", "--to-latest", "--to-offset", "1", "--against", "LOG"], "exclude each other"),
        (["LOG", "--group", "other", "--map-group", "a", "--against", "LOG"], "expected OLD=NEW"),
        (["--from-file", "no-such.csv", "--against", "LOG"], "no-such.csv: cannot be read"),
    ],
)
def test_what_is_refused(log: Path, arguments: list[str], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    given = [str(log) if word == "LOG" else word for word in arguments]
    assert run(["restore", "plan", *given]) == ExitCode.USAGE
    printed = capfd.readouterr()
    assert printed.out == ""
    assert said in printed.err.splitlines()[-1]


def test_only_the_approved_plan_is_applied(log: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "plan.json")
    planned(capfd, log, "--group", "g", "--before-record", "0:3", "--against", log, "--output", path)
    apply = ["restore", "apply", path, "--bootstrap-server", "127.0.0.1:1", "--plan-digest", "0" * 64]
    assert run(apply) == ExitCode.USAGE
    assert "it is not the plan that was approved" in capfd.readouterr().err
