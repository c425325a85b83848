"""Causes of tombstones in the logs of real brokers, against what the recordings say was done there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice, permutations
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.history import judge as judging
from coordinator_core.history.judge import Judge
from coordinator_core.history.lessons import Lessons, acts_of
from coordinator_core.history.model import ChangeKind, Deletions, End, EndKind, GroupHistory, OriginKind
from coordinator_core.history.origins import settle_origins
from coordinator_core.history.read import read_history
from coordinator_core.history.removals import ONE_ACT_MS
from coordinator_core.investigate.cleaned import explain_cleaned
from coordinator_core.investigate.model import Case as InvestigationCase
from coordinator_core.log.discovery import discover
from coordinator_core.log.types import ControlType
from coordinator_core.releases import profile_for_release
from tests.cases import CASES, CORPUS, Case
from tests.history.logs import DAY, HOUR, MINUTE, T0, Client, Log, case_histories, group_histories
from tests.history.test_portions import check_portions
from tests.history.test_table import check

DELETED, OFFSETS, TOPIC, EXPIRED = (
    EndKind.DELETE_GROUPS,
    EndKind.OFFSET_DELETE,
    EndKind.TOPIC_DELETION,
    EndKind.EXPIRY,
)
MIGRATED = EndKind.MIGRATION

# What ``steps`` of case.json say: groups by what removed offsets of theirs, except those that a sweep removed.
DONE = {
    "k431-mixed": {
        DELETED: "warmup g-deleted-classic g-deleted-consumer g-deleted-simple g-recreated g-streams-deleted "
        "g-share-deleted",
        OFFSETS: "g-offsets-deleted g-all-offsets-deleted",
        TOPIC: "g-topic-gone g-only-doomed g-doomed-live g-topic-recreated",
        MIGRATED: "g-upgrading g-upgraded g-empty-upgraded g-downgraded g-empty-downgraded g-simple-upgraded",
    },
    "k431-txn": {
        DELETED: "warmup x-del-pending x-del-pendingonly",
        OFFSETS: "x-deloff-pending",
        TOPIC: "x-topicgone",
    },
    "k392-classic": {
        DELETED: "warmup g-deleted-classic g-deleted-simple g-recreated x-del-pending",
        OFFSETS: "g-offsets-deleted g-all-offsets-deleted x-deloff-pending",
        TOPIC: "g-topic-gone g-only-doomed x-topicgone",
        EXPIRED: "g-empty-nooffsets",
    },
    # An Empty group without offsets goes with the next sweep.
    "k431-expired/A": {DELETED: "warmup", EXPIRED: "e-txn-aborted"},
    "k431-expired/C": {DELETED: "warmup"},
    "k241/before": {
        DELETED: "g-deleted g-deleted-gen g-deleted-reborn",
        OFFSETS: "g-offdel",
        TOPIC: "g-topicdel g-topicdel-only",
        EXPIRED: "g-empty-nocommit",
    },
    "k0102/before": {TOPIC: "g-topicdel g-topicdel-only", EXPIRED: "g-empty-nocommit"},
    "k011/plain": {TOPIC: "g-topicdel g-topicdel-only", EXPIRED: "g-empty-nocommit"},
    "k431-cluster": {DELETED: "c-deleted"},
}

# A log in which both would be the same bytes: the true cause is among those named beside the first.
SAME_BYTES = {
    # 3.9.2 removes an Empty group of generation 0 with its last offset, and writes no tombstone for it.
    ("k392-classic", "g-all-offsets-deleted"),
    # The only group with offsets of that topic, and all that it had.
    ("k392-classic", "x-topicgone"),
}
CASE = {case.name: case for case in CASES}


def ends(group: GroupHistory) -> list[End]:
    found = [removal.end for removal in group.removals]
    found += [change.end for change in group.changes if change.kind is ChangeKind.DELETED]
    assert None not in found
    return [end for end in found if end is not None]


@pytest.mark.parametrize("name", DONE)
def test_causes_are_what_was_done(name: str) -> None:
    histories = case_histories(CASE[name])
    done = {group_id: cause for cause, groups in DONE[name].items() for group_id in groups.split()}
    swept = name.endswith("/C")
    wrong = {}
    for group_id, group in histories.items():
        for end in ends(group):
            expected = done.get(group_id, EXPIRED if swept else None)
            told = end.others if (name, group_id) in SAME_BYTES else (end.kind,)
            if expected not in told:
                wrong[group_id] = f"{end.kind.value}, {end.why}; done: {expected}"
    assert wrong == {}
    assert done.keys() <= {group_id for group_id, group in histories.items() if ends(group)}


def test_the_brokers_own_tombstones_after_a_snapshot_are_expiry() -> None:
    """``records-after-A.json`` lists what 4.3.1 wrote by itself: every one of it is a sweep's."""
    written = json.loads((CORPUS / "k431-expired/expected/records-after-A.json").read_text(encoding="utf-8"))
    before = {group_id: len(ends(group)) for group_id, group in case_histories(CASE["k431-expired/A"]).items()}
    after = [
        end
        for group_id, group in case_histories(CASE["k431-expired/C"]).items()
        for end in ends(group)[before.get(group_id, 0) :]
    ]
    assert written
    assert len(after) > 50
    assert {end.kind for end in after if end.place.timestamp_ms} == {EXPIRED}


