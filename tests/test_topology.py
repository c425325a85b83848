"""``topology.json`` and elections."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.errors import UsageError
from coordinator_core.log.types import OFFSETS_TOPIC
from coordinator_core.topology import (
    NO_LEADER,
    BrokerInfo,
    PartitionInfo,
    TopicInfo,
    Topology,
    elected,
    load_topology,
)
from tests.cases import CORPUS

IDS = (1, 2, 3, 4, 5)


@st.composite
def partitions(draw: st.DrawFn) -> PartitionInfo:
    """A partition in any state that a cluster whose brokers are all up can be in."""
    replicas = tuple(draw(st.lists(st.sampled_from(IDS), min_size=1, max_size=4, unique=True)))
    isr = tuple(draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True)))
    return PartitionInfo(0, draw(st.sampled_from(isr)), draw(st.integers(0, 9)), replicas, isr)


def cluster(*infos: PartitionInfo) -> Topology:
    return Topology.of_offsets(
        {one: BrokerInfo(one, {"PLAINTEXT": ("h", one)}, rack="ab"[one % 2]) for one in IDS}, infos
    )


def only(topology: Topology) -> PartitionInfo:
    assert topology.offsets_partitions is not None
    (info,) = topology.offsets_partitions
    return info


def fenced_one_by_one(info: PartitionInfo, lost: tuple[int, ...]) -> PartitionInfo:
    """Elections of ``ReplicationControlManager``: it fences one broker, elects, and only then the next."""
    fenced: set[int] = set()
    for broker_id in lost:
        fenced.add(broker_id)
        info = elected(info, lambda one: one not in fenced)
    return info


@given(partitions(), st.lists(st.sampled_from(IDS), unique=True).map(tuple))
def test_who_leads_does_not_depend_on_the_order_of_fencing(info: PartitionInfo, lost: tuple[int, ...]) -> None:
    together = only(cluster(info).without(*lost))
    for order in permutations(lost):
        single = fenced_one_by_one(info, order)
        assert single.leader == together.leader
        assert single.leader_epoch >= together.leader_epoch


@given(partitions(), st.lists(st.sampled_from(IDS), unique=True).map(tuple), st.booleans())
def test_an_election_gives_a_leader_that_may_lead(info: PartitionInfo, lost: tuple[int, ...], unclean: bool) -> None:
    after = only(cluster(info).without(*lost, unclean=unclean))
    living = [one for one in info.replicas if one not in lost]
    in_sync = [one for one in living if one in info.isr]
    if info.leader not in lost:
        assert (after.leader, after.leader_epoch) == (info.leader, info.leader_epoch)
        return
    assert after.leader_epoch == info.leader_epoch + 1
    assert after.leader == next(iter(in_sync or (living if unclean else [])), NO_LEADER)
    assert after.leader == NO_LEADER or after.leader in after.isr
    assert set(after.isr) <= set(info.replicas)


@given(partitions(), st.lists(st.sampled_from(IDS), unique=True).map(tuple))
def test_who_comes_back_is_in_sync_again_and_ends_an_outage(info: PartitionInfo, lost: tuple[int, ...]) -> None:
    down = cluster(info).without(*lost)
    up = only(down.restored(*lost))
    assert up.leader != NO_LEADER
    assert set(up.isr) >= {one for one in lost if one in info.replicas} | {up.leader}
    if only(down).leader != NO_LEADER:
        assert (up.leader, up.leader_epoch) == (only(down).leader, only(down).leader_epoch)
    else:
        assert up.leader in info.isr
    preferred = only(cluster(up).with_preferred_leaders())
    assert preferred.leader == (info.replicas[0] if info.replicas[0] in up.isr else up.leader)


def test_an_eligible_replica_leads_while_nobody_is_in_sync() -> None:
    info = PartitionInfo(0, 1, 4, (1, 2, 3), (1,), elr=(3,))
    after = only(cluster(info).without(1))
    assert (after.leader, after.isr, after.leader_epoch) == (3, (3,), 5)
    assert only(cluster(replace(info, elr=())).without(1)).leader == NO_LEADER
    assert only(cluster(info).without(1, 3)).leader == NO_LEADER


def test_the_cluster_of_the_corpus_elects_as_predicted() -> None:
    expected = CORPUS / "k431-cluster" / "expected"
    before = load_topology(str(expected / "before" / "topics.json"))
    after = load_topology(str(expected / "after-failover" / "topics.json"))
    predicted = before.without(3)
    assert before.offsets_partitions is not None
    assert after.offsets_partitions is not None
    assert predicted.offsets_partitions is not None
    assert [info.leader for info in before.offsets_partitions].count(3) == 3
    for mine, theirs in zip(predicted.offsets_partitions, after.offsets_partitions, strict=True):
        assert (mine.leader, set(mine.isr)) == (theirs.leader, set(theirs.isr))


def test_a_topology_survives_its_file(tmp_path: Path) -> None:
    topology = replace(
        cluster(PartitionInfo(0, 1, 3, (1, 2), (1,), (2,), (2,)), PartitionInfo(1, NO_LEADER, 0, (2, 1), (2,))),
        cluster_id="c",
        captured_at_ms=7,
        controller_id=2,
        active_controller_id=3,
    )
    other = TopicInfo("orders", "AAAAAAAAAAAAAAAAAAAAAQ", (PartitionInfo(0, 2, 0, (2,), (2,)),))
    brokers = {**topology.brokers, 5: BrokerInfo(5, {}, None, False, ("/data/a", "/data/b"))}
    topology = replace(topology, topics={**topology.topics, "orders": other}, brokers=brokers)
    path = tmp_path / "topology.json"
    path.write_text(json.dumps(topology.document()))
    assert load_topology(str(path)) == topology
    assert topology.racks() == {"a": (2, 4), "b": (1, 3)}


@pytest.mark.parametrize(
    "document",
    [
        "x",
        "[]",
        '{"topics": []}',
        '{"topics": {}}',
        '{"topics": {"__consumer_offsets": {"partitionInfo": []}}}',
        '{"topics": {"__consumer_offsets": {"partitionInfo": [{"partition": 1, "leader": 1}]}}}',
        '{"topics": {"__consumer_offsets": {"partitionInfo": [{"partition": 0}]}}}',
        '{"topics": {"__consumer_offsets": {"partitionInfo": [{"partition": 0, "leader": "b"}]}}}',
        '{"topics": {"__consumer_offsets": {"partitionInfo": [{"partition": 0, "leader": 1, "isr": 1}]}}}',
        '{"brokers": [{"id": 1}], "topics": {"__consumer_offsets": '
        '{"partitionInfo": [{"partition": 0, "leader": 1}]}}}',
        '{"brokers": [{"broker_id": 1, "rack": 7}], "topics": {"__consumer_offsets": '
        '{"partitionInfo": [{"partition": 0, "leader": 1}]}}}',
    ],
)
def test_another_form_is_refused(tmp_path: Path, document: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(document)
    with pytest.raises(UsageError, match=r"t\.json: "):
        load_topology(str(path))


def test_brokers_may_be_known_from_the_assignment_only(tmp_path: Path) -> None:
    info = {"partition": 0, "leader": -1, "replicas": [3, 1]}
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"topics": {OFFSETS_TOPIC: {"partitionInfo": [info]}}}))
    topology = load_topology(str(path))
    assert sorted(topology.brokers) == [1, 3]
    assert only(topology).leader == NO_LEADER
