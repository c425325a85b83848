"""Origins of commits in the logs of real brokers, against what the recordings say ran there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coordinator_core.cli.app import run
from coordinator_core.history.model import Certainty, OriginKind
from coordinator_core.history.origins import settle_origins
from coordinator_core.history.rows import history_rows
from coordinator_core.log.types import ControlType
from tests.cases import CASES, Case, case, cross_section
from tests.history.logs import MINUTE, T0, Client, Log, case_histories, group_histories
from tests.log.builders import write_partition
from tests.rules.logs import log_of, transaction

MEMBER, STANDALONE, ADMIN, MIRROR = (
    OriginKind.MEMBER,
    OriginKind.STANDALONE,
    OriginKind.ADMIN,
    OriginKind.MIRROR,
)
OUTSIDE = {STANDALONE, ADMIN, MIRROR}
KINDS = {"connect-sink1": OriginKind.CONNECT}

# Groups that ``steps`` of case.json and the harness say to have had members: client ids by group. All others were
# written by Admin clients, and by requests and producers without a member.
MEMBERS = {
    "k431-mixed": {
        "g-classic-range": "range-1 range-2 range-3",
        "g-classic-coop-static": "coop-1 coop-2 coop-2b",
        "g-classic-RoundRobinAssignor": "solo-1",
        "g-classic-StickyAssignor": "solo-2",
        "g-consumer": "k848-a k848-b k848-static k848-regex",
        "g-consumer-range": "k848-range",
        "g-streams": "",
        "g-streams-empty": "g-streams-empty-StreamThread-1-consumer",
        "g-streams-deleted": "g-streams-deleted-StreamThread-1-consumer",
        "g-empty-classic": "e1",
        "g-empty-consumer": "e2",
        "g-deleted-classic": "g-deleted-classic",
        "g-deleted-consumer": "g-deleted-consumer",
        "g-recreated": "g-recreated",
        "g-upgraded": "up-c up-n",
        "g-upgrading": "",
        "g-downgraded": "down-n down-classic",
        "g-empty-upgraded": "g-empty-upgraded-1",
        "g-empty-downgraded": "g-empty-downgraded-1",
        "g-doomed-live": "doomed-sub",
        "g-rebalancing": "reb-1",
        "connect-sink1": "connector-consumer-sink1-0 connector-consumer-sink1-1",
    },
    "k431-txn": {"x-live-classic": "x-live-classic", "x-live-consumer": "x-live-consumer"},
    "k431-cluster": {
        **{f"c-live-classic-{number}": f"c-live-classic-{number}-0 c-live-classic-{number}-1" for number in range(6)},
        **{f"c-live-consumer-{number}": f"c-live-consumer-{number}-0" for number in range(6)},
        "c-empty-1": "c-empty-1",
        "c-empty-2": "c-empty-2",
    },
    "k241/before": {
        "g-live": "live-a1 live-a2",
        "g-live3": "live-b0 live-b1",
        "g-static": "stat-0 stat-1",
        "g-empty": "emp-1",
        "g-left": "left-client",
        "g-dead-member": "conn-client",
        "g-deleted-gen": "del-1",
        "g-zero-assign": "zero-client",
    },
}
# Before their members joined, and after they left, these groups were committed for by an Admin client.
BOTH = {"g-recreated", "x-live-classic", "x-live-consumer"}


@pytest.mark.parametrize("name", MEMBERS)
def test_members_committed_what_members_committed(name: str) -> None:
    members = MEMBERS[name]
    wrong = {}
    for group_id, group in case_histories(case(name)).items():
        for key, version in group.all_versions():
            assert version.origin is not None
            kind, member = version.origin.kind, version.origin.member
            if kind in OUTSIDE:
                right = group_id not in members or group_id in BOTH
            else:
                expected = OriginKind.STREAMS if "streams" in group_id else KINDS.get(group_id, MEMBER)
                right = kind in (expected, MEMBER) and group_id in members
                right &= member is None or member.client_id in members[group_id].split()
            if not right:
                wrong[group_id, key.topic, key.partition] = kind.value, member and member.client_id, version.origin.why
    assert wrong == {}


def test_who_writes_without_being_a_member() -> None:
    """Told apart by leader epochs and rhythm; where the bytes are the same, it is said to be merely possible.

    ``g-simple-assign`` was a consumer with assign() that committed by hand before it had read: without leader epochs,
    and once. No record differs from those of an Admin client.
    """
    found = case_histories(case("k431-mixed"))

    def kinds(group_id: str) -> set[OriginKind]:
        return {version.origin.kind for _, version in found[group_id].all_versions() if version.origin is not None}

    assert kinds("g-deleted-simple") == {ADMIN}
    assert kinds("g-retention-v4") == {ADMIN}
    assert kinds("g-simple-assign") <= {ADMIN, STANDALONE}


@pytest.mark.parametrize("one", cross_section([one for one in CASES if "torn" not in one.name]))
def test_nothing_is_said_to_be_a_mirror_for_sure(one: Case) -> None:
    """No mirror ran; requests that a load generator sent look like one's, and no more is claimed."""
    for group in case_histories(one).values():
        for _, version in group.all_versions():
            assert version.origin is not None
            assert version.origin.kind is not MIRROR or version.origin.certainty is Certainty.POSSIBLE