@pytest.mark.parametrize("name", ["k241/after", "k0102/after"])
def test_what_went_after_the_snapshot_before_is_expiry(name: str) -> None:
    """Between the two snapshots nothing was done but waiting: ``offsets.retention.minutes`` is 1."""
    case = CASE[name]
    before = case_histories(CASE[name.replace("after", "before")])
    for group_id, group in case_histories(case).items():
        known = {end.place.record_offset for end in ends(before[group_id])} if group_id in before else set()
        new = [end for end in ends(group) if end.place.record_offset not in known]
        assert {end.kind for end in new} <= {EXPIRED}, (group_id, new)
        for end in new:
            if end.retention_at_most_ms is not None:
                assert end.retention_at_most_ms >= 60_000


def test_tombstones_whose_values_were_cleaned_away_name_what_was_done() -> None:
    names = {DELETED: "a DeleteGroups request", OFFSETS: "an OffsetDelete request", TOPIC: "the deletion of the topic"}
    one = CASE["k241/cleaned"]
    histories, case = case_histories(one), InvestigationCase(profile_for_release(one.release), T0, None)
    told = 0
    for cause, groups in DONE["k241/before"].items():
        for group_id in groups.split():
            for explanation in islice(explain_cleaned(histories[group_id], case), 1):
                assert names[cause] in explanation.verdict, group_id
                told += 1
    assert told == 6


def test_a_release_without_requests_for_it_only_expires() -> None:
    kinds = {end.kind for group in case_histories(CASE["k082/after"]).values() for end in ends(group)}
    assert kinds == {EXPIRED}


def test_a_sweep_is_seen_from_one_group_alone() -> None:
    """Of the other groups only the keys of tombstones were read: many groups lost offsets at that moment."""
    group = case_histories(CASE["k431-expired/C"], ["e-live-sub"])["e-live-sub"]
    assert {end.kind for end in ends(group)} == {EXPIRED}
    assert all(EndKind.OFFSET_DELETE in end.others for end in ends(group))


def test_one_group_alone_is_read_as_it_is_among_all() -> None:
    case: Case = CASE["k431-mixed"]
    everything = case_histories(case)
    for group_id in ("g-doomed-live", "g-deleted-consumer", "g-offsets-deleted", "g-upgraded"):
        alone = case_histories(case, [group_id])
        assert list(alone) == [group_id]
        assert [end.kind for end in ends(alone[group_id])] == [end.kind for end in ends(everything[group_id])]


def test_a_tombstone_without_time_does_not_tell_its_cause(tmp_path: Path) -> None:
    """Format 0 had no time, and the cleaner writes it anew without one."""
    log = Log(commit_version=1).commit("g", {("orders", 0): 5, ("orders", 1): 6})
    log.at = -1
    path = log.tombstones("g", ("orders", 0)).write(tmp_path)
    (end,) = ends(group_histories([path], "4.1.1")["g"])
    assert (end.kind, end.certainty.value, end.others) == (EXPIRED, "possible", (TOPIC, DELETED, OFFSETS))
    (end,) = ends(group_histories([path], "0.9.0")["g"])
    assert (end.kind, end.certainty.value, end.others) == (EXPIRED, "certain", ())


