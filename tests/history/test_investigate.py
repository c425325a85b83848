"""The command: groups alone and all, symptoms, forms of the result, names that would steer a terminal; the history."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.cli.app import run
from coordinator_core.cli.options import clock_ms
from coordinator_core.cli.undo import undo_commands
from coordinator_core.drill.canaries import PREFIX
from coordinator_core.groups.hashing import partition_for
from coordinator_core.groups.model import OffsetKey
from coordinator_core.history.rows import history_rows
from coordinator_core.history.signs import pace_of
from coordinator_core.investigate import partitions
from coordinator_core.investigate.bugs import BUGS
from coordinator_core.investigate.held import find_points
from coordinator_core.investigate.model import Explanation
from coordinator_core.investigate.symptoms import codes_for, known_symptoms
from coordinator_core.investigate.words import moment
from coordinator_core.log.types import ControlType
from coordinator_core.records.codec import encode_key, encode_value
from coordinator_core.releases import Release, profile_for_release
from coordinator_core.rules.model import Severity
from tests.cases import CASES, Case, cross_section
from tests.history.further import TOPIC_ID
from tests.history.incidents import GROUP, INCIDENTS, ORDERS, Build, handover, topics
from tests.history.logs import DAY, HOUR, MINUTE, T0, Client, Log, group_histories, modern_member
from tests.history.reported import bumped, joins, leaves, owns, reset_of_assign
from tests.history.test_causes import removed_and_back, removed_together
from tests.history.wider import cleaner_stopped, reset_undone, synced_over
from tests.log.builders import build_batch

Json = dict[str, Any]
KEY = ("orders", 0)
NOW = ["--now-ms", str(T0 + 60 * MINUTE)]
RESET = next(one for one in INCIDENTS if one.id == "offset-reset-180k")
# What was wrong on purpose in these logs is critical; every other explanation of them is at most a warning.
MEANT = {"offsets-expired-while-active"}
# 4.1 knows the topics of a streams group only once a member has sent its topology again (docs/expiry.md).
UNKNOWN_SOURCES = ("k412/after", "g-streams")
# Groups whose offsets raw requests without a member set to and fro.
CHURNED = ("g-churn", "k-load", "c-churn", "g-left", "g-consumer-empty", "g-txn-")


def out(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    run(["investigate", *arguments])
    printed = capfd.readouterr()
    assert "Traceback" not in printed.err
    return printed.out


@pytest.mark.parametrize("alone", [True, False])
def test_a_sweep_of_4_1_before_the_first_heartbeat_is_known(alone: bool, capfd: pytest.CaptureFixture[str]) -> None:
    name, group = UNKNOWN_SOURCES
    case = next(one for one in CASES if one.name == name)
    arguments = ["--offsets-retention-ms", "60000", "--format", "json", *(["--group", group] if alone else [])]

    def lost(release: str) -> list[tuple[str, str | None]]:
        printed = out(capfd, *map(str, case.paths), "--kafka-version", release, *arguments)
        return [
            (one["code"], None if one["bug"] is None else one["bug"]["id"])
            for one in json.loads(printed)["explanations"]
            if one["group_id"] == group
        ]

    assert lost("4.1.2") == [("offsets-expired-while-active", "KAFKA-19661")]
    assert [bug for _, bug in lost("4.2.1")] == [None]


@pytest.mark.parametrize("case", cross_section(case for case in CASES if "torn" not in case.name))
def test_logs_of_brokers_have_nothing_critical_that_was_not_done(case: Case, capfd: pytest.CaptureFixture[str]) -> None:
    document = json.loads(out(capfd, *case.command_line(), "--format", "json"))
    critical = [
        one
        for one in document["explanations"]
        if one["severity"] == "critical" and (case.name, one["group_id"]) != UNKNOWN_SOURCES
    ]
    done = [
        one
        for one in critical
        if one["code"] in ("reset-by-admin", "jumped-forward") and one["group_id"].startswith(CHURNED)
    ]
    assert [one["verdict"] for one in critical if one["code"] not in MEANT and one not in done] == []


def test_a_kip_848_group_is_stable_whatever_a_tool_says(capfd: pytest.CaptureFixture[str]) -> None:
    """akhq-2720: a UI shows such groups as DEAD."""
    case = next(case for case in CASES if case.name == "k431-mixed")
    text = out(capfd, *case.command_line(), "--group", "g-consumer", *NOW)
    assert text.startswith("Nothing in this log speaks against g-consumer: it is Stable, with ")


@pytest.mark.parametrize(
    ("group", "begins"),
    [
        ("g-topicless", "1 committed offset of g-topicless, a group without members, expired at "),
        # An offset is left.
        ("e-live-unsub", "Nothing in this log speaks against e-live-unsub: it is Stable, with "),
    ],
)
def test_of_a_group_without_offsets_the_verdict_says_where_they_went(
    group: str, begins: str, capfd: pytest.CaptureFixture[str]
) -> None:
    case = next(case for case in CASES if case.name == "k431-expired/C")
    assert out(capfd, *case.command_line(), "--group", group, *NOW).startswith(begins)


@pytest.mark.parametrize(
    ("group", "says"),
    [("x-plain-after", "t-a-0 stays at 50, not 100, because record 8"), ("x-plain-before", None)],
)
def test_a_commit_written_after_that_of_a_transaction_stays(
    group: str, says: str | None, capfd: pytest.CaptureFixture[str]
) -> None:
    """The recording: a transaction writes 100, a plain commit 50 afterwards, then the transaction commits; the other
    way round in the second group."""
    case = next(case for case in CASES if case.name == "k431-txn")
    document = json.loads(out(capfd, *case.command_line(), "--group", group, *NOW, "--format", "json"))
    found = [one for one in document["explanations"] if one["code"] == "commit-overtaken"]
    assert len(found) == (says is not None)
    for one in found:
        assert says is not None
        assert says in one["verdict"]
        assert [event["record_offset"] for event in one["evidence"]] == [7, 9]


def test_old_lz4_frames_are_read_and_explained(capfd: pytest.CaptureFixture[str]) -> None:
    """burrow-494."""
    case = next(case for case in CASES if case.name == "kmix-0102-241/old")
    document = json.loads(
        out(capfd, *case.command_line(), "--symptom", "lz4: invalid header checksum", "--format", "json")
    )
    assert [one["code"] for one in document["explanations"]] == ["old-lz4-checksum"]
    assert document["explanations"][0]["bug"]["id"] == "KAFKA-3160"


def test_a_run_leads_back_to_its_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = RESET.build(tmp_path / "log", True)
    common = ["--kafka-version", RESET.release, *NOW]
    assert run(["replay", str(path), "--output", str(tmp_path / "runs"), "--cluster", "shop", *common]) == 0
    capfd.readouterr()
    (manifest,) = (tmp_path / "runs").rglob("manifest.json")
    assert out(capfd, str(manifest.parent), *NOW, "--group", "billing") == out(
        capfd, str(path), *common, "--group", "billing"
    )


def test_csv_is_what_to_put_back(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = RESET.build(tmp_path / "log", True)
    lines = out(capfd, str(path), "--kafka-version", RESET.release, *NOW, "--format", "csv").split()
    assert lines == [f"orders,{partition},1390" for partition in range(4)]


def test_symptoms_lead_to_what_explains_them(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = RESET.build(tmp_path / "log", True)
    common = [str(path), "--kafka-version", RESET.release, *NOW, "--format", "json", "--symptom"]
    assert json.loads(out(capfd, *common, "customers were billed twice"))["explanations"]
    assert not json.loads(out(capfd, *common, "FENCED_INSTANCE_ID"))["explanations"]
    assert run(["investigate", str(path), "--symptom", "the weather"]) == 2
    assert capfd.readouterr().err.endswith("; leave out --symptom to look for everything\n")


@pytest.mark.parametrize(
    "said",
    [
        "our offsets vanished",
        "offsets gone",
        "offsets missing",
        "lost offsets",
        "offsets lost",
        "Offsets were reset",
        "offsets disappeared",
        "offset expired",
        "who deleted the offsets?",
        "consumer restarted from beginning",
    ],
)
def test_lost_offsets_have_many_names(said: str) -> None:
    assert (codes_for(said) or ())[:2] == ("offsets-expired-while-active", "offsets-expired")


def test_a_cleaner_that_stopped_is_a_bug_of_old_releases(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the incident ``cleaner-stopped``, under 2.8.2, no bug is named. Here a tenth of its records are many."""
    monkeypatch.setattr(partitions, "_HEAVY_RECORDS", partitions._HEAVY_RECORDS // 10)
    path = cleaner_stopped(tmp_path / "log", True, commits=8)
    document = json.loads(out(capfd, str(path), "--kafka-version", "0.10.0.1", *NOW, "--format", "json"))
    (told,) = [one for one in document["explanations"] if one["code"] == "cleaner-stopped"]
    assert told["bug"]["id"] == "KAFKA-3894"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("org.apache.kafka.clients.consumer.OffsetOutOfRangeException", "jumped-forward"),
        ("The coordinator is loading and hence can't process requests", "transaction-leftovers-pile-up"),
        ("Broker: Group coordinator not available", "offsets-topic-without-replicas"),
        ("The coordinator is not aware of this member", "rebalance-storm"),
        ("The metadata field of the offset request was too large: OFFSET_METADATA_TOO_LARGE", "metadata-near-limit"),
        (
            "The group member's supported protocols are incompatible with those of existing members",
            "mixed-subscriptions",
        ),
        ("InconsistentGroupProtocolException", "protocol-type-changed"),
        ("sync.group.offsets.enabled overwrites offsets", "synced-over-own-commits"),
        ("__consumer_offsets grows, COMMIT markers are not removed", "transaction-leftovers-pile-up"),
        ("pod in CrashLoopBackOff", "restarts-without-progress"),
        ("GroupIdNotFoundException", "groups-lost-offsets-together"),
        ("the reset did not last", "reset-undone-by-sync"),
        ("group stuck in CompletingRebalance", "group-stopped"),
        ("lag stays at 1", "lag-of-one"),
        ("messages lost after partitions were added: missing records", "partition-begun-late"),
    ],
)
def test_error_texts_lead_to_what_explains_them(text: str, code: str) -> None:
    assert code in (codes_for(text) or ())


def test_every_symptom_leads_to_explanations_that_exist() -> None:
    source = "".join(
        path.read_text(encoding="utf-8")
        for path in (Path(__file__).parents[2] / "coordinator_core/investigate").glob("*.py")
        if path.name != "symptoms.py"
    )
    for name in known_symptoms():
        for code in codes_for(name) or ():
            assert f'"{code}"' in source, code