@pytest.mark.parametrize("letter", ["B-cleaned-default", "C-cleaned-short"])
def test_what_the_cleaner_took_is_not_made_up(letter: str) -> None:
    """Members of k-classic-… and k-consumer-… came and went; their old records are gone from the cleaned logs."""
    for group_id, group in case_histories(case(f"k431-compacted/{letter}")).items():
        if group_id.startswith(("k-classic", "k-consumer")):
            origins = [version.origin for _, version in group.all_versions()]
            assert [one for one in origins if one is None or one.kind in OUTSIDE] == []


def test_a_producer_id_becomes_a_transactional_id(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    key = ("orders", 0)
    log = Log().generation("g", 1, Client("m", partitions=(key,))).wait(MINUTE).commit("g", {key: 5}, producer_id=7)
    log.wait(1000).marker(ControlType.COMMIT, 7).wait(MINUTE).commit("g", {key: 6}, producer_id=9)
    log.wait(40 * MINUTE).commit("other", {key: 1})
    path = log.write(tmp_path)
    going = [transaction("pay-1", 7, state=4), transaction("pay-2", 9)]
    write_partition(path, {0: log_of(going, time_ms=T0)}, topic="__transaction_state")
    now = ["--kafka-version", "3.9.2", "--now-ms", str(T0 + 60 * MINUTE), "--format", "json"]
    assert run(["investigate", str(path), *now, "--group", "g"]) == 1
    document = json.loads(capfd.readouterr().out)
    (row,) = document["history"]
    assert (row["producer_id"], row["transactional_id"]) == (7, "pay-1")
    assert "transactional id pay-1" in row["origin_evidence"]
    assert "producer 9, transactional id pay-2," in document["verdict"]
    alone = group_histories([path], "3.9.2")["g"]
    assert [row["transactional_id"] for row in history_rows(alone)] == [None]


def test_a_commit_outside_transactions_has_no_transactional_id(tmp_path: Path) -> None:
    """Producer 0 is the first of every cluster."""
    key = ("orders", 0)
    log = Log().generation("g", 1, Client("m", partitions=(key,))).commit("g", {key: 5}).wait(MINUTE)
    log.commit("g", {key: 6}, producer_id=0).marker(ControlType.COMMIT, 0)
    group = group_histories([log.write(tmp_path)], "3.9.2")["g"]
    settle_origins([group], {0: "pay-1"})
    assert [row["transactional_id"] for row in history_rows(group)] == [None, "pay-1"]


def test_who_commits_what_its_assignment_has_not_is_no_owner(tmp_path: Path) -> None:
    """Coordinators take commits of members for any partition; rule R39 finds those that nobody owns."""
    log = Log().generation("g", 1, Client("m", partitions=(("orders", 0),)))
    log.commit("g", {("orders", 0): 5, ("orders", 7): 5, ("other", 0): 5}).write(tmp_path)
    versions = [version for _, version in group_histories([tmp_path], "3.9.2")["g"].all_versions()]
    told = {(one.origin.why, one.origin.member.member_id) for one in versions if one.origin and one.origin.member}
    assert told == {("member of generation 1: its only one, or the partition's owner", "m")}