@pytest.mark.parametrize(("release", "kind"), [("2.8.1", EXPIRED), ("2.8.2", TOPIC)])
def test_without_time_what_members_subscribe_to_goes_by_what_the_release_does(
    release: str, kind: EndKind, tmp_path: Path
) -> None:
    """Sweeps that see the members of a group that rebalances take no such offset, and no request does."""
    member = Client("m", partitions=(("orders", 0),))
    log = Log(commit_version=1).generation("g", 1, member).commit("g", {("orders", 0): 5})
    log.at = -1
    (end,) = ends(group_histories([log.tombstones("g", ("orders", 0)).write(tmp_path)], release)["g"])
    assert (end.kind, end.certainty.value) == (kind, "possible")


@pytest.mark.parametrize(("release", "kind"), [("4.0.2", EXPIRED), ("4.3.1", DELETED), ("4.4.0", DELETED)])
def test_sweeps_delete_share_groups_in_4_0_alone(release: str, kind: EndKind, tmp_path: Path) -> None:
    group = {"groupId": "s"}
    log = Log().modern((11, group, {"epoch": 1, "metadataHash": 1})).wait(MINUTE)
    path = log.modern((12, group, None), (11, group, None)).write(tmp_path)
    *_, last = group_histories([path], release)["s"].changes
    assert last.end is not None
    assert last.end.kind is kind


@pytest.mark.parametrize("later_ms", [10, -120 * MINUTE])
def test_a_group_of_the_same_type_that_follows_is_no_migration(later_ms: int, tmp_path: Path) -> None:
    """It was made again, at once or when a clock had gone back."""
    member = Client("m-1", partitions=(("orders", 0),))
    log = Log().generation("g", 1, member).commit("g", {("orders", 0): 5}).wait(MINUTE).generation("g", 2)
    log.wait(MINUTE).tombstones("g", ("orders", 0), with_group=True).wait(later_ms).generation("g", 1, member)
    found = ends(group_histories([log.write(tmp_path)], "3.9.2")["g"])
    assert [end.kind for end in found] == [DELETED, DELETED]


class Walked(list[Any]):
    """A list that counts how often somebody goes through it."""

    walks = 0

    def __iter__(self) -> Iterator[Any]:
        Walked.walks += 1
        return super().__iter__()


