"""Streams groups beyond the traces: the task assignor in general, and what is refused."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path

import pytest

from coordinator_core.coordinator.java.streams_assignor import JavaPriorityQueue, MemberSpec, assign_sticky
from coordinator_core.coordinator.java.streams_member import Task, tasks_of
from coordinator_core.coordinator.java.streams_topology import ConfiguredSubtopology
from coordinator_core.coordinator.maps import JavaHashMap
from coordinator_core.coordinator.record_data import TopicInfo
from coordinator_core.coordinator.trace import Trace, differences, play, read_trace
from coordinator_core.errors import DamagedInputError
from coordinator_core.groups.model import TaskAssignment
from coordinator_core.releases import profile_for_release
from coordinator_core.releases.requests import NEW_4_4, RequestRules, StreamsRules
from tests.coordinator.traces import trace

CHANGELOG = (TopicInfo("changelog", 0, 1, ()),)


def subtopologies(chosen: random.Random) -> dict[str, ConfiguredSubtopology]:
    return {
        str(number): ConfiguredSubtopology(
            chosen.randint(1, 6), frozenset({"t"}), frozenset(), (), chosen.choice([(), CHANGELOG])
        )
        for number in range(chosen.randint(1, 4))
    }


@pytest.mark.parametrize("revised", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_tasks_are_spread_evenly_stay_and_have_their_standbys_elsewhere(seed: int, revised: bool) -> None:
    chosen = random.Random(seed)
    topology = subtopologies(chosen)
    replicas = chosen.randint(0, 2)
    members = {f"m{number}": f"p{number}" for number in range(chosen.randint(1, 6))}
    specs = JavaHashMap({name: MemberSpec(process, TaskAssignment()) for name, process in members.items()})
    first = assign_sticky(specs, topology, replicas, revised=revised)
    every = [(name, task) for name, one in topology.items() for task in range(one.tasks)]
    active = Counter(task for one in first.values() for task in tasks_of(one.active))
    assert active == Counter(every)
    loads = [len(list(tasks_of(one.active))) for one in first.values()]
    assert max(loads) - min(loads) <= 1
    stateful = [task for task in every if topology[task[0]].is_stateful]
    standby = Counter(task for one in first.values() for task in tasks_of(one.standby))
    assert standby == Counter({task: min(replicas, len(members) - 1) for task in stateful if replicas and members})
    assert not any(set(tasks_of(one.active)) & set(tasks_of(one.standby)) for one in first.values())
    again = JavaHashMap({name: MemberSpec(members[name], first[name]) for name in members})
    if not replicas:
        assert assign_sticky(again, topology, replicas, revised=revised) == first


def test_a_queue_gives_the_least_first() -> None:
    chosen = random.Random(1)
    items = [chosen.randint(0, 20) for _ in range(200)]
    queue = JavaPriorityQueue(float, items)
    assert [queue.poll() for _ in items] == sorted(items)


def test_who_reports_the_farthest_offset_of_a_task_gets_it() -> None:
    one = {"0": ConfiguredSubtopology(2, frozenset({"t"}), frozenset(), (), CHANGELOG)}
    offsets: dict[str, dict[Task, int]] = {"m0": {("0", 0): 5, ("0", 1): 6}, "m1": {("0", 0): 7}, "m2": {("0", 0): 6}}
    specs = JavaHashMap({name: MemberSpec(name, TaskAssignment(), found) for name, found in offsets.items()})
    found = assign_sticky(specs, one, 0, revised=True)
    assert {name: tasks.active for name, tasks in found.items()} == {"m0": {"0": (1,)}, "m1": {"0": (0,)}, "m2": {}}


WITHOUT = {
    "has_static_members": "static-lifecycle",
    "takes_task_offsets": "task-offsets",
    "follows_endpoints": "endpoint-changes",
    "assigns_from_current": "standbys-by-offsets",
    "has_revised_assignor": "full-group",
    "changes_roles_in_place": "roles-in-place",
    "keeps_targets_of_an_epoch": "rejoin-within-interval",
}
"""Facts of 4.4 about streams groups, and a recording that shows each."""


def test_every_fact_has_its_recording() -> None:
    assert WITHOUT.keys() == {field.name for field in fields(StreamsRules)}


@pytest.mark.parametrize(("fact", "recorded"), WITHOUT.items())
def test_a_recording_of_4_4_differs_without_the_fact(fact: str, recorded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_without(replace(NEW_4_4, streams=replace(NEW_4_4.streams, **{fact: False})), recorded, monkeypatch)


def test_a_full_group_of_4_3_would_not_take_a_member_that_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    check_without(replace(NEW_4_4, readmits_known_members=False), "static-full-group", monkeypatch)


def check_without(rules: RequestRules, recorded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trace, "profile", replace(profile_for_release("4.4.0"), requests=rules))
    recording = read_trace(trace(f"scripted/4.4.0/sg-{recorded}"))
    assert any(differences(recording, play(recording)))


@pytest.mark.parametrize("api", ["StreamsGroupHeartbeat", "StreamsGroupDescribe"])
def test_a_broker_with_the_scala_coordinator_has_no_streams_groups(tmp_path: Path, api: str) -> None:
    lines = [json.loads(line) for line in trace("scripted/4.3.1/sg-lifecycle").read_text().splitlines()]
    kept = [line for line in lines if line.get("api", api) == api]
    kept[0] |= {"coordinator": "scala", "kafka": "live"}
    path = tmp_path / "scala.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in kept))
    with pytest.raises(DamagedInputError, match=f"has no {api}"):
        play(read_trace(path))


@pytest.mark.parametrize("release", ["4.1.2", "4.2.1", "4.5.0"])
@pytest.mark.parametrize(
    ("kind", "recorded"),
    [("streams", "sg-lifecycle"), ("consumer", "cg-two-members"), ("share", "share-delete-groups")],
)
def test_groups_of_another_release_are_refused(tmp_path: Path, release: str, kind: str, recorded: str) -> None:
    lines = [json.loads(line) for line in trace(f"scripted/4.3.1/{recorded}").read_text().splitlines()]
    lines[0]["kafka"] = release
    path = tmp_path / "other.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(DamagedInputError, match=f"{kind} groups are modelled as of 4.3 and 4.4, not of {release}"):
        play(read_trace(path))
