"""The three brokers of the corpus: what is predicted is what happened when one was killed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from coordinator_core.drill.copies import Copy, cluster_logs, copies_of_snapshot
from coordinator_core.drill.loading import calibrated, server_log_samples
from coordinator_core.drill.model import Objectives, PhaseName, Prediction, Verdict
from coordinator_core.drill.predict import Situation, predict
from coordinator_core.drill.scenario import Scenario
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import OnDamage
from coordinator_core.releases import profile_for_release
from coordinator_core.topology import load_topology
from tests.cases import CORPUS

CASE = CORPUS / "k431-cluster"
EXPECTED = CASE / "expected"
PROFILE = profile_for_release("4.3.1")
KILLED, OTHERS = 3, (1, 2)

Offsets = dict[tuple[str, str, int], int]


def document(*names: str) -> Any:
    return json.loads(EXPECTED.joinpath(*names).read_text(encoding="utf-8"))


@cache
def copies(broker_id: int) -> Mapping[int, Copy]:
    snapshot = discover([str(CASE / f"broker-{broker_id}" / "log")])
    return copies_of_snapshot(snapshot, PROFILE, on_damage=OnDamage.FAIL, damage=[])


def predicted(scenario: str, moment: str, *broker_ids: int, **objectives: int) -> Prediction:
    """With the topology of that moment; the active controller was broker 1."""
    topology = replace(load_topology(str(EXPECTED / moment / "topics.json")), active_controller_id=1)
    by_broker = {one: copies(one) for one in broker_ids}
    observed = [line for name in ("broker-1-startup", "broker-2-startup") for line in log_lines()[name]]
    situation = Situation(
        topology,
        cluster_logs({}, by_broker, topology),
        PROFILE,
        calibrated(server_log_samples(observed, {}), "server-log"),
    )
    return predict(situation, Scenario.parse(scenario), Objectives(**objectives), predicted_at_ms=0)


def log_lines() -> dict[str, list[str]]:
    found: dict[str, list[str]] = document("loading.json")["brokerLogLines"]
    return found


def test_new_coordinators_are_those_that_the_cluster_named() -> None:
    found = {one.group_id: one for one in predicted("lose-brokers=3", "before", KILLED).groups}
    before = document("before", "coordinators.json")["groups"]
    after = document("after-failover", "coordinators.json")["groups"]
    moved = {name for name in before if before[name]["nodeId"] == KILLED} & found.keys()
    assert len(moved) == 7
    for group_id, group in found.items():
        assert group.offsets_partition == after[group_id]["partition"]
        assert group.coordinator_before == before[group_id]["nodeId"]
        assert group.coordinator_after == after[group_id]["nodeId"]
        assert bool(group.phases) is (group_id in moved)


def test_loads_are_as_predicted() -> None:
    rows = {one.offsets_partition: one for one in predicted("lose-brokers=3", "before", KILLED).partitions}
    loads = [line for name in ("broker-1", "broker-2") for line in log_lines()[name] if "Finished" in line]
    seen = {}
    for line in loads:
        found = re.search(r"offsets-(\d+) .* in (\d+)ms .* Loaded (\d+) records .* (\d+) bytes", line)
        assert found is not None
        seen[int(found[1])] = [int(one) for one in found.groups()[1:]]
    assert seen.keys() == {one for one, row in rows.items() if row.moved} == {1, 4, 7}
    for partition, (load_ms, records, size) in seen.items():
        row = rows[partition]
        assert (row.records_to_load, row.bytes_to_load) == (records, size)
        assert row.load_ms is not None
        assert load_ms in row.load_ms
        assert row.lost_records == 0


def test_what_the_old_coordinator_has_is_counted() -> None:
    """By what the cluster described just before: groups by partition, and their committed offsets."""
    groups = document("before", "describe.json")["groups"]
    for row in predicted("lose-brokers=3", "before", KILLED).partitions:
        mine = [one for one in groups.values() if one["partition"] == row.offsets_partition]
        living = [one for one in mine if one["type"] != "absent"]
        if row.moved:
            offsets = sum(len(one["offsetFetch"]["offsets"]) for one in living)
            assert (row.groups, row.offsets) == (len(living), offsets)
        else:
            assert (row.groups, row.offsets) == (None, None)


def test_the_outage_lies_in_the_band() -> None:
    prediction = predicted("lose-brokers=3", "before", KILLED, rto_ms=20_000, rpo_ms=0)
    seen = document("loading.json")
    (served,) = {one.available_ms for one in prediction.partitions if one.offsets_partition == 7}
    assert served is not None
    assert seen["allLoadedSeenAtMs"] - seen["killedAtMs"] in served
    moving = next(one for one in prediction.groups if one.phases).phases
    assert [phase.name for phase in moving] == list(PhaseName)
    assert seen["leadersMovedSeenAtMs"] - seen["killedAtMs"] in moving[1].begins_ms
    assert (prediction.verdict, prediction.reasons) == (Verdict.MET, ())
    assert predicted("lose-brokers=3", "before", KILLED, rto_ms=5_000).verdict is Verdict.MISSED
    assert predicted("lose-brokers=3", "before", KILLED, rto_ms=10_000).verdict is Verdict.UNKNOWN


def members_and_generations(moment: str) -> dict[str, Any]:
    found = {}
    for group_id, group in document(moment, "describe.json")["groups"].items():
        described = group.get("describe") or {}
        epoch = described.get("groupEpoch", described.get("generationId"))
        found[group_id] = (epoch, sorted(one["memberId"] for one in described.get("members", [])))
    return found


def committed(moment: str) -> dict[str, Any]:
    groups = document(moment, "describe.json")["groups"]
    return {group_id: group.get("offsetFetch") for group_id, group in groups.items()}


def test_no_group_rebalances_and_no_offset_moves() -> None:
    prediction = predicted("lose-brokers=3", "before", KILLED)
    assert prediction.totals.groups_rebalancing == 0
    assert {one.rebalances for one in prediction.groups} == {False}
    before, after = members_and_generations("before"), members_and_generations("after-failover")
    for group in prediction.groups:
        assert before[group.group_id] == after[group.group_id]
        assert (group.regressed, group.vanished, group.undone) == ((), (), ())
    assert committed("before") == committed("after-failover")


def last_commits(broker_id: int) -> Offsets:
    """By Kafka's own dump: the last commit of each offset key outside transactions."""
    found: Offsets = {}
    for path in sorted((EXPECTED / f"broker-{broker_id}").glob("dump-[0-9].txt")):
        plain = False
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("baseOffset"):
                plain = "isTransactional: false" in line
            commit = re.search(r'key: (\{"type":"1",.*\}) payload: (\{.*\})$', line)
            if plain and commit is not None:
                key, value = json.loads(commit[1])["data"], json.loads(commit[2])["data"]
                found[key["group"], key["topic"], key["partition"]] = value["offset"]
    return found