def test_what_removals_have_in_common_is_looked_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the work is the square of the tombstones of an act, or tombstones times rebalances."""
    keys = [("orders", number) for number in range(100)]
    log = Log().generation("g", 1, Client("m", partitions=tuple(keys))).commit("g", dict.fromkeys(keys, 5))
    log.wait(MINUTE).generation("g", 2).wait(120 * MINUTE).tombstones("g", *keys, with_group=True)
    (partition,) = discover([str(log.write(tmp_path))]).partitions
    profile, deletions = profile_for_release("3.9.2"), Deletions()
    history = read_history(partition, profile, groups=None, deletions=deletions, topic_names={}, damage=[])
    group = history.groups["g"]
    lessons = Lessons()
    monkeypatch.setattr(judging, "acts_of", lambda removals: [Walked(act) for act in acts_of(removals)])
    group.changes = Walked(group.changes)
    lessons.topics["orders"] = Walked()
    Judge(profile, deletions, lessons=lessons).judge([group])
    assert {end.kind for end in ends(group)} == {DELETED}
    settle_origins([group])
    assert {version.origin.kind for _, version in group.all_versions() if version.origin} == {OriginKind.MEMBER}
    assert Walked.walks < 20


@pytest.mark.parametrize("acts", [1, 2])
def test_groups_that_are_deleted_together_are_not_expired(acts: int, tmp_path: Path) -> None:
    """Where a sweep would have taken older offsets of another group, which stay. Else the log does not decide."""
    log = Log().commit("old", {("orders", 0): 5}).wait(5 * DAY)
    for number in range(acts):
        for group in "ab":
            log.commit(f"{group}{number}", {("orders", 0): 5, ("payments", 0): 3})
        log.wait(120 * MINUTE)
        for group in "ab":
            log.tombstones(f"{group}{number}", ("orders", 0), ("payments", 0), with_group=True)
    path = log.commit("x", {("other", 0): 1}).write(tmp_path)
    groups = group_histories([path], "4.1.1")
    assert {(end.kind, end.certainty.value) for group in groups.values() for end in ends(group)} == {
        (DELETED, "likely")
    }
    snapshot, profile = discover([str(path)]), profile_for_release("4.1.1")
    check(snapshot, profile)
    check_portions(snapshot, profile)


@pytest.mark.parametrize(
    ("groups", "topics", "told"),
    [
        (3, 1, "3 groups lost their offsets of this topic at once, and no offset of it is left"),
        (3, 2, "3 groups lost their offsets of 2 topics at once, and no offset of them is left"),
        (20, 17, "at least 16 groups lost their offsets of at least 16 topics at once, and no offset of them is left"),
    ],
)
def test_of_what_went_at_once_no_more_is_told_than_is_kept(groups: int, topics: int, told: str, tmp_path: Path) -> None:
    log = Log()
    names = [(f"t{number}", 0) for number in range(topics)]
    for number in range(groups):
        log.commit(f"g{number}", dict.fromkeys([*names, ("stays", 0)], 5))
    log.wait(MINUTE // 2)
    for number in range(groups):
        log.tombstones(f"g{number}", *names)
    log.write(tmp_path)
    found = group_histories([tmp_path], "3.9.2")
    assert {one.end.why for group in found.values() for one in group.removals if one.end} == {told}


def test_ages_of_one_moment_are_no_retention(tmp_path: Path) -> None:
    """Who deletes groups that were idle for as long leaves the same records as a sweep."""
    log = Log()
    for group in "abcd":
        log.commit(group, {("orders", 0): 5, ("payments", 0): 3})
    log.wait(120 * MINUTE)
    for group in "abcd":
        log.tombstones(group, ("orders", 0), ("payments", 0), with_group=True)
    found = [end for group in group_histories([log.write(tmp_path)], "4.1.1").values() for end in ends(group)]
    assert {end.certainty.value for end in found} == {"possible"}
    assert all(DELETED in (end.kind, *end.others) for end in found)


def removed_together(directory: Path) -> Path:
    """Groups a to d without members, which lose their offsets of ``orders`` at once, after 3 days."""
    log = Log()
    for group in "abcd":
        log.generation(group, 1, Client(group, partitions=(("orders", 0),))).commit(group, {("orders", 0): 5})
    log.wait(MINUTE)
    for group in "abcd":
        log.generation(group, 2)
    log.wait(3 * DAY)
    for group in "abcd":
        log.wait(1).tombstones(group, ("orders", 0), with_group=True)
    return log.wait(DAY).commit("other", {("events", 0): 1}).write(directory)


@pytest.mark.parametrize("apart_ms", [0, 20 * MINUTE])
def test_groups_that_stopped_together_are_of_one_age_whatever_took_them(apart_ms: int, tmp_path: Path) -> None:
    """3.9 deleted them one by one. If they stopped at other times, their ages are those of a retention."""
    log = Log()
    for group in "ab":
        log.generation(group, 1, Client(group, partitions=(("orders", 0),))).commit(group, {("orders", 0): 5})
    for group in "ab":
        log.wait(apart_ms).generation(group, 2)
    log.wait(3 * DAY - apart_ms)
    for group in "ab":
        log.wait(apart_ms + 12_000).tombstones(group, ("orders", 0), with_group=True)
    path = log.wait(DAY).commit("other", {("events", 0): 1}).write(tmp_path)
    groups = group_histories([path], "3.9.2", captured_retention_ms=7 * DAY).values()
    told = {(end.kind, end.certainty.value) for group in groups for end in ends(group)}
    assert told == {(EXPIRED, "likely") if apart_ms else (DELETED, "possible")}


@pytest.mark.parametrize("days", [40, None])
def test_ages_that_are_roughly_alike_are_no_retention(days: int | None, tmp_path: Path) -> None:
    """Somebody deletes what was idle for about a month, an hour apart; sweeps are ten minutes apart."""
    log = Log()
    for number, group in enumerate("abc"):
        log.wait(number * HOUR).generation(group, 1, Client(group)).commit(group, {("orders", 0): 5})
        log.generation(group, 2)
    log.wait(30 * DAY)
    for number, group in enumerate("abc"):
        log.wait(3 * number * HOUR).tombstones(group, ("orders", 0), with_group=True)
    path = log.wait(DAY).commit("other", {("events", 0): 1}).write(tmp_path)
    captured = None if days is None else days * DAY
    groups = group_histories([path], "3.9.2", captured_retention_ms=captured).values()
    assert not any("more group" in end.why for group in groups for end in ends(group))
    if days:
        assert {(end.kind, end.certainty.value) for group in groups for end in ends(group)} == {(DELETED, "possible")}


@pytest.mark.parametrize(
    ("topics", "release", "stopped_ms", "kind"),
    [
        (("gone", "clicks"), "3.9.2", 60 * MINUTE, TOPIC),
        (("clicks",), "3.9.2", 60 * MINUTE, DELETED),
        # Its sweeps may take what members subscribe to, but nothing that is younger than any retention.
        (("gone", "clicks"), "2.4.1", 60 * MINUTE, DELETED),
        (("gone", "clicks"), "2.4.1", 1000, TOPIC),
    ],
)
def test_what_members_subscribe_to_goes_with_the_topic_alone(
    topics: tuple[str, ...], release: str, stopped_ms: int, kind: EndKind, tmp_path: Path
) -> None:
    """An idle group goes with its last offset, as if somebody had deleted it; another group lives."""
    idle, alive = Log(), Log()
    idle.generation("idle", 1, Client("i", ("gone",))).commit("idle", {("gone", 0): 5}).generation("idle", 2)
    alive.generation("alive", 1, Client("a", topics)).commit("alive", {("clicks", 0): 5})
    alive.wait(90 * MINUTE - stopped_ms).commit("alive", {("gone", 0): 7})
    alive.wait(stopped_ms).tombstones("alive", ("gone", 0))
    idle.wait(90 * MINUTE + 20).tombstones("idle", ("gone", 0), with_group=True)
    alive.wait(5 * MINUTE).commit("alive", {("clicks", 0): 6})
    idle.write(tmp_path, 0)
    path = alive.write(tmp_path, 1)
    found = ends(group_histories([path], release, captured_retention_ms=7 * DAY)["idle"])
    assert [end.kind for end in found] == [kind, kind]
    assert {(end.certainty.value, end.others) for end in found if kind is TOPIC} <= {("likely", ())}
    snapshot, profile = discover([str(path)]), profile_for_release(release)
    check(snapshot, profile)
    check_portions(snapshot, profile)


@pytest.mark.parametrize(("retention_ms", "kind"), [(None, EXPIRED), (7 * DAY, TOPIC)])
def test_what_a_request_for_several_groups_may_have_taken_is_not_sure(
    retention_ms: int | None, kind: EndKind, tmp_path: Path
) -> None:
    """3.9 leaves the same records when it deletes these groups, and when their topic goes."""
    path = removed_together(tmp_path)
    groups = group_histories([path], "3.9.2", retention_ms=retention_ms).values()
    assert {(end.kind, end.certainty.value) for group in groups for end in ends(group)} == {(kind, "possible")}
    assert all(DELETED in end.others for group in groups for end in ends(group))


@pytest.mark.parametrize(
    ("captured_ms", "kind", "certainty"),
    [(3 * DAY, EXPIRED, "certain"), (60 * MINUTE, EXPIRED, "likely"), (30 * DAY, TOPIC, "possible")],
)
def test_the_retention_of_a_capture_excludes_nothing(
    captured_ms: int, kind: EndKind, certainty: str, tmp_path: Path
) -> None:
    """It may have been raised since."""
    groups = group_histories([removed_together(tmp_path)], "3.9.2", captured_retention_ms=captured_ms)
    found = [end for group in groups.values() for end in ends(group)]
    assert {(end.kind, end.certainty.value) for end in found} == {(kind, certainty)}
    assert all(EXPIRED in (end.kind, *end.others) for end in found)


@pytest.mark.parametrize(("other_id", "kind"), [(False, EndKind.NO_RULE), (True, TOPIC)])
def test_a_topic_with_the_same_id_afterwards_was_not_deleted(other_id: bool, kind: EndKind, tmp_path: Path) -> None:
    log = Log(topic_id="A" * 21 + "Q").generation("g", 1, Client("m-1")).commit("g", {("orders", 0): 500})
    log.wait(MINUTE).tombstones("g", ("orders", 0)).wait(MINUTE)
    log.topic_id = "B" * 21 + "Q" if other_id else log.topic_id
    path = log.commit("g", {("orders", 0): 2}).write(tmp_path)
    (end,) = ends(group_histories([path], "4.1.1")["g"])
    assert end.kind is kind


def removed_and_back(directory: Path, leader_epoch: int) -> Path:
    """Groups a and b without members, which lose their offsets of ``orders`` at once and begin again, behind them."""
    log = Log()
    for group in "ab":
        log.generation(group, 1, Client(group)).commit(group, {("orders", 0): 5000}, leader_epoch=leader_epoch)
    log.wait(MINUTE)
    for group in "ab":
        log.generation(group, 2)
    log.wait(5 * MINUTE)
    for group in "ab":
        log.wait(1).tombstones(group, ("orders", 0), with_group=True)
    log.wait(MINUTE)
    for group in "ab":
        log.generation(group, 1, Client(group)).commit(group, {("orders", 0): 500}, leader_epoch=leader_epoch)
    return log.write(directory)


@pytest.mark.parametrize(("leader_epoch", "kinds"), [(0, (TOPIC, DELETED)), (7, (DELETED, TOPIC))])
def test_a_leader_epoch_that_goes_on_speaks_against_the_deletion_of_the_topic(
    leader_epoch: int, kinds: tuple[EndKind, ...], tmp_path: Path
) -> None:
    """Those of a topic that is made again begin at 0."""
    groups = group_histories([removed_and_back(tmp_path, leader_epoch)], "3.9.2", retention_ms=7 * DAY)
    assert {(end.kind, *end.others) for group in groups.values() for end in ends(group)} == {kinds}


@pytest.mark.parametrize(
    ("release", "together", "others"),
    [("3.9.2", False, (EndKind.OFFSET_DELETE,)), ("3.9.2", True, ()), ("2.3.1", False, ()), ("4.3.1", False, ())],
)
def test_a_scala_coordinator_removes_an_empty_group_with_its_last_offset(
    release: str, together: bool, others: tuple[EndKind, ...], tmp_path: Path
) -> None:
    """``--delete-offsets`` of all that a group has; one request is of one group, and releases before 2.4 have none."""
    names = ["g", "h"] if together else ["g"]
    log = Log()
    for group in names:
        log.generation(group, 1, Client(group)).commit(group, {("orders", 0): 500}).generation(group, 2)
    log.commit("another", {("orders", 1): 7}).wait(MINUTE)
    for group in names:
        log.tombstones(group, ("orders", 0), with_group=True)
    path = log.wait(HOUR).commit("another", {("orders", 1): 8}).write(tmp_path)
    found = ends(group_histories([path], release, retention_ms=7 * DAY)["g"])
    assert {(end.kind, end.others) for end in found} == {(DELETED, others)}


@pytest.mark.parametrize(("late_ms", "kind"), [(3 * MINUTE, EXPIRED), (60 * MINUTE, TOPIC), (-3 * MINUTE, TOPIC)])
def test_brokers_before_2_1_let_offsets_of_an_active_group_expire_which_newer_ones_keep(
    late_ms: int, kind: EndKind, tmp_path: Path
) -> None:
    """The log goes on under the newer ones."""
    log = Log(group_version=1, commit_version=1).generation("g", 1, Client("m-1")).commit("g", {("orders", 0): 500})
    log.wait(DAY + late_ms).tombstones("g", ("orders", 0))
    log.group_version, log.commit_version = 3, 3
    path = log.wait(DAY).generation("g", 2, Client("m-2")).commit("g", {("orders", 0): 2}).write(tmp_path)
    (end,) = ends(group_histories([path], "3.9.2")["g"])
    assert (end.kind, end.bug) == (kind, "KIP-211" if kind is EXPIRED else None)


def test_a_log_that_ends_within_a_sweep_has_not_decided(tmp_path: Path) -> None:
    """The tombstones of a are not written yet: 3.9 writes a batch for each group."""
    log = Log()
    for group in "abcd":
        log.generation(group, 1, Client(group, partitions=((group, 0),))).commit(group, {(group, 0): 5})
    log.wait(MINUTE)
    for group in "abcd":
        log.generation(group, 2).wait(1)
    log.wait(3 * DAY)
    for group in "bcd":
        log.wait(2).tombstones(group, (group, 0), with_group=True)
    path = log.write(tmp_path)
    groups = group_histories([path], "3.9.2").values()
    assert {(end.kind, end.certainty.value) for group in groups for end in ends(group)} == {(EXPIRED, "possible")}
    snapshot, profile = discover([str(path)]), profile_for_release("3.9.2")
    check(snapshot, profile)
    check_portions(snapshot, profile)
    # A minute later they would be there.
    log.wait(2 * MINUTE).commit("x", {("x", 0): 1})
    groups = group_histories([log.write(tmp_path / "later")], "3.9.2").values()
    assert EXPIRED not in {end.kind for group in groups for end in ends(group)}


@pytest.mark.parametrize("release", ["2.8.2", "3.9.2", "4.1.1"])
@pytest.mark.parametrize("is_open", [True, False])
def test_a_group_with_an_open_transaction_stays_when_its_offsets_expire(
    is_open: bool, release: str, tmp_path: Path
) -> None:
    """A sweep that takes the last offset of an Empty classic group deletes the group, else."""
    log = Log().generation("g", 1, Client("m-1")).commit("g", {("orders", 0): 5})
    log.commit("g", {("other", 0): 5}, producer_id=7)
    if not is_open:
        log.marker(ControlType.ABORT, 7)
    log.wait(MINUTE).generation("g", 2).wait(7 * DAY + 4 * MINUTE).tombstones("g", ("orders", 0))
    path = log.wait(DAY).commit("x", {("orders", 1): 1}).write(tmp_path)
    (end,) = ends(group_histories([path], release)["g"])
    assert (EXPIRED in (end.kind, *end.others)) is is_open


@pytest.mark.parametrize("what", ["has members", "commits", "has an expire timestamp", "may be in a transaction"])
def test_what_no_sweep_would_take_says_nothing_of_what_went(what: str, tmp_path: Path) -> None:
    log = Log()
    if what == "has members":
        log.generation("old", 1, Client("m-1"))
    log.commit_version = 1 if what == "has an expire timestamp" else 3
    is_pending = what == "may be in a transaction"
    log.commit("old", {("orders", 0): 5}, producer_id=7 if is_pending else -1)
    if is_pending:
        log.marker(ControlType.COMMIT, 7)
    log.commit_version = 3
    log.wait(5 * MINUTE).commit("a", {("payments", 0): 3}).wait(120 * MINUTE)
    log.tombstones("a", ("payments", 0), with_group=True).commit("x", {("other", 0): 1})
    if what == "commits":
        log.commit("old", {("orders", 0): 6})
    path = log.write(tmp_path)
    first, *_ = ends(group_histories([path], "4.1.1")["a"])
    assert EXPIRED in (first.kind, *first.others)
    check(discover([str(path)]), profile_for_release("4.1.1"))


def test_the_order_of_groups_makes_no_difference(tmp_path: Path) -> None:
    """A sweep that is certain of the first group speaks for the second, 25 ms later, and not for the third."""
    log, kept = Log(at=T0 - T0 % ONE_ACT_MS), ("kept", 1)
    end = log.at + 2 * DAY
    log.commit("c", {("c", 0): 0, kept: 0}).commit("b", {("b", 0): 0, kept: 0})
    # The value has its own expire timestamp.
    log.at, log.commit_version = end - DAY - 1000, 1
    log.commit("a", {("a", 0): 1})
    log.commit_version = 3
    for group, age in (("c", 85), ("b", 70)):
        log.at = end - age * MINUTE
        log.commit(group, {(group, 0): 1, kept: 1})
    log.at = end - MINUTE
    log.commit("c", {kept: 2}).commit("b", {kept: 2})
    for number, group in enumerate("abc"):
        log.at = end + number * ONE_ACT_MS
        log.tombstones(group, (group, 0))
    (partition,) = discover([str(log.write(tmp_path))]).partitions
    profile = profile_for_release("3.9.2")
    for order in permutations("abc"):
        deletions = Deletions()
        groups = read_history(partition, profile, groups=None, deletions=deletions, topic_names={}, damage=[]).groups
        Judge(profile, deletions).judge([groups[one] for one in order])
        found = {one: end for one in "abc" for end in ends(groups[one])}
        assert {end.kind for end in found.values()} == {EXPIRED}
        assert [found[one].certainty.value for one in "abc"] == ["certain", "likely", "possible"], order