def test_since_leaves_out_what_was_before(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = RESET.build(tmp_path / "log", True)
    common = [str(path), "--kafka-version", RESET.release, *NOW, "--format", "json", "--since"]
    assert json.loads(out(capfd, *common, "2026-05-28T20:00"))["explanations"]
    later = json.loads(out(capfd, *common, "2026-05-29T20:00Z"))["explanations"]
    assert [one["code"] for one in later if one["severity"] != "info"] == []
    assert run(["investigate", *common, "yesterday"]) == 2


def test_names_do_not_steer_the_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    group = "evil\x1b[2J\x1b]0;owned\x07\r\n\u202egroup"
    log = Log().generation(group, 1, Client("m", partitions=(KEY,), client_id="\x1b[31mred"))
    log.commit(group, {KEY: 50}).wait(MINUTE).commit(group, {KEY: 3})
    text = out(capfd, str(log.write(tmp_path)), "--kafka-version", "3.9.2", *NOW)
    assert "evil\\x1b[2J" in text
    assert all(one.isprintable() or one == "\n" for one in text)


@pytest.mark.parametrize("minutes", [10_080, 43_200])
def test_a_retention_that_was_raised_since_does_not_make_a_request_of_an_expiry(
    minutes: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = Log().generation(GROUP, 1, Client("m-1")).commit(GROUP, {KEY: 10}).generation(GROUP, 2)
    log.wait(7 * DAY + 4 * MINUTE).tombstones(GROUP, KEY, with_group=True)
    log.wait(HOUR).generation(GROUP, 1, Client("m-2")).commit(GROUP, {KEY: 2})
    path = topics(log.write(tmp_path), (0, 100), offsets_retention_minutes=minutes)
    (told,) = json.loads(out(capfd, str(path), "--kafka-version", "3.9.2", "--group", GROUP, "--format", "json"))[
        "explanations"
    ]
    assert (told["code"], told["severity"]) == ("offsets-expired", "warning")
    assert ("(the retention is 30 d now)" in told["verdict"]) is (minutes == 43_200)
    assert any("was raised since: it is 30 d now" in one for one in told["now"]) is (minutes == 43_200)


def test_an_expiry_that_may_be_a_request_tells_nothing_for_sure_of_the_retention(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Two groups that were deleted at the same age, by requests: the brokers keep offsets for a week."""
    log = Log()
    for group in (GROUP, "other"):
        log.generation(group, 1, Client("m-1")).commit(group, {KEY: 10}).generation(group, 2)
        log.wait(2 * MINUTE).tombstones(group, KEY, with_group=True).wait(MINUTE)
    log.generation(GROUP, 1, Client("m-2")).commit(GROUP, {KEY: 2})
    path = topics(log.write(tmp_path), (0, 100), offsets_retention_minutes=10_080)
    found = json.loads(out(capfd, str(path), "--kafka-version", "4.3.1", "--format", "json"))["explanations"]
    (told,) = [one for one in found if one["code"] == "offsets-expired" and one["group_id"] == GROUP]
    assert "The log cannot exclude: DeleteGroups, which would leave the same records." in told["not_this"]
    assert "of 2 or less; else it was a DeleteGroups request: the log does not decide." in told["verdict"]
    assert "If it was expiry, offsets.retention.minutes was raised since: it is 7 d now." in told["now"]


def test_an_unknown_group_is_an_error_of_usage(tmp_path: Path) -> None:
    path = Log().commit("billing", {KEY: 1}).write(tmp_path)
    assert run(["investigate", str(path), "--kafka-version", "3.9.2", "--group", "biling"]) == 2


@pytest.mark.parametrize(
    ("group", "reason"),
    [
        ("flink-orders", "Flink keeps offsets in its checkpoints"),
        ("flink-payments", "its records are in 48, which is not in this log"),
        ("ledger", "its id is written differently"),
    ],
)
def test_why_a_group_is_in_no_record(
    group: str, reason: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for number in {partition_for("flink-orders"), partition_for("ledger")}:
        Log().commit("billing", {KEY: 1}).write(tmp_path, number)
    partitions = ["--offsets-topic-num-partitions", "50"]
    assert run(["investigate", str(tmp_path), "--kafka-version", "3.9.2", *partitions, "--group", group]) == 2
    assert reason in capfd.readouterr().err


@pytest.mark.parametrize("count", [50, 12])
def test_where_a_group_would_be_is_told_from_where_the_others_are(
    count: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    names = [f"service-{number}" for number in range(40)]
    by_partition: dict[int, Log] = {}
    for name in names:
        by_partition.setdefault(partition_for(name, count), Log()).commit(name, {KEY: 1})
    left_out = partition_for("billing", count)
    for number, log in by_partition.items():
        if number != left_out:
            log.write(tmp_path, number)
    assert run(["investigate", str(tmp_path), "--kafka-version", "3.9.2", "--group", "billing"]) == 2
    said = "the default" if count == 50 else "as the groups in this log lie"
    assert f"of {count} offsets partitions, {said}, its records are in {left_out}" in capfd.readouterr().err


def test_groups_of_one_life_are_that_also_behind_their_removal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    names = [f"web-{number}" for number in range(100, 160)]
    log = Log()
    for name in names:
        log.generation(name, 1, Client("m", partitions=(KEY,))).commit(name, {KEY: 1}).generation(name, 2)
    log.wait(8 * 24 * HOUR)
    for name in names:
        log.tombstones(name, KEY, with_group=True)
    path, now = str(log.write(tmp_path)), ["--now-ms", str(T0 + 9 * 24 * HOUR)]
    document = json.loads(out(capfd, path, "--kafka-version", "3.9.2", *now, "--format", "json"))
    assert "one-shot-groups" in [one["code"] for one in document["explanations"]]


def test_what_is_damaged_the_cleaner_need_not_have_removed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = Log().commit("g", {KEY: 1}).commit("g", {KEY: 2}).commit("g", {KEY: 3}).write(tmp_path)
    (segment,) = path.rglob("*.log")
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    text = out(capfd, str(path), "--kafka-version", "3.9.2", *NOW, "--salvage")
    assert "removed by the cleaner, or are in a damaged batch, the longest range 1 to 1;" in text


def test_one_group_does_not_tell_how_many_partitions_there_are(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = Log().commit("payments", {KEY: 1}).write(tmp_path / "log", partition_for("payments", 10))
    publish = ["replay", str(log), "--output", str(tmp_path / "runs"), "--cluster", "c", "--kafka-version"]
    assert run([*publish, "3.9.2", "--window", "w", "--run-id", "r", *NOW]) == 0
    for path, *options in ([str(log), "--kafka-version", "3.9.2"], [str(tmp_path / "runs/c/w/r")]):
        assert run(["investigate", path, *options, "--group", "orders"]) == 2
        assert "offsets partitions" not in capfd.readouterr().err


def test_a_group_of_records_that_the_release_does_not_know_is_not_called_absent(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = Log().commit("old", {KEY: 1}).modern((3, {"groupId": "billing"}, {"epoch": 1}))
    command = ["investigate", str(log.write(tmp_path)), "--group", "billing", *NOW]
    assert run([*command, "--kafka-version", "3.3.2"]) == 2
    said = capfd.readouterr().err
    assert "knows no record of group 'billing': those in offsets partition 0" in said
    assert "no record in this log" not in said
    assert run([*command, "--kafka-version", "4.3.1"]) == 0


@pytest.mark.parametrize(("protocol", "is_told"), [("range", False), ("sticky", False), ("cooperative-sticky", True)])
def test_only_cooperative_members_keep_what_they_do_not_lose(
    protocol: str, is_told: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Members of the other assignors give up all partitions before a generation."""
    a, b = Client("a", partitions=(KEY,)), Client("b", partitions=())
    log = Log(protocol=protocol).generation("g", 1, a, b).commit("g", {KEY: 1})
    log.generation("g", 2, replace(a, partitions=()), replace(b, partitions=(KEY,))).commit("g", {KEY: 2})
    path, now = str(log.write(tmp_path)), ["--now-ms", str(T0 + MINUTE)]
    document = json.loads(out(capfd, path, "--kafka-version", "3.9.2", *now, "--format", "json"))
    codes = [one["code"] for one in document["explanations"]]
    assert ("partitions-moved-in-one-rebalance" in codes) == is_told


def test_new_partitions_that_were_read_from_the_beginning_are_no_loss(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = Log().generation("g", 1, Client("c", partitions=(("orders", 0),)))
    for value in range(30):
        log.wait(MINUTE).commit("g", {("orders", 0): 90_000 + 100 * value})
    log.generation("g", 2, Client("c", partitions=(("orders", 0), ("orders", 1))))
    for value in range(30):
        log.wait(MINUTE).commit("g", {("orders", 0): 93_000 + 100 * value, ("orders", 1): 4000 + 100 * value})
    path, now = str(log.write(tmp_path)), ["--now-ms", str(log.at)]
    document = json.loads(out(capfd, path, "--kafka-version", "3.9.2", *now, "--format", "json"))
    assert document["explanations"] == []


def test_a_transactional_commit_is_valid_from_its_marker_on(tmp_path: Path) -> None:
    log = Log().commit("g", {KEY: 1}).wait(MINUTE).commit("g", {KEY: 2}, producer_id=9)
    log.wait(MINUTE).marker(ControlType.COMMIT, 9).wait(MINUTE).commit("g", {KEY: 3}, producer_id=9)
    log.wait(MINUTE).marker(ControlType.ABORT, 9)
    group = group_histories([log.write(tmp_path)], "3.9.2")["g"]
    first, second = history_rows(group)
    assert (first["committed_offset"], first["valid_from"], first["valid_to"]) == (1, 0, 2)
    assert (second["committed_offset"], second["record_offset"], second["valid_from"]) == (2, 1, 2)
    assert second["valid_from_ms"] == T0 + 2 * MINUTE
    assert second["valid_to"] is None
    assert group.dropped == 1


def test_the_owner_of_the_partition_is_the_origin(tmp_path: Path) -> None:
    a = Client("a", partitions=(KEY,), instance_id="i-a", client_id="billing-a", host="/10.0.0.7")
    b = Client("b", partitions=(("orders", 1),))
    log = Log().generation("g", 4, a, b).wait(MINUTE).commit("g", {KEY: 8, ("orders", 1): 9})
    rows = {row["partition"]: row for row in history_rows(group_histories([log.write(tmp_path)], "3.9.2")["g"])}
    assert (rows[0]["member_id"], rows[0]["instance_id"], rows[0]["client_host"]) == ("a", "i-a", "/10.0.0.7")
    assert (rows[1]["member_id"], rows[1]["generation"]) == ("b", 4)


def lost_partition(directory: Path, committed: int) -> str:
    """A commits {0: 15, 1: committed} in a generation in which B owns partition 1, which A had left at 12."""
    a, b, other = Client("a-1", client_id="a"), Client("b-1", client_id="b"), ("orders", 1)
    log = Log().generation("g", 1, replace(a, partitions=(KEY, other)))
    for value in (10, 11, 12):
        log.wait(MINUTE).commit("g", {KEY: value, other: value})
    log.wait(MINUTE).generation("g", 2, replace(a, partitions=(KEY,)), replace(b, partitions=(other,)))
    log.wait(MINUTE).commit("g", {other: 20}).wait(MINUTE).commit("g", {KEY: 15, other: committed})
    return str(log.write(directory))


@pytest.mark.parametrize("release", ["3.9.2", "4.1.0"])
def test_a_member_that_sets_back_what_it_has_lost_is_named_and_not_the_owner(
    release: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = lost_partition(tmp_path, 12)
    document = json.loads(out(capfd, path, "--kafka-version", release, *NOW, "--group", "g", "--format", "json"))
    (one,) = (one for one in document["explanations"] if one["severity"] != "info")
    assert one["code"] == "commit-after-losing-partition"
    assert "a on /10.0.0.1 committed orders-1 of g in generation 2, in which it belongs to b" in one["verdict"]
    assert "orders-1 went back from 20 to 12 by it" in one["verdict"]
    assert [event["record_offset"] for event in one["evidence"]] == [10]
    assert [(row["partition"], row["offset"]) for row in one["restore"]] == [(1, 20)]
    assert "--before-record 0:10" in one["undo"]


def test_two_members_that_commit_at_the_same_time_trespass_not(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The Java coordinator writes both requests into one batch."""
    path = lost_partition(tmp_path, 25)
    document = json.loads(out(capfd, path, "--kafka-version", "4.1.0", *NOW, "--group", "g", "--format", "json"))
    assert [one["code"] for one in document["explanations"] if one["severity"] != "info"] == []


def test_a_producer_without_transactions_leaves_commits_of_several_members_pending(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """An idempotent producer that copies the offsets topic: the Java coordinator asks for the producer id."""
    a, b = Client("a-1", partitions=(KEY,)), Client("b-1", partitions=(("orders", 1),))
    log = Log().generation("g", 1, a, b)
    value = {"offset": 5, "leaderEpoch": 0, "metadata": "", "commitTimestamp": log.at}
    records = [(encode_key(1, {"group": "g", "topic": "orders", "partition": 0}), encode_value(1, 3, value))]
    log.data += build_batch(
        log.next_offset, records, timestamp=log.at, producer_id=77, producer_epoch=0, base_sequence=0
    )
    path = str(log.write(tmp_path))
    document = json.loads(out(capfd, path, "--kafka-version", "4.1.1", *NOW, "--group", "g", "--format", "json"))
    assert document["history"] == []


def test_records_without_time_are_no_storm(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Those of message format 0."""
    log = Log(magic=0, group_version=1, commit_version=1)
    for number in range(25):
        log.generation("g", number, Client(f"m-{number}", partitions=(KEY,))).commit("g", {KEY: number})
    path = str(log.write(tmp_path))
    document = json.loads(out(capfd, path, "--kafka-version", "1.0.1", *NOW, "--format", "json"))
    assert [one["code"] for one in document["explanations"] if one["severity"] != "info"] == []


def test_what_follows_records_without_time_has_no_pause_and_no_pace(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = Log(at=-1).commit("g", {KEY: 1}, committed_ms=T0)
    log.at, log.epoch = T0, 3
    path = log.commit("g", {KEY: 2}).write(tmp_path)
    document = json.loads(out(capfd, str(path), "--kafka-version", "3.9.2", *NOW, "--format", "json"))
    assert [one["write_pause_ms"] for one in document["coordinators"]] == [0]
    ((_, version),) = group_histories([path], "3.9.2")["g"].all_versions()
    assert pace_of(version) == 0


@pytest.mark.parametrize(("release", "epochs"), [("3.9.2", [0, 1, 2]), ("4.1.1", [])])
def test_epochs_of_producers_are_kept_where_they_tell_something(
    release: str, epochs: list[int], tmp_path: Path
) -> None:
    log = Log()
    for epoch in range(3):
        log.wait(MINUTE).commit("g", {KEY: epoch}, producer_id=7, producer_epoch=epoch)
        log.marker(ControlType.COMMIT, 7, producer_epoch=epoch)
    producers = group_histories([log.write(tmp_path)], release)["g"].producers
    assert {one: [epoch for epoch, _ in noted] for one, noted in producers.items()} == {7: epochs}


def test_leader_changes_and_removed_ranges_are_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = Log().commit("g", {KEY: 1}).skip(30).wait(MINUTE)
    log.epoch = 3
    log.commit("g", {KEY: 2})
    document = json.loads(out(capfd, str(log.write(tmp_path)), "--kafka-version", "3.9.2", *NOW, "--format", "json"))
    (change,) = document["coordinators"]
    assert (change["record_offset"], change["leader_epoch_before"], change["leader_epoch"]) == (31, 0, 3)
    assert change["write_pause_ms"] == MINUTE
    assert document["removed_ranges"] == [{"offsets_partition": 0, "first": 1, "end": 31}]


def test_of_a_group_only_its_own_coordinator_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for partition, group in enumerate(("g", "h")):
        log = Log().commit(group, {KEY: 1}).skip(30).wait(MINUTE)
        log.epoch = 3
        log.commit(group, {KEY: 2}).write(tmp_path, partition)
    text = out(capfd, str(tmp_path), "--kafka-version", "3.9.2", *NOW, "--offsets-topic-num-partitions", "2")
    assert text.count("changed to leader epoch 3") == text.count("were removed by the cleaner, the longest") == 2
    text = out(capfd, str(tmp_path), "--kafka-version", "3.9.2", *NOW, "--group", "h")
    assert "offsets partition 1 changed to leader epoch 3" in text
    assert "offsets partition 0" not in text


def test_ranges_of_known_bugs() -> None:
    bug = BUGS["KAFKA-13636"]
    fits = {
        text: bug.fits(Release.parse(text))
        for text in ("2.3.1", "2.4", "2.8.1", "2.8.2", "3.0.0", "3.0.1", "3.1.0", "3.2")
    }
    assert fits == {
        "2.3.1": False,
        "2.4": True,
        "2.8.1": True,
        "2.8.2": False,
        "3.0.0": True,
        "3.0.1": False,
        "3.1.0": True,
        "3.2": False,
    }
    for one in BUGS.values():
        assert one.id == next(key for key, value in BUGS.items() if value is one)
        assert one.signature
        assert one.remedy


@pytest.mark.parametrize(
    ("is_there", "code", "said"),
    [
        (True, "offsets-deleted", "Or it was the deletion of the topic (it is there now): the log does not decide."),
        (False, "topic-deleted", "Or it was a DeleteGroups request: the log does not decide."),
    ],
)
def test_a_topic_or_its_groups_were_deleted(
    is_there: bool, code: str, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = topics(removed_together(tmp_path), *[(0, 200)] * is_there)
    rules = ["--kafka-version", "3.9.2", "--offsets-retention-ms", str(7 * DAY)]
    told = json.loads(out(capfd, str(path), *rules, "--format", "json"))["explanations"]
    found = {one["code"]: one for one in told}
    assert found[code]["verdict"].endswith(f"no offset of it is left. {said}")
    together = found["groups-lost-offsets-together"]
    ways = ["somebody deleted the groups (DeleteGroups)", "a topic that they read was deleted"]
    assert [way for way in ways if way in together["verdict"]] == ways
    assert (together["verdict"].index(ways[0]) < together["verdict"].index(ways[1])) == is_there
    assert together["verdict"].endswith(": the log does not decide.")
    assert any("--delete" in step for step in together["now"])


@pytest.mark.parametrize("lives", [False, True])
def test_no_tool_is_to_describe_a_group_that_is_gone(
    lives: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Brokers of Kafka 4 answer GROUP_ID_NOT_FOUND."""
    log = Log().generation("g", 1, Client("m")).commit("g", {KEY: 50, ("clicks", 0): 7}).wait(MINUTE).generation("g", 2)
    lost = [KEY] if lives else [KEY, ("clicks", 0)]
    log.wait(MINUTE).tombstones("g", *lost, with_group=not lives)
    found = {one["code"]: one for one in explained(log.write(tmp_path), capfd, "--since", str(T0), release="4.3.1")}
    steps = " ".join(found["offsets-deleted"]["now"])
    assert ("--group g --describe" in steps, "nothing is left of the group" in steps) == (lives, not lives)


@pytest.mark.parametrize("begins_later", [False, True])
@pytest.mark.parametrize("comes_back", [False, True])
@pytest.mark.parametrize("alone", [False, True])
def test_tombstones_whose_values_were_cleaned_away_tell_that_offsets_were_removed(
    alone: bool, comes_back: bool, begins_later: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The usual state of a log a day later."""
    log = Log() if not begins_later else Log().skip(500)
    log.commit("other", {("x", 0): 1}).skip(0 if begins_later else 500).wait(7 * DAY)
    removed_at = log.next_offset
    log.tombstones(GROUP, KEY, ("orders", 1), with_group=True).wait(2 * HOUR).commit("other", {("x", 0): 2})
    if comes_back:
        log.generation(GROUP, 1, Client("m-1")).commit(GROUP, {KEY: 10})
    path, arguments = log.write(tmp_path), ["--group", GROUP] if alone else []
    document = json.loads(out(capfd, str(path), "--kafka-version", "3.9.2", "--format", "json", *arguments))
    (told,) = [one for one in document["explanations"] if one["group_id"] == GROUP]
    assert (told["code"], told["severity"]) == ("removed-offsets-cleaned", "warning" if comes_back else "info")
    assert told["verdict"].startswith(f"2 committed offsets were removed from {GROUP} at 2026-06-04 20:26:40Z, with")
    assert "expiry, a DeleteGroups request or the deletion of the topic." in told["verdict"]
    assert ("1 partition was committed again afterwards, orders-0 first at 10" in told["verdict"]) is comes_back
    assert [event["record_offset"] for event in told["evidence"]][:3] == [removed_at + at for at in range(3)]
    if alone and not comes_back:
        assert document["verdict"].endswith("with 0 committed offsets of 2 partitions ever committed.")


@pytest.mark.parametrize("has_value", [False, True])
def test_an_act_of_which_the_log_has_the_group_is_one_that_took_the_group(
    has_value: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The cleaner keeps the newest record of the group up to its tombstone, and of each offset."""
    log = Log().generation(GROUP, 1, Client("m-1"))
    if has_value:
        log.commit(GROUP, {KEY: 5})
    log.generation(GROUP, 2).skip(20).wait(HOUR)
    log.tombstones(GROUP, *([KEY] if has_value else []), ("orders", 1), with_group=True)
    path = log.wait(HOUR).commit("other", {KEY: 2}).write(tmp_path)
    document = json.loads(out(capfd, str(path), "--kafka-version", "3.9.2", "--format", "json", "--group", GROUP))
    told = {one["code"]: one for one in document["explanations"]}
    cleaned = told["removed-offsets-cleaned"]
    assert f"1 committed offset was removed from {GROUP} at" in cleaned["verdict"]
    assert ", with the group itself. " in cleaned["verdict"]
    assert "(the cleaner has taken them, or they lay before its start)" in cleaned["verdict"]
    assert cleaned["evidence"][-1]["text"] == "tombstone of the group"
    if has_value:
        assert "went with a DeleteGroups request" in told["offsets-deleted"]["verdict"]
        causes = "by a DeleteGroups request, an OffsetDelete request, the deletion of the topic or expiry."
        assert f"They went with 1 committed offset that it has, {causes}" in cleaned["verdict"]
    else:
        assert "nor what took them: expiry, a DeleteGroups request or the deletion of the topic." in cleaned["verdict"]


@pytest.mark.parametrize("is_cleaned", [False, True])
def test_what_the_cleaner_took_may_have_been_of_a_group_that_seems_new(
    is_cleaned: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = Log().commit("other", {("x", 0): 1}).skip(500 if is_cleaned else 0).wait(10 * DAY)
    path = log.generation(GROUP, 1, Client("m-1")).commit(GROUP, {KEY: 10}).write(tmp_path)
    document = json.loads(out(capfd, str(path), "--kafka-version", "3.9.2", "--format", "json", "--group", GROUP))
    (told,) = document["explanations"]
    assert told["code"] == "group-is-new"
    assert ("as far as this log still tells" in told["verdict"]) is is_cleaned
    assert bool(told["not_this"]) is not is_cleaned


def test_tombstones_of_a_whole_log_are_none_of_the_cleaner(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The second tombstone of an offset says nothing of another value."""
    log = Log().commit(GROUP, {KEY: 10}).wait(HOUR).tombstones(GROUP, KEY).wait(HOUR).tombstones(GROUP, KEY)
    log.tombstones(GROUP, ("orders", 1)).skip(10).tombstones(GROUP, KEY)
    document = json.loads(out(capfd, str(log.write(tmp_path)), "--kafka-version", "3.9.2", "--format", "json"))
    assert "removed-offsets-cleaned" not in {one["code"] for one in document["explanations"]}


def test_an_expiry_before_an_upgrade_is_told_as_that(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = Log(group_version=1, commit_version=1).generation(GROUP, 1, Client("m-1")).commit(GROUP, {KEY: 500})
    log.wait(DAY + 3 * MINUTE).tombstones(GROUP, KEY)
    log.group_version, log.commit_version = 3, 3
    log.wait(DAY).generation(GROUP, 2, Client("m-2")).commit(GROUP, {KEY: 2})
    document = json.loads(out(capfd, str(log.write(tmp_path)), "--group", GROUP, "--format", "json"))
    told = document["explanations"][0]
    assert (told["code"], told["severity"], told["bug"]["id"]) == (
        "offsets-expired-while-active",
        "critical",
        "KIP-211",
    )
    assert "This is KIP-211 of Kafka before 2.1: committed offsets of active" in told["verdict"]
    assert not any("Next in line" in one or "upgrade to 2.1" in one for one in told["now"])


@pytest.mark.parametrize(("leader_epoch", "code"), [(0, "topic-deleted"), (7, "offsets-deleted")])
def test_what_a_request_may_have_taken_is_put_back(
    leader_epoch: int, code: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The topic may be another one, then its consumers lost nothing: the log does not decide."""
    rules = ["--kafka-version", "3.9.2", "--offsets-retention-ms", str(7 * DAY), "--format", "json"]
    told = json.loads(out(capfd, str(removed_and_back(tmp_path, leader_epoch)), *rules, "--group", "a"))["explanations"]
    (one,) = [one for one in told if one["severity"] != "info"]
    assert (one["code"], one["severity"], one["restore"][0]["offset"]) == (code, "warning", 5000)
    assert one["undo"] is not None
    assert one["now"][0].startswith("If the topic was not deleted, stop") is (code == "topic-deleted")
    assert "1 partition was read again from an earlier offset afterwards." in one["verdict"]


@pytest.mark.parametrize("reads_again", [False, True])
def test_a_topic_that_has_another_id_now_was_deleted(
    reads_again: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """One group alone had offsets of it and keeps others, as OffsetDelete would leave it: nothing is to be put back."""
    log = Log(topic_id=TOPIC_ID).generation("g", 1, Client("m")).commit("g", {KEY: 500, ("clicks", 0): 7})
    log.wait(MINUTE).generation("g", 2).wait(MINUTE).tombstones("g", KEY)
    if reads_again:
        log.topic_id = "B" * 21 + "Q"
        log.wait(MINUTE).generation("g", 3, Client("m")).wait(MINUTE).commit("g", {KEY: 20})
    found = {}
    for topic_id in (None, "B" * 21 + "Q"):
        path = topics(log.write(tmp_path / str(topic_id)), (0, 600), topic_id=topic_id)
        told = json.loads(out(capfd, str(path), "--kafka-version", "4.1.1", "--format", "json"))["explanations"]
        (found[topic_id],) = (one for one in told if one["code"] in ("offsets-deleted", "topic-deleted"))
    unknown, known = found.values()
    assert (unknown["code"], unknown["undo"] is not None) == ("offsets-deleted", True)
    assert (known["code"], known["severity"], known["undo"]) == ("topic-deleted", "info", None)
    assert "the topic has another id now, so it was deleted and made again" in known["verdict"]


@pytest.mark.parametrize(
    ("topic_id", "code"),
    [(TOPIC_ID, "tombstones-without-a-rule"), ("B" * 21 + "Q", "topic-deleted"), (None, "topic-deleted")],
)
def test_a_topic_that_has_its_id_now_was_not_deleted(
    topic_id: str | None, code: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = Log(topic_id=TOPIC_ID).generation("g", 1, Client("m-1")).commit("g", {KEY: 500})
    path = topics(log.wait(MINUTE).tombstones("g", KEY).write(tmp_path), (0, 600), topic_id=topic_id)
    told = json.loads(out(capfd, str(path), "--kafka-version", "4.1.1", "--format", "json"))["explanations"]
    assert code in {one["code"] for one in told}
    assert ("the topic has the same id now" in told[0]["verdict"]) is (topic_id == TOPIC_ID)


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize(
    ("earlier", "deleted", "code"),
    [
        (True, False, "tombstones-without-a-rule"),
        (False, False, "tombstones-without-a-rule"),
        (True, True, "topic-deleted"),
        (None, True, "topic-deleted"),
    ],
)
def test_a_topic_that_others_still_have_was_not_deleted(
    earlier: bool | None, deleted: bool, code: str, alone: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """``earlier``: the other group's newest commit is before the tombstones of this one; ``None``: there is no other
    group. ``deleted``: both lose their offsets."""
    log, other = Log().generation("g", 1, Client("m", partitions=(KEY,))), Log().generation("other", 1, Client("o"))
    for value in range(10):
        log.wait(MINUTE).commit("g", {KEY: value})
        other.wait(MINUTE)
        if earlier is not None:
            other.commit("other", {KEY: value})
    log.wait(MINUTE).tombstones("g", KEY)
    if deleted and earlier is not None:
        other.wait(MINUTE).tombstones("other", KEY)
    elif earlier is False:
        other.wait(2 * MINUTE).commit("other", {KEY: 11})
    log.write(tmp_path, 0)
    other.write(tmp_path, 1)
    group = ["--group", "g"] if alone else []
    document = json.loads(out(capfd, str(tmp_path), "--kafka-version", "3.9.2", *NOW, *group, "--format", "json"))
    found = [one for one in document["explanations"] if one["group_id"] == "g" and "tombstone" in str(one["evidence"])]
    assert [one["code"] for one in found] == [code]
    is_unsure = alone and earlier is False
    assert ("only a reading of all groups tells" in found[0]["verdict"]) == is_unsure
    assert any("cannot exclude: topic deletion" in one for one in found[0]["not_this"]) == is_unsure


@pytest.mark.parametrize(("kind", "number_of"), [(None, "generation 2"), (3, "group epoch 2"), (11, "group epoch 2")])
def test_a_group_becomes_empty_in_a_generation_or_an_epoch(
    kind: int | None, number_of: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = Log() if kind == 11 else Log().commit("g", {KEY: 5})
    log = log.generation("g", 2) if kind is None else log.modern((kind, {"groupId": "g"}, {"epoch": 2}))
    path = log.write(tmp_path)
    told = out(capfd, str(path), "--kafka-version", "4.3.1", *NOW, "--group", "g")
    assert f"  group becomes Empty, {number_of}\n" in told


@pytest.mark.parametrize("groups", [3, 20])
def test_of_many_groups_nobody_says_that_one_lost_nothing(
    groups: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """All lose their offsets at once, and those of ``z`` come back. Of the names of such a moment few are kept."""
    names = ["g", *map(str, range(groups)), "z"]
    log = Log().generation("g", 1, Client("m", partitions=(KEY,)))
    for name in names:
        log.commit(name, {KEY: 5})
    log.wait(MINUTE)
    for name in names if groups == 20 else names[:-1]:
        log.tombstones(name, KEY)
    path = log.wait(MINUTE).commit("z", {KEY: 1}).write(tmp_path)
    arguments = [str(path), "--kafka-version", "3.9.2", *NOW, "--group", "g", "--format", "json"]
    told = json.loads(out(capfd, *arguments))["explanations"]
    (found,) = (one["verdict"] for one in told if one["code"] == "tombstones-without-a-rule")
    assert "only a reading of all groups tells" in found
    assert ("lost none then" in found) is (groups == 3)


@pytest.mark.parametrize(
    ("build", "point"), [(reset_undone, "--to-offset 400"), (reset_of_assign, "--before-record 0:164")]
)
def test_a_reset_that_did_not_last_is_put_back_as_it_was_meant(
    build: Build, point: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of several values that were set over it, none is the end of a version; else it stood until the next commit."""
    path = str(build(tmp_path / "log", True))
    document = json.loads(out(capfd, path, "--kafka-version", "3.9.2", *NOW, "--group", GROUP, "--format", "json"))
    assert f" {point} --bootstrap-server " in document["explanations"][0]["undo"]


def test_a_mirror_that_catches_up_skips_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """MirrorMaker was stopped for a while: what it sets then is far ahead, as the group in the other cluster is."""
    log, keys = Log(), [("orders", number) for number in range(4)]
    for value in (*range(1000, 1300, 10), *range(900_000, 900_100, 10)):
        log.wait(MINUTE).commit("g", dict.fromkeys(keys, value), leader_epoch=-1)
    path = str(log.write(tmp_path / "log"))
    document = json.loads(out(capfd, path, "--kafka-version", "3.9.2", *NOW, "--format", "json"))
    (one,) = document["explanations"]
    assert (one["code"], "sync.group.offsets.enabled" in one["now"][0]) == ("commits-without-members", True)
    assert _rows_of_rules(path, capfd, "R72", "R73") == []


def test_all_that_a_request_set_forward_is_told_and_put_back(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """``--reset-offsets --to-latest --all-topics``: the second topic has few records, and that step is no jump."""
    log, other = Log().generation("g", 1, Client("m", ("orders", "clicks"))), ("clicks", 0)
    for value in range(0, 100, 10):
        log.wait(MINUTE).commit("g", {KEY: value, other: value})
    log.wait(1000).generation("g", 2).wait(MINUTE).commit("g", {KEY: 9090, other: 700}, leader_epoch=-1)
    log.wait(MINUTE).commit("g", {("clicks", 1): 20}, leader_epoch=-1)
    document = json.loads(out(capfd, str(log.write(tmp_path)), "--kafka-version", "3.9.2", *NOW, "--format", "json"))
    (found,) = [one for one in document["explanations"] if one["severity"] != "info"]
    assert found["code"] == "skipped-by-admin"
    assert "2 partitions were set forward at once in g, by an admin client: 9,610 records" in found["verdict"]
    assert [(one["topic"], one["offset"]) for one in found["restore"]] == [("clicks", 90), ("orders", 90)]


@pytest.mark.parametrize(
    ("back", "severities", "restored"),
    [
        (0, ("critical", "warning"), ([90], [])),
        (500, ("info", "warning"), ([], [90])),
        (90, ("info", "warning"), ([], [])),
    ],
)
def test_what_a_group_was_set_ahead_of_is_not_put_back(
    back: int,
    severities: tuple[str, str],
    restored: tuple[list[int], list[int]],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A reset to the end, and one back before anybody has read on, as ``restore apply`` undoes it: both together are to
    be undone, each once."""
    log = Log().generation("g", 1, Client("m", partitions=(KEY,)))
    for value in range(0, 100, 10):
        log.wait(MINUTE).commit("g", {KEY: value})
    log.wait(1000).generation("g", 2).wait(MINUTE).commit("g", {KEY: 9090}, leader_epoch=-1)
    log.wait(MINUTE).commit("g", {KEY: back}, leader_epoch=-1)
    told = {one["code"]: one for one in explained(log.write(tmp_path), capfd)}
    found = [told["reset-by-admin"], told["skipped-by-admin"]]
    assert tuple(one["severity"] for one in found) == severities
    assert tuple([row["offset"] for row in one["restore"]] for one in found) == restored
    assert [one["undo"] is not None for one in found] == [bool(offsets) for offsets in restored]
    assert f"{max(0, 90 - back)} records to be read again" in found[0]["verdict"]


def test_a_capture_prints_what_undoes_the_newest_act_first(tmp_path: Path) -> None:
    """A group that was reset, which is worse, and then deleted: it is to have what it had before both, in the end."""
    log = Log(at=clock_ms() - HOUR).generation("g", 1, Client("m", partitions=(KEY,)))
    for value in range(100, 400, 100):
        log.wait(MINUTE).commit("g", {KEY: value})
    log.wait(1000).generation("g", 2).wait(MINUTE).commit("g", {KEY: 0}, leader_epoch=-1)
    log.wait(MINUTE).tombstones("g", KEY, with_group=True)
    # The end of a drill's canary is none to undo.
    log.wait(MINUTE).commit(f"{PREFIX}0", {KEY: 1}).wait(MINUTE).tombstones(f"{PREFIX}0", KEY, with_group=True)
    path = str(log.write(tmp_path))
    commands = undo_commands(path, "broker-1:9092", None, profile_for_release("4.3.1"))
    assert [command.split(" --before-record ")[1].split()[0] for command in commands] == ["0:6", "0:5"]


@pytest.mark.parametrize(("sequence", "code"), [(0, "offsets-deleted"), (17, "tombstones-without-a-rule")])
def test_tombstones_of_before_a_downgrade_are_a_coordinators(
    sequence: int, code: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The Java coordinator numbers its batches from 0, the Scala one not at all; no coordinator has others."""
    log = Log().commit("g", {KEY: 500}).wait(MINUTE)
    path = log.records((Log._key("g", *KEY), None), sequence=sequence).write(tmp_path)
    codes = {one["code"] for one in explained(path, capfd)}
    assert codes & {"offsets-deleted", "tombstones-without-a-rule"} == {code}


@pytest.mark.parametrize(
    ("listed", "captured", "code"),
    [
        (["clicks"], 60, "topic-deleted"),
        (["clicks", "orders"], 60, "offsets-deleted"),
        # Before the tombstones; topics of clients that may not be described.
        (["clicks"], -60, "offsets-deleted"),
        (["__consumer_offsets"], 60, "offsets-deleted"),
    ],
)
def test_a_topic_that_is_not_listed_was_deleted(
    listed: list[str], captured: int, code: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """OffsetDelete of one topic of one group leaves the same tombstones."""
    log = Log(at=clock_ms() - HOUR).commit("g", {KEY: 500, ("clicks", 0): 7}).wait(MINUTE).tombstones("g", KEY)
    path = log.write(tmp_path)
    partitions = [{"partition": 0, "start_offset": 0, "end_offset": 600}]
    names = [{"name": name, "topic_id": None, "partitions": partitions} for name in listed]
    document = {"topics": names, "captured_at_ms": log.at + captured * MINUTE}
    (path / "topics.json").write_text(json.dumps(document))
    (found,) = (one for one in explained(path, capfd) if one["code"] in ("offsets-deleted", "topic-deleted"))
    assert (found["code"], found["undo"] is None) == (code, code == "topic-deleted")
    is_deleted = code == "topic-deleted"
    assert ("went with the deletion of its topic" in found["verdict"]) is is_deleted
    assert ("topics.json has the topic no more. Or it was an OffsetDelete request" in found["verdict"]) is is_deleted
    assert bool(undo_commands(str(path), "broker-1:9092", None, profile_for_release("4.3.1"))) is (
        code == "offsets-deleted"
    )


@pytest.mark.parametrize(
    ("leader_epoch", "end", "code", "restored"),
    [(-1, 9000, "moved-back", [300]), (0, 9000, "moved-back", []), (-1, 300, "reset-by-admin", [])],
)
def test_a_reset_to_the_beginning_and_one_to_the_end_are_no_consumer(
    leader_epoch: int, end: int, code: str, restored: list[int], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """They look like two commits of a consumer with ``assign()``, which has leader epochs. Where the end is what stood
    before, nothing is to be put back."""
    log = Log().generation("g", 1, Client("m", partitions=(KEY,)))
    for value in range(100, 400, 100):
        log.wait(MINUTE).commit("g", {KEY: value})
    log.wait(1000).generation("g", 2)
    for value in (0, end):
        log.wait(MINUTE).commit("g", {KEY: value}, leader_epoch=leader_epoch)
    (found,) = (one for one in explained(log.write(tmp_path), capfd) if one["severity"] != "info")
    assert found["code"] == code
    says = "on, while the group had no members: somebody set it, as resets"
    assert (says in found["verdict"]) is (code == "moved-back")
    assert [row["offset"] for row in found["restore"]] == restored


@pytest.mark.parametrize("members", [1, 2])
def test_a_step_back_may_be_another_members(members: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A coordinator takes commits of any partition from any member; the record names none."""
    clients = Client("m", partitions=(KEY,)), Client("n", partitions=(("orders", 1),))
    log = Log().generation("g", 1, *clients[:members])
    log.commit("g", {KEY: 5000}).wait(MINUTE).commit("g", {KEY: 5010}).wait(MINUTE).commit("g", {KEY: 3})
    (found,) = (one for one in explained(log.write(tmp_path), capfd) if one["code"] == "moved-back")
    assert any("look at those of the other members" in step for step in found["now"]) is (members == 2)


@pytest.mark.parametrize(("more", "code"), [(0, "reset-by-admin"), (10, "reset-without-effect")])
def test_a_reset_that_was_put_back_is_not_to_be_done_again(
    more: int, code: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """What ``restore apply`` writes has leader epochs, as commits of a client that never stopped; that one goes on."""
    other = ("orders", 1)
    log = Log().generation("g", 1, Client("m", partitions=(KEY, other)))
    for value in range(100, 400, 100):
        log.wait(MINUTE).commit("g", {KEY: value, other: value})
    log.wait(1000).generation("g", 2).wait(MINUTE).commit("g", {KEY: 0, other: 0}, leader_epoch=-1)
    log.wait(MINUTE).commit("g", {KEY: 300 + more, other: 300})
    (found,) = (one for one in explained(log.write(tmp_path), capfd) if one["severity"] != "info")
    assert (found["code"], found["severity"]) == (code, "warning")
    assert [row["offset"] for row in found["restore"]] == ([0, 0] if more else [])
    assert ("the same values as before were committed again" in found["verdict"]) == (not more)


@pytest.mark.parametrize(("commits", "later"), [(True, MINUTE), (False, 3 * MINUTE)])
def test_a_coordinator_that_members_found_is_no_cause(
    commits: bool, later: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The coordinator moves. Services commit to the new one, or have nothing to commit, and are stopped later."""
    log, names = Log(), [f"g-{number}" for number in range(4)]
    for name in names:
        log.generation(name, 1, Client(f"{name}-m", partitions=(KEY,))).commit(name, {KEY: 1})
    log.wait(MINUTE).epoch += 1
    log.commit("another", {KEY: 2})
    for name in names if commits else ():
        log.wait(1000).commit(name, {KEY: 2})
    log.wait(later)
    for name in names:
        log.wait(5000).generation(name, 2)
    document = json.loads(out(capfd, str(log.write(tmp_path)), "--kafka-version", "3.9.2", *NOW, "--format", "json"))
    (found,) = [one for one in document["explanations"] if one["code"] == "groups-rebalanced-together"]
    assert "the coordinators did not move, and all their members are on /10.0.0.1" in found["verdict"]


@pytest.mark.parametrize("stopped", [3, 1])
def test_a_coordinator_that_moves_afterwards_is_no_cause(
    stopped: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """``stopped`` of four services are stopped before the coordinator moves, and the others lose members by that."""
    log, names = Log(), [f"g-{number}" for number in range(4)]
    for name in names:
        log.generation(name, 1, Client(f"{name}-m", partitions=(KEY,))).commit(name, {KEY: 1})
    log.wait(MINUTE)
    for name in names[:stopped]:
        log.wait(5000).generation(name, 2)
    log.wait(10_000).epoch += 1
    for name in names[stopped:]:
        log.wait(5000).generation(name, 2)
    document = json.loads(out(capfd, str(log.write(tmp_path)), "--kafka-version", "3.9.2", *NOW, "--format", "json"))
    (found,) = [one for one in document["explanations"] if one["code"] == "groups-rebalanced-together"]
    assert ("coordinator of 1 offsets partition moved" in found["verdict"]) is (stopped == 1)


@pytest.mark.parametrize(
    ("stops", "value", "code", "rules"),
    [
        ("before", 1200, "commits-paused", []),
        ("before", 9000, "jumped-forward", ["R73"]),
        ("after", 1200, "commits-missing-at-failover", ["R73"]),
        ("never", 1200, "commits-missing-at-failover", ["R73"]),
    ],
)
def test_who_was_stopped_misses_no_commit_at_a_failover(
    stops: str, value: int, code: str, rules: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A group is stopped for an hour and a half, in which the coordinator moves, and comes back to a backlog."""
    log = Log().generation("g", 1, Client("m", partitions=(KEY,)))
    for offset in range(0, 100, 10):
        log.wait(MINUTE).commit("g", {KEY: offset})
    log = log.generation("g", 2).wait(100 * MINUTE) if stops == "before" else log.wait(100 * MINUTE)
    log.epoch += 1
    log = log.generation("g", 2) if stops == "after" else log
    log.generation("g", 3, Client("m-2", partitions=(KEY,)))
    for number in range(3):
        log.wait(1000).commit("g", {KEY: value + number})
    path = str(log.write(tmp_path))
    document = json.loads(out(capfd, path, "--kafka-version", "3.9.2", *NOW, "--format", "json"))
    (found,) = document["explanations"]
    assert found["code"] == code
    assert (found["severity"] == "info", found["restore"] == []) == (not rules, not rules)
    assert [row["rule"] for row in _rows_of_rules(path, capfd, "R72", "R73")] == rules


def test_a_group_that_flaps_makes_no_host_the_cause(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Members of four groups leave four hosts; one of them comes back and leaves again, six times."""
    log, names = Log(), [f"g-{number}" for number in range(4)]
    clients = {name: Client(f"{name}-m", partitions=(KEY,), host=f"/10.0.0.{at}") for at, name in enumerate(names)}
    for name in names:
        log.generation(name, 1, clients[name]).commit(name, {KEY: 1})
    log.wait(MINUTE)
    for name in names:
        log.wait(1000).generation(name, 2)
    for number in range(3, 13, 2):
        log.wait(1000).generation("g-3", number, clients["g-3"]).wait(1000).generation("g-3", number + 1)
    document = json.loads(out(capfd, str(log.write(tmp_path)), "--kafka-version", "3.9.2", *NOW, "--format", "json"))
    (found,) = [one for one in document["explanations"] if one["code"] == "groups-rebalanced-together"]
    assert "4 of 4 groups lost members" in found["verdict"]
    assert "the members that left are on different hosts" in found["verdict"]


def test_rules_name_a_sync_that_sets_offsets_back(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rows = _rows_of_rules(str(synced_over(tmp_path / "log", True)), capfd, "R72", "R73")
    assert {row["rule"] for row in rows} == {"R72"}
    assert all("sets its offsets again and again" in row["message"] for row in rows)


def _rows_of_rules(path: str, capfd: pytest.CaptureFixture[str], *rules: str) -> list[dict[str, str]]:
    run(["reconcile", path, "--kafka-version", "3.9.2", *NOW, "--format", "json"])
    found = json.loads(capfd.readouterr().out)
    assert {*rules} <= {*found["evaluated"]}
    return [row for row in found["findings"] if row["rule"] in rules]


def test_a_rolling_deployment_of_a_new_group_is_sound(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Partitions of a KIP-848 group are without an owner between an epoch and the assignments that it brings."""
    log, epoch, value, owned = Log(), 0, 100, dict[str, list[int]]()

    def assign() -> None:
        names = sorted(owned)
        new = {name: [number for number in range(4) if number % len(names) == at] for at, name in enumerate(names)}
        for name in names:
            kept = [number for number in owned[name] if number in new[name]]
            if kept != owned[name]:
                log.wait(200).modern(owns(name, epoch, *kept))
        for name in names:
            log.wait(200).modern(owns(name, epoch, *new[name]))
        owned.update(new)

    for name in ("a", "b", "c", "d", *(f"{old}2" for old in "abcd")):
        if name.endswith("2"):
            for _ in range(20):
                value += 10
                log.wait(MINUTE).commit(GROUP, dict.fromkeys(ORDERS, value))
            epoch += 1
            del owned[name[0]]
            log.wait(1000).modern(*leaves(name[0]), bumped(epoch))
            assign()
        epoch += 1
        owned[name] = []
        log.wait(20_000).modern(joins(name, f"/10.0.0.{epoch}"), bumped(epoch))
        assign()
    path = str(topics(log.write(tmp_path), *[(0, value)] * 4, topic_id=TOPIC_ID))
    document = json.loads(out(capfd, path, "--kafka-version", "4.3.1", "--now-ms", str(log.at), "--format", "json"))
    assert document["explanations"] == []


def test_partitions_that_were_copied_one_after_the_other_are_not_silent(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for number in range(3):
        log = Log()
        for minute in range(60 + 120 * number):
            log.wait(MINUTE)
            for name in ("g", "h"):
                log.commit(f"{name}-{number}", {KEY: minute})
        log.write(tmp_path, number)
    now = ["--now-ms", str(T0 + 600 * MINUTE)]
    document = json.loads(out(capfd, str(tmp_path), "--kafka-version", "3.9.2", *now, "--format", "json"))
    assert {one["code"] for one in document["explanations"]} == {"commits-without-members"}


@pytest.mark.parametrize("alone", [True, False])
def test_a_sweep_of_several_groups_is_no_deletion_of_their_topics(
    alone: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A retention of three hours, and groups with a topic each; who deletes groups leaves the same."""
    log, names = Log(), [f"g-{number}" for number in range(6)]
    for name in names:
        log.generation(name, 1, Client(name, partitions=((name, 0),))).commit(name, {(name, 0): 50})
        log.wait(MINUTE // 2).generation(name, 2)
    log.wait(181 * MINUTE)
    for name in names:
        log.tombstones(name, (name, 0), with_group=True).wait(2)
    path = str(log.wait(MINUTE).commit("other", {KEY: 1}).write(tmp_path))
    now = ["--now-ms", str(log.at), *(["--group", "g-2"] if alone else [])]
    document = json.loads(out(capfd, path, "--kafka-version", "3.9.2", *now, "--format", "json"))
    (found,) = [one for one in document["explanations"] if one["group_id"] == "g-2"]
    assert found["code"] == "offsets-expired"
    assert any("cannot exclude: topic deletion, DeleteGroups" in one for one in found["not_this"])


@pytest.mark.parametrize(("captured", "codes"), [(90, []), (600, ["offsets-partition-silent"])])
def test_a_log_that_ends_long_before_its_capture_is_said_to(
    captured: int, codes: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The files may have been copied before, so it is no more than a note."""
    log = Log().generation("g", 1, Client("g")).generation("h", 1, Client("h"))
    for minute in range(60):
        log.wait(MINUTE).commit("g", {KEY: minute}).commit("h", {KEY: minute})
    path = topics(log.write(tmp_path), *[(0, 59)])
    document = json.loads((path / "topics.json").read_text()) | {"captured_at_ms": T0 + captured * MINUTE}
    (path / "topics.json").write_text(json.dumps(document))
    now = ["--now-ms", str(T0 + 700 * MINUTE), "--format", "json"]
    found = json.loads(out(capfd, str(path), "--kafka-version", "3.9.2", *now))["explanations"]
    assert [(one["code"], one["severity"]) for one in found] == [(code, "info") for code in codes]


def explained(
    log: Path, capfd: pytest.CaptureFixture[str], *arguments: str, release: str = "3.9.2"
) -> list[dict[str, Any]]:
    """Explanations at the end of a log."""
    now = str(T0 + 60 * DAY)
    found: list[dict[str, Any]] = json.loads(
        out(capfd, str(log), "--kafka-version", release, "--now-ms", now, "--format", "json", *arguments)
    )["explanations"]
    return found


@pytest.mark.parametrize("of_run", [False, True])
@pytest.mark.parametrize(
    ("told_by", "start", "is_moved"),
    [(None, 0, True), ("checkpoint", 0, False), ("checkpoint", 5, True), ("topics", 0, False), ("topics", 5, True)],
)
def test_a_capture_of_a_cleaned_partition_begins_where_it_says(
    told_by: str | None, start: int, is_moved: bool, of_run: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A capture names its first segment by the first batch that the cleaner has left."""
    log = Log(next_offset=7, base=7).commit(GROUP, {KEY: 1})
    path = str(log.write(tmp_path / "log"))
    if told_by == "checkpoint":
        (tmp_path / "log/log-start-offset-checkpoint").write_text(f"0\n1\n__consumer_offsets 0 {start}\n")
    if told_by == "topics":
        partition = {"partition": 0, "start_offset": start, "end_offset": 8}
        listed = [
            {"name": name, "topic_id": None, "partitions": [partition]} for name in ("__consumer_offsets", "orders")
        ]
        (tmp_path / "log/topics.json").write_text(json.dumps({"topics": listed}))
    if of_run:
        output = ["--output", str(tmp_path / "runs"), "--cluster", "c", "--format", "json"]
        assert run(["replay", path, "--kafka-version", "4.3.1", "--now-ms", str(log.at), *output]) == 0
        path = json.loads(capfd.readouterr().out)["run"]
    document = json.loads(out(capfd, path, "--kafka-version", "4.3.1", "--format", "json"))
    found = [one for one in document["explanations"] if one["code"] == "log-start-moved"]
    assert bool(found) is is_moved
    # A run does not keep a checkpoint that says what the first segment says.
    is_unsure = told_by is None or (told_by == "checkpoint" and of_run)
    assert all(("Or only this copy lacks its first segments" in one["verdict"]) is is_unsure for one in found)


def test_losses_at_two_times_are_told_apart(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """One by age, and a day later two at another age: each has its cause, its point, and its place in time."""
    log = Log().commit("a", {KEY: 5}).wait(7 * DAY + MINUTE).tombstones("a", KEY, with_group=True)
    for name in "abcd":
        log.wait(DAY if name == "a" else 0).commit(name, {KEY: 50, ("pay", 0): 3})
    log.wait(2 * HOUR)
    for name in "abcd":
        log.tombstones(name, KEY, ("pay", 0), with_group=True)
    path = log.write(tmp_path)
    newer, older = (one for one in explained(path, capfd, release="4.1.1") if one["group_id"] == "a")
    assert older["verdict"].startswith("1 committed offset of a")
    assert newer["verdict"].startswith("2 committed offsets of a")
    assert ["default retention" in one["verdict"] for one in (older, newer)] == [True, False]
    assert "It was no person and no client" not in str(newer["not_this"])
    assert older["undo"] is None  # What went later belongs to the newer one alone.
    assert " 0:11 " in newer["undo"]
    later = explained(path, capfd, "--since", str(T0 + 8 * DAY), release="4.1.1")
    assert [one for one in later if one["group_id"] == "a"] == [newer]


def steps(log: Log, first: int) -> Log:
    for value in range(first, first + 60, 10):
        log.wait(MINUTE).commit("g", {KEY: value})
    return log


def test_what_began_before_a_time_and_went_on_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Two jumps ten days apart are two; of a client that commits in turn with another one the newest turn counts."""
    log = steps(steps(Log().generation("g", 1, Client("m", partitions=(KEY,))), 0), 1_000_000).wait(10 * DAY)
    path = steps(steps(log, 1_000_100), 9_000_000).write(tmp_path / "jumps")
    found = explained(path, capfd)
    assert [(one["code"], one["verdict"][:29]) for one in found] == [
        ("jumped-forward", "1 partition of g jumped forwa")
    ] * 2
    assert [one["restore"][0]["offset"] for one in found] == [1_000_150, 50]
    since = "--since", str(T0 + 5 * DAY)
    assert explained(path, capfd, *since) == found[:1]
    log = Log()
    for value in range(100, 2000, 100):
        log.wait(8 * HOUR).commit("g", {KEY: value}).wait(MINUTE).commit("g", {KEY: 50_000 + value})
    path = log.write(tmp_path / "turns")
    assert "two-writers" in [one["code"] for one in explained(path, capfd, *since)]


def test_csv_has_each_offset_key_once_and_is_read_back(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Two groups, each reset twice."""
    log = Log()
    for name, value in ("a", 100), ("b", 9000):
        for number, put in enumerate((0, 1)):
            log.generation(name, 2 * number + 1, Client("m", partitions=(KEY,)))
            for step in range(5):
                log.wait(MINUTE).commit(name, {KEY: value + 5000 * number + 10 * step})
            log.wait(MINUTE).generation(name, 2 * number + 2).wait(MINUTE).commit(name, {KEY: put}, leader_epoch=-1)
    path = str(log.write(tmp_path / "log"))
    csv = [path, "--kafka-version", "3.9.2", *NOW, "--format", "csv"]
    assert out(capfd, *csv, "--group", "a") == "orders,0,5140\n"
    both = out(capfd, *csv)
    assert both == "b,orders,0,14040\na,orders,0,5140\n"
    (tmp_path / "offsets.csv").write_text(both)
    plan = ["restore", "plan", "--from-file", str(tmp_path / "offsets.csv"), "--against", path, "--format", "csv"]
    assert run(plan) == 0
    assert sorted(capfd.readouterr().out.split()) == sorted(both.split())


def test_an_undo_holds_all_values_or_is_none(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A job that sets two partitions back each day, at different times: no record is behind the newest own values of
    both, and these are not one number."""
    other = ("orders", 1)
    log, value = Log(), 0
    for day in range(4):
        log.generation("g", 2 * day + 1, Client("m", partitions=(KEY, other)))
        for _ in range(5):
            value += 100
            log.wait(MINUTE).commit("g", {KEY: value, other: value + 7})
        log.wait(MINUTE).generation("g", 2 * day + 2)
        log.wait(MINUTE).commit("g", {KEY: value - 450, other: value - 443}, leader_epoch=-1).wait(5 * HOUR)
    log.generation("g", 9, Client("m", partitions=(KEY, other)))
    for left in range(5):
        log.wait(MINUTE).commit("g", {KEY: 1600 + left})
    path = log.wait(MINUTE).generation("g", 10).wait(MINUTE).commit("g", {KEY: 1000}, leader_epoch=-1).write(tmp_path)
    (found,) = (one for one in explained(path, capfd) if one["code"] == "offsets-set-again-and-again")
    assert [row["offset"] for row in found["restore"]] == [1604, 2007]
    assert found["undo"] is None


@pytest.mark.parametrize("overlap", [False, True])
def test_the_point_of_transactions_is_behind_their_end_markers(overlap: bool, tmp_path: Path) -> None:
    """Two producers: where the second one's transaction is open while the first one's value is set back, no point has
    the values of both."""
    other = ("orders", 1)
    log = Log()
    for value in (10, 20):
        for producer, key in enumerate((KEY, other)):
            log.wait(MINUTE).commit("g", {key: value}, producer_id=producer).marker(ControlType.COMMIT, producer)
    if overlap:
        log.wait(MINUTE).commit("g", {other: 30}, producer_id=1).tombstones("g", KEY)
        log.marker(ControlType.COMMIT, 1).tombstones("g", other)
    else:
        log.wait(MINUTE).tombstones("g", KEY, other)
    group = group_histories([log.write(tmp_path)], "3.9.2")["g"]
    wanted = {OffsetKey("g", *KEY): 20, OffsetKey("g", *other): 30 if overlap else 20}
    one = Explanation("code", Severity.INFO, "", restore=wanted)
    find_points(group, one)
    assert one.held_before == (None if overlap else 8)
    assert [*one.ends.values()] == ([9, 11] if overlap else [8, 9])


def test_a_step_back_is_put_back_until_the_group_has_been_further(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """One partition goes back on the first day and is read on from there, the other one a day later, and stands."""
    other = ("orders", 1)
    log = Log().generation("g", 1, Client("m", partitions=(KEY, other)))
    one = two = 10_000
    for minute in range(70):
        one, two = one + (-1500 if minute == 30 else 100), two + (-5000 if minute == 65 else 100)
        log.wait(DAY if minute == 60 else MINUTE).commit("g", {KEY: one, other: two})
    path = log.write(tmp_path)
    later, first = (one for one in explained(path, capfd) if one["code"] == "moved-back")
    assert later["restore"] == [{"topic": "orders", "partition": 1, "offset": 16_500}]
    assert [any("offsets.csv" in line for line in one["now"]) for one in (later, first)] == [True, False]
    assert (first["restore"], first["undo"]) == ([], None)


def test_steps_back_around_a_clock_that_stepped_back_are_in_log_order(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = Log().generation("g", 1, Client("m", partitions=(KEY,)))
    for value in (12_800, 12_900, 13_000, 11_000, 11_100):
        log.wait(MINUTE).commit("g", {KEY: value})
    log.epoch += 1
    log.wait(-20 * MINUTE)
    for value in (11_600, 10_600, 10_700):
        log.wait(MINUTE).commit("g", {KEY: value})
    (found,) = (one for one in explained(log.write(tmp_path), capfd) if one["code"] == "moved-back")
    assert [row["offset"] for row in found["restore"]] == [13_000]
    assert [event["record_offset"] for event in found["evidence"]] == [4, 7]


def test_times_that_no_calendar_has_are_numbers(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = Log().commit("g", {KEY: 100})
    log.at = 2**62
    path = str(log.tombstones("g", KEY).write(tmp_path))
    assert f"{2**62} ms" in out(capfd, path, "--kafka-version", "3.9.2")


def test_a_static_member_that_comes_back_from_another_network_is_of_no_rebalance(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A KIP-848 group gets no new epoch by that."""

    def is_there(name: str, host: str) -> list[tuple[int, dict[str, Any], dict[str, Any] | None]]:
        kind, key, value = modern_member("g", name)
        assigned = {"state": 0, "assignedPartitions": [], "partitionsPendingRevocation": []}
        return [
            (kind, key, value | {"clientHost": host, "instanceId": f"i-{name[:1]}"}),
            (8, key, {"memberEpoch": 2, "previousMemberEpoch": 1} | assigned),
        ]

    epoch: list[tuple[int, dict[str, Any], dict[str, Any] | None]] = [
        (3, {"groupId": "g"}, {"epoch": 2}),
        (6, {"groupId": "g"}, {"assignmentEpoch": 2}),
    ]
    log = Log().modern(*is_there("a1", "/10.0.0.1"), *is_there("b1", "/10.0.0.2"), *epoch).commit("g", {KEY: 1})
    gone = {"groupId": "g", "memberId": "b1"}
    log.wait(MINUTE).modern((8, gone, None), (5, gone, None), *is_there("b2", "/192.168.0.2"))
    path = log.wait(2 * HOUR).commit("g", {KEY: 2}).write(tmp_path)
    assert explained(path, capfd, "--group", "g", release="4.1.1") == []


@pytest.mark.parametrize("kind", ["open transaction", "member"])
def test_a_group_in_two_partitions_may_have_nothing_that_tells_a_place(
    kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for number in range(2):
        log = Log().commit("g", {KEY: 5}, producer_id=7) if kind != "member" else Log().modern(modern_member("g", "m"))
        log.write(tmp_path, number)
    assert explained(tmp_path, capfd, release="4.1.1") == []


def test_a_retention_is_told_where_nothing_else_may_have_been(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Offsets of four groups go at an age of two hours, by DeleteGroups or by age."""
    log = Log()
    for name in "abcd":
        log.commit(name, {KEY: 5, ("pay", 0): 3})
    log.wait(2 * HOUR)
    for name in "abcd":
        log.tombstones(name, KEY, ("pay", 0), with_group=True)
    path = str(log.wait(2 * DAY).commit("x", {KEY: 1}).write(tmp_path))
    document = json.loads(out(capfd, path, "--kafka-version", "4.1.1", "--format", "json"))
    assert "DeleteGroups" in str(document["explanations"])
    assert document["offsets_retention_at_most_ms"] is None


@pytest.mark.parametrize(("captured_before_end", "codes"), [(10, []), (0, ["committed-beyond-log-end"])])
def test_a_log_end_that_was_noted_before_a_commit_says_nothing_of_it(
    captured_before_end: int, codes: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = Log().generation("g", 1, Client("m", partitions=(KEY,)))
    for value in range(100, 400, 10):
        log.wait(MINUTE).commit("g", {KEY: value})
    path = topics(log.write(tmp_path), (0, 300))
    document = json.loads((path / "topics.json").read_text())
    document["captured_at_ms"] = log.at - captured_before_end * MINUTE
    (path / "topics.json").write_text(json.dumps(document))
    assert [one["code"] for one in explained(path, capfd, "--group", "g")] == codes


@pytest.mark.parametrize("ids", [(None, None), (TOPIC_ID, "AAAAAAAAAAAAAAAAAAAAAw")])
@pytest.mark.parametrize(
    ("deleted", "value", "code", "restore"),
    [
        (True, 400, "topic-recreated", 7),
        (False, 400, "committed-beyond-log-end", 300),
        (True, 310, "committed-beyond-log-end", 300),
    ],
)
def test_what_is_carried_over_into_a_new_topic_goes_to_its_start(
    ids: tuple[str | None, str | None],
    deleted: bool,
    value: int,
    code: str,
    restore: int,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A consumer outlives its topic, and commits where it was for the new one of the name, which has less."""
    log = Log(topic_id=ids[0]).generation("g", 1, Client("m", ("orders", "clicks")))
    for offset in range(100, 400, 10):
        log.wait(MINUTE).commit("g", {KEY: offset})
    if deleted:
        log.wait(MINUTE).tombstones("g", KEY).generation("g", 2, Client("m", ("orders", "clicks")))
        log.topic_id = ids[1]
    path = topics(log.wait(MINUTE).commit("g", {KEY: value}).write(tmp_path), (7, 300), topic_id=log.topic_id)
    (found,) = [one for one in explained(path, capfd, release="4.1.0") if one["severity"] == "critical"]
    assert (found["code"], [one["offset"] for one in found["restore"]]) == (code, [restore])
    assert ("--to-offset 7 " in found["undo"], "trim" in found["undo"]) == (restore == 7, restore == 300)


def test_a_member_that_leaves_takes_no_offsets(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """An OffsetDelete of all that a group has of a topic, while a member of another group leaves: its tombstones are
    no second group that lost the topic."""
    kind, member, value = modern_member("other", "m")
    log = Log().generation("g", 1, Client("a", ("orders", "clicks"))).commit("g", {KEY: 5, ("clicks", 0): 7})
    log.modern((kind, member, value), (3, {"groupId": "other"}, {"epoch": 1})).wait(MINUTE).generation("g", 2)
    log.wait(MINUTE).tombstones("g", KEY)
    log.modern((8, member, None), (7, member, None), (kind, member, None), (3, {"groupId": "other"}, {"epoch": 2}))
    path = log.wait(2 * MINUTE).commit("third", {("clicks", 0): 3}).write(tmp_path)
    for arguments in ([], ["--group", "g"]):
        told = explained(path, capfd, *arguments, release="4.1.0")
        (found,) = [one for one in told if one["code"] in ("offsets-deleted", "topic-deleted")]
        assert found["code"] == "offsets-deleted"
        assert "an OffsetDelete request" in found["verdict"]


@pytest.mark.parametrize("grows", [True, False])
def test_a_streams_group_whose_topics_grew_does_not_fail_at_a_record(
    grows: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """``orders`` gets partitions, its repartition topic does not: each member ends itself as soon as it has joined."""
    group, waits = {"groupId": "s"}, ("orders", 0)

    def epoch(number: int) -> tuple[int, Json, Json]:
        return 17, group, {"epoch": number, "metadataHash": number, "validatedTopologyEpoch": 0}

    def joins(number: int) -> Log:
        value: Json = {
            "instanceId": None,
            "rackId": None,
            "clientId": "c",
            "clientHost": "/10.0.0.1",
            "rebalanceTimeoutMs": 300_000,
            "topologyEpoch": 0,
            "processId": "p",
            "userEndpoint": None,
            "clientTags": [],
        }
        return log.modern((19, group | {"memberId": f"m-{number}"}, value), epoch(number))

    log = Log()
    joins(1)
    for offset in range(0, 100, 10):
        log.wait(MINUTE).commit("s", {waits: offset, ("orders", 1): 50})
    if grows:
        log.wait(1000).modern(epoch(2))
    joined = 1
    for number in range(3, 20, 2):
        left = group | {"memberId": f"m-{joined}"}
        log.wait(MINUTE if number > 3 else 1000)
        log.modern((22, left, None), (21, left, None), (19, left, None), epoch(number))
        joined = number + 1
        joins(joined)
    path = topics(log.write(tmp_path), (0, 300), (0, 50))
    found = {one["code"]: one for one in explained(path, capfd, "--group", "s", release="4.3.1")}
    told = found["restarts-without-progress"]
    assert "orders-0 stays at 90 (record " in told["verdict"]
    assert ("Its topics or their partitions changed at" in told["verdict"]) is grows
    assert ("kafka-streams-groups.sh --bootstrap-server HOST:9092 --group s --describe" in str(told["now"])) is grows
    assert ("--shift-by 1 --topic orders:0 " in str(told["now"])) is not grows


def test_a_bug_that_no_release_has_fixed_is_told_so() -> None:
    assert BUGS["KAFKA-21117"].told.endswith("over a classic one stop the load; not fixed yet")
    assert BUGS["KAFKA-12890"].told.endswith("for ever; fixed in 2.8.1, 3.0.0")


def test_a_load_at_risk_has_the_time_of_its_record(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The record is none that changes the group; the log goes on for a minute after it."""
    found = explained(handover(tmp_path, True), capfd, release="4.0.1")
    ((event,),) = [one["evidence"] for one in found if one["code"] == "load-at-risk"]
    assert (event["record_offset"], event["timestamp_ms"]) == (6, T0 + 2 * MINUTE)


@pytest.mark.parametrize("releases", [True, False])
def test_a_member_that_waits_for_a_partition_was_given_one(
    releases: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The second member has nothing yet: the target assignment gives it one of two, which the first one has still."""
    log = Log().modern(joins("a", "/10.0.0.1"), bumped(1), owns("a", 1, 0, 1))
    log.wait(MINUTE).commit(GROUP, {KEY: 5, ("orders", 1): 5})
    log.wait(MINUTE).modern(joins("b", "/10.0.0.2"), bumped(2))
    log.modern((6, {"groupId": GROUP}, {"assignmentEpoch": 2}), owns("b", 2))
    if releases:
        # It keeps both: that is what the assignor has decided.
        log.modern(owns("a", 2, 0, 1))
    path = topics(log.write(tmp_path), (0, 10), (0, 10), topic_id=TOPIC_ID)
    for arguments in ([], ["--group", GROUP]):
        codes = [one["code"] for one in explained(path, capfd, *arguments, release="4.3.1")]
        assert ("members-without-partitions" in codes) is releases


@pytest.mark.parametrize("kind", ["share", "streams", "consumer"])
def test_static_members_are_no_advice_for_groups_that_have_none(
    kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    group, log = {"groupId": GROUP}, Log()
    metadata, epoch, current = {"share": (10, 11, 14), "streams": (19, 17, 22), "consumer": (5, 3, 8)}[kind]
    joined: dict[str, Any] = {"rackId": None, "clientId": "c", "clientHost": "/10.0.0.1"}
    if kind == "streams":
        joined |= {"topologyEpoch": 0, "processId": "p", "userEndpoint": None, "clientTags": []}
    else:
        joined["subscribedTopicNames"] = ["orders"]
    if kind != "share":
        joined |= {"instanceId": None, "rebalanceTimeoutMs": 45_000}
    if kind == "consumer":
        joined |= {"serverAssignor": None, "subscribedTopicRegex": "", "classicMemberMetadata": None}
    for number in range(1, 60):
        member = {"groupId": GROUP, "memberId": f"m-{number}"}
        log.modern((metadata, member, joined), (epoch, group, {"epoch": number, "metadataHash": 1})).wait(MINUTE // 2)
        log.modern((current, member, None), (metadata, member, None))
    found = {one["code"]: one for one in explained(log.write(tmp_path), capfd, release="4.3.1")}
    assert ("group.instance.id" in str(found["rebalance-storm"]["now"])) is (kind == "consumer")
    assert ("without a commit" in found["rebalance-storm"]["verdict"]) is (kind != "share")


@pytest.mark.parametrize(
    ("release", "group_version", "ages_from_commit"), [("2.4.1", 3, True), ("2.8.2", 1, True), ("2.8.2", 3, False)]
)
def test_offsets_of_an_empty_group_stay_as_long_as_the_sweep_of_the_release_leaves_them(
    release: str, group_version: int, ages_from_commit: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """2.3.0 to 2.6.0 do not read the time of the state in version 3 (KAFKA-10401), and version 1 has none."""
    log = Log(group_version=group_version).generation("g", 1, Client("m", partitions=(KEY,))).commit("g", {KEY: 5})
    path = log.wait(3 * DAY).generation("g", 2).write(tmp_path)
    (found,) = [one for one in explained(path, capfd, release=release) if one["code"] == "group-is-empty"]
    until = T0 + 7 * DAY if ages_from_commit else T0 + 10 * DAY
    assert f"stays until about {moment(until)};" in found["verdict"]
    assert ("commit the offsets again" in str(found["now"])) is ages_from_commit


@pytest.mark.parametrize(
    ("release", "by"),
    [
        ("4.0.2", "a sweep, which in this release"),
        ("4.3.1", "a DeleteGroups request: "),
        ("4.4.0", "a DeleteGroups request: "),
    ],
)
def test_a_share_group_that_was_deleted_is_none_any_more(
    release: str, by: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    group, member = {"groupId": "s"}, {"groupId": "s", "memberId": "A"}
    joined = {"rackId": None, "clientId": "c", "clientHost": "/10.0.0.1", "subscribedTopicNames": ["orders"]}
    log = Log().modern((10, member, joined), (11, group, {"epoch": 1, "metadataHash": 1})).wait(MINUTE)
    log.modern((14, member, None), (10, member, None), (11, group, {"epoch": 2, "metadataHash": 0})).wait(MINUTE)
    path = log.modern((12, group, None), (11, group, None)).write(tmp_path)
    (found,) = [one for one in explained(path, capfd, release=release) if one["code"] == "share-group"]
    assert "s was a share group (KIP-932), and was deleted at " in found["verdict"]
    assert f" by {by}" in found["verdict"]
    assert [one["record_offset"] for one in found["evidence"]] == [6]
    assert "--describe" not in str(found["now"])


def test_a_hanging_transaction_of_several_groups_is_aborted_where_it_began(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """``kafka-transactions abort`` takes the first record of the transaction, of whichever group it is."""
    log = Log().commit("other", {KEY: 1}, producer_id=4711).commit(GROUP, {KEY: 2}, producer_id=4711)
    log.wait(MINUTE).commit("other", {("orders", 1): 3}, producer_id=4711).wait(HOUR).commit("third", {KEY: 4})
    path = str(log.write(tmp_path))

    def told(*arguments: str) -> Json:
        printed = out(capfd, path, "--kafka-version", "2.3.1", "--format", "json", *arguments)
        (one,) = [one for one in json.loads(printed)["explanations"] if one["code"] == "hanging-transaction"]
        return one

    assert told("--group", GROUP) == told()
    assert "open since record 0 " in told()["verdict"]
    assert "1 h old: it holds 3 committed offsets of billing, other" in told()["verdict"]
    assert told()["now"][0].endswith("--partition 0 --start-offset 0")
    assert [one["record_offset"] for one in told()["evidence"]] == [2]


def test_a_transaction_that_may_still_end_is_told_of_the_group_that_was_asked_for(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = Log().commit(GROUP, {KEY: 2}, producer_id=4711).wait(MINUTE).commit("third", {KEY: 4})
    path = str(log.write(tmp_path))

    def told(*arguments: str) -> list[Json]:
        document = json.loads(out(capfd, path, "--kafka-version", "4.3.1", "--format", "json", *arguments))
        return [one for one in document["explanations"] if one["code"].endswith("-transaction")]

    (one,) = told("--group", GROUP)
    assert (one["code"], one["severity"]) == ("open-transaction", "info")
    assert "open since record 0 of offsets partition 0, and its newest record is 1 min old" in one["verdict"]
    assert "1 pending offset of billing" in one["verdict"]
    assert told("--group", "third") == told() == []


@pytest.mark.parametrize("is_captured", [True, False])
def test_the_time_of_the_capture_is_now_also_of_a_log_that_is_quiet_at_its_end(
    is_captured: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = Log().commit(GROUP, {KEY: 2}, producer_id=4711)
    directory = topics(log.write(tmp_path), (0, 10))
    document = json.loads((directory / "topics.json").read_text())
    if is_captured:
        (directory / "topics.json").write_text(json.dumps(document | {"captured_at_ms": T0 + HOUR}))
    document = json.loads(out(capfd, str(directory), "--kafka-version", "2.3.1", "--format", "json"))
    assert ("hanging-transaction" in {one["code"] for one in document["explanations"]}) == is_captured


def left_behind(kind: str) -> Log:
    """A group of one of two types that was left three days after its last commit."""
    if kind == "consumer":
        log = Log().modern(joins("a", "/10.0.0.1"), bumped(1), owns("a", 1, 0)).commit(GROUP, {KEY: 5})
        log.wait(3 * DAY).modern(*leaves("a"), bumped(2))
    else:
        log = Log().generation(GROUP, 1, Client("m")).commit(GROUP, {KEY: 5}).wait(3 * DAY).generation(GROUP, 2)
    return log.wait(HOUR).commit("other", {KEY: 1})


@pytest.mark.parametrize(("kind", "until"), [("consumer", "2026-06-04 20:26:40Z"), ("classic", "2026-06-07 20:26:40Z")])
def test_offsets_of_a_group_without_members_age_as_its_type_has_it(
    kind: str, until: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Those of a classic group age from when it became empty, also a commit of later; others from their commits."""
    path = left_behind(kind).write(tmp_path)
    (one,) = explained(path, capfd, "--group", GROUP, release="4.3.1")
    assert one["code"] == "group-is-empty"
    assert f"Its 1 committed offset stays until about {until};" in one["verdict"]
    assert ("that starts the time anew" in one["now"][0]) is (kind == "consumer")
    assert ("does not start the time anew" in one["now"][0]) is (kind == "classic")


def test_a_commit_from_outside_does_not_keep_the_offsets_of_a_classic_group(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = Log().generation(GROUP, 1, Client("m")).commit(GROUP, {KEY: 5}).wait(MINUTE).generation(GROUP, 2)
    for number in range(100):
        log.wait(HOUR).commit(GROUP, {KEY: 6 + number})
    path = log.write(tmp_path / "goes-on")
    (goes_on,) = explained(path, capfd, "--group", GROUP)
    assert goes_on["code"] == "commits-without-members"
    assert goes_on["verdict"].endswith(". Its 1 committed offset stays until about 2026-06-04 20:27:40Z.")
    path = log.wait(40 * HOUR).commit("other", {KEY: 1}).write(tmp_path / "ended")
    (ended,) = explained(path, capfd, "--group", GROUP)
    assert ended["code"] == "commits-from-outside-stopped"
    assert ended["verdict"].endswith(". Its 1 committed offset stays until about 2026-06-04 20:27:40Z.")


@pytest.mark.parametrize(("release", "expires"), [("2.3.1", False), ("3.9.2", True)])
def test_offsets_of_a_topic_that_members_left_stay_where_the_release_keeps_them(
    release: str, expires: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Releases before 2.4 expire none of a live group, and have no request that removes some (KIP-496)."""
    pay = ("pay", 0)
    log = Log().generation(GROUP, 1, Client("m", topics=("orders", "pay"), partitions=(KEY, pay)))
    log.commit(GROUP, {KEY: 5, pay: 4}).wait(MINUTE).generation(GROUP, 2, Client("m", partitions=(KEY,)))
    path = log.wait(MINUTE).commit(GROUP, {KEY: 6}).write(tmp_path)
    (one,) = explained(path, capfd, "--group", GROUP, release=release)
    assert one["code"] == "topic-unsubscribed"
    stays = "until about 2026-06-04 20:26:40Z." if expires else "as long as the group has members."
    assert one["verdict"].endswith(f"The 1 committed offset stays {stays}")
    assert ("--delete-offsets" in str(one["now"])) is expires


@pytest.mark.parametrize("is_new", [True, False])
def test_a_member_whose_newest_record_is_behind_the_epoch_is_there(
    is_new: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of a member that told of another host the cleaner has left that record; such a change brings no epoch."""
    epoch = {"groupId": "g"}
    log = Log() if is_new else Log().skip(1)
    log.modern((3, epoch, {"epoch": 2})).commit("g", {KEY: 5}).wait(MINUTE).modern(modern_member("g", "m"))
    if is_new:
        log.modern((3, epoch, {"epoch": 3}))
    path = log.write(tmp_path)
    document = json.loads(out(capfd, str(path), "--kafka-version", "4.3.1", *NOW, "--group", "g", "--format", "json"))
    assert "group-is-empty" not in [one["code"] for one in document["explanations"]]
    assert "1 member: m on /10.0.0.1" in document["verdict"]


@pytest.mark.parametrize("narrowed", [["--symptom", "lz4"], ["--since", str(T0 + 30 * DAY)]])
def test_what_nobody_asked_for_is_not_said_to_be_nothing(
    narrowed: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = str(RESET.build(tmp_path / "log", True))
    arguments = (path, "--kafka-version", "3.9.2", *NOW, *narrowed)
    for group in ([], ["--group", GROUP]):
        first = out(capfd, *arguments, *group).splitlines()[0]
        assert first.startswith(
            "Nothing that was asked for (1 explanation of more than a note is left out) speaks against"
        )
    twin = str(RESET.build(tmp_path / "twin", False))
    assert out(capfd, twin, *arguments[1:]).startswith("Nothing in this log speaks against billing: ")


@pytest.mark.parametrize("name", ["{}fbcde99-8b52-4b4a-97b7-50923ceb3ffd", "{}fabc1d2e4f5", "worker-{}", "console{}"])
def test_a_client_id_by_chance_is_no_other_application(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A third member comes and goes, as an autoscaler lets it; of another name it is a guest."""
    is_guest = name == "console{}"
    names = [name.format(letter) for letter in ("1ab", "2bc")] if not is_guest else ["billing-1", "billing-2"]
    members = [Client(f"m-{at}", client_id=one, partitions=(("orders", at),)) for at, one in enumerate(names)]
    third = Client("m-2", client_id=name.format("3cd"), partitions=(("orders", 2),))
    log = Log()
    for number, there in enumerate((members, [*members, third], members), 1):
        log.generation(GROUP, number, *there)
        for at in range(30):
            log.wait(MINUTE).commit(GROUP, {("orders", one): 300 * number + 10 * at for one in range(len(there))})
    found = {one["code"]: one for one in explained(log.write(tmp_path), capfd, "--group", GROUP)}
    assert ("guest-in-group" in found) is is_guest
    if is_guest:
        guest = found["guest-in-group"]
        # Nothing tells where it began.
        assert "What it read the group's application did not." in guest["verdict"]
        assert "--from-file" not in str(guest["now"])


def test_an_id_that_is_used_again_is_shown_by_a_commit_without_members(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = Log(group_version=1, commit_version=1).generation("g", 1, Client("m")).commit("g", {KEY: 5}).wait(MINUTE)
    log.generation("g", 2).wait(2 * DAY).tombstones("g", KEY, with_group=True).wait(MINUTE)
    log.generation("g", 1, Client("m")).commit("g", {("a", 0): 1}).wait(MINUTE).generation("g", 2).wait(MINUTE)
    plain = log.next_offset
    path = log.commit("g", {("b", 0): 2}).write(tmp_path)
    found = {one["code"]: one for one in explained(path, capfd, "--group", "g", release="0.10.1.1")}
    assert [one["record_offset"] for one in found["group-id-reused"]["evidence"]] == [4, plain]


def test_groups_that_begin_with_the_log_may_lose_something_later(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = Log()
    for group in "abcd":
        log.wait(MINUTE).generation(group, 1, Client(f"m-{group}")).wait(MINUTE).commit(group, {KEY: 500_000})
    log.wait(HOUR).generation("a", 2).wait(MINUTE).tombstones("a", KEY, with_group=True)
    path = log.wait(HOUR).commit("b", {KEY: 600_000}).write(tmp_path)
    (one,) = [one for one in explained(path, capfd) if one["code"] == "offsets-topic-anew"]
    assert "there is no tombstone" not in str(one["not_this"])
    assert "--dry-run" in str(one["now"])


@pytest.mark.parametrize("is_cleaned", [False, True])
def test_a_group_without_commits_may_have_lost_them(
    is_cleaned: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of a log from which records are gone nobody can tell; a tombstone is of some that it had."""
    log = Log().skip(100) if is_cleaned else Log()
    log.generation(GROUP, 57 if is_cleaned else 1, Client("m", partitions=(KEY,))).wait(3 * HOUR)
    (one,) = explained(log.commit("other", {KEY: 1}).write(tmp_path / "none"), capfd, "--group", GROUP)
    assert one["code"] == "never-committed"
    assert ("ever committed, as far as this log still tells:" in one["verdict"]) is is_cleaned
    assert bool(one["not_this"]) is not is_cleaned
    if is_cleaned:
        path = log.tombstones(GROUP, KEY).write(tmp_path / "tombstone")
        assert [one["code"] for one in explained(path, capfd, "--group", GROUP)] == ["removed-offsets-cleaned"]


@pytest.mark.parametrize("came", [False, True])
def test_what_was_set_back_is_read_when_somebody_comes(
    came: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = Log().generation(GROUP, 1, Client("m"))
    for number in range(60):
        log.wait(MINUTE).commit(GROUP, {KEY: 100 * number})
    log.generation(GROUP, 2).wait(HOUR).commit(GROUP, {KEY: 10}, leader_epoch=-1).wait(HOUR)
    if came:
        log.generation(GROUP, 3, Client("m-2"))
    path = log.commit("other", {KEY: 1}).write(tmp_path)
    (one,) = [one for one in explained(path, capfd, "--group", GROUP) if one["code"] == "reset-by-admin"]
    assert one["verdict"].endswith("5,890 records are read again." if came else "5,890 records to be read again.")


@pytest.mark.parametrize(("kind", "is_told"), [("hourly", False), ("job", False), ("stopped", True)])
def test_a_group_that_commits_seldom_is_not_replaced_by_another_one(
    kind: str, is_told: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """``billing-audit`` is a new reader beside it, which nobody shall set to where ``billing`` had come."""
    log = Log()
    for number in range(30):
        if kind == "job" or not number:
            log.wait(DAY).generation(GROUP, 2 * number + 1, Client(f"m-{number}", partitions=(KEY,)))
        log.wait(HOUR if kind == "hourly" else MINUTE).commit(GROUP, {KEY: 100 * (number + 1)})
        if kind == "job":
            log.generation(GROUP, 2 * number + 2)
    log.wait(20 * MINUTE).generation(f"{GROUP}-audit", 1, Client("n", partitions=(KEY,))).wait(MINUTE)
    path = log.commit(f"{GROUP}-audit", {KEY: 10}).wait(HOUR).commit("other", {KEY: 3}).write(tmp_path)
    assert ("group-took-over" in {one["code"] for one in explained(path, capfd)}) is is_told


@pytest.mark.parametrize(("release", "says"), [("2.3.1", True), ("3.9.2", False)])
def test_brokers_before_3_0_are_told_whose_transaction_is_to_be_aborted(
    release: str, says: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = Log().commit(GROUP, {KEY: 2}, producer_id=4711, producer_epoch=5).wait(HOUR).commit("third", {KEY: 4})
    path = log.write(tmp_path)
    (one,) = [one for one in explained(path, capfd, release=release) if one["code"] == "hanging-transaction"]
    assert ("--producer-id, --producer-epoch and --coordinator-epoch, here 4711, 5, and" in str(one["now"])) is says


def test_what_a_fixed_release_does_not_do_is_no_advice(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A batch above the load buffer stops no release from 2.0.1 on, and empty segments are none that it makes."""
    log = Log()
    for number in range(4):
        log.commit(GROUP, {KEY: number}).roll()
    large = {(f"t-{number}", 0): number for number in range(200)}
    path = log.commit(GROUP, large, metadata="x" * 30_000).write(tmp_path)
    for segment in sorted(path.glob("*/*.log"))[:3]:
        segment.write_bytes(b"")
    found = {one["code"]: one for one in explained(path, capfd, "--partial")}
    assert "restart the one that is stuck" not in str(found["batch-larger-than-load-buffer"]["now"])
    assert "Upgrade" not in str(found["empty-segments"]["now"])


@pytest.mark.parametrize("partitions", [None, 6, 3])
def test_nobody_owns_what_the_cluster_does_not_have(
    partitions: int | None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A topic that was made again with fewer partitions leaves members without any; brokers before 0.10.1 keep what was
    committed for the others."""
    log = Log()
    for number in (1, 2):
        given = [[("orders", at)] if number == 1 or at < 3 else [] for at in range(6)]
        log.generation(GROUP, number, *(Client(f"m-{at}", partitions=tuple(one)) for at, one in enumerate(given)))
        for value in range(30):
            log.wait(MINUTE).commit(GROUP, {one: 100 * number + value for some in given for one in some})
    path = log.write(tmp_path)
    if partitions is not None:
        topics(path, *[(0, 229)] * partitions)
    codes = {one["code"] for one in explained(path, capfd, "--group", GROUP)}
    assert ("partitions-without-owner" in codes) is (partitions != 3)


@pytest.mark.parametrize("end", [0, 5])
def test_who_has_nothing_to_read_need_not_commit(end: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = Log().generation(GROUP, 1, Client("m", partitions=(KEY,))).wait(DAY).commit("other", {("x", 0): 3})
    codes = [one["code"] for one in explained(topics(log.write(tmp_path), (0, end)), capfd, "--group", GROUP)]
    assert codes == ["never-committed"] * bool(end)


def test_of_very_many_groups_that_went_at_once_a_least_number_is_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Names are kept up to 16; and of groups that are gone none is to be removed."""
    log = Log()
    names = [f"console-consumer-{number}" for number in range(10_000, 10_060)]
    for name in names:
        key = KEY if name != names[-1] else ("kept", 0)
        log.generation(name, 1, Client(name)).commit(name, {key: 5}).generation(name, 2).wait(MINUTE)
    log.wait(8 * DAY)
    for name in names[:-1]:
        log.tombstones(name, KEY, with_group=True)
    found = explained(log.wait(HOUR).commit("other", {("x", 0): 1}).write(tmp_path), capfd)
    told = next(one for one in found if one["code"] == "topic-deleted")["verdict"]
    assert "at least 16 groups lost their offsets of this topic" in told
    (family,) = [one for one in found if one["code"] == "one-shot-groups"]
    assert f"--group {names[-1]} --delete" in family["now"][1]


@pytest.mark.parametrize(("timeout_ms", "code"), [(None, "hanging"), (HOUR, "hanging"), (3 * HOUR, "open")])
def test_how_long_a_transaction_may_be_open_is_the_brokers_setting(
    timeout_ms: int | None, code: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = topics(Log().commit(GROUP, {KEY: 2}, producer_id=7).wait(2 * HOUR).commit("x", {KEY: 4}).write(tmp_path))
    listed = json.loads((path / "topics.json").read_text())
    config = {} if timeout_ms is None else {"transaction.max.timeout.ms": str(timeout_ms)}
    (path / "topics.json").write_text(json.dumps(listed | {"brokers": [{"broker_id": 1, "config": config}]}))
    found = {one["code"]: one for one in explained(path, capfd, "--group", GROUP)}
    told = str(found[f"{code}-transaction"]["not_this"])
    assert (
        f"transaction.max.timeout.ms, {'15 min by default' if timeout_ms is None else f'{timeout_ms // HOUR} h here'}."
        in told
    )


@pytest.mark.parametrize("every_ms", [100, 5000])
def test_who_commits_every_five_seconds_is_no_heavy_writer(
    every_ms: int, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group is often alone in its offsets partition, and no cleaner touches the segment that is written to."""
    monkeypatch.setattr(partitions, "_HEAVY_RECORDS", 1000)
    keys = [("orders", number) for number in range(10)]
    log = Log().generation(GROUP, 1, Client("m", partitions=tuple(keys)))
    for value in range(200):
        log.wait(every_ms).commit(GROUP, dict.fromkeys(keys, 10 * value))
    found = explained(log.write(tmp_path), capfd)
    assert [one["code"] for one in found] == ["heavy-writer"] * (every_ms == 100)
    assert "cleaner thread" not in str(found)


@pytest.mark.parametrize(
    ("protocol", "later_ms", "is_told"),
    [("cooperative-sticky", 1000, False), ("stream", 1000, False), ("stream", HOUR, True), ("range", 1000, True)],
)
def test_a_log_may_end_between_both_generations_of_a_cooperative_rebalance(
    protocol: str, later_ms: int, is_told: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    keys = [("orders", number) for number in range(4)]
    log = Log(protocol=protocol).generation(GROUP, 1, Client("m", partitions=tuple(keys))).wait(MINUTE)
    log.commit(GROUP, dict.fromkeys(keys, 10)).wait(MINUTE)
    log.generation(GROUP, 2, Client("m", partitions=tuple(keys[:2])), Client("n", client_id="c-2", partitions=()))
    path = log.wait(later_ms).commit(GROUP, {KEY: 20}).write(tmp_path)
    codes = {one["code"] for one in explained(path, capfd, "--group", GROUP)}
    assert ("partitions-without-owner" in codes) is is_told
    assert "members-without-partitions" not in codes


@pytest.mark.parametrize("is_given", [False, True])
def test_a_new_group_that_was_given_offsets_did_not_begin_by_itself(
    is_given: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = Log().commit("other", {KEY: 1}).wait(2 * HOUR)
    if is_given:
        log.commit(GROUP, {KEY: 500}, leader_epoch=-1).wait(MINUTE)
    log.generation(GROUP, 1, Client("m", partitions=(KEY,))).wait(MINUTE)
    path = log.commit(GROUP, {KEY: 510}).wait(MINUTE).commit("other", {KEY: 2}).write(tmp_path)
    assert [one["code"] for one in explained(path, capfd, "--group", GROUP)] == ["group-is-new"] * (not is_given)