def test_a_leader_that_lags_loses_what_its_copy_lacks_exactly() -> None:
    prediction = predicted("unclean-election=1,2", "end", KILLED, *OTHERS, rpo_ms=0)
    leaders = {one.offsets_partition: one for one in prediction.partitions}
    assert {one.leader_after for one in leaders.values()} == {KILLED}
    assert all(one.unclean for one in leaders.values())
    counts = document("..", "case.json")["dataRecordsPerBrokerAndPartition"]
    # Partition 0 has a transaction's marker, which is no data record, in all copies.
    assert {one: row.lost_records for one, row in leaders.items()} == {
        int(one): counts["1"][one] - counts["3"][one] for one in counts["1"]
    }
    old, new = last_commits(1), last_commits(KILLED)
    assert old == last_commits(2)
    lost = {
        offset_key: (offset, new.get(offset_key)) for offset_key, offset in old.items() if new.get(offset_key) != offset
    }
    regressed = {
        (group.group_id, one.topic, one.partition): (one.before, one.after)
        for group in prediction.groups
        for one in (*group.regressed, *group.vanished)
    }
    assert regressed == lost
    assert len(lost) == 7
    assert [group.undone for group in prediction.groups if group.undone] == []
    again = sum(was - now for was, now in lost.values() if now is not None)
    assert prediction.totals.records_read_again == again > 0
    assert prediction.verdict is Verdict.MISSED


def test_what_a_leader_lacks_is_unknown_without_its_copy() -> None:
    prediction = predicted("unclean-election=1,2", "end", *OTHERS)
    assert {one.lost_records for one in prediction.partitions} == {None}
    assert prediction.totals.lost_ms is None
    assert prediction.verdict is Verdict.UNKNOWN
    assert {one.rebalances for one in prediction.groups} == {None}
    assert {tuple(one.phases[-1].answers) for one in prediction.groups} == {("FindCoordinator",)}


def test_groups_of_a_log_that_is_not_given_are_unknown() -> None:
    prediction = predicted("lose-brokers=3", "before", 1, rto_ms=60_000)
    assert prediction.verdict is Verdict.MET
    topology = load_topology(str(EXPECTED / "before" / "topics.json"))
    situation = Situation(topology, cluster_logs({}, {}, topology), PROFILE, calibrated([], ""))
    blind = predict(situation, Scenario.parse("lose-brokers=3"), Objectives(60_000), predicted_at_ms=0)
    assert blind.groups == ()
    assert blind.verdict is Verdict.UNKNOWN
    assert blind.reasons == (
        "the logs of offsets partitions that move are not given, so their groups are not known: 1, 4, 7",
    )


def test_nobody_leads_where_no_replica_in_sync_is_left() -> None:
    prediction = predicted("lose-brokers=1,2", "end", *OTHERS, rto_ms=60_000)
    assert {one.leader_after for one in prediction.partitions} == {None}
    assert prediction.totals.groups_without_coordinator == prediction.totals.groups == 24
    assert prediction.totals.worst_outage_ms.high is None
    assert prediction.verdict is Verdict.MISSED
    (phase,) = prediction.groups[0].phases
    assert phase.answers["FindCoordinator"] == "COORDINATOR_NOT_AVAILABLE"
    assert phase.answers["OffsetCommit"] == "DISCONNECTED"


def test_a_rolling_restart_moves_each_group_once_and_loses_nothing() -> None:
    prediction = predicted("rolling-restart", "before", KILLED, *OTHERS, rpo_ms=0)
    assert [step.down for step in prediction.steps] == [(1,), (2,), (3,), ()]
    for step in prediction.steps[:3]:
        rows = [one for one in prediction.partitions if one.step == step.number]
        assert all(one.leader_after not in step.down for one in rows)
        assert any(one.moved for one in rows)
    assert not any(one.unclean for one in prediction.partitions)
    assert prediction.totals.partitions_without_leader == 0
    assert prediction.totals.lost_ms == 0
    assert prediction.verdict is Verdict.MET
    assert {one.rebalances for one in prediction.groups} <= {True, False}
    moved = [one for one in prediction.groups if one.phases]
    assert {one.phases[0].answers["OffsetCommit"] for one in moved} == {"NOT_COORDINATOR"}
    preferred = predicted('{"kind": "rolling-restart", "preferred_leaders": true}', "before", *OTHERS)
    last = {one.offsets_partition: one.leader_after for one in preferred.partitions if one.step == 3}
    assert last == {one.offsets_partition: one.leader_before for one in preferred.partitions if one.step == 0}
